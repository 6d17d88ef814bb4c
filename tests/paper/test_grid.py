"""The paper's grid: which cells, and in what order."""

import pytest

from firma.errors import BadInput
from firma.paper.grid import DATASETS, Choice, ablation_rows, cells
from firma.sweep.cells import key


def test_the_whole_study_is_four_by_seven_by_seven_by_two_by_seeds():
    assert len(cells(Choice(seeds=3))) == len(DATASETS) * 7 * 7 * 2 * 3 == 1176


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
