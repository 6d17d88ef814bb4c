"""The page of deviations says what the committed runs say, and its explanation of the split needs no run at all."""

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from firma.data.dataset import load_dataset
from firma.paper.published import published

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reproduction" / "deviations.md"
RUNS = ROOT / "benchmarks" / "recipes.jsonl"
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


def test_only_one_rule_gives_the_three_printed_ring_savings():
    printed = [published().savings["fashion-mnist", f"skew-{primary}"] for primary in (1, 2, 3)]
    rules = [
        rule
        for rule in (search().PUBLISHED, *search().SHARES)
        if [search().ring_saving(rule, primary, search().FASHION) for primary in (1, 2, 3)] == printed
    ]
    assert rules == ["smaller budget"]


def test_the_fifth_client_of_digits_has_as_many_samples_as_the_paper_says():
    recipe = next(each for each in search().RECIPES if each.name == "kept, budget")
    train, _ = search().rows_of(recipe, "skew-3")
    assert [len(rows) for rows in train] == [358, 358, 358, 283, 78]


def test_the_published_recipe_splits_as_the_published_preset():
    from firma.data.partition import deal
    from firma.settings import split_for

    recipe = search().Recipe("published", "")
    for scenario in search().ALL:
        train, test = search().rows_of(recipe, scenario)
        dealt = deal(load_dataset("digits"), scenario, 5, split_for("published", {}), 0)
        assert all(np.array_equal(*pair) for pair in zip(train, dealt.train, strict=True))
        assert all(np.array_equal(*pair) for pair in zip(test, dealt.test, strict=True))


@pytest.mark.slow
def test_a_run_is_repeated():
    line = next(each for each in search().read(RUNS) if each["recipe"] == "kept, budget")
    recipe = next(each for each in search().RECIPES if each.name == line["recipe"])
    again = search().trained(recipe, line["method"], line["scenario"], line["seed"])
    assert again["train"] == line["train"] and again["test"] == line["test"]
    # Other processors round differently: a client may err on another sample or two.
    assert np.allclose(again["history"][-1], line["history"][-1], atol=0.03)
