"""Local training in parts: each part against a plain torch loop, its degenerate case, and what a client remembers."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import firma
from firma.engines import engine as engine_module
from firma.engines.checkpoint import RunCheckpoints
from firma.engines.simulation import Simulation
from firma.methods import METHODS
from firma.models import SplitModel, mlp
from firma.schedule import Phase
from firma.settings import Hyper
from firma.training import clipping, proximal
from firma.training.autograd_trainer import AutogradTrainer
from firma.training.backend import choose
from firma.training.local_step import ClientData, Job, Recipe, Sgd, batches, epoch_orders, new_client, recipe

CPU = torch.device("cpu")
SETTINGS = {"batch": 8, "rate": 0.05, "momentum": 0.9}


@pytest.fixture
def problem():
    torch.manual_seed(1)
    model = SplitModel(*mlp((6,), 3, 8, 5))
    inputs, labels = torch.randn(30, 6), torch.randint(0, 3, (30,))
    return model, ClientData(inputs, labels, inputs[:5], labels[:5])


def ours(model, data, **changes):
    hyper = Hyper(**(SETTINGS | changes))
    job = Job(recipe(METHODS["fedavg"], hyper), (Phase("model", 3),), hyper.batch)
    client = new_client(0, data, model.flat(), model, job.recipe)
    AutogradTrainer(model, CPU).train(client, job, np.random.default_rng(2))
    return client.parameters


def by_hand(model, data, penalty=lambda parameters, start: 0.0, clip=None):
    """The same epochs as a plain torch loop."""
    copy = model.copy()
    parameters = [parameter for _, parameter in copy.named_parameters()]
    start = [parameter.detach().clone() for parameter in parameters]
    optimiser = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    for rows in batches(epoch_orders(30, 3, np.random.default_rng(2)), 8):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(copy.head(copy.extractor(data.inputs[rows])), data.labels[rows])
        (loss + penalty(parameters, start)).backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        optimiser.step()
    return copy.flat()


def test_the_proximal_term_is_that_of_a_plain_loop(problem):
    def penalty(parameters, start):
        return 0.7 / 2 * sum(((p - s) ** 2).sum() for p, s in zip(parameters, start, strict=True))

    expected = by_hand(*problem, penalty)
    torch.testing.assert_close(ours(*problem, proximal=0.7), expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(expected, by_hand(*problem), rtol=1e-3, atol=1e-4), "the term did nothing"


def test_clipping_is_that_of_a_plain_loop(problem):
    expected = by_hand(*problem, clip=0.3)
    torch.testing.assert_close(ours(*problem, clip=0.3), expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(expected, by_hand(*problem), rtol=1e-3, atol=1e-4), "nothing was clipped"


def test_without_effect_the_parts_change_no_bit(problem):
    plain = ours(*problem)
    assert torch.equal(ours(*problem, clip=1e9), plain)
    assert torch.equal(ours(*problem, proximal=0.0, clip=None), plain)


def test_both_parts_together_clip_what_the_pull_adds(problem):
    def penalty(parameters, start):
        return 5.0 / 2 * sum(((p - s) ** 2).sum() for p, s in zip(parameters, start, strict=True))

    torch.testing.assert_close(
        ours(*problem, proximal=5.0, clip=0.2), by_hand(*problem, penalty, 0.2), rtol=1e-4, atol=1e-6
    )


def test_a_strong_pull_keeps_clients_where_they_started(problem):
    start = problem[0].flat()
    far, near = ((ours(*problem, proximal=mu, momentum=0.0) - start).norm() for mu in (0.0, 15.0))
    assert near < far / 2


def test_the_compiled_kernels_step_aside_and_say_so(command):
    model, plain = SplitModel(*mlp((6,), 3, 8, 5)), recipe(METHODS["fedavg"], Hyper())
    assert choose(model, CPU, plain, 8).name == "compiled"
    for changes, word in (({"proximal": 0.1}, "a proximal term"), ({"clip": 1.0}, "gradient clipping")):
        found = choose(model, CPU, recipe(METHODS["fedavg"], Hyper(**changes)), 8)
        assert (found.name, found.reason) == ("autograd", f"the compiled kernels do not support {word}")
    own_loss = Recipe(Sgd(0.1, 0.9), objective=lambda logits, labels: logits.square().mean())
    assert "a custom loss" in choose(model, CPU, own_loss, 8).reason
    words = ["run", "--method", "fedavg", "--rounds", "1", "--clients", "2", "--set", "proximal=0.1", "--verbose"]
    code, out, _ = command(*words)
    assert code == 0
    assert "the compiled kernels do not support a proximal term" in out


def test_each_part_is_a_small_file_that_knows_no_kernel():
    for part in (proximal, clipping):
        text = Path(part.__file__).read_text()
        assert len(text.splitlines()) <= 60
        assert "kernels" not in text
        assert "compiled" not in text


def test_fedprox_runs_as_a_federation_and_mu_matters():
    def final(mu):
        return firma.run(
            "digits", "skew-1", "fedavg", clients=3, rounds=2, settings={"epochs": 2, "proximal": mu}
        ).parameters

    plain, pulled = final(0.0), final(1.0)
    assert not torch.allclose(plain, pulled, atol=1e-4)


@dataclass(frozen=True)
class Counting:
    """A transform with a memory of its own: it counts its steps and adds what it counted to the gradient."""

    name: str = "counting"

    def memory(self, size):
        return {"counting.steps": torch.zeros((), dtype=torch.int64), "counting.sum": torch.zeros(size)}

    def __call__(self, gradients, step):
        step.memory["counting.steps"].add_(1)
        step.memory["counting.sum"][step.span].add_(gradients)
        gradients.add_(step.memory["counting.sum"][step.span], alpha=0.01 * float(step.memory["counting.steps"]))


def test_checkpoints_save_whatever_a_transform_remembers(make_federation, tmp_path, monkeypatch):
    def counting(method, hyper, task, *others):
        return replace(recipe(method, hyper, task, *others), transforms=(Counting(),))

    monkeypatch.setattr(engine_module, "recipe", counting)
    federation = make_federation("fibfl", 3, rounds=4)
    whole = Simulation(federation)
    history = [outcome.accuracies for outcome in whole.rounds()]
    rounds = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds()
    next(rounds), next(rounds)
    rounds.close()
    again = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))
    np.testing.assert_array_equal([outcome.accuracies for outcome in again.rounds()], history)
    assert torch.equal(again.parameters, whole.parameters)
    (file,) = tmp_path.glob("*/round-000004/*.safetensors")
    assert {"0/counting.steps", "2/counting.sum", "1/optimiser.first"} <= set(load_file(file))


def to_version_0_1(folder):
    """Rewrite the newest checkpoint as version 0.1 wrote it: moments by client, a table of steps, numbered buffers."""
    (path,) = folder.glob("*/round-*/group-00000.safetensors")
    now, old, steps = load_file(path), {}, []
    old["parameters"] = now.pop("parameters")
    for client in range(len(old["parameters"])):
        memory = {name.partition("/")[2]: tensor for name, tensor in now.items() if name.startswith(f"{client}/")}
        buffers = sorted((name for name in memory if name.startswith("buffer.")), key=list(memory).index)
        model_order = ["running_mean", "running_var", "num_batches_tracked"]
        buffers.sort(key=lambda name: model_order.index(name.rpartition(".")[2]))
        old |= {f"private.{number}.{client}": memory[name] for number, name in enumerate(buffers)}
        if "optimiser.first" in memory:
            old |= {f"{name}.{client}": memory[f"optimiser.{name}"] for name in ("first", "second")}
            steps.append(memory["optimiser.steps"])
    old["steps"] = torch.stack(steps) if steps else torch.empty(0, 2, dtype=torch.int64)
    save_file(old, path)
    facts = path.parent / "state.json"
    facts.write_text(facts.read_text().replace('"format": 2', '"format": 1'))


@pytest.mark.parametrize("method", ["fibfl++", "fedavg"])
@pytest.mark.parametrize("norm", [False, True])
def test_a_checkpoint_of_version_0_1_is_resumed_bit_by_bit(make_federation, tmp_path, method, norm):
    federation = make_federation(method, 3, rounds=6)
    if norm:
        torch.manual_seed(0)
        extractor = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2))
        federation = replace(federation, models=[SplitModel(extractor, nn.Linear(16, 4))])
    whole = Simulation(federation)
    history = [outcome.accuracies for outcome in whole.rounds()]
    rounds = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds()
    next(rounds), next(rounds), next(rounds)
    rounds.close()
    to_version_0_1(tmp_path)
    again = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))
    np.testing.assert_array_equal([outcome.accuracies for outcome in again.rounds()], history)
    assert torch.equal(again.parameters, whole.parameters)
