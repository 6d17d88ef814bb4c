"""What the README shows is what the package says and does."""

import re
from pathlib import Path

import pytest

from firma.cli.methods import markdown

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_table_is_rendered_from_the_methods():
    assert markdown() in README, "print it with: firma methods --markdown"


@pytest.mark.parametrize("code", BLOCKS)
def test_python_examples_run(code, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_links_lead_somewhere():
    root = Path(__file__).parent.parent
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (root / target).exists(), target
