"""What is committed is what the evidence says: the document, its figures, and the statistics that are shipped."""

import re
from importlib.resources import files
from pathlib import Path

from firma.paper.published import SHIPPED_METRICS
from firma.paper.report import paper_scope
from firma.paper.reproduction import CORRESPONDENCES, DOCUMENT_FIGURES, documents
from firma.sweep.result_table import result_tables, to_csv
from firma.sweep.store import read_results

ROOT = Path(__file__).parents[2]
AGAIN = "firma report evidence --markdown docs/reproduction.md --evidence src/firma/paper/evidence.csv"


def test_the_shipped_statistics_are_those_of_the_evidence():
    tables = result_tables(read_results(ROOT / "evidence"))
    assert (files("firma.paper") / "evidence.csv").read_text() == to_csv(tables, SHIPPED_METRICS), AGAIN


def test_the_documents_are_what_the_evidence_says():
    page = (ROOT / "docs" / "reproduction" / "correspondences.md").read_text()
    figures = {link.removeprefix("../"): caption for caption, link in re.findall(r"!\[(.*)\]\((.*)\)", page)}
    assert [Path(link).stem for link in figures] == list(DOCUMENT_FIGURES)
    for name, text in documents(read_results(ROOT / "evidence"), paper_scope(), figures).items():
        assert (ROOT / "docs" / name).read_text() == text, AGAIN


def test_the_first_page_is_two_screens():
    lines = (ROOT / "docs" / "reproduction.md").read_text().splitlines()
    assert len(lines) <= 100


def test_links_between_the_pages_lead_somewhere():
    for path in (ROOT / "docs" / "reproduction").glob("*.md"):
        for target, anchor in re.findall(r"\]\(([\w./-]*\.md)(?:#([^)]*))?\)", path.read_text()):
            found = (path.parent / target).read_text()
            titles = {_heading(line) for line in found.splitlines() if line.startswith("#")}
            assert not anchor or anchor in titles, (path.name, target, anchor)


def _heading(line):
    kept = "".join(sign for sign in line.lstrip("# ").lower() if sign.isalnum() or sign in " -_")
    return kept.replace(" ", "-")


def test_every_table_and_figure_of_the_paper_has_its_line():
    numbers = [shown.number for shown in CORRESPONDENCES]
    assert numbers == [f"{kind} {number}" for kind in ("Table", "Figure") for number in range(1, 15)]
    page = (ROOT / "docs" / "reproduction" / "correspondences.md").read_text()
    assert "not run yet" not in page


def test_every_figure_in_the_docs_is_shown_by_one_of_them():
    texts = "".join(path.read_text() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    for path in (ROOT / "docs" / "figures").iterdir():
        assert f"figures/{path.name})" in texts, path.name
