"""docs/graphs.md: its commands run, its spectra and its outputs are what the package computes."""

import math

import pytest

from documents import ROOT, blocks, write_file
from firma.methods import METHODS
from firma.settings import Hyper
from firma.topologies import COMPARED, topology_report

TEXT = (ROOT / "docs/graphs.md").read_text()
COMMANDS = [words for block in blocks("docs/graphs.md") if block.note == "run" for words in block.commands]


@pytest.fixture
def files(tmp_path, monkeypatch):
    for block in blocks("docs/graphs.md"):
        if block.note.startswith("file: "):
            write_file(block, tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[1:])[:90])
def test_commands_run_and_print_what_the_page_shows(files, command, words):
    del files
    code, out, err = command(*words[1:])
    assert (code, err) == (0, "")
    if words[1] == "topology":
        figures = [line.split() for line in out.splitlines() if any(character.isdigit() for character in line)]
        shown = [line.split() for line in TEXT.splitlines()]
        assert figures
        assert all(line in shown for line in figures), out
    if "--audit" in words:
        assert " ".join(out.split()[out.split().index("audit") :]) in " ".join(TEXT.split())


def test_the_spectra_are_computed():
    table = TEXT.partition("<!-- spectra -->\n")[2].partition("\n\n")[0].splitlines()
    sizes = [int(cell.strip().removeprefix("N = ")) for cell in table[0].split("|")[2:-2]]
    assert sizes == [8, 10, 16, 50, 100, 1000]
    stated = {line.split("`")[1]: [float(cell) for cell in line.split("|")[2:-2]] for line in table[2:]}
    assert set(stated) == set(COMPARED)
    for place, size in enumerate(sizes):
        if size == 1000:  # eigenvalues of a thousand rows take seconds: those that have a formula
            assert stated["ring"][place] == round((1 + 2 * math.cos(2 * math.pi / size)) / 3, 4)
            assert stated["exponential"][place] == round(1 - 2 / 11, 4)
            continue
        for found in topology_report(METHODS["d-psgd"], COMPARED, Hyper(), size, 30, 0, 1):
            assert stated[found["topology"]][place] == round(found["spectral_radius_pass"], 4), (size, found)
