"""docs/your-method.md, executed from top to bottom in one folder that has the recipes in it."""

import re
import shlex
import sys

from tests.documents import ROOT, blocks, write_file

PAGE = "docs/your-method.md"
RECIPES = ROOT / "examples" / "methods"


def test_every_command_and_line_of_python(command, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    for path in RECIPES.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    ran = []
    for block in blocks(PAGE):
        if block.note.startswith("file: "):
            write_file(block, tmp_path)
        elif block.note.startswith("part of: "):
            assert block.code in (RECIPES / block.note.removeprefix("part of: ")).read_text()
        elif block.language == "python":
            exec(compile(block.code, PAGE, "exec"), {"__name__": "__main__"})
        elif block.note != "with ray":
            for line, said in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.code, re.MULTILINE):
                program, *words = shlex.split(line)
                code, out, err = command(*words)
                assert (program, code) == ("firma", 2 if block.note == "fails" else 0), f"{line}: {err}"
                assert said in out + err, f"{line} prints {out}{err}"
                ran.append(words[0])
    assert (ran.count("run"), ran.count("sweep")) == (6, 1)
    assert "2,823" in command("run", "--method", "fedavg", "--clients", 3, "--rounds", 1)[1]
    for name in set(sys.modules) - known:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_every_hook_and_every_field_is_explained():
    from dataclasses import fields

    from firma.training.algorithm import ClientRound, LocalStep, ServerRound
    from firma.training.hooks import HOOKS
    from firma.training.local_step import Step

    page = (ROOT / PAGE).read_text()
    internal = {"shared", "seed"}  # behind of_shared, put_shared and generator
    names = {each.name for kind in (ClientRound, LocalStep, ServerRound, Step) for each in fields(kind)} - internal
    for name in (*HOOKS, *names):
        assert re.search(rf"`[^`]*\b{name}\b[^`]*`", page), name


def test_links_lead_somewhere():
    page = (ROOT / PAGE).read_text()
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page):
        assert (ROOT / "docs" / target).exists(), target
    headings = {
        re.sub(r"[^\w\- ]", "", line[3:].lower()).replace(" ", "-") for line in page.splitlines() if line[:3] == "## "
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) == headings
