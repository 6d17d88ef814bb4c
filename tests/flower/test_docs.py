"""docs/flower.md, run word for word."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import firma
from firma.errors import BadInput
from tests.peer.conftest import free_ports

from .conftest import EXAMPLE

ROOT = EXAMPLE.parents[1]
TEXT = (ROOT / "docs" / "flower.md").read_text()
BLOCKS = {name: code for name, _, code in re.findall(r"<!-- tried: (\w+) -->\n```(\w+)\n(.*?)```", TEXT, re.DOTALL)}


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    return tmp_path_factory.mktemp("sites")


def shell(code, sites):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "SITES": str(sites)}
    return subprocess.run(
        ["bash", "-e", "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_the_description_is_the_examples():
    assert (EXAMPLE / "flower.toml").read_text() in TEXT


def test_simulate(sites):
    said = shell(BLOCKS["simulate"], sites)
    assert "head SENT" in said and "head private" in said


def test_python(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    exec(compile(BLOCKS["python"], "flower.md", "exec"), {})
    assert capsys.readouterr().out


def test_ring_and_its_trained_model(sites, monkeypatch, capsys):
    ports = dict(zip(("7401", "7402", "7403"), map(str, free_ports(3)), strict=True))
    code = re.sub("740[123]", lambda found: ports[found[0]], BLOCKS["ring"])
    assert "audit passed" in shell(code, sites)
    monkeypatch.chdir(EXAMPLE)
    exec(compile(BLOCKS["trained"], "flower.md", "exec"), {"SITES": str(sites)})
    assert "'output.weight': (10, 32)" in capsys.readouterr().out
    with pytest.raises(BadInput, match=r"Flower app digits_app.client_app:app.*flower_site\.trained"):
        firma.load(sites / "north" / "state").model(0)
