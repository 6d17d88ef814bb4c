"""docs/your-model.md, executed from top to bottom in one folder."""

import re
import subprocess
import sys

from tests.documents import blocks, write_file
from tests.own_models import modules_of
from tests.peer.conftest import free_ports
from tests.processes import running

BLOCKS = blocks("docs/your-model.md")


def together(commands):
    """All at the same time, each in a process of its own; their output."""
    started = [
        running([sys.executable, "-m", *each], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for each in commands
    ]
    processes = [each.__enter__() for each in started]
    try:
        said = [process.communicate(timeout=120)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes), said
        return said
    finally:
        for each in started:
            each.__exit__(None, None, None)


def test_every_command_runs(command, tmp_path, capsys):
    ports = dict(zip(("7443", "7444"), map(str, free_ports(2)), strict=True))
    said = ""
    with modules_of(tmp_path) as folder:
        for block in BLOCKS:
            if block.note.startswith("file: "):
                write_file(block, folder)
            elif block.language == "python":
                exec(compile(block.code, "your-model.md", "exec"), {})
                capsys.readouterr()
            elif block.note == "at the same time":
                said += "".join(together(block.commands))
            elif block.language == "sh" and block.note != "with ray":
                for shown in block.commands:
                    assert shown[0] == "firma"
                    words = [re.sub(r":(744\d)$", lambda port: f":{ports[port[1]]}", word) for word in shown]
                    code, out, err = command(*words[1:])
                    assert code == 0, f"{words}: {err}"
                    said += out
    for words in (
        "width: int, default 64",
        "model: mynet:build, head fc, width = 32",
        "all checks passed",
        "done: accuracy",
    ):
        assert words in said
    assert said.count("all checks passed") == said.count("done: accuracy") == 2


def test_the_page_has_all_its_parts():
    notes = [block.note for block in BLOCKS if block.note]
    assert notes == [
        "file: mynet.py", "file: run.toml", "with ray", "at the same time", "at the same time", "file: adapter.py",
    ]  # fmt: skip
