"""Examples run as they stand."""

import json
import subprocess
import sys
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
