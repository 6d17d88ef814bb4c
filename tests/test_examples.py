"""Examples run as they stand."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_own_model():
    command = [sys.executable, EXAMPLES / "own_model.py"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in output.splitlines()] == ["local", "fibfl", "fibfl+", "fibfl++"]


def test_compare_toml():
    command = [sys.executable, "-m", "firma", "run", EXAMPLES / "compare.toml", "--rounds", "1", "--json"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert len(json.loads(output)["results"]) == 12


NOTEBOOK = EXAMPLES / "quick_start.ipynb"
# In a real kernel, as Jupyter does it; without one (nbclient and ipykernel come with `make setup`), cell by cell.
IN_A_KERNEL = """
import json, sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
print(json.dumps([[dict(output) for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]))
"""
CELL_BY_CELL = """
import contextlib, io, json, sys
names, found = {"__name__": "__main__"}, []
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec("".join(cell["source"]), names)
        text = said.getvalue()
        found.append([{"output_type": "stream", "name": "stdout", "text": text}] if text else [])
print(json.dumps(found))
"""


def printed(outputs):
    """What each cell printed, without its digits: they depend on the machine."""
    texts = ["".join("".join(each["text"]) for each in cell if each.get("name") == "stdout") for cell in outputs]
    return [re.sub(r"[0-9]+", "#", text) for text in texts]


def test_the_notebook_runs_and_prints_what_is_stored_in_it():
    kernel = find_spec("nbclient") is not None and find_spec("ipykernel") is not None
    command = [sys.executable, "-c", IN_A_KERNEL if kernel else CELL_BY_CELL, NOTEBOOK]
    env = {**os.environ} if kernel else os.environ | {"MPLBACKEND": "agg"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    stored = [cell["outputs"] for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    found = json.loads(done.stdout.splitlines()[-1])
    assert printed(found) == printed(stored)
    for outputs in (stored, found) if kernel else (stored,):
        assert not [each for cell in outputs for each in cell if each["output_type"] == "error"]
        shown = [each["data"] for cell in outputs for each in cell if each["output_type"] == "display_data"]
        assert "round 5 of 5, mean accuracy 0.9" in "".join(shown[0]["text/plain"])  # progress, in its last state
        assert any("image/png" in data for data in shown)
