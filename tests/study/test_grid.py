"""The cells of the study: which, in what order, under what name on disk."""

import json
from dataclasses import replace

import pytest

from firma.data.dataset import load_dataset
from firma.errors import BadInput
from firma.settings import Hyper, Split
from firma.study import grid
from firma.study.grid import DATASETS, Cell, Choice, ablation_rows, cells, configuration, key

CELL = Cell("digits", "iid", "fedavg", "paper", 0, 5, 10)


def test_the_whole_study_is_four_by_seven_by_seven_by_two_by_seeds():
    assert len(cells(Choice(seeds=3))) == 4 * 7 * 7 * 2 * 3


def test_what_tells_most_comes_first():
    first = [cell.name for cell in cells(Choice(seeds=2))]
    assert first[:4] == [
        "digits/dir-0.1/fibfl++/published/0",
        "digits/dir-0.1/fibfl++/paper/0",
        "digits/dir-0.1/fedavg/published/0",
        "digits/dir-0.1/fedavg/paper/0",
    ]
    assert first.index("cifar10/iid/fibfl+/paper/0") < first.index("digits/dir-0.8/fibfl++/paper/0")
    assert first.index("cifar10/skew-3/fibfl+/paper/0") < first.index("digits/dir-0.1/fibfl++/paper/1")


def test_sizes_are_those_of_the_data_sets():
    digits = load_dataset("digits")
    size = DATASETS["digits"]
    assert (size.clients, size.rounds, size.samples) == (digits.clients, digits.rounds, len(digits.y_train))
    assert size.shape == digits.shape


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "mnist"}, {"scenario": "dir-0.1"}, {"method": "rdfl"}, {"preset": "published"}, {"seed": 1},
        {"clients": 4}, {"rounds": 9}, {"settings": {"rate": 0.5}}, {"settings": {"split_seed": 1}},
        {"method": "fedavg:optimiser=adam"},
    ],
)  # fmt: skip
def test_everything_that_decides_figures_is_in_the_key(change):
    assert key(replace(CELL, **change)) != key(CELL)


def test_the_key_is_of_the_configuration_not_of_the_words():
    assert key(Cell("digits", "iid", "fedavg", "paper", 0, 5, 10, {"rate": 0.01})) == key(CELL)
    assert key(Cell("digits", "iid", "fedavg", "paper", 0, 5, 10, {"lr": "0.010"})) == key(CELL)


def test_another_version_of_the_figures_is_another_key(monkeypatch):
    before = key(CELL)
    monkeypatch.setattr(grid, "FIGURES", grid.FIGURES + 1)
    assert key(CELL) != before


def test_the_key_is_stable_over_processes_and_releases():
    text = json.dumps(configuration(CELL), sort_keys=True)
    assert json.loads(text)["columns"]["topology"] == "star"
    # If this fails, every stored cell is run again. If defaults below have changed, raise FIGURES.
    assert key(CELL) == "8d144f420f90f6d40fea3199ed71c869087914a874349eeb4693ae6b9bd39168"


def test_defaults_that_stored_cells_rely_on():
    known = {
        "momentum": 0.9, "batch": 64, "epochs": 5, "head_epochs": 1, "extractor_epochs": 20, "rate": 0.01,
        "threshold": 0.35, "posterior": 0.5, "retention": 0.5, "retention_start": 0.4, "retention_end": 0.05,
        "warmup_rounds": None, "warmup_shares": "extractor", "hidden": 256, "embedding": 128, "initial": "shared",
        "ring_cost": "cosine",
    }  # fmt: skip
    assert known.items() <= Hyper().model_dump().items()
    dealt = {"split_seed": 42, "tests": "matched", "quota": "fair", "min_samples": 10}
    assert dealt.items() <= Split().model_dump().items()


def test_ablations_are_each_column_and_each_fix_alone():
    rows = ablation_rows()
    assert "fibfl++:order=given" in rows
    assert "fibfl+:retention=cosine,warmup=yes" in rows
    assert len(rows) == 8
    chosen = cells(Choice(datasets=["digits"], scenarios=["iid"], presets=["paper"], seeds=1, ablations=True))
    assert len(chosen) == 15
    assert len({key(cell) for cell in chosen}) == 15


def test_only_matches_part_or_pattern():
    assert {cell.method for cell in cells(Choice(only="/rdfl/"))} == {"rdfl"}
    assert len(cells(Choice(only="digits/*/fedavg/paper/0"))) == 7


@pytest.mark.parametrize(
    "choice",
    [
        Choice(datasets=["imagenet"]), Choice(scenarios=["weird"]), Choice(methods=["fedsgd"]),
        Choice(presets=["nice"]), Choice(only="nothing-like-this"), Choice(settings={"colour": 1}),
    ],
)  # fmt: skip
def test_mistakes_are_found_before_anything_runs(choice):
    with pytest.raises(BadInput):
        cells(choice)
