"""One table, four renderings; tables of a study with holes in it."""

import csv
from io import StringIO

import numpy as np
import pytest
from made_up import made_up_study

from firma.paper.grid import Choice, ablation_rows, cells
from firma.paper.judging import higher
from firma.paper.report import ablation, paper_scope, paper_tables, parts
from firma.report.table import (
    MISSING,
    NOTHING,
    Entry,
    Table,
    as_csv,
    as_latex,
    as_markdown,
    as_text,
    mark_best,
)
from firma.report.tables import by_scenario, command, coverage, duels, formula_bytes
from firma.statistics import Statistic, statistic
from firma.sweep.result_table import ResultTable, result_tables
from firma.sweep.runner import run_cells
from firma.sweep.store import SweepResults, read_cells, writing

TABLE = Table(
    "name", "A title, 100%", ("method", "x_1"),
    ((Entry("a|b"), Entry("1.0 ± 0.5 (0.9)", 1.0, True, 0.5, 0.9)), (Entry("<c>"), NOTHING)), "Note.", "paper",
)  # fmt: skip


def test_text_is_aligned_and_stars_the_best():
    lines = as_text(TABLE).splitlines()
    assert lines[0] == "A title, 100%"
    assert lines[3].endswith("1.0 ± 0.5 (0.9)*")
    assert lines[4].endswith(MISSING)
    assert len({len(line) for line in lines[1:5]}) == 1


def test_wide_words_are_stacked():
    table = Table("w", "W", ("one", "two"), ((Entry("x" * 20), Entry("y" * 200)),))
    assert "    two: yyy" in as_text(table)


def test_csv_has_the_numbers_apart():
    rows = list(csv.reader(StringIO(as_csv(TABLE))))
    assert rows == [["method", "x_1", "x_1 deviation", "x_1 paper"], ["a|b", "1", "0.5", "0.9"], ["<c>", "", "", ""]]


def test_markdown_and_latex_escape():
    assert "| a\\|b | **1.0 ± 0.5 (0.9)** |" in as_markdown(TABLE)
    latex = as_latex(TABLE)
    assert r"A title, 100\%" in latex
    assert r"x\_1" in latex
    assert r"\textbf{1.0 $\pm$ 0.5 (0.9)}" in latex


def test_nobody_is_best_alone():
    assert [entry.best for entry in mark_best([Entry("a", 1.0), NOTHING])] == [False, False]
    assert [entry.best for entry in mark_best([Entry("a", 1.0), Entry("b", 2.0)], highest=False)] == [True, False]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "results"
    cells = read_cells(made_up_study(folder, ["digits"], ["iid", "dir-0.1"], ["paper"], 2, ablation_rows()))
    return result_tables(SweepResults(cells))


def test_tables_show_ours_beside_the_papers_and_dashes_for_the_rest(study):
    tables = {table.name: table for table in paper_tables(study, paper_scope())}
    accuracy = tables["mean_accuracy-digits-paper"]
    assert accuracy.columns == ("method", "iid", "dir-0.1")
    texts = {row[0].text: row[2].text for row in accuracy.rows}
    assert texts["fedavg"].endswith("(94.0)")
    assert "±" in texts["fedavg"]
    assert texts["local"].endswith(f"({MISSING})")
    ablation = tables["ablation-paper"]
    assert [entry.text for entry in ablation.rows[1]][:2] == ["mnist", f"{MISSING} (59.2)"]
    fixes = tables["fixes-paper"]
    assert len(fixes.rows) == 8
    assert any("fix A alone" in row[0].text for row in fixes.rows)
    assert "claims" in tables
    for part in ("worst_client", "worst_fifth", "gini", "plateau_std", "rounds_to_half_of_final"):
        assert f"{part}-digits-paper" in tables
    assert "communication-paper" in tables


def test_duels_count_what_was_won_and_leave_the_rest_open(study):
    tables = {table.name: table for table in paper_tables(study, paper_scope())}
    duels = tables["duels-paper"]
    assert len(duels.rows) == 7
    rows = {(row[0].text, row[1].text): row for row in duels.rows}
    body = study["paper"]
    full, other = (body.get(("digits", "dir-0.1"), name).mean for name in ("fibfl++", "fedavg"))
    assert rows["digits", "dir-0.1"][3].value == pytest.approx(100 * (full - other))
    assert rows["digits", "skew-1"][3].text == MISSING
    judged = [higher("fibfl++", "fedavg")(body, ("digits", scenario)) for scenario in ("iid", "dir-0.1")]
    counts = "{}, {} and {}".format(*(judged.count(each) for each in (True, False, "too close")))
    assert f"clearly above, clearly below and too close to call: {counts} against fedavg (mean)" in duels.note


def test_an_empty_study_makes_tables_of_dashes():
    assert [table.name for table in paper_tables({}, paper_scope())] == ["claims"]


def test_the_formula_is_what_is_counted():
    import firma

    for method in ("fedavg", "fedrep", "rdfl", "fibfl"):
        result = firma.run("digits", "iid", method, rounds=1, settings={"extractor_epochs": 1, "epochs": 1})
        counted = result.metrics["bytes_per_round"]
        assert counted == pytest.approx(formula_bytes(method, "digits", 5), rel=1e-4)
    assert formula_bytes("local", "digits", 5) == 0


