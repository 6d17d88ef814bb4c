"""Every promise of the threat model cites the tests that hold it, and every test that a document cites exists."""

import ast
import json
import re
from functools import cache

import pytest

from tests.documents import ROOT
from tests.test_documents import PAGES

PEER = ROOT / "tests" / "peer"
_CITED = re.compile(r"`((?:\.\./|tests/)?(?:[\w]+/)*test_\w+\.py)::(test_\w+)`")
_FILES = re.compile(r"`((?:\.\./|tests/)?(?:[\w]+/)*test_\w+\.py)(?:::test_\w+)?`")


def place(name):
    """The file of a citation: from the top of the repository, or from tests/peer."""
    return ROOT / name if name.startswith("tests/") else PEER / name


@cache
def defined(path):
    """The tests that a file defines; read, not imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {each.name for each in tree.body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")}


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_cited_tests_exist(page):
    for name, test in _CITED.findall((ROOT / page).read_text(encoding="utf-8")):
        assert place(name).exists(), f"{page}: {name}"
        assert test in defined(place(name)), f"{page}: {name} has no {test}"


def rows(page, column):
    """The rows of those tables of a page that have a column of this name, as lists of cells."""
    found, inside = [], False
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if not line.startswith("|"):
            inside = False
        elif column in cells:
            inside = True
        elif inside and not set(line) <= set("|- "):
            found.append(cells)
    return found


def test_every_promise_of_the_threat_model_cites_a_test():
    """To the function: a file alone could lose the test without anybody noticing."""
    promises = rows("docs/threat-model.md", "tested in `tests/peer/`")
    assert len(promises) > 40
    for what, *_, cited in promises:
        assert _CITED.search(cited), f"{what}: cites no test"
        assert len(_FILES.findall(cited)) == len(_CITED.findall(cited)), f"{what}: cites a file without its test"


def test_the_page_of_attacks_shows_what_was_measured():
    """Its tables are those of benchmarks/attacks.jsonl; every attack was measured, and what is not kept is said."""
    from benchmarks.attacks.__main__ import ATTACKS, lies_table, table

    page = (ROOT / "docs/attacks.md").read_text(encoding="utf-8")
    text = (ROOT / "benchmarks/attacks.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    assert {line["name"] for line in lines} == {attack.name for attack in ATTACKS}
    assert table(lines) in page
    assert lies_table(lines) in page
    short = page.partition("## What falls short")[2]
    for line in lines:
        assert line["kept"] or f"**{line['name']}" in short, f"{line['name']} is not as promised, and not said"
