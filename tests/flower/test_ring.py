"""A Flower app at the sites of a real ring: processes, sockets, TLS, no server."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import firma.flower
from firma.errors import BadInput
from firma.peer.ring_file import checked, read_ring, ring_toml
from tests.peer.conftest import free_ports

from .conftest import EXAMPLE

FIRMA = [sys.executable, "-m", "firma"]
NAMES = ("ant", "bee", "cat")
APP = "digits_app.client_app:app"
PLAIN = "fibfl:training=joint,persistent=no"
FULL = "fibfl++:training=joint,order=given,persistent=no"  # all-reduce to warm up, then several passes with the gate


def firma_command(*words, **options):
    return subprocess.run([*FIRMA, *map(str, words)], capture_output=True, text=True, check=False, **options)


def made_ring(folder, method, rounds, *words):
    """Identities and the ring file, as three organisations would write them."""
    members = []
    for name, port in zip(NAMES, free_ports(len(NAMES)), strict=True):
        home = folder / name
        assert firma_command("init", name, f"127.0.0.1:{port}", "--identity", home).returncode == 0
        members += ["--member", home / "site.toml"]
    path = folder / "ring.toml"
    done = firma_command(
        "ring-file", path, *members, "--flower", EXAMPLE, "--federation", "digits", "--method", method,
        "--rounds", rounds, "--seed", 3, "--patience", 500, *words,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        assert firma_command("accept", path, "--identity", folder / name, "--yes").returncode == 0
    return path


@pytest.fixture
def joining():
    """`joining(folder, number, *words)` is a site that trains; it ends with the test, whatever happens in it."""
    started = []

    def start(folder, number, *words):
        started.append(joined(folder, number, *words))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def joined(folder, number, *words):
    home = folder / NAMES[number]
    command = [
        *FIRMA, "join", folder / "ring.toml", "--identity", home, "--state", home / "state", "--app", APP, *words,
    ]  # fmt: skip
    environment = os.environ | {"FLWR_TELEMETRY_ENABLED": "0"}  # the app is found in the current folder
    return subprocess.Popen(
        list(map(str, command)), cwd=EXAMPLE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(processes):
    said = [process.communicate(timeout=550) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return said


def last_parameters(folder, number):
    newest = sorted((folder / NAMES[number] / "state").glob("round-*"))[-1]
    return load_file(newest / "state.safetensors")["parameters"]


@pytest.mark.parametrize(("method", "words"), [(PLAIN, ()), (FULL, ("--set", "warmup_rounds=1"))])
def test_a_real_ring_gives_the_bits_of_the_simulation(tmp_path, joining, method, words):
    made_ring(tmp_path, method, 3, *words)
    finished([joining(tmp_path, number) for number in range(3)])
    settings = {"warmup_rounds": 1} if words else {}
    simulated = firma.flower.run(EXAMPLE, method, clients=3, rounds=3, seed=3, settings=settings, audit=True)
    for number in range(3):
        assert torch.equal(last_parameters(tmp_path, number), simulated.parameters[number])
        result = json.loads((tmp_path / NAMES[number] / "state" / "result.json").read_text())
        np.testing.assert_array_equal(result["history"], simulated.history[:, number])
        audit = firma_command("audit", tmp_path / NAMES[number] / "state" / "audit.jsonl")
        assert audit.returncode == 0, audit.stdout
    sent = {
        tensor["name"]
        for name in NAMES
        for line in (tmp_path / name / "state" / "audit.jsonl").read_text().splitlines()
        for tensor in json.loads(line).get("tensors", ())
    }
    assert sent == {"extractor.conv.weight", "extractor.conv.bias", "extractor.hidden.weight", "extractor.hidden.bias"}


def test_a_killed_site_resumes_to_the_same_bits(tmp_path, joining):
    """The others wait for it, for their patience is longer than a restart takes."""
    made_ring(tmp_path, PLAIN, 6)
    running = [joining(tmp_path, number) for number in range(3)]
    while "round 2/6" not in running[1].stdout.readline():
        assert running[1].poll() is None, running[1].stderr.read()
    running[1].send_signal(signal.SIGKILL)
    running[1].communicate()
    running[1] = joining(tmp_path, 1, "--resume")
    finished(running)
    simulated = firma.flower.run(EXAMPLE, PLAIN, clients=3, rounds=6, seed=3, audit=True)
    for number in range(3):
        assert torch.equal(last_parameters(tmp_path, number), simulated.parameters[number])


def test_a_ring_file_with_an_app(tmp_path):
    path = made_ring(tmp_path, PLAIN, 2)
    ring = read_ring(path)
    assert ring.flower is not None and ring.flower.head == ("output.*",)
    assert ring.flower.run_config["local-epochs"] == 2 and ring.flower.train_config == {"lr": 0.1}
    assert checked(tomllib.loads(ring_toml(ring))) == ring
    values = tomllib.loads(path.read_text())

    def refused(reason, **changes):
        with pytest.raises(BadInput, match=reason):
            checked(values | changes)

    refused("head must name the arrays", flower=values["flower"] | {"head": []})
    refused("flower.files is missing", flower=values["flower"] | {"files": {}})
    refused("has training = 'two-phase'", method="fibfl")
    refused("peers require a method without a server", method="fedavg")
    refused("setting 'rate' has no effect on a Flower app", set={"rate": 0.1})
    refused(r"\[task\] cannot be combined", task={"shape": [8, 8], "labels": ["a", "b"]})
    refused(
        "initial = 'os:abort': must be in the package of the app", flower=values["flower"] | {"initial": "os:abort"}
    )


def test_a_site_whose_code_differs_is_told_which_file(tmp_path):
    made_ring(tmp_path, PLAIN, 2)
    copy = tmp_path / "copy"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    task = copy / "digits_app" / "task.py"
    task.write_text(task.read_text() + "# changed\n")
    words = ("--identity", tmp_path / "ant", "--app", APP)
    joined = firma_command("join", tmp_path / "ring.toml", *words, "--state", tmp_path / "state", cwd=copy)
    assert joined.returncode == 2 and "digits_app/task.py differs" in joined.stderr
    task.unlink()
    doctor = firma_command("doctor", tmp_path / "ring.toml", *words, "--wait", 0, cwd=copy)
    assert "FAIL  Flower app: " in doctor.stdout and "digits_app/task.py is missing here" in doctor.stdout


def test_a_site_runs_no_app_that_it_did_not_name(tmp_path):
    made_ring(tmp_path, PLAIN, 2)
    join = ("join", tmp_path / "ring.toml", "--identity", tmp_path / "ant", "--state", tmp_path / "state")

    def refused(reason, *words):
        done = firma_command(*join, *words, cwd=EXAMPLE)
        assert done.returncode == 2 and reason in done.stderr, done.stderr

    refused(f"if you trust it, pass --app {APP}")
    refused(f"not 'other:app'; if you trust it, pass --app {APP}", "--app", "other:app")
    refused("loads its own data", "--app", APP, "--data", "mine.csv")
    refused("chooses its own device", "--app", APP, "--device", "cpu:0")
    doctor = firma_command("doctor", tmp_path / "ring.toml", "--identity", tmp_path / "ant", "--wait", 0, cwd=EXAMPLE)
    assert "FAIL  Flower app: the ring file asks" in doctor.stdout


def test_what_the_site_knows_reaches_the_app(tmp_path, joining):
    """A wrong partition is an error of the app's own, before the ring starts, in one sentence."""
    made_ring(tmp_path, PLAIN, 2)
    process = joining(tmp_path, 0, "--node-config", "partition-id=7")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said.startswith("firma: flower app: evaluate of client 0 failed: ") and said.count("\n") == 1