def test_the_command_repeats_the_cell(tmp_path):
    choice = Choice(["digits"], ["iid"], ["fibfl++:order=given"], ["published"], 1, 1, settings={"Ee": 1, "rate": 0.1})
    with writing(tmp_path):
        list(run_cells(cells(choice), tmp_path, lambda _: None, lambda *_: None))
    (stored,) = read_cells(tmp_path)
    assert command(stored) == (
        "firma run --dataset digits --scenario iid --method fibfl++:order=given --preset published --seed 0 "
        "--set rate=0.1 --set extractor_epochs=1 --rounds 1"
    )


CASE = ("digits", "dir-0.1")


def seeded(metric="mean_accuracy", cases=(CASE,), **values):
    """A table of one metric from values by seed; the first seed of a list is 0, and a mapping names them."""
    by_seed = {
        (*case, name.replace("_", "+"), metric): dict(each if isinstance(each, dict) else enumerate(each))
        for case in cases
        for name, each in values.items()
    }
    return ResultTable("ours", {place: statistic(list(each.values())) for place, each in by_seed.items()},
                       by_seed=by_seed)  # fmt: skip


def test_gains_have_the_interval_of_a_paired_difference_where_there_are_seeds():
    full = np.array([0.93, 0.96, 0.92])
    table = seeded(fibfl_=full - [0.05, 0.06, 0.04], fibfl__=full, fibfl=[0.85])
    found = ablation(table, paper_scope())
    row = found.rows[0]
    assert [entry.text.split(" (")[0] for entry in row[4:]] == ["+3.0", "+5.0 ± 2.5", "+8.0"]
    assert [entry.best for entry in row[4:]] == [True, True, True]
    assert row[5].text.split(" (")[0] == f"+5.0 ± {100 * statistic([0.05, 0.06, 0.04]).half():.1f}"
    assert found.columns[4:] == ("Δ gate", "Δ fixes (order, passes, retention)", "Δ both")
    assert "though all three fixes are in it" in found.note
    assert "± is half of their 95 % interval" in found.note


def test_a_part_that_changes_nothing_has_no_gain_whatever_seeds_the_other_has_besides():
    """Seeds 0 to 2 of a row that is the same as its base, whose seeds 3 and 4 are worse."""
    table = seeded(fibfl__=[0.97, 0.95, 0.96, 0.90, 0.91], **{"fibfl__:order=given": [0.97, 0.95, 0.96]})
    found = parts(table)
    (row,) = [row for row in found.rows if row[0].text == "without: fibfl++:order=given"]
    assert [entry.text for entry in row] == ["without: fibfl++:order=given", "fibfl++", "3", "+0.0 ± 0.0"]
    assert not row[3].best
    assert "a negative figure in a row 'without' means that the part helps" in found.note
    assert all(row[2].text == MISSING for row in found.rows if "gate=no" in row[0].text)


def test_duels_count_what_is_clear_only():
    """Of three leads, one of half a point, one of two, and one whose seeds disagree."""
    shares = {"iid": ([0.905], [0.9]), "dir-0.1": ([0.92], [0.9]), "skew-1": ([0.99, 0.9, 0.95], [0.95, 0.92, 0.93])}
    tables = [seeded(cases=[("digits", name)], fibfl__=one, fedavg=other) for name, (one, other) in shares.items()]
    table = ResultTable(
        "ours", {place: each for one in tables for place, each in one.statistics.items()},
        by_seed={place: each for one in tables for place, each in one.by_seed.items()},
    )  # fmt: skip
    found = duels(table, paper_scope(), "fibfl++", ["fedavg"])
    assert "too close to call: 1, 0 and 2 against fedavg (mean)" in found.note
    assert [row[3].best for row in found.rows if row[3].value is not None] == [False, True, False]


def test_the_best_of_a_column_is_that_of_the_seeds_that_all_share():
    table = seeded(fedavg=[0.9, 0.3], fedrep=[0.8])
    found = by_scenario(table, None, "digits", "mean_accuracy", "accuracy", "{:.1f}", 100)
    assert {row[0].text: row[1].text for row in found.rows if row[1].best} == {"fedavg": "60.0 ± 42.4"}
    assert found.title == "digits, accuracy (ours, 1 to 2 seeds)"
    assert found.note.startswith("Mean ± standard deviation over the seeds of a method. Bold: the best over the seeds")
    apart = seeded(fedavg={0: 0.9}, fedrep={1: 0.8})
    note = by_scenario(apart, None, "digits", "mean_accuracy", "accuracy", "{:.1f}", 100).note
    assert "over all seeds in dir-0.1, where no seed is known to be shared" in note


def test_what_was_run_has_every_method_and_every_unusual_number_of_seeds():
    cases = [("digits", scenario) for scenario in ("iid", "dir-0.1", "skew-1")]
    table = seeded(cases=cases, fedavg=[0.9], fedrep=[0.9], frame=[0.9, 0.8], **{"fibfl__:gate=no": [0.9]})
    more = {("digits", "iid", "fedavg", "mean_accuracy"): Statistic(0.9, 0.1, 3),
            ("digits", "iid", "frame", "mean_accuracy"): Statistic(0.9)}  # fmt: skip
    table = ResultTable("ours", {**table.statistics, **more})
    rows = [[entry.text for entry in row] for row in coverage({"ours": table}, paper_scope()).rows]
    assert [row[2:] for row in rows if row[1] == "digits"] == [
        ["the paper's", "6", "49", "1", "3: fedavg (iid)"],
        ["frame", "3", "7", "2", "1: frame (iid)"],
        ["1 with columns changed", "3", "7", "1", MISSING],
    ]
