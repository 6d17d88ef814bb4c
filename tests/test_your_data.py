"""docs/your-data.md, executed from top to bottom: its Python, and its commands as a person types them."""

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.peer.conftest import free_ports
from tests.processes import running

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "your-data.md").read_text()
BLOCKS = re.findall(r"(?:<!-- tried: ([\w, ]+) -->\n)?```(\w+)\n(.*?)```", PAGE, re.DOTALL)
TYPED = re.compile(r"^\$ (.*)$", re.MULTILINE)


def commands(code, ports):
    """The commands of a block, with ports that are free."""
    for line in TYPED.findall(code):
        words = re.sub(r":740([123])", lambda found: f":{ports[int(found[1]) - 1]}", line)
        assert words.startswith("firma ")
        yield shlex.split(words)[1:]


def test_every_block_runs(tmp_path, monkeypatch, command, start, capsys):
    monkeypatch.chdir(tmp_path)
    ports = free_ports(3)
    for tags, kind, code in BLOCKS:
        if "hf" in tags and find_spec("datasets") is None:
            continue
        if kind == "python":
            exec(compile(code, "your-data.md", "exec"), {"__name__": "your_data"})
            capsys.readouterr()  # progress bars of other libraries
        elif tags == "together":
            sites = [
                start(running([sys.executable, "-m", "firma", *words], stderr=subprocess.PIPE))
                for words in commands(code, ports)
            ]
            said = [each.communicate(timeout=120)[1] for each in sites]
            assert [each.returncode for each in sites] == [0, 0, 0], said
            assert not [line for text in said for line in text.splitlines() if "waiting " not in line]
        else:
            for words in commands(code, ports):
                status, out, err = command(*words)
                assert (status, err) == (0, ""), (words, err)
                shown = code.partition(shlex.join(["firma", *words]) + "\n")[2].partition("$ ")[0]
                assert trimmed(shown) in trimmed(out), out
    assert (tmp_path / "south" / "state" / "standardiser.json").exists()
    assert (tmp_path / "digits-dir" / "firma-split.json").exists()


def trimmed(text):
    """Without the spaces at the ends of lines, which no page has."""
    return "\n".join(line.rstrip() for line in text.splitlines())


def test_every_command_of_the_page_is_in_a_block_that_is_tried():
    assert len(TYPED.findall(PAGE)) == sum(len(TYPED.findall(code)) for _, kind, code in BLOCKS if kind == "console")
    assert [kind for _, kind, _ in BLOCKS].count("python") == PAGE.count("```python")


def test_the_augmentation_is_drawn_anew_in_training_only(capsys):
    """The recipe's layer trains another model than without it, and does nothing where the model is tested."""
    import torch
    from torch import nn

    import firma

    code = next(code for _, kind, code in BLOCKS if kind == "python" and "Mirror" in code)
    names = {"__name__": "your_data"}
    exec(compile(code, "your-data.md", "exec"), names)
    mirror, images = names["Mirror"](), torch.rand(64, 8, 8)
    assert not torch.equal(mirror(images), mirror(images))
    assert torch.equal(mirror.eval()(images), images)

    def plain():
        extractor, head = names["build"]()
        return nn.Sequential(*extractor[1:]), head

    without = firma.run("digits", "iid", "fibfl", clients=3, rounds=2, model=plain)
    result = names["result"]
    assert without.parameters.shape == result.parameters.shape
    assert not torch.equal(without.parameters, result.parameters)
    model = result.model(0)
    model.extractor.eval()
    assert torch.equal(model.extractor(images), model.extractor(images))


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


@pytest.mark.parametrize("name", ["tables", "hf"])
def test_extras_exist(name):
    assert re.search(rf"^{name} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
