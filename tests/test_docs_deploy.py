"""docs/deploy.md: every command on the page is one that the command line understands, and a rehearsal follows it."""

import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

from firma.data.dataset import load_dataset
from tests.documents import ROOT
from tests.peer.conftest import free_ports
from tests.processes import running

PAGE = (ROOT / "docs" / "deploy.md").read_text()
FIRMA = [sys.executable, "-m", "firma"]
SITES = ("a", "b", "c")


def commands():
    """All indented commands of the page, lines that end with a backslash joined."""
    text = PAGE.replace("\\\n", " ")
    return [shlex.split(line)[1:] for line in text.splitlines() if re.match(r" {4,}firma [a-z-]+ ", line + " ")]


COMMANDS = commands()


def command_of(name, *containing):
    """The first command of the page with this name and these words."""
    return next(words for words in COMMANDS if words[0] == name and all(each in words for each in containing))


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words)[:70])
def test_every_command_is_understood(words):
    from firma.cli import command

    command(words[0]).make_context(words[0], words[1:])  # reads all options, and does nothing


def test_the_page_names_every_command_of_an_operator():
    named = {words[0] for words in COMMANDS}
    assert {"init", "ring-file", "accept", "doctor", "join", "status", "stop", "audit", "backup", "restore"} <= named


def test_every_link_within_the_page_leads_somewhere():
    titles = re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= anchors


@pytest.fixture
def rehearsal(tmp_path, monkeypatch):
    """Three sites on this machine, each in a folder of its own, with a third of the digits."""
    digits = load_dataset("digits")
    labels = np.array(["healthy", "ill"])[digits.y_train % 2]
    for number, site in enumerate(SITES):
        (tmp_path / site).mkdir()
        np.savez(tmp_path / site / "mine.npz", x=digits.x_train[number::3], y=labels[number::3])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow  # a dozen processes, one after the other
def test_a_rehearsal_follows_the_page(rehearsal, command, start, monkeypatch):
    """The commands of the page, word for word but for addresses, shape and names of sites."""
    ports = dict(zip(SITES, free_ports(3), strict=True))

    def at(site, words):
        monkeypatch.chdir(rehearsal / site)
        found = [word.replace("hospital-a", f"hospital-{site}") for word in words]
        found = [re.sub(r"ring\.hospital-(.)\.org:7443", lambda m: f"127.0.0.1:{ports[m[1]]}", word) for word in found]
        code, out, err = command(*found)
        assert code == 0, err
        return out

    def together(words):
        processes = [
            start(running(["sh", "-c", f"cd {rehearsal / site} && exec {shlex.join([*FIRMA, *words])}"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            for site in SITES
        ]  # fmt: skip
        said = [each.communicate(timeout=300) for each in processes]
        assert [each.returncode for each in processes] == [0, 0, 0], said
        return [out for out, _ in said]

    for site in SITES:
        assert "in words     " in at(site, command_of("init"))
        (rehearsal / "a" / site).mkdir()
        card = (rehearsal / site / "firma-identity" / "site.toml").read_text()
        (rehearsal / "a" / site / "site.toml").write_text(card)
    out = at("a", ["8x8" if word == "28x28" else word for word in command_of("ring-file")])
    assert "settings: preset recommended, changed: rate=0.001, extractor_epochs=5" in out
    for site in SITES[1:]:
        (rehearsal / site / "ring.toml").write_text((rehearsal / "a" / "ring.toml").read_text())
    for site in SITES:
        assert f"hospital-{site} has accepted this ring file." in at(site, [*command_of("accept"), "--yes"])
    for out in together(command_of("doctor")):
        assert out.splitlines()[-1] == "all checks passed: firma join can start"
    for out in together(command_of("join")):
        assert "took part: rounds 1-20 all members\n" in out
    assert "hospital-a is finished" in at("a", command_of("status"))
    assert "audit passed" in at("a", command_of("audit"))
    at("a", command_of("backup"))
    restore = command_of("restore")
    at("a", [*restore[:-1], "restored"])
    assert json.loads((rehearsal / "a" / "restored" / "result.json").read_text())["stopped_by"] == []
