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


def test_there_are_three_examples():
    assert [name for name, _ in EXAMPLES] == ["method", "scenario", "metric"]
