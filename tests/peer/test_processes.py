"""Five processes with sockets and TLS, driven by the command line alone."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from .test_node import simulated

FIRMA = [sys.executable, "-m", "firma"]


def join(made, number, *words):
    command = [
        *FIRMA, "join", str(made.path), "--data", made.data(number), "--identity", str(made.identity(number)),
        "--state", str(made.state(number)), *words,
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(running, timeout=120):
    texts = [process.communicate(timeout=timeout) for process in running]
    return [process.returncode for process in running], texts


def assert_equal_to_simulation(made, scenario):
    """The same accuracies, and the same parameters as when the simulation passes every message: bit for bit."""
    passed = simulated(made, scenario, audit=True)
    for number in range(len(made.ring.members)):
        document = json.loads((made.state(number) / "result.json").read_text())
        np.testing.assert_allclose(document["history"], passed.history[:, number], atol=1e-12)
        last = made.state(number) / f"round-{made.ring.rounds:06d}" / "state.safetensors"
        found = load_file(last)["parameters"]
        torch.testing.assert_close(found, passed.parameters[number], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("method", "wire"), [("fibfl", "float32"), ("fibfl+", "bfloat16"), ("fibfl++", "float32"), ("fibfl++", "int8")]
)
def test_five_processes_equal_the_simulation(make_ring, method, wire):
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


def wait_for(path, seconds=60):
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.02)


def test_kill_9_is_noticed_and_the_others_go_on_until_it_is_back(make_ring):
    made = make_ring("fibfl++:warmup=no", 3, 100_000, "iid", patience=2.0)
    running = [join(made, number) for number in range(3)]
    wait_for(made.state(1) / "round-000004")
    running[1].send_signal(signal.SIGKILL)
    running[1].communicate()
    running[1] = join(made, 1, "--resume")
    log, end = made.state(1) / "log.jsonl", time.monotonic() + 90
    try:
        while '"event": "view"' not in log.read_text().partition('"event": "started"')[2].partition('"started"')[2]:
            assert time.monotonic() < end, "it is let in again"
            time.sleep(0.1)
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        codes, texts = finish(running)
    assert codes == [130] * 3, texts
    assert "going on without: bee" in texts[0][1] + texts[2][1], "what happened is said on the error stream"


def test_an_interrupted_member_says_how_to_go_on(make_ring):
    made = make_ring("fibfl", 2, 2000, "iid", patience=2.0)
    running = [join(made, number) for number in range(2)]
    wait_for(made.state(0) / "round-000002")
    os.kill(running[1].pid, signal.SIGINT)
    assert running[1].wait(20) == 130
    assert "--resume" in running[1].communicate()[1]
    time.sleep(1.0)
    os.kill(running[0].pid, signal.SIGTERM)
    out, err = running[0].communicate(timeout=20)
    assert running[0].returncode == 130
    assert "paused: bee has stopped; 2 of 2 are needed, 1 here" in err, out


def test_doctor_says_what_is_wrong_and_when_all_is_well(make_ring):
    made = make_ring("fibfl", 2, 1, "iid")

    def doctor(number, *words):
        command = [*FIRMA, "doctor", str(made.path), "--identity", str(made.identity(number)), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    alone = doctor(0, "--wait", "1")
    out = alone.communicate(timeout=60)[0]
    assert alone.returncode == 1
    assert "FAIL  bee" in out
    assert "pass  my own address" in out
    both = [doctor(number, "--wait", "30") for number in range(2)]
    texts = [each.communicate(timeout=60)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], texts
    assert "all checks passed" in texts[0]
