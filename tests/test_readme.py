"""What the README shows, and what was found, is what the package says and does."""

import json
import re
import shlex
from collections import defaultdict
from functools import cache
from pathlib import Path
from statistics import fmean, stdev

import pytest

import firma
from firma.cli.methods import markdown_list, markdown_table
from firma.paper.claims import CLAIMS
from firma.paper.grid import CASES
from firma.paper.judging import higher
from firma.paper.lead import MEASURES, gains
from firma.paper.published import published, shipped
from firma.statistics import is_clear, statistic
from firma.sweep.result_table import result_tables
from firma.sweep.store import read_results

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FINDINGS = (ROOT / "docs" / "findings.md").read_text()
RIVALS = ("fedavg", "fedrep", "local", "rdfl", "fibfl++")
SCENARIOS = [scenario for dataset, scenario in CASES if dataset == "digits"]
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_table_is_rendered_from_the_methods():
    page = (ROOT / "docs" / "methods.md").read_text()
    for part in (markdown_table(), markdown_list()):
        assert part in page, "print it with: firma methods --markdown"


def test_it_is_short():
    assert len(README.splitlines()) <= 150
    assert max(len(line) for line in README.splitlines() if not line.startswith("|")) <= 120


def test_make_run_prints_what_is_shown(command, monkeypatch, tmp_path):
    """The command of the Makefile: the same words and traffic, and accuracies as near as another machine's are."""
    (line,) = re.findall(r"^\t\$\(BIN\)/firma (run .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shown = README.partition("$ make run\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = command(*shlex.split(line))
    assert code == 0
    number = re.compile(r"[0-9]\.[0-9]+")
    assert number.sub("#", out) == number.sub("#", shown)
    for ours, theirs in zip(number.findall(out), number.findall(shown), strict=True):
        assert float(ours) == pytest.approx(float(theirs), abs=0.03)


def test_the_result_is_that_of_the_evidence():
    part = README.partition("## Why a ring")[2].partition("\n## ")[0]
    said = " ".join(part.split())
    table = evidence()["recommended"]
    for other, won, lost in (
        ("fedavg", "clearly more accurate than `fedavg` in {} of {} cases", "clearly below it in {}"),
        ("local", "than training alone in {} of {},", "and below in {}"),
    ):
        both = [case for case in CASES if table.get(case, "fibfl++") and table.get(case, other)]
        judged = [higher("fibfl++", other)(table, case) for case in both]
        assert won.format(judged.count(True), len(both)) in said
        assert lost.format(judged.count(False)) in said
    constant = scores()[("cifar10", "iid"), "fedavg", "before"][0]
    assert f"With a constant learning rate `fedavg` has {100 * constant:.1f} at `iid`" in said
    methods = ("local", "fedavg", "fedrep", "fibfl++", "frame")
    rows = re.findall(r"^\| `([\w.-]+)`, [^|]*\|(.*)\|$", part, re.MULTILINE)
    assert [scenario for scenario, _ in rows] == ["dir-0.1", "skew-1", "iid"]
    shared = {len(table.shared_seeds(("cifar10", scenario), methods)) for scenario, _ in rows}
    assert shared == {1} and "CIFAR-10, 10 clients, one seed" in part
    for scenario, cells in rows:
        together = table.side_by_side(("cifar10", scenario), methods)
        found = [100 * together[method].mean for method in methods]
        assert cells.split("|") == [f" {mean:.1f} " for mean in found], scenario
        if scenario == "dir-0.1":
            assert f"by {found[3] - found[1]:.1f} points on CIFAR-10 at `dir-0.1`" in said
    sent = [table.get(("cifar10", "iid"), method, "bytes_per_round").mean for method in ("frame", "fedavg")]
    assert sent[0] <= sent[1]
    sent = [table.get(("cifar10", "iid"), method, "bytes_per_round").mean for method in ("fibfl++", "fedavg")]
    assert f"{sent[0] / sent[1]:.1f} times the traffic of `fedavg` with ten clients" in said


def test_frame_has_lost_nowhere_yet():
    """In every case, against whatever was run there, with the numbers of today or those from before; by seed."""
    gained = gains_of_frame()
    assert {case for case, *_ in gained} == set(CASES)
    for each, gain in gained.items():
        assert not is_below(gain), each
    means = {case: fmean(found.values()) for (case, method, _), found in scores().items() if method == "frame"}
    best = {case: min(gain.mean for (where, *_), gain in gained.items() if where == case) for case in CASES}
    assert min(best.values()) > -0.5  # the bar: at most half a point below the best of them
    table = evidence()["recommended"]
    large = [case for case in CASES if case[0] != "digits"]
    compared = [best[case] for case in large if all(table.get(case, rival) for rival in ("fedrep", "rdfl", "fibfl++"))]
    said = " ".join(FINDINGS.split())
    told = (
        "in the {} cases that `fedrep`, `rdfl` and `fibfl++` were all run in, it is {:+.2f} to {:+.2f} points from the "
        "best rival, above it in {}, and by more than a point in {}"
    )
    assert told.format(
        len(compared), min(compared), max(compared), sum(each > 0 for each in compared),
        sum(each > 1 for each in compared),
    ) in said  # fmt: skip
    behind = sorted((each for each in gained if each[0][0] == "digits"), key=lambda each: gained[each].mean)
    for case, rival, numbers in behind[:3]:
        gain = gained[case, rival, numbers]
        word = {"today": "today's", "before": "earlier"}[numbers]
        assert f"`{rival}` at `{case[1]}` ({gain.mean:+.2f} ± {gain.half():.2f}, {word})" in said
    for dataset, scenarios in (("cifar10", ("dir-0.1", "skew-1", "iid")), ("mnist", ("iid", "dir-0.1", "skew-1"))):
        for scenario in scenarios:
            assert f"{100 * means[dataset, scenario]:.1f}" in said
    for method in (*RIVALS, "frame"):
        mean = 100 * fmean(table.get(("digits", each), method).mean for each in SCENARIOS)
        name = "training alone" if method == "local" else f"`{method}`"
        assert f"{name} {mean:.1f}" in said


def test_where_frame_is_clearly_below_a_rival_by_other_measures():
    table = evidence()["recommended"]
    _, worst, gini = (
        {each: gain for each, gain in gains(table, measure).items() if gain.mean < 0 and measure.clear(gain)}
        for measure in MEASURES
    )
    cases = [(("fashion-mnist", "dir-0.8"), "fedrep"), (("fashion-mnist", "dir-0.1"), "local")]
    assert set(worst) == set(cases)
    by_fedrep, by_local = (100 * worst[each].mean for each in cases)
    said = " ".join(FINDINGS.split())
    assert f"in two cases of Fashion-MNIST: {by_fedrep:.1f} against `fedrep` at `dir-0.8`," in said
    assert f", {by_local:.1f} against training alone at `dir-0.1`" in said
    uneven = (("cifar10", "dir-0.8"), "fedavg")
    assert list(gini) == [uneven]
    by_fedavg = [table.get(uneven[0], method, "gini").mean for method in ("frame", "fedavg")]
    above = [100 * gains(table, measure)[uneven].mean for measure in MEASURES[:2]]
    assert "on CIFAR-10 at `dir-0.8` ({:.3f}, and {:.3f})".format(*by_fedavg) in said
    assert "its mean is {:.1f} points above, its worst client {:.1f}".format(*above) in said


def test_how_many_cases_were_run_with_the_numbers_of_today():
    table, said = shipped()["recommended"], " ".join(FINDINGS.split())
    run = {method: sum(table.get(case, method) is not None for case in CASES) for method in RIVALS}
    assert "all 28 cases were run with `frame`, `fedavg`, `fedrep`, `rdfl`, `fibfl++` and training alone" in said
    assert {run[method] for method in RIVALS} == {28}
    nowhere = "clearly below none of `fedavg`, `fedrep`, `rdfl`, `fibfl++` and training alone"
    assert nowhere in said and nowhere in " ".join(README.split())


def scores():
    """Accuracy by seed of each case, method and set of numbers: today's, or those with a constant rate."""
    found = defaultdict(dict)
    for numbers, folder in (("today", "evidence"), ("before", "evidence/constant-rate")):
        for path in (ROOT / folder).glob("*-recommended.jsonl"):
            for cell in map(json.loads, path.read_text().splitlines()):
                case = (cell["config"]["dataset"], cell["config"]["scenario"])
                found[case, cell["method"], numbers][cell["seed"]] = cell["metrics"]["mean_accuracy"]
    return found


def gains_of_frame():
    """Points of frame over each rival with each set of numbers, over the seeds that both were run with."""
    found = scores()
    every = {
        (case, rival, numbers): differences(found[case, "frame", "today"], each)
        for (case, rival, numbers), each in found.items()
        if rival in RIVALS
    }
    return {each: gain for each, gain in every.items() if gain is not None}


def differences(ours, theirs):
    """Mean and deviation of the differences in points over common seeds; None if there are none."""
    common = sorted({*ours} & {*theirs})
    return statistic([100 * (ours[seed] - theirs[seed]) for seed in common]) if common else None


def is_below(gain):
    """Whether a gain in points is clearly below zero, by the rule for claims."""
    return is_clear(gain, 1.0) and gain.mean < 0


def test_any_number_of_seeds_can_be_judged():
    assert differences({0: 0.9}, {1: 0.8}) is None
    assert not is_below(differences({0: 0.900, 1: 0.9}, {0: 0.905}))  # one common seed, half a point
    assert is_below(differences({0: 0.90, 1: 0.9}, {0: 0.92, 1: 0.905, 2: 0.1}))  # two: 1.25 points
    assert not is_below(differences(*({seed: 0.9 + step for seed, step in enumerate(steps)}
                                      for steps in ((0, 0, 0), (0.03, -0.02, 0.04)))))  # fmt: skip
    assert is_below(differences({0: 0.9, 1: 0.8, 2: 0.7}, {0: 0.901, 1: 0.801, 2: 0.7011}))


def test_what_the_chosen_numbers_change_is_what_was_run():
    page, found = (ROOT / "docs" / "methods.md").read_text(), scores()
    cases = [(dataset, each) for dataset in ("cifar10", "mnist") for each in ("dir-0.1", "skew-1", "iid")]
    columns = [[case] for case in cases] + [[("digits", each) for each in SCENARIOS]]
    for method in ("fedavg", "fedrep", "rdfl", "fibfl++"):
        cells = [
            "{:.1f} ({:.1f})".format(
                *(100 * fmean(fmean(found[case, method, numbers].values()) for case in column)
                  for numbers in ("today", "before"))
            )
            for column in columns
        ]  # fmt: skip
        assert f"| `{method}` | {' | '.join(cells)} |" in page


def test_what_each_part_of_frame_brings_is_what_was_run():
    page, found = (ROOT / "docs" / "methods.md").read_text(), defaultdict(dict)
    for cell in map(json.loads, (ROOT / "evidence/frame-parts/digits-recommended.jsonl").read_text().splitlines()):
        settings = tuple(sorted(cell["config"]["settings"].items()))
        found[cell["method"], settings][cell["config"]["scenario"], cell["seed"]] = cell["metrics"]["mean_accuracy"]
    usual = found.pop(("frame", ()))
    assert len(found) == 8
    for changed in found.values():
        points = {each: 100 * (changed[each] - usual[each]) for each in usual}
        by_seed = [fmean(points[scenario, seed] for scenario in SCENARIOS) for seed in range(5)]
        if any(by_seed):
            half = 2.776 * stdev(by_seed) / 5**0.5  # t of four degrees
            there = [fmean(points[scenario, seed] for seed in range(5)) for scenario in ("dir-0.1", "iid")]
            shown = " | ".join("0.00" if abs(each) < 0.005 else f"{each:.2f}" for each in there)
            assert f"| {fmean(by_seed):.2f} ± {half:.2f} | {shown} |" in page


def test_what_each_part_of_frame_brings_on_cifar_10_is_what_was_run():
    page, found = " ".join((ROOT / "docs" / "methods.md").read_text().split()), defaultdict(dict)
    for cell in map(json.loads, (ROOT / "evidence/frame-parts/cifar10-recommended.jsonl").read_text().splitlines()):
        settings = tuple(sorted(cell["config"]["settings"].items()))
        found[cell["method"], settings][cell["config"]["scenario"]] = 100 * cell["metrics"]["mean_accuracy"]
    usual = found.pop(("frame", ()))
    there = ("dir-0.1", "skew-1", "iid")
    assert "{:.1f}, {:.1f} and {:.1f} %".format(*(usual[each] for each in there)) in page
    assert len(found) == 8
    for changed in found.values():
        assert f"| {' | '.join(f'{changed[each] - usual[each]:.2f}' for each in there)} |" in page


def test_what_happens_as_the_federation_grows():
    part = FINDINGS.partition("## As the federation grows")[2].partition("\n## ")[0]
    found = {}
    for name in ("evidence/clients/mnist-recommended.jsonl", "evidence/mnist-recommended.jsonl"):
        for cell in map(json.loads, (ROOT / name).read_text().splitlines()):
            asked = cell["configuration"]["clients"]
            if cell["seed"] > 0:
                continue  # the table is of one seed
            found[cell["config"]["scenario"], asked, cell["method"]] = cell["metrics"], cell["config"]["clients"]
    rows = re.findall(r"^\| `([\w.-]+)`, (\d+) \|(.*)\|$", part, re.MULTILINE)
    assert [(scenario, int(clients)) for scenario, clients, _ in rows][:3] == [("dir-0.1", n) for n in (10, 50, 200)]
    for scenario, clients, cells in rows:
        for method, text in zip(
            ("local", "fedavg", "fedrep", "rdfl", "fibfl++", "frame"), cells.split("|"), strict=True
        ):
            metrics, _ = found[scenario, int(clients), method]
            assert text == f" {100 * metrics['mean_accuracy']:.1f} ({100 * metrics['worst_fifth']:.1f}) "
    metrics = {method: found["dir-0.1", 200, method][0] for method in ("fibfl++", "fedavg")}
    ratio = metrics["fibfl++"]["bytes_per_round"] / metrics["fedavg"]["bytes_per_round"]
    assert f"{ratio:.0f} times with two hundred" in " ".join(README.split())
    for clients in (10, 50, 200):
        sent, there = found["dir-0.1", clients, "fibfl++"]
        assert f"{sent['bytes_per_round'] / there / 1e6:.0f} MB with {clients}" in " ".join(part.split())


def listed(cases):
    """Scenarios as a text lists them."""
    *first, last = (f"`{scenario}`" for _, scenario in cases)
    return f"{', '.join(first)} and {last}" if first else last


@cache
def evidence():
    """Tables of all runs, with the values of single seeds."""
    return result_tables(read_results(ROOT / "evidence"))


@pytest.mark.parametrize("code", BLOCKS)
def test_python_examples_run(code, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_what_we_found_is_what_the_evidence_says():
    found = " ".join(FINDINGS.partition("## What we found")[2].partition("\n## ")[0].split())
    tables = evidence()
    table = tables["recommended"]

    def gained(other):
        weights = {"fibfl++": 1.0, other: -1.0}
        found = {case: table.combined(case, weights) for case in CASES}
        return {case: 100 * gain.mean for case, gain in found.items() if gain is not None}

    fedavg, local, fedrep, rdfl = (gained(other) for other in ("fedavg", "local", "fedrep", "rdfl"))
    assert f"than `fedavg` in {sum(gain > 0 for gain in fedavg.values())} of {len(fedavg)} cases" in found
    assert f"by {max(fedavg.values()):.1f} points" in found
    assert f"than training alone in {sum(gain > 0 for gain in local.values())} of {len(local)}." in found
    assert f"of the {len(fedrep)} cases `fibfl++` is" in found
    assert f"is above it in {sum(gain > 0 for gain in fedrep.values())};" in found
    assert f"(CIFAR-10: {min(fedavg.values()):.1f} points)" in found
    assert f"(digits at `dir-0.1`: {min(local.values()):.1f} points)" in found
    lost = [case for case in fedrep if higher("fibfl++", "fedrep")(table, case) is False]
    assert {dataset for dataset, _ in lost} == {"cifar10"}
    for other, cases, said in (
        ("fedavg", fedavg, "{} won, {} lost and {} too close to call against `fedavg`"),
        ("local", local, "{}, {} and {} against training alone"),
        (
            "fedrep",
            fedrep,
            f"beyond noise {{}} are won, {{}} lost (CIFAR-10 at {listed(lost)}) and {{}} too close to call",
        ),
        ("rdfl", rdfl, "Against `rdfl`, the plain ring, {} are won, {} lost and {} too close to call"),
    ):
        judged = [higher("fibfl++", other)(table, case) for case in cases]
        assert said.format(*(judged.count(each) for each in (True, False, "too close"))) in found
    assert min(fedavg, key=fedavg.get) == ("cifar10", "iid")
    assert min(local, key=local.get) == ("digits", "dir-0.1")
    collapsed = 100 * tables["published"].get(("digits", "dir-0.1"), "fedrep").mean
    assert f"has {collapsed:.1f} % as published" in found
    for dataset, clients in (("digits", "five clients"), ("mnist", "ten")):
        sent = [table.get((dataset, "iid"), method, "bytes_per_round").mean for method in ("fibfl++", "fedavg")]
        assert re.search(rf"{sent[0] / sent[1]:.1f} times [^,.]*with {clients}", found)
    asked = [claim for claim in CLAIMS if claim.origin == "paper"]
    verdicts = [claim.check(published()).verdict for claim in asked]
    counts = [verdicts.count(verdict) for verdict in ("holds", "fails", "undecided")]
    assert f"Of {len(asked)} claims of the paper, {counts[0]} hold" in found
    assert "{} fail and {} cannot be decided".format(*counts[1:]) in found
    ours, printed = tables["published"].savings, published().savings
    same = sum(f"{ours[case]:.1f}" == f"{saving:.1f}" for case, saving in printed.items())
    assert f"{same} of the {len(printed)} that it prints" in found


def test_private_heads_do_not_collapse_when_tests_match():
    stated = float(re.search(r"and ([0-9.]+) % once clients", FINDINGS)[1])
    runs = [
        firma.run("digits", "dir-0.1", "fedrep", preset="published", settings={"tests": "matched"}, seed=seed)
        for seed in range(5)
    ]
    assert 100 * sum(run.metrics["mean_accuracy"] for run in runs) / 5 == pytest.approx(stated, abs=1)
