"""firma report: the page, the tables, the figures and the documents it writes."""

import pytest
from made_up import made_up_study

from firma.report.curves import COLOURS
from firma.report.summary_pictures import radar_scores
from firma.study.evidence import from_rows, gathered
from firma.study.store import read_study


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return made_up_study(tmp_path_factory.mktemp("report") / "study", ["digits"], ["iid", "dir-0.1", "skew-1"])


@pytest.fixture
def report(command):
    return lambda *words: command("report", *words)


def test_the_page_is_one_file_beside_the_results(report, results):
    code, out, _ = report(results)
    assert code == 0
    assert "report.html" in out
    text = (results / "report.html").read_text()
    for part in ("<table", "data:image/svg+xml", "firma run --dataset digits", "Claims", "Configuration", "torch"):
        assert part in text


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
    code, _, _ = report(results, "--figures", tmp_path, "--markdown", tmp_path.parent / "page.md")
    assert code == 0
    assert f"]({tmp_path.name}/convergence-digits-paper.png)" in (tmp_path.parent / "page.md").read_text()
    names = {path.name for path in tmp_path.iterdir()}
    for name in ("design-space", "ring", "convergence-digits-paper", "rankings-digits-published", "speed-digits-paper",
                 "savings-paper", "fairness-paper", "radar-published"):  # fmt: skip
        assert {f"{name}.png", f"{name}.svg"} <= names
    assert (tmp_path / "ring.png").read_bytes().startswith(b"\x89PNG")
    assert COLOURS["fibfl++"].lower() in (tmp_path / "convergence-digits-paper.svg").read_text()


def test_the_same_results_give_the_same_page(report, tmp_path):
    results = made_up_study(tmp_path / "study", ["digits"], ["iid", "dir-0.1"], ["paper"])
    report(results, "--out", tmp_path / "one.html")
    report(results, "--out", tmp_path / "two.html")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_the_document_holds_only_what_was_run(report, results, tmp_path):
    code, _, _ = report(results, "--markdown", tmp_path / "reproduction.md")
    text = (tmp_path / "reproduction.md").read_text()
    assert code == 0
    assert "| published | mnist | 0 | 49 | — |" in text
    assert "## Runs: paper" in text
    body = gathered(read_study(results))["paper"]
    gains = [
        100 * (body.get(("digits", scenario), "fibfl++").mean - body.get(("digits", scenario), "fedavg").mean)
        for scenario in ("iid", "dir-0.1", "skew-1")
    ]
    won = sum(gain > 0 for gain in gains)
    assert f"- paper: `fibfl++` against `fedavg`, mean accuracy: above in {won} of 3, from {min(gains):+.1f}" in text
    assert "On the paper's own tables" in text
    assert not (tmp_path / "report.html").exists()


def test_evidence_is_written_as_it_is_read(report, results, tmp_path):
    import csv

    report(results, "--evidence", tmp_path / "evidence.csv")
    with (tmp_path / "evidence.csv").open() as file:
        bodies = from_rows(csv.DictReader(file))
    ours = gathered(read_study(results))
    assert list(bodies) == list(ours)
    one, other = (each["paper"].get(("digits", "iid"), "fedavg") for each in (bodies, ours))
    assert one.mean == pytest.approx(other.mean, rel=1e-5)


def test_radar_scores_lie_between_0_and_1(results):
    scores = radar_scores(gathered(read_study(results))["paper"])
    assert len(scores) == 7
    assert all(0 <= value <= 1 for values in scores.values() for value in values)
    assert scores["local"][5] == 1.0
