"""docs/tasks.md: its Python is executed, and its commands are run on small tables."""

import re
import sys

from tests.documents import ROOT
from tests.task_data import PRICE, TAGS, X, table

DOCUMENT = (ROOT / "docs" / "tasks.md").read_text()


def test_what_the_documentation_shows_runs(command, tmp_path, monkeypatch, capsys):
    python = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    shell = re.findall(r"^firma run .*$", DOCUMENT, re.MULTILINE)
    assert (len(python), len(shell)) == (2, 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    exec(compile(python[0], "tasks.md", "exec"), {})
    assert capsys.readouterr().out
    (tmp_path / "losses.py").write_text(python[1])
    table(tmp_path / "houses.csv", "a,b,price", X[:, 0], X[:, 1], PRICE)
    table(tmp_path / "pictures.csv", "a,b,cat,dog,bird", X[:, 0], X[:, 1], *TAGS.T)
    for line in shell:
        code, out, _ = command(*line.split()[1:], "--rounds", 1, "--clients", 2, "--set", "extractor_epochs=1")
        assert code == 0
        assert "worst" in out
