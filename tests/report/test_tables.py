"""One table, four renderings; tables of a study with holes in it."""

import csv
from io import StringIO

import pytest
from made_up import made_up_study

from firma.paper.grid import Choice, ablation_rows, cells
from firma.paper.report import ablation, paper_scope, paper_tables
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
from firma.report.tables import command, formula_bytes
from firma.statistics import Statistic
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
    assert " of 2 against fedavg (mean)" in duels.note


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


def test_gains_have_the_standard_error_of_a_difference_where_there_are_seeds():
    case = ("digits", "dir-0.1")
    statistics = {
        (*case, "fibfl+", "mean_accuracy"): Statistic(0.90, 0.03, 9),
        (*case, "fibfl++", "mean_accuracy"): Statistic(0.95, 0.04, 16),
        (*case, "fibfl", "mean_accuracy"): Statistic(0.89),
    }
    row = ablation(ResultTable("ours", statistics), paper_scope()).rows[0]
    assert [entry.text.split(" (")[0] for entry in row[4:]] == ["+1.0", "+5.0 ± 1.4", "+6.0"]  # 0.01 and 0.01: 0.0141
