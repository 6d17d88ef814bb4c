"""Checkpoints of the simulation: bit by bit as if never interrupted, whole or not there."""

import resource
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import firma
from firma.engines.checkpoint import RunCheckpoints, fingerprint
from firma.engines.simulation import Simulation
from firma.models import SplitModel


def stopped_after(federation, folder, count):
    rounds = Simulation(federation, checkpoints=RunCheckpoints(folder, federation)).rounds()
    for _ in range(count):
        next(rounds)
    rounds.close()


def finish(simulation):
    return np.stack([outcome.accuracies for outcome in simulation.rounds()]), simulation.parameters


@pytest.mark.parametrize("method", ["local", "fedrep", "fibfl++"])
def test_a_resumed_run_is_the_run_bit_by_bit(make_federation, tmp_path, method):
    federation = make_federation(method, 4, rounds=6)
    whole = finish(Simulation(federation))
    stopped_after(federation, tmp_path, 4)
    trained = []
    again = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))
    train = again._group.train
    again._group.train = lambda plan: trained.append(plan.number) or train(plan)
    history, parameters = finish(again)
    assert trained == [4, 5]
    np.testing.assert_array_equal(history, whole[0])
    assert torch.equal(parameters, whole[1])
    assert len(list(tmp_path.glob("*/round-*"))) == 1, "older checkpoints stay"


def test_buffers_of_modules_are_kept(make_federation, tmp_path):
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2))
    federation = replace(make_federation("fibfl", 3, rounds=4), models=[SplitModel(extractor, nn.Linear(16, 4))])
    whole = finish(Simulation(federation))
    stopped_after(federation, tmp_path, 2)
    history, parameters = finish(Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)))
    np.testing.assert_array_equal(history, whole[0])
    assert torch.equal(parameters, whole[1])


def test_another_run_has_another_folder(make_federation):
    base = make_federation("fibfl", 3)
    other_data = [replace(each, labels=each.labels.roll(1)) for each in base.data]
    others = [
        replace(base, seed=6), replace(base, rounds=4), replace(base, order=(0, 2, 1)), replace(base, data=other_data),
        replace(base, backend="autograd"), make_federation("fibfl", 3, rate=0.02), make_federation("fibfl+", 3),
    ]  # fmt: skip
    prints = [fingerprint(each) for each in (base, *others)]
    assert len(set(prints)) == len(prints)
    assert fingerprint(replace(base, workers=7)) == prints[0]


def test_an_unfinished_run_that_is_not_continued_is_named(make_federation, tmp_path):
    stopped_after(make_federation("fedavg", 3, rounds=3), tmp_path, 2)
    changed = make_federation("fedavg", 3, rounds=3, rate=0.02)
    with pytest.warns(UserWarning, match=r"holds 2 of 3 rounds of fedavg, seed 5, but with other settings"):
        list(Simulation(changed, checkpoints=RunCheckpoints(tmp_path, changed)).rounds())
    for other in (make_federation("fibfl", 3, rounds=3), replace(changed, seed=6), changed):
        list(Simulation(other, checkpoints=RunCheckpoints(tmp_path, other)).rounds())  # a warning would be an error


def test_a_draft_is_no_checkpoint_and_damage_is_said(make_federation, tmp_path):
    federation = make_federation("fedavg", 3)
    stopped_after(federation, tmp_path, 2)
    keep = RunCheckpoints(tmp_path, federation)
    (keep.folder / ".round-000003.draft").mkdir()
    assert len(keep.outcomes()) == 2
    (file,) = keep.folder.glob("round-*/*.safetensors")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(firma.BadInput, match="cannot be used"):
        list(Simulation(federation, checkpoints=keep).rounds())
    (keep.folder / "round-000002" / "state.json").write_text("{")
    with pytest.raises(firma.BadInput, match="delete it to start over"):
        keep.outcomes()


@contextmanager
def full_disk(room):
    """No file may grow beyond so many bytes: writing fails in the kernel, as on a full disk. Pytest's own log too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [0, 1000])
def test_a_full_disk_is_one_sentence(make_federation, tmp_path, room):
    federation = make_federation("fedavg", 3)
    stopped_after(federation, tmp_path, 1)
    with (
        full_disk(room),
        pytest.raises(firma.BadInput, match=r"round 2 cannot be saved \(.*File too large.*\); free disk space"),
    ):
        list(Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds())
    assert len(RunCheckpoints(tmp_path, federation).outcomes()) == 1
    assert not list(tmp_path.glob("*/.*"))


def test_the_command_resumes_too(command, tmp_path):
    words = ["run", "--dataset", "digits", "--method", "fedavg", "--rounds", "2", "--checkpoint", tmp_path, "--json"]
    code, first, _ = command(*words)
    assert code == 0
    written = [path.stat().st_mtime_ns for path in tmp_path.glob("*/round-*/*")]
    assert command(*words)[0] == 0
    assert [path.stat().st_mtime_ns for path in tmp_path.glob("*/round-*/*")] == written
    assert '"history"' in first
    assert len(written) == 2
