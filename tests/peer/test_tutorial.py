"""docs/tutorial-operator.md, executed from top to bottom: two sites, real processes, a terminal where one is asked."""

import os
import re
import subprocess
import sys

import pytest

from tests.documents import all_blocks
from tests.peer.conftest import free_ports
from tests.processes import running

PAGE = "docs/tutorial-operator.md"


def skeleton(line):
    """A line without what differs from run to run: digests, fingerprints, words for the telephone, numbers, order."""
    line = re.sub(r"(in words[^:]*?:? +)[a-z ,]+$", r"\1*", line.rstrip())
    line = re.sub(r"\b(?:[0-9A-F]{2}:){31}[0-9A-F]{2}\b|\b[0-9a-f]{64}\b", "*", line)
    line = re.sub(r"(?<![\w.])[0-9][0-9,.]*(?:e-?[0-9]+)?(?![\w])", "#", line)
    return " ".join(line.split())


def check(said, shown, what):
    """Every line that the page shows was printed, in that order; … stands for any lines."""
    printed = [skeleton(line) for line in said.splitlines()]
    place, gap = 0, False
    for line in shown.splitlines():
        if line.strip() == "…":
            gap = True
            continue
        wanted = skeleton(line)
        found = [n for n in range(place, len(printed)) if printed[n] == wanted]
        assert found and (gap or found[0] == place), f"{what}: {line!r} is not there in\n{said}"
        place, gap = found[0] + 1, False
    assert gap or place == len(printed), f"{what}: the page ends before\n{said}"


FIRMA = [sys.executable, "-m", "firma"]


def answered(command, folder, answer):
    """What a command says that asks a person on a terminal."""
    ours, theirs = os.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            command, cwd=folder, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0, done.stdout
    return done.stdout


def together(commands):
    """What processes say that run at the same time."""
    started = [
        running(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for folder, command in commands
    ]
    processes = [each.__enter__() for each in started]
    try:
        said = [process.communicate(timeout=300) for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes), said
        return [out for out, _ in said]
    finally:
        for each in started:
            each.__exit__(None, None, None)


def simple(words, command, folder, monkeypatch):
    """What a command says that needs no process of its own."""
    monkeypatch.chdir(folder)
    if words[0] == "firma":
        code, out, err = command(*words[1:])
        assert code == 0, f"{words}: {err}"
        return out
    if words[0] == "python":
        exec(compile((folder / words[1]).read_text(), words[1], "exec"), {"__name__": "__main__"})
        return ""
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_every_command_prints_what_is_shown(command, tmp_path, monkeypatch):
    ports = dict(zip(("7401", "7402"), map(str, free_ports(2)), strict=True))
    waiting, seen = [], []
    for block in all_blocks(PAGE):
        if block.note.startswith("file: "):
            (tmp_path / block.note.removeprefix("file: ")).write_text(block.code)
            continue
        place, _, how = block.note.removeprefix("at ").partition("; ")
        for line, shown in block.typed:
            words = re.sub(r":(740[12])", lambda found: ":" + ports[found[1]], line).split()
            if words[0] == "firma":
                seen.append(words[1])
            if how == "together":
                waiting.append((tmp_path / place, [*FIRMA, *words[1:]], shown))
                if len(waiting) == 2:
                    for said, (_, typed, text) in zip(together([each[:2] for each in waiting]), waiting, strict=True):
                        check(said, text, " ".join(typed[3:]))
                    waiting = []
            elif how.startswith("answer "):
                said = answered([*FIRMA, *words[1:]], tmp_path / place, how.removeprefix("answer "))
                check(said, re.sub(r"(\[y/N\]: )y\n", r"\1", shown), line)
            else:
                check(simple(words, command, tmp_path / place, monkeypatch), shown, line)
    assert not waiting
    assert seen == [
        "init", "init", "ring-file", "accept", "accept", "doctor", "doctor", "join", "join", "status", "audit",
        "predict",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "shown"), [("a\nb", "a"), ("a", "a\nb"), ("a\nc", "a\nb"), ("b\na", "a\n…\nb"), ("x\na", "a")]
)
def test_a_page_that_shows_something_else_is_found(said, shown):
    with pytest.raises(AssertionError):
        check(said, shown, "it")
    check("round 7\nx\nin words: a b, c", "round 1\n…\nin words: z y, x", "it")
