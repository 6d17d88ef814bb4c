"""What is committed is what the evidence says: the document, its figures, and the statistics that are shipped."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from firma.paper.claims import CLAIMS
from firma.paper.correspondences import CORRESPONDENCES, DOCUMENT_FIGURES
from firma.paper.differences import Difference, closeness, differences_page
from firma.paper.grid import DATASETS
from firma.paper.judging import ONE_SEED
from firma.paper.published import SHIPPED_METRICS, published
from firma.paper.report import paper_scope
from firma.paper.reproduction import documents, in_short, seeds_told
from firma.statistics import Statistic
from firma.sweep.result_table import ResultTable, result_tables, to_csv
from firma.sweep.store import read_results

ROOT = Path(__file__).parents[2]
AGAIN = "firma report evidence --markdown docs/reproduction.md --evidence src/firma/paper/evidence.csv"


def test_the_shipped_statistics_are_those_of_the_evidence():
    tables = result_tables(read_results(ROOT / "evidence"))
    assert (files("firma.paper") / "evidence.csv").read_text() == to_csv(tables, SHIPPED_METRICS), AGAIN


def test_the_documents_are_what_the_evidence_says():
    page = (ROOT / "docs" / "reproduction" / "figures.md").read_text()
    figures = {link.removeprefix("../"): caption for caption, link in re.findall(r"!\[(.*)\]\((.*)\)", page)}
    assert [Path(link).stem for link in figures] == list(DOCUMENT_FIGURES)
    for name, text in documents(read_results(ROOT / "evidence"), paper_scope(), figures).items():
        assert (ROOT / "docs" / name).read_text() == text, AGAIN


def test_the_first_page_is_two_screens():
    """A hundred lines of 120 characters, but for tables, and about nine hundred words, links not counted."""
    text = (ROOT / "docs" / "reproduction.md").read_text()
    lines = text.splitlines()
    assert len(lines) <= 100
    assert all(len(line) <= 120 for line in lines if not line.startswith(("|", "![")))
    read = re.sub(r"\]\([^)]*\)", "]", text).replace("|", " ").split()
    assert len([word for word in read if re.search(r"\w", word)]) <= 1000


def test_the_first_page_opens_with_the_answer():
    """Each sentence is said only of what was run."""
    assert len(in_short({})) == 2
    own = [claim.check(published()).verdict for claim in CLAIMS if claim.origin == "paper"]
    assert in_short({})[0].startswith(f"In short: of the paper's {len(own)} claims, ")
    assert f"bear out {own.count('holds')} and contradict {own.count('fails')}; " in in_short({})[0]
    iid, dirichlet = (("digits", each, "fedrep", "mean_accuracy") for each in ("iid", "dir-0.1"))
    for lost, said in ((0.1, "private heads do not collapse"), (0.3, "private heads collapse on digits")):
        table = ResultTable("recommended", {iid: Statistic(0.9, 0.01, 5), dirichlet: Statistic(0.9 - lost, 0.01, 5)})
        (heads,) = in_short({"recommended": table})[1:-1]
        assert said in heads
        assert f"in points {-100 * lost:+.1f} on digits, where the paper prints -72.5" in heads
        assert seeds_told({"recommended": table}).startswith("Seeds: digits 5;")


def test_questions_and_readings_of_ours_are_not_counted_as_the_papers():
    page = (ROOT / "docs" / "reproduction" / "claims.md").read_text()
    told = re.search(r"own tables, and by computation: (\d+) hold, (\d+) fail, (\d+) are undecided", page)
    assert sum(map(int, told.groups())) == len([claim for claim in CLAIMS if claim.origin == "paper"]) < len(CLAIMS)


def test_every_claim_has_its_place_and_its_verdicts():
    page = (ROOT / "docs" / "reproduction" / "claims.md").read_text()
    parts = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(parts) == [claim.name for claim in CLAIMS]
    for claim in CLAIMS:
        text = " ".join(parts[claim.name].split())
        assert f"**{claim.asked}** ({claim.where})." in text
        assert text.count("- By computation: ") == claim.computed
        assert text.count("- The paper's own tables: ") == (not claim.computed)
        assert f"- Checked: {claim.how}" in text
    assert all(len(line) <= 120 for line in page.splitlines())


def test_the_differences_show_every_printed_figure():
    for ours in (ResultTable("published"), result_tables(read_results(ROOT / "evidence"))["published"]):
        page = differences_page(ours, published())
        assert page.count(" → ") - 1 == 336  # one in the text
        assert len(re.findall(r"^## ", page, re.MULTILINE)) == 2 * len(DATASETS)
    assert "| fedavg | 96.94 → — | 97.08 → — |" in differences_page(ResultTable("nothing"), published())
    assert "0 were rerun: nothing was run by the recipe yet." in closeness(ResultTable("nothing"), published())


def test_a_printed_figure_is_excluded_by_the_interval_of_one_more_run():
    wide = Difference(Statistic(0.85, 0.056, 5), 0.94)
    assert wide.half == pytest.approx(2.776 * 0.056 * 1.2**0.5, rel=1e-3)  # t of four degrees
    assert wide.excluded is False
    assert Difference(Statistic(0.85, 0.01, 5), 0.94).excluded is True
    for seeds in (1, 2):
        few = Statistic(0.85, 0.001 if seeds > 1 else None, seeds)
        assert Difference(few, 0.85 + 2 * ONE_SEED).excluded is True
        assert Difference(few, 0.85 + ONE_SEED / 2).excluded is False
        assert Difference(few, 0.02, "gini").excluded is None


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
    assert all(f"| {number} | " in page for number in numbers)
    assert all(f"## Table {number}, " in page for number in (1, 3, 4, 14))
    assert "| fibfl++ | yes | no | yes | yes | no | yes |" in page  # a server averages as published, warm-up included
    page = (ROOT / "docs" / "reproduction" / "figures.md").read_text()
    titles = [line.removeprefix("## ").partition(",")[0] for line in page.splitlines() if line.startswith("## ")]
    assert titles == [*(f"Figure {number}" for number in range(1, 15)), "Beyond the paper"]


def test_every_figure_in_the_docs_is_shown_by_one_of_them():
    texts = "".join(path.read_text() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    for path in (ROOT / "docs" / "figures").iterdir():
        assert f"figures/{path.name})" in texts, path.name
