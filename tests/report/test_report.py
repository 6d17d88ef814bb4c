"""firma report: the page, the tables, the figures and the documents it writes."""

import pytest
from made_up import made_up_result, made_up_study

from firma.paper.correspondences import DOCUMENT_FIGURES
from firma.paper.judging import higher
from firma.report.drawing import COLOURS
from firma.report.figures import radar_scores
from firma.sweep.cells import Cell
from firma.sweep.result_table import from_csv, result_tables
from firma.sweep.store import read_results, save


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return made_up_study(tmp_path_factory.mktemp("report") / "study", ["digits"], ["iid", "dir-0.1", "skew-1"])


@pytest.fixture
def report(command):
    return lambda *words: command("report", *words)


def test_page_and_figures_are_beside_the_results(report, results):
    code, out, _ = report(results)
    assert code == 0
    assert "report.html" in out
    assert (results / "figures" / "radar-paper.svg").is_file()
    text = (results / "report.html").read_text()
    for part in ("<table", "firma run --dataset digits", "Claims", "Configuration", "torch", "(the paper says all"):
        assert part in text
    assert "data:image/svg" not in text
    assert text.index("The answer") < text.index("Who wins where") < text.index("Claims</h2>") < text.index("Runs</h2>")


@pytest.mark.parametrize("form", ["text", "csv", "markdown", "latex"])
def test_tables_are_printed_in_four_forms(report, results, form):
    code, out, err = report(results, "--print", form, "--table", "mean_accuracy-digits-paper")
    assert code == 0
    assert err == ""
    assert "fibfl++" in out


def test_unknown_forms_tables_and_folders_are_refused(report, results, tmp_path):
    for words in ((results, "--print", "word"), (results, "--print", "csv", "--table", "nope"), (tmp_path / "no",)):
        code, out, err = report(*words)
        assert code == 2
        assert out == ""
        assert err.count("\n") == 1


def test_figures_are_written_twice(report, results, tmp_path):
    code, _, _ = report(results, "--figures", tmp_path)
    assert code == 0
    names = {path.name for path in tmp_path.iterdir()}
    for name in ("design-space", "ring", "convergence-digits-paper", "rankings-digits-published", "speed-digits-paper",
                 "savings-paper", "fairness-paper", "radar-published"):  # fmt: skip
        assert {f"{name}.png", f"{name}.svg"} <= names
    assert (tmp_path / "ring.png").read_bytes().startswith(b"\x89PNG")
    assert COLOURS["fibfl++"].lower() in (tmp_path / "convergence-digits-paper.svg").read_text()


def test_a_sweep_of_other_data_is_reported_without_the_paper(report, tmp_path):
    for method in ("local", "fedavg"):
        for seed in range(2):
            cell = Cell("data/mine.csv", "dir-0.3", method, "paper", seed, 4, 3, {"rate": 0.1})
            save(tmp_path, cell, made_up_result(cell, 0.7), {"saving_percent": 12.0, "order": [0, 1, 2, 3]})
    code, _, err = report(tmp_path)
    assert (code, err) == (0, "")
    text = (tmp_path / "report.html").read_text()
    assert "Claims" not in text
    assert "in brackets" not in text.lower()
    assert "firma run --dataset data/mine.csv" in text
    assert "--set rate=0.1 --clients 4 --rounds 3" in text
    assert "published" not in text
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert names == {"curves", "clients", "traffic"}


def test_a_folder_that_cannot_be_written_is_one_sentence(report, results, tmp_path):
    (tmp_path / "file").write_text("")
    for option in ("--out", "--figures", "--markdown", "--evidence"):
        code, _, err = report(results, option, tmp_path / "file" / "x")
        assert code == 2
        assert err.count("\n") == 1


def test_the_same_results_give_the_same_page(report, tmp_path):
    results = made_up_study(tmp_path / "study", ["digits"], ["iid", "dir-0.1"], ["paper"])
    report(results, "--out", tmp_path / "one.html")
    report(results, "--out", tmp_path / "two.html")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_the_document_holds_only_what_was_run(report, results, tmp_path):
    code, _, _ = report(results, "--markdown", tmp_path / "reproduction.md")
    pages = {path.name: path.read_text() for path in (tmp_path / "reproduction").iterdir()}
    assert code == 0
    assert set(pages) == {
        "claims.md", "correspondences.md", "differences.md", "figures.md", "published.md", "paper.md", "runs.md",
    }  # fmt: skip
    assert "| published | mnist | the paper's | 0 | 49 | — | — |" in pages["runs.md"]
    assert "| paper | digits | the paper's | 21 | 49 | 2 | — |" in pages["runs.md"]
    body = result_tables(read_results(results))["paper"]
    judged = [higher("fibfl++", "fedavg")(body, ("digits", scenario)) for scenario in ("iid", "dir-0.1", "skew-1")]
    counts = "{}, {} and {}".format(*(judged.count(each) for each in (True, False, "too close")))
    assert f"too close to call: {counts} against fedavg (mean)" in pages["paper.md"]
    assert "In short: of the paper's" in (tmp_path / "reproduction.md").read_text()
    drawn = {path.stem for path in (tmp_path / "figures").iterdir()}
    of_digits = {f"{name}-digits-published" for name in ("convergence", "rankings", "speed")}
    over_all = {f"{name}-published" for name in ("savings", "fairness", "radar")}
    assert drawn == {"design-space", "ring"} | of_digits | over_all
    assert drawn <= set(DOCUMENT_FIGURES)
    assert all(f"](../figures/{name}.png)" in pages["figures.md"] for name in drawn)
    assert "## Figure 5, mnist: accuracy over rounds\n\nNot run yet." in pages["figures.md"]
    assert "[published](figures.md#figure-6-digits-accuracy-over-rounds)" in pages["correspondences.md"]
    assert not (tmp_path / "report.html").exists()


def test_evidence_is_written_as_it_is_read(report, results, tmp_path):
    report(results, "--evidence", tmp_path / "evidence.csv")
    tables = from_csv((tmp_path / "evidence.csv").read_text())
    ours = result_tables(read_results(results))
    assert list(tables) == list(ours)
    one, other = (each["paper"].get(("digits", "iid"), "fedavg") for each in (tables, ours))
    assert one.mean == pytest.approx(other.mean, rel=1e-5)


def test_radar_scores_lie_between_0_and_1(results):
    scores = radar_scores(result_tables(read_results(results))["paper"])
    assert len(scores) == 7
    assert all(0 <= value <= 1 for values in scores.values() for value in values)
    assert scores["local"][5] == 1.0
