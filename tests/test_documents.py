"""Every block of every document is executed by a test, or says why not; every link leads somewhere.

A comment before a block says what becomes of it:

    <!-- file: NAME -->             it is written to a file
    <!-- tried by tests/FILE -->    that test executes it, perhaps on a smaller scale
    <!-- with mnist -->             it is run where that data set is in the cache
    <!-- figures vary -->           it is run; numbers with a point may be others than shown
    <!-- not run: REASON -->        it cannot be run here

Pages in EXECUTED have a test of their own, which runs them from top to bottom. All other blocks are run here.
"""

import re
import shlex
import tomllib
from functools import cache
from pathlib import Path

import pytest

from firma.cli import COMMANDS
from firma.cli import command as command_of
from firma.data.cache import cache_folder, present
from firma.data.catalogue import PUBLIC
from tests.documents import ROOT, all_blocks, indented_commands, write_file
from tests.own_models import modules_of

PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "src/**/*.md", "benchmarks/*.md", "deploy/*.md")
    for path in ROOT.glob(pattern)
)
EXECUTED = {
    "CONTRIBUTING.md": "test_contributing.py",
    "README.md": "test_readme.py",
    "docs/after-training.md": "test_docs_after_training.py",
    "docs/flower.md": "flower/test_docs.py",
    "docs/graphs.md": "test_docs_graphs.py",
    "docs/sweeps.md": "test_docs_sweeps.py",
    "docs/tutorial-operator.md": "peer/test_tutorial.py",
    "docs/your-data.md": "test_your_data.py",
    "docs/your-method.md": "test_docs_your_method.py",
    "docs/your-model.md": "test_your_model.py",
}
# Pages whose indented commands show host names of other organisations or take long; they are parsed, not run.
INDENTED = {"docs/deploy.md", "docs/graphs.md", "docs/robustness.md", "docs/flower.md"}


def run_here(page):
    """The blocks of a page that no other test runs."""
    return [
        block
        for block in all_blocks(page)
        if (block.executable or block.note.startswith("file: ")) and not block.note.startswith(("not run: ", "tried"))
    ]


HERE = [page for page in PAGES if page not in EXECUTED and run_here(page)]


@pytest.mark.parametrize("page", HERE)
def test_the_blocks_of_a_page_run(page, command, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with modules_of(tmp_path):
        monkeypatch.syspath_prepend(tmp_path)
        for block in run_here(page):
            if block.note.startswith("file: "):
                write_file(block, tmp_path)
            elif block.language == "python":
                exec(compile(block.code, page, "exec"), {"__name__": "__main__"})
                assert capsys.readouterr().out, block.code
            elif not block.note.startswith("with ") or present(
                PUBLIC[block.note.removeprefix("with ")], cache_folder()
            ):
                for line, shown in block.typed:
                    program, *words = shlex.split(line)
                    assert program == "firma", f"{page}: {line}: only firma is run here; mark the block"
                    code, out, err = command(*words)
                    assert code == 0, f"{page}: {line}: {err}"
                    masked = block.note == "figures vary"
                    assert _words(shown, masked) in _words(out, masked), f"{page}: {line} prints {out}"


def _words(text, masked=False):
    return " ".join((re.sub(r"[0-9]\.[0-9]+", "#", text) if masked else text).split())


def test_pages_with_a_test_of_their_own_have_one():
    for page, test in EXECUTED.items():
        text = (ROOT / "tests" / test).read_text()
        assert Path(page).name in text, f"{test} does not read {page}"


@pytest.mark.parametrize("page", PAGES)
def test_notes_name_tests_that_exist_and_reasons(page):
    for block in all_blocks(page):
        if block.note.startswith("tried by "):
            (name,) = re.findall(r"^tried by (tests/[\w/]+\.py)", block.note)
            assert Path(page).name in (ROOT / name).read_text(), f"{name} does not read {page}"
        if block.note.startswith("not run"):
            assert len(block.note.removeprefix("not run:").split()) >= 3, f"{page}: {block.note}"
        if block.language == "toml":
            tomllib.loads(block.code)
    if page not in INDENTED:
        assert not indented_commands(page), f"{page}: put commands into a fenced block"


def commands_of(page):
    """Every `firma` command of a page, whether it is run or not."""
    typed = [line for block in all_blocks(page) if block.executable for line, _ in block.typed]
    lines = [*indented_commands(page), *typed]
    return [line for line in lines if re.match(r"firma (?!-)", line) and "…" not in line and "..." not in line]


@cache
def _options(words):
    found = command_of(words[0])
    for word in words[1:]:
        found = found.commands[word]
    return {option for each in found.params for option in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)])
def test_commands_and_options_exist(page):
    for line in commands_of(page):
        words = shlex.split(line.partition(" | ")[0].partition(" > ")[0].partition(" && ")[0])[1:]
        assert words[0] in COMMANDS, f"{page}: {line}"
        name = tuple(words[:2]) if hasattr(command_of(words[0]), "commands") else (words[0],)
        unknown = {word.partition("=")[0] for word in words if word.startswith("--")} - _options(name)
        assert not unknown, f"{page}: {line}: no such option {unknown}"


def _anchors(text):
    """The names that git hosts, and the site, give to headings; a second one of the same name ends in -1."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    found = set()
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "]", title).lower()).strip().replace(" ", "-")
        number = 0
        while (name if not number else f"{name}-{number}") in found:
            number += 1
        found.add(name if not number else f"{name}-{number}")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "", text)
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]*))?\)", text):
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page}: {target}"
        if anchor and path.suffix == ".md":
            assert anchor in _anchors(path.read_text()), f"{page}: {target}#{anchor}"
