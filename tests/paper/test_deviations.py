"""The page of deviations says what the committed runs say, and its explanation of the split needs no run at all."""

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from firma.data.dataset import load_dataset
from firma.data.partition import deal
from firma.methods import PAPER_METHODS
from firma.paper.grid import SCENARIOS
from firma.paper.published import published
from firma.settings import split_for
from firma.sweep.result_table import result_tables
from firma.sweep.store import read_results

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reproduction" / "deviations.md"
RUNS = ROOT / "benchmarks" / "recipes.jsonl"
PRIVATE_OR_ALONE = ("rdfl", "fedrep", "fibfl++")
AGAIN = "python benchmarks/recipes.py benchmarks/recipes.jsonl --page docs/reproduction/deviations.md"


@cache
def search():
    """The benchmark, as a module."""
    spec = importlib.util.spec_from_file_location("recipes_benchmark", ROOT / "benchmarks" / "recipes.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_file_holds_every_run_of_every_recipe_once_and_in_order():
    names = [search().name_of(line) for line in search().read(RUNS)]
    assert names == [(recipe.name, *rest) for recipe, *rest in search().cells(search().RECIPES)]


def test_the_tables_of_the_page_are_those_of_the_runs():
    found = search().tables(search().read(RUNS))
    page = PAGE.read_text()
    assert set(re.findall(r"<!-- table: (\w+) -->", page)) == set(found)
    assert page == search().filled(page, found), AGAIN


def test_the_counts_in_the_text_are_those_of_the_runs():
    before = search().fits(search().baseline())
    counted = search().count_deviating(before)
    cells = sum(not all(each.fits) for each in before)
    text = " ".join(PAGE.read_text().split())
    assert f"**{counted} of the 84 printed figures**, in {cells} of the 42 cells" in text
    after = search().counts_table(search().read(RUNS)).splitlines()[-1].split("|")[2].strip()
    assert f"{counted} to {after}" in text
    now = search().fits(search().preset())
    outside, places = search().count_deviating(now), sum(not all(each.fits) for each in now)
    assert f"**With them, {outside} of the 84 lie outside**, in {places} cells" in text
    assert f"which is the preset now, to {outside}" in text
    fedavg = next(each for each in now if (each.method, each.scenario) == ("fedavg", "skew-2"))
    assert fedavg.fits == (False, True)
    assert f"outside ({100 * fedavg.ours[0].mean:.1f} ± {100 * fedavg.ours[0].deviation:.1f})" in text


def test_only_one_rule_gives_the_three_printed_ring_savings():
    printed = [published().savings["fashion-mnist", f"skew-{primary}"] for primary in (1, 2, 3)]
    rules = [
        rule
        for rule in (search().BASE, *search().SHARES)
        if [search().ring_saving(rule, primary, search().FASHION) for primary in (1, 2, 3)] == printed
    ]
    assert rules == ["reduced"]


def test_the_fifth_client_of_digits_has_as_many_samples_as_the_paper_says():
    recipe = next(each for each in search().RECIPES if each.name == "kept, budget")
    train, _ = search().rows_of(recipe, "skew-3")
    assert [len(rows) for rows in train] == [358, 358, 358, 283, 78]


@pytest.mark.parametrize("quota", ["sequential", "reduced"])
def test_the_base_and_what_was_found_split_as_the_settings_of_that_name(quota):
    recipe = search().Recipe("", "", split=quota)
    for scenario in search().ALL:
        train, test = search().rows_of(recipe, scenario)
        dealt = deal(load_dataset("digits"), scenario, 5, split_for("published", {"quota": quota}), 0)
        assert all(np.array_equal(*pair) for pair in zip(train, dealt.train, strict=True))
        assert all(np.array_equal(*pair) for pair in zip(test, dealt.test, strict=True))


def test_the_base_is_every_run_of_the_text_and_the_preset_those_of_the_found_split():
    cells = {(method, scenario, seed) for method in search().METHODS for scenario in search().ALL for seed in range(5)}
    for runs in (search().baseline(), search().preset()):
        assert sorted((run["method"], run["scenario"], run["seed"]) for run in runs) == sorted(cells)
    sizes = [
        {tuple(run["train"]) for run in runs if run["scenario"] == "skew-3"}
        for runs in (search().baseline(), search().preset())
    ]
    assert sizes == [{(691, 490, 234)}, {(358, 358, 358, 283, 78)}]


def test_the_runs_of_the_preset_are_those_by_which_it_was_found():
    """The search ran FibFL, FibFL+ and FibFL++ with rows of its own, and the first two with another retention."""
    recipes = {
        (method, scenario): name
        for (method, scenario), name in search().FOUND.items()
        if name.startswith(("budget, ring", "fibfl, retention"))
    }
    found = {
        search().name_of(line)[1:]: line
        for line in search().read(RUNS)
        if recipes.get((line["method"], line["scenario"])) == line["recipe"]
    }
    ours = {search().name_of(line)[1:]: line for line in search().preset()}
    assert len(found) == 2 * 7 * 5 + 4
    for name, line in found.items():
        assert line["train"] == ours[name]["train"]
        assert np.allclose(line["history"], ours[name]["history"], atol=1e-5), name


@pytest.mark.slow
def test_a_run_is_repeated():
    line = next(each for each in search().read(RUNS) if each["recipe"] == "kept, budget")
    recipe = next(each for each in search().RECIPES if each.name == line["recipe"])
    again = search().trained(recipe, line["method"], line["scenario"], line["seed"])
    assert again["train"] == line["train"] and again["test"] == line["test"]
    # Other processors round differently: a client may err on another sample or two.
    assert np.allclose(again["history"][-1], line["history"][-1], atol=0.03)


def large_runs():
    """Accuracies and Gini coefficients of the published preset, by how inputs are scaled and by place."""
    return search()._large_runs()


def part(heading):
    """The text of the page below a heading."""
    return " ".join(PAGE.read_text().partition(heading)[2].partition("\n## ")[0].split())


def test_training_alone_tells_that_inputs_were_standardised():
    runs = {
        run["config"]["split"].get("standardise", "none"): run
        for run in search().read(ROOT / "evidence" / "cifar10-published.jsonl")
        if (run["config"]["scenario"], run["method"]) == ("iid", "rdfl")
    }
    first = [100 * np.mean(runs[how]["history"][0]) for how in ("none", "constants")]
    said = f"it is {first[0]:.1f} % after the first round, with the constants {first[1]:.1f} %"
    assert said in part("## The large data sets")
    plateaus = [runs[how]["metrics"]["plateau_std"] for how in ("none", "constants")]
    assert plateaus[1] <= 0.0002 < plateaus[0]


def test_what_is_said_of_fashion_mnist_and_cifar_10_is_what_was_run():
    text, runs = part("## The large data sets"), large_runs()["constants"]

    def farthest(method, but=(), datasets=("fashion-mnist", "cifar10")):
        places = [each for each in runs if each[0] in datasets and each[2] == method and each[:2] not in but]
        return max(abs(100 * search()._off(runs, each)) for each in places)

    scarce, odd = ("fashion-mnist", "dir-0.1"), ("cifar10", "skew-2")
    alone, central, heads = farthest("rdfl", [odd]), farthest("fedavg", [odd]), farthest("fedrep", [scarce, odd])
    assert f"within {alone:.1f}, {central:.1f} and {heads:.1f} points everywhere" in text
    assert f"({-100 * search()._off(runs, (*scarce, 'fedrep')):.1f} below)" in text
    below = [-100 * search()._off(runs, (*odd, each)) for each in ("fedavg", "fedrep", "rdfl", "fibfl++")]
    said = "FedAvg by {:.1f} points, FedRep by {:.1f}, training alone by {:.1f} and FibFL++ by {:.1f}."
    assert said.format(*below) in text
    assert f"elsewhere, within {farthest('fibfl++', [odd], ['cifar10']):.1f} points" in text
    run = next(
        run
        for run in search().read(ROOT / "evidence" / "cifar10-published.jsonl")
        if (run["config"]["scenario"], run["method"]) == ("skew-1", "fibfl++")
    )
    means = [100 * np.mean(row) for row in run["history"]]
    plateau = f"{np.mean(means[15:]):.1f} ± {100 * run['metrics']['plateau_std']:.1f}"
    assert f"Ours: {means[0]:.1f}, {means[4]:.1f}, {means[5]:.1f} and {plateau}." in text
    collapsed = [("fashion-mnist", each) for each in ("skew-1", "skew-2")]
    rest = farthest("fibfl++", [scarce, *collapsed], ["fashion-mnist"])
    assert f"Elsewhere it is within {rest:.1f} points" in text
    assert f"but for Dir 0.1 ({-100 * search()._off(runs, (*scarce, 'fibfl++')):.1f} below)" in text
    plus, small = ("fashion-mnist", "dir-0.5"), ("fashion-mnist", "mnist")
    most = max(farthest("fibfl", datasets=small), farthest("fibfl+", [plus], small))
    assert f"**FibFL and FibFL+** are within {most:.1f} points" in text
    assert f"({-100 * search()._off(runs, (*plus, 'fibfl+')):.1f} below)" in text


def test_what_fibfl_has_with_the_retention_that_was_found():
    found, runs = part("## What was found"), large_runs()["constants"]
    shown = [100 * runs["fashion-mnist", "iid", method]["mean_accuracy"] for method in ("fibfl", "fibfl+")]
    assert f"FibFL, which has {shown[0]:.1f} % with 0.7" in found
    assert f"IID Fashion-MNIST has {shown[1]:.1f} % with FibFL+" in found
    assert f"IID MNIST {100 * runs['mnist', 'iid', 'fibfl']['mean_accuracy']:.1f} % with FibFL" in found
    for place in (("fashion-mnist", "iid", "fibfl"), ("fashion-mnist", "iid", "fibfl+"), ("mnist", "iid", "fibfl")):
        assert abs(search()._off(runs, place)) < 0.002
    half = [
        run
        for run in search().read(ROOT / "evidence" / "half-retention" / "fashion-mnist-published.jsonl")
        if (run["config"]["scenario"], run["method"]) == ("iid", "fibfl+")
    ]
    assert f"(printed 81.3; {100 * half[0]['metrics']['mean_accuracy']:.1f} with 0.5)" in found


def test_what_two_epochs_do_is_what_was_run():
    text = part("## The large data sets")
    runs = {
        (run["method"], run["config"]["scenario"]): run
        for run in search().read(ROOT / "evidence" / "two-epochs" / "fashion-mnist-published.jsonl")
    }
    plus = [100 * runs["fibfl+", each]["metrics"]["mean_accuracy"] for each in ("iid", "dir-0.5", "skew-1")]
    assert (
        f"{plus[0]:.1f} % on IID data (printed 81.3), {plus[1]:.1f} at Dir 0.5 (69.5) and {plus[2]:.1f} at K = 1"
        in text
    )
    full = [100 * runs["fibfl++", each]["metrics"]["mean_accuracy"] for each in ("skew-1", "skew-2")]
    assert f"({full[0]:.1f} at K = 1, {full[1]:.1f} at K = 2)" in text
    assert f"{100 * np.mean(runs['fibfl+', 'iid']['history'][0]):.1f} of {plus[0]:.1f} %" in text


def test_what_is_said_of_mnist_is_what_was_run():
    ours, printed = result_tables(read_results(ROOT / "evidence"))["published standardise=none"], published()
    text = " ".join(PAGE.read_text().partition("## The large data sets")[2].split())

    def above(method, *scenarios, metric="mean_accuracy"):
        cases = [("mnist", each) for each in scenarios]
        return [100 * (ours.get(case, method, metric).mean - printed.get(case, method, metric).mean) for case in cases]

    others = [each for each in SCENARIOS if each != "dir-0.1"]
    assert f"within {max(map(abs, above('rdfl', *SCENARIOS))):.1f} points everywhere" in text
    assert f"FedAvg is within {max(map(abs, above('fedavg', *SCENARIOS))):.1f} points" in text
    scarce = above("fedrep", "dir-0.1")[0]
    assert f"FedRep within {max(map(abs, above('fedrep', *others))):.1f} but for Dir 0.1 ({scarce:.1f} above)" in text
    assert f"**FibFL++** is within {max(map(abs, above('fibfl++', *others))):.1f} points but for Dir 0.1" in text
    assert f"where ours is {above('fibfl++', 'dir-0.1')[0]:.1f} points above" in text

    def coefficients(table):
        found = [table.get(("mnist", "skew-3"), method, "gini").mean for method in PRIVATE_OR_ALONE]
        return [f"{each:.3f}" for each in found]

    (*own, full), (*theirs, printed_full) = coefficients(ours), coefficients(printed)
    assert f"are {own[0]} and {own[1]}, printed {theirs[0]} and {theirs[1]}" in text
    assert f"its Gini coefficient is {full}, printed {printed_full}" in text
    shares = [
        ours.get(("mnist", "skew-2"), method, "gini").mean / printed.get(("mnist", "skew-2"), method, "gini").mean
        for method in PAPER_METHODS
        if method in ours.methods(("mnist", "skew-2")) and method != "local"
    ]
    assert len(shares) == 4 and all(0.3 < each < 0.67 for each in shares)
