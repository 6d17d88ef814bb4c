"""docs/sweeps.md, word for word: its files are written, its commands run, its Python executed, in order."""

import importlib.util
import re
import shlex
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "sweeps.md").read_text()
BLOCKS = re.findall(r"(?:<!-- requires: (\w+) -->\n)?```(toml|console|python)\n(.*?)```", PAGE, re.DOTALL)


def test_every_file_command_and_example_of_the_page(command, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(60, 3))
    rows = [",".join([*(f"{value:.4f}" for value in row), "yes" if row[0] > 0 else "no"]) for row in x]
    Path("mine.csv").write_text("\n".join(["a,b,c,label", *rows]) + "\n")
    ran = []
    for requires, kind, text in BLOCKS:
        if requires and importlib.util.find_spec(requires) is None:
            continue
        if kind == "toml" or text.startswith("# own_model.py"):
            Path(text.split()[1]).write_text(text)
        elif kind == "python":
            exec(compile(text, "docs/sweeps.md", "exec"), {})
            assert capsys.readouterr().out
        else:
            for line, said in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                program, *words = shlex.split(line)
                code, out, _ = command(*words)
                assert (program, code) == ("firma", 0), line
                assert said in out, f"{line} prints {out}"
                ran.append(words[0])
    assert ran.count("sweep") == 6
    assert ran.count("report") == 3
    assert Path("results/grid/report.html").exists()


def test_the_example_is_a_grid(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    _, out, _ = command("sweep", ROOT / "examples" / "grid.toml", "--dry-run")
    assert out.splitlines()[-1] == "48 runs to do"


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
