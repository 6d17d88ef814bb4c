"""A ready-made backend in the place of the built-in ones: parameters in; parameters, samples and metrics out."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from firma.engines.simulation import Simulation
from firma.errors import BadInput
from firma.flower.messages import INSTALL, flower
from firma.peer.ring_file import Task
from firma.tasks.task import CLASSIFICATION
from firma.training.backend import Backend, choose, metrics, portable, resume
from firma.training.local_step import Client, ClientData
from firma.training.preflight import prepare

WITHOUT_FLOWER = pytest.mark.skipif(find_spec("flwr") is not None, reason="Flower is installed here")


class AddOne:
    """Adds one to every parameter, and says only then that it has 10 samples plus its number."""

    def train(self, client, job, shuffle):
        client.parameters.add_(1.0)
        client.data = replace(client.data, labels=torch.zeros(10 + client.number, dtype=torch.int64))
        client.memory["seen"] = torch.full((job.number + 1,), job.number)

    def outputs(self, client, test):
        raise AssertionError("it knows metrics only")


def reported(trainer, client, test):
    return {"accuracy": 0.25 if test else 0.75}


FOREIGN = Backend(
    "foreign", "a test", AddOne, torch.clone, torch.clone, parallel="no", threads=1, draws=False, reports=reported
)


def test_an_autograd_backend_that_is_passed_gives_todays_bits(make_federation):
    federation = make_federation("fibfl+", clients=3, rounds=2, backend="autograd")
    own = choose(federation.models[0], federation.device, federation.recipe, 16, "autograd")
    assert prepare(federation.models, federation.device, federation.recipe, 16, (), federation.data, own) is own
    runs = [Simulation(federation), Simulation(replace(federation, backend=replace(own, name="mine")))]
    histories = [[outcome.accuracies for outcome in run.rounds()] for run in runs]
    np.testing.assert_array_equal(*histories)
    assert torch.equal(runs[0].parameters, runs[1].parameters)


@pytest.mark.parametrize("wire", ["float32", "bfloat16"])
def test_an_average_is_weighted_by_what_the_backend_counted(make_federation, wire):
    """Clients start apart and add one; the mean has weights 10, 11, 12, by the matrix and by messages."""
    federation = replace(make_federation("fedavg", clients=3, rounds=1), backend=FOREIGN, wire=wire)
    start = federation.models[0].flat()
    models = [federation.models[0].filled(torch.full_like(start, value)) for value in (0.0, 1.0, 2.0)]
    run = Simulation(replace(federation, models=models))
    (outcome,) = run.rounds()
    expected = (10 * 0 + 11 * 1 + 12 * 2) / 33 + 1
    torch.testing.assert_close(run.parameters, torch.full_like(run.parameters, expected), rtol=0.01, atol=0.0)
    assert run.sizes == [10, 11, 12]
    assert outcome.accuracies.tolist() == [0.25] * 3


def test_the_gate_uses_what_the_backend_reports(make_federation):
    """With a threshold above the reported training accuracy nobody passes the gate; below it everybody does."""
    seen = []

    def gated(trainer, client, test):
        seen.append(test)
        return {"accuracy": 0.5}

    federation = make_federation("fibfl+", clients=3, rounds=1)
    list(Simulation(replace(federation, backend=replace(FOREIGN, reports=gated))).rounds())
    assert seen == [False] * 3 + [True] * 3


def test_what_a_client_remembers_may_grow():
    nothing = torch.zeros(0)
    data = ClientData(nothing, torch.zeros(1), nothing, torch.zeros(1))
    old = Client(0, data, torch.arange(3.0), {"seen": torch.arange(5)})
    new = Client(0, data, torch.zeros(3), {"seen": torch.zeros(0, dtype=torch.int64)})
    resume(FOREIGN, new, portable(FOREIGN, old))
    assert torch.equal(new.parameters, old.parameters) and torch.equal(new.memory["seen"], old.memory["seen"])
    assert metrics(FOREIGN, AddOne(), new, CLASSIFICATION, test=True) == {"accuracy": 0.25}


@WITHOUT_FLOWER
def test_without_flower_a_sentence_says_what_to_install():
    with pytest.raises(BadInput, match="flwr, which is not installed here"):
        flower()
    assert "firma[flower]" in INSTALL


@WITHOUT_FLOWER
def test_the_command_says_it_too(command):
    code, _, err = command("flower", "mine:app", "--method", "local")
    assert (code, err) == (2, f"firma: {INSTALL}\n")


def test_a_ring_without_a_task_or_an_app_is_refused(tmp_path):
    from tests.peer.conftest import made_ring

    made = made_ring(tmp_path, members=2)
    values = made.ring.model_dump()
    assert "flower" not in made.path.read_text()
    from firma.peer.ring_file import checked

    with pytest.raises(BadInput, match=r"ring file: task\.shape is missing"):
        checked({key: value for key, value in values.items() if key not in ("task", "flower")})
    assert Task().shape == ()
