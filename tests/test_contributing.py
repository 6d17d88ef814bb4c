"""The examples in the documents, run word for word."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = re.findall(r"<!-- tried: (\w+) -->\n```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)


@pytest.mark.parametrize(("name", "code"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_examples_run(name, code, capsys):
    exec(compile(code, f"CONTRIBUTING.md ({name})", "exec"), {})
    assert capsys.readouterr().out


def test_there_are_four_examples():
    assert [name for name, _ in EXAMPLES] == ["method", "hooks", "scenario", "metric"]


def test_recipes_are_as_long_as_the_table_says():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (\[\w+\.py\].*?) \| ([\d, ]+) \|", text, re.MULTILINE)
    said = {name: int(lines) for files, counts in rows for name, lines in zip(
        re.findall(r"\((examples/methods/\w+\.py)\)", files), counts.split(", "), strict=True)}  # fmt: skip
    found = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "examples" / "methods").glob("*.py")}
    assert said == {name: len(path.read_text().splitlines()) for name, path in found.items()}
