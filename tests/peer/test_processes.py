"""Five processes with sockets and TLS, driven by the command line alone."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.processes import running, wait_until

from .conftest import NAMES
from .crew import Crew
from .test_healing import ENDLESS, let_in
from .test_node import simulated

FIRMA = [sys.executable, "-m", "firma"]


@dataclass(frozen=True)
class Member:
    """A process and the files that it writes to: a pipe that nobody reads would stop it when it is full."""

    process: subprocess.Popen
    stdout: Path
    stderr: Path


@pytest.fixture
def join(start):
    """`join(made, number, *words)`: a member that ends with the test."""

    def make(made, number, *words):
        command = [
            *FIRMA, "join", str(made.path), "--data", made.data(number), "--identity", str(made.identity(number)),
            "--state", str(made.state(number)), *words,
        ]  # fmt: skip
        home = made.folder / NAMES[number]
        out, err = home / "stdout.txt", home / "stderr.txt"
        with out.open("w") as stdout, err.open("w") as stderr:
            return Member(start(running(command, stdout=stdout, stderr=stderr)), out, err)

    return make


def finish(members, timeout=120):
    codes = [member.process.wait(timeout=timeout) for member in members]
    return codes, [(member.stdout.read_text(), member.stderr.read_text()) for member in members]


def assert_equal_to_simulation(made, scenario):
    """The same accuracies, and the same parameters as when the simulation passes every message: bit for bit."""
    passed = simulated(made, scenario, audit=True)
    for number in range(len(made.ring.members)):
        document = json.loads((made.state(number) / "result.json").read_text())
        np.testing.assert_allclose(document["history"], passed.history[:, number], atol=1e-12)
        last = made.state(number) / f"round-{made.ring.rounds:06d}" / "state.safetensors"
        saved = load_file(last)
        found = saved.get("personal", saved["parameters"])
        torch.testing.assert_close(found, passed.parameters[number], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("method", "wire"),
    [("fibfl", "float32"), ("fibfl+", "bfloat16"), ("fibfl++", "float32"), ("fibfl++", "int8"), ("frame", "float32")],
)
def test_five_processes_equal_the_simulation(make_ring, join, method, wire):
    made = make_ring(method, 5, 6, "dir-0.5", patience=30.0, wire=wire, set={"extractor_epochs": 3})
    codes, texts = finish([join(made, number) for number in range(5)])
    assert codes == [0] * 5, texts
    assert_equal_to_simulation(made, "dir-0.5")
    out = texts[0][0]
    assert "round 6/6" in out
    assert "spent training" in out
    verdict = subprocess.run(
        [*FIRMA, "audit", str(made.state(0) / "audit.jsonl")], capture_output=True, text=True, check=False
    )
    assert verdict.returncode == 0
    assert "audit passed" in verdict.stdout


def test_kill_9_is_noticed_and_the_others_go_on_until_it_is_back(make_ring, join):
    made = make_ring("fibfl++:warmup=no", 3, ENDLESS, "iid", patience=2.0)
    members = [join(made, number) for number in range(3)]
    seen = Crew(made)  # reads what they log; it starts nobody
    seen.wait_round(1, 4)
    members[1].process.kill()
    members[1].process.wait()
    members[1] = join(made, 1, "--resume")
    let_in(seen, 1)
    for member in members:
        member.process.terminate()
    codes, texts = finish(members)
    assert codes == [130] * 3, texts
    assert "proposing a new view: bee" in texts[0][1] + texts[2][1], "what happened is said on the error stream"


def test_an_interrupted_member_says_how_to_go_on(make_ring, join):
    made = make_ring("fibfl", 2, ENDLESS, "iid", patience=2.0)
    ant, bee = (join(made, number) for number in range(2))
    Crew(made).wait_round(0, 2)
    bee.process.send_signal(signal.SIGINT)
    assert bee.process.wait(60) == 130
    assert "--resume" in bee.stderr.read_text()
    paused = "paused: bee has stopped; 2 of 2 are needed, 1 here"
    wait_until(lambda: paused in ant.stderr.read_text(), 60, "ant says that it is paused")
    ant.process.terminate()
    assert ant.process.wait(60) == 130


def test_doctor_says_what_is_wrong_and_when_all_is_well(make_ring, start):
    made = make_ring("fibfl", 2, 1, "iid")

    def doctor(number, *words):
        command = [*FIRMA, "doctor", str(made.path), "--identity", str(made.identity(number)), *words]
        return start(running(command, stdout=subprocess.PIPE))

    alone = doctor(0, "--wait", "1")
    out = alone.communicate(timeout=240)[0]
    assert alone.returncode == 1
    assert "FAIL  bee" in out
    assert "pass  my own address" in out
    both = [doctor(number, "--wait", "120") for number in range(2)]
    texts = [each.communicate(timeout=240)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], texts
    assert "all checks passed" in texts[0]
    assert "its calls reach this site, too" in texts[0]
