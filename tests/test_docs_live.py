"""docs/live.md: its commands are run, its pages asked for, its Python executed, in order."""

import re
import signal
import subprocess
import sys
import urllib.request
from inspect import signature
from pathlib import Path

from firma.cli.join import join
from firma.live_log import LIVE_FILE
from tests.documents import ROOT, blocks, write_file
from tests.processes import running

PAGE = "docs/live.md"


def watched(words):
    """The page that a command serves, and its exit code after Ctrl-C."""
    with running([sys.executable, "-m", "firma", *words], stdout=subprocess.PIPE) as process:
        url = process.stdout.readline().strip()
        here = re.sub(r"//[^/]*:", "//127.0.0.1:", url)
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        text = opener.open(here, timeout=60).read().decode()
        process.send_signal(signal.SIGINT)
        return url, text, process.wait(60)


def test_every_command_and_example_of_the_page(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    ran = []
    for block in blocks(PAGE):
        if block.note.startswith("file: "):
            write_file(block, tmp_path)
        elif block.language == "python":
            exec(compile(block.code, PAGE, "exec"), {})
        else:
            for program, name, *words in (words[1:] for words in block.commands):
                assert program == "firma"
                ran.append(name)
                if name == "watch":
                    words = [word.replace(":8050", ":0") for word in words]  # noqa: PLW2901, a port that is free
                    url, text, code = watched([name, *words])
                    assert (code, "<title>FIRMA</title>" in text) == (0, True)
                    assert ("?token=" in url) == ("--page" in words)
                elif name == "join":
                    assert {word for word in words if word.startswith("--")} <= {
                        f"--{each.replace('_', '-')}" for each in signature(join).parameters
                    }
                else:
                    code, _, err = command(name, *words)
                    assert code == 0, err
                    assert ("Live page: http://127.0.0.1:" in err) == ("--live" in words)
    assert ran == ["run", "watch", "sweep", "watch", "join", "watch"]
    assert all(Path("results", name, LIVE_FILE).exists() for name in ("mine", "grid", "python"))


def test_links_and_pictures_lead_somewhere():
    text = (ROOT / PAGE).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / "docs" / target).exists(), target
