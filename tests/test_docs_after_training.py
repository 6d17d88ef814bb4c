"""docs/after-training.md, executed from top to bottom in one folder."""

import json
import re
from importlib.util import find_spec

from tests.documents import ROOT, blocks
from tests.own_models import modules_of

PAGE = "docs/after-training.md"
BLOCKS = blocks(PAGE)


def test_every_command_runs(command, tmp_path, capsys):
    said = ""
    with modules_of(tmp_path) as folder:
        for block in BLOCKS:
            if block.language == "python":
                exec(compile(block.code, PAGE, "exec"), {})
                said += capsys.readouterr().out
            elif block.note == "output":
                assert block.code in said
            elif block.note != "with onnx" or find_spec("onnxscript") is not None:
                for words in block.commands:
                    assert words[0] == "firma"
                    code, out, err = command(*words[1:])
                    assert code == 0, f"{words}: {err}"
                    said += out
        lines = (folder / "predictions.csv").read_text().splitlines()
    labels = [line.split(",")[1] for line in lines[1:]]
    assert labels == ["ash", "beech", "oak", "ash", "beech"]
    assert "beech\n('ash', 'beech', 'oak') ('height', 'girth')\n['beech' 'ash']" in said
    assert json.loads(re.search(r"^{\n.*?^}$", said, re.MULTILINE | re.DOTALL)[0])["task"] == "classification"


def test_links_lead_somewhere():
    text = (ROOT / PAGE).read_text()
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (ROOT / "docs" / target).exists(), target
    titles = {
        title.lower().replace(",", "").replace(" ", "-") for title in re.findall(r"^## (.*)$", text, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= titles
