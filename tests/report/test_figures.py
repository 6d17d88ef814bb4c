"""Figures compare methods over the seeds that they share."""

import pytest
from made_up import made_up_result

from firma.report.curves import convergence, speed
from firma.report.figures import fairness, radar_scores, rankings
from firma.report.tables import Scope
from firma.sweep.cells import Cell
from firma.sweep.result_table import table_of
from firma.sweep.store import StoredCell

SCENARIOS = ("iid", "dir-0.1", "skew-1")


def cells(seeds):
    """Made-up cells of digits; `seeds` by method. Every further seed is a tenth more accurate."""
    for scenario in SCENARIOS:
        for method, count in seeds.items():
            for seed in range(count):
                cell = Cell("digits", scenario, method, "paper", seed, 4, 12)
                yield StoredCell("", made_up_result(cell, 0.5 + 0.1 * seed), {})


@pytest.fixture(scope="module")
def uneven():
    """fedavg with three seeds, local with one."""
    return list(cells({"fedavg": 3, "local": 1}))


@pytest.fixture(scope="module")
def even():
    """Both with seed 0."""
    return list(cells({"fedavg": 1, "local": 1}))


def values(found, metric):
    return {each.result.metrics[metric] for each in found if each.result.method == "fedavg"}


def test_rankings_and_speed(uneven, even):
    scope = Scope(["digits"], SCENARIOS)
    drawn = [
        [[bar.get_width() for bar in axes.patches] for axes in rankings(table_of("paper", found), scope, "digits").axes]
        for found in (uneven, even)
    ]
    assert drawn[0] == drawn[1] != []
    drawn = [
        [
            [bar.get_height() for bar in axes.patches]
            for axes in speed(table_of("paper", found), "digits", SCENARIOS).axes
        ]
        for found in (uneven, even)
    ]
    assert drawn[0] == drawn[1]


def test_fairness_and_radar(uneven, even):
    tables = [table_of("paper", found) for found in (uneven, even)]
    points = [
        {(*line.get_xdata(), *line.get_ydata()) for line in fairness(table).axes[0].lines if len(line.get_xdata())}
        for table in tables
    ]
    assert points[0] == points[1]
    accuracies = values(even, "mean_accuracy")
    assert accuracies <= {point[0] for point in points[0]}
    assert radar_scores(tables[0]) == radar_scores(tables[1])


def test_radar_leaves_out_a_method_that_was_run_in_few_cases():
    everywhere = list(cells({"fedavg": 1, "fedrep": 1}))
    here = [each for each in cells({"local": 1}) if each.scenario == "iid"]
    scores = radar_scores(table_of("paper", everywhere + here))
    assert list(scores) == ["fedavg", "fedrep"]
    assert scores == radar_scores(table_of("paper", everywhere))


def test_convergence(uneven, even):
    lines = [
        [list(line.get_ydata()) for axes in convergence(found, SCENARIOS, "").axes for line in axes.lines]
        for found in (uneven, even)
    ]
    assert lines[0] == lines[1]
    assert len(lines[0]) == 2 * len(SCENARIOS)


def test_without_a_shared_seed_each_method_has_its_own():
    one, other = list(cells({"fedavg": 3})), list(cells({"local": 1}))
    alone = [each for each in one if each.result.seed > 0]
    lines = [axes.lines for axes in convergence([*alone, *other], SCENARIOS, "").axes]
    assert [len(each) for each in lines[:3]] == [2, 2, 2]
