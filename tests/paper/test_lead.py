"""The leading method case by case, against differences that are computed here from the lines of the evidence."""

import json
from pathlib import Path
from statistics import fmean, stdev

import pytest

from firma.paper.lead import LEAD, MEASURES, gains, lead_page
from firma.statistics import Statistic
from firma.sweep.result_table import by_label, table_of
from firma.sweep.store import read_cells

EVIDENCE = Path(__file__).parents[2] / "evidence"
T_OF_9 = 2.262  # 97.5 % quantile of Student's t with nine degrees of freedom


@pytest.fixture(scope="module")
def cells():
    return by_label(read_cells(EVIDENCE))["recommended"]


@pytest.mark.parametrize(("measure", "sign"), list(zip(MEASURES, (1, 1, -1), strict=True)))
def test_differences_are_paired_by_seed(cells, measure, sign):
    found = gains(table_of("recommended", cells), measure)
    lines = [json.loads(line) for line in (EVIDENCE / "digits-recommended.jsonl").read_text().splitlines()]
    by_seed = {
        method: {
            line["seed"]: line["metrics"][measure.name]
            for line in lines
            if (line["method"], line["config"]["scenario"]) == (method, "dir-0.1")
        }
        for method in (LEAD, "local")
    }
    differences = [sign * (by_seed[LEAD][seed] - by_seed["local"][seed]) for seed in range(10)]
    gain = found[("digits", "dir-0.1"), "local"]
    assert gain.mean == pytest.approx(fmean(differences))
    assert gain.interval()[1] - gain.mean == pytest.approx(T_OF_9 * stdev(differences) / 10**0.5, rel=1e-3)


def test_what_is_clear():
    accuracy, _, gini = MEASURES
    for measure in (accuracy, gini):
        assert measure.clear(Statistic(0.0101))
        assert not measure.clear(Statistic(-0.0099))  # one seed: less than a point
        assert not measure.clear(Statistic(-0.0099, 0.00001, 2))
        assert measure.clear(Statistic(0.005, 0.002, 10))
        assert measure.clear(Statistic(-0.005, 0.002, 10))
        assert not measure.clear(Statistic(0.001, 0.002, 10))  # ± 0.0014


def test_a_difference_over_fewer_seeds_says_so(cells):
    """Three seeds of a rival beside ten of the lead: their number stands behind the difference."""
    few = [cell for cell in cells if cell.result.method != "rdfl" or cell.result.seed in (3, 4)]
    (row,) = [line for line in lead_page(few).splitlines() if line.startswith("| digits iid | 10 | 97.7 ")]
    assert row.count("(2 seeds)") == 1
    assert "over shared seeds" in lead_page(few)


def test_the_page_counts_what_its_table_shows(cells):
    page = lead_page(cells).partition("## Accuracy of the worst client")[0]
    head, *rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("|")]
    column = [name.strip() for name in head].index("over local")
    shown = [row[column].strip() for row in rows[1:]]
    clear = [text for text in shown if text.startswith("**")]
    better = sum(text.startswith("**+") for text in clear)
    line = next(line for line in page.splitlines() if line.startswith("- against `local`"))
    assert f"{len(shown)} cases: {better} clearly better, {len(clear) - better} clearly worse" in line
    assert f"{len(shown) - len(clear)} too close to call" in line
