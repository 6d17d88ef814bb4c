"""What is committed is what the evidence says: the document, its figures, and the statistics that are shipped."""

import re
from importlib.resources import files
from pathlib import Path

from firma.paper.published import SHIPPED_METRICS
from firma.paper.report import DOCUMENT_FIGURES, document, paper_scope
from firma.sweep.result_table import result_tables, to_csv
from firma.sweep.store import read_results

ROOT = Path(__file__).parents[2]
AGAIN = "firma report evidence --markdown docs/reproduction.md --evidence src/firma/paper/evidence.csv"


def test_the_shipped_statistics_are_those_of_the_evidence():
    tables = result_tables(read_results(ROOT / "evidence"))
    assert (files("firma.paper") / "evidence.csv").read_text() == to_csv(tables, SHIPPED_METRICS), AGAIN


def test_the_document_is_what_the_evidence_says():
    text = (ROOT / "docs" / "reproduction.md").read_text()
    figures = {link: caption for caption, link in re.findall(r"!\[(.*)\]\((.*)\)", text)}
    assert [Path(link).stem for link in figures] == list(DOCUMENT_FIGURES)
    assert document(read_results(ROOT / "evidence"), paper_scope(), figures) == text, AGAIN


def test_every_figure_in_the_docs_is_shown_by_one_of_them():
    texts = "".join(path.read_text() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
    for path in (ROOT / "docs" / "figures").iterdir():
        assert f"figures/{path.name})" in texts, path.name
