"""What the hooks of an algorithm are given, and what becomes of what they change."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import firma
from firma.engines.checkpoint import RunCheckpoints
from firma.engines.simulation import Simulation
from firma.methods import METHODS
from firma.models import SplitModel
from firma.seeds import generator
from tests.own_methods import finish, run, with_hooks, with_norms


def test_hooks_see_parameters_in_torchs_order(make_federation):
    """The compiled kernels keep weights transposed; hooks of one's own, and a server, must not notice."""
    seen = {}

    def before_training(self, one):
        seen.setdefault("client", one.start.clone())

    def aggregate(self, server):
        seen.setdefault("server", server.start.clone())
        return server.mean

    run(make_federation, with_hooks(before_training=before_training))
    run(make_federation, with_hooks(aggregate=aggregate))
    expected = make_federation("fedavg").models[0].flat()
    assert torch.equal(seen["client"], expected)
    assert torch.equal(seen["server"], expected)


@dataclass(frozen=True)
class Counting(firma.Algorithm):
    """Keeps how many steps each hook was told of, and whether it was told that the client took part."""

    name = "counting"

    def memory(self, model, shared):
        return {"batches": torch.zeros(1), "before": torch.zeros(1), "after": torch.zeros(1), "mixed": torch.zeros(1),
                "part": torch.zeros(1)}  # fmt: skip

    def before_training(self, one):
        one.memory["batches"].zero_()
        one.memory["before"].fill_(one.steps)

    def local_step(self, step):
        step.memory["batches"].add_(1)
        step.update(step.gradient())

    def after_training(self, one):
        one.memory["after"].fill_(one.steps)

    def after_mixing(self, one):
        one.memory["mixed"].fill_(one.steps)
        one.memory["part"].fill_(one.took_part)


def counted(simulation):
    """Of every client: the batches that it trained on, and what its hooks were told."""
    names = ("batches", "before", "after", "mixed", "part")
    return [[int(client.memory[name]) for name in names] for client in simulation._group.clients]


@pytest.mark.parametrize("workers", [1, 2])
def test_all_hooks_are_told_how_many_steps_a_client_takes(make_federation, workers):
    """Also where clients have limits of their own, which follow from class shares that mixing replaces."""
    row = replace(METHODS["frame"], name="mine", algorithm=Counting())
    limits = {"local_steps": 2, "local_steps_for": "different", "personal_share": "auto", "extractor_epochs": 40}
    federation = replace(make_federation(row, 3, 2, personal_epochs=0, **limits), workers=workers)
    simulation = Simulation(federation)
    list(simulation.rounds())
    found = counted(simulation)
    assert len({batches for batches, *_ in found}) > 1, "clients differ"
    for batches, *told in found:
        assert batches > 2
        assert told == [batches] * 3 + [1]


def test_a_client_that_took_no_part_took_no_steps(make_federation):
    row = replace(METHODS["fedavg"], name="mine", algorithm=Counting())
    federation = replace(make_federation(row, 5, 1), participation=0.6)
    simulation = Simulation(federation)
    list(simulation.rounds())
    there = federation.plan(0).participants
    for client, (batches, *told) in enumerate(counted(simulation)):
        assert (batches > 0) == (client in there)
        assert told == ([batches] * 3 + [1] if client in there else [0, 0, 0, 0])


def test_steps_of_a_round_survive_a_checkpoint(make_federation, tmp_path):
    row = replace(METHODS["frame"], name="mine", algorithm=Counting())
    limits = {"local_steps": 2, "local_steps_for": "different", "personal_share": "auto", "extractor_epochs": 40}
    federation = make_federation(row, 3, 3, personal_epochs=0, **limits)
    whole = Simulation(federation)
    list(whole.rounds())
    rounds = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds()
    next(rounds)
    next(rounds)
    rounds.close()
    again = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))
    list(again.rounds())
    assert counted(again) == counted(whole)


def test_a_server_knows_vectors_by_name(make_federation):
    """Clients send their number in a mixed vector; the server sees it in their rows, and all get what it made of it."""
    rows, got = [], []

    def send(self, one):
        one.memory["who"] = torch.tensor([float(one.client), 1.0])

    def aggregate(self, server):
        where = server.spans["who"]
        rows.append((server.participants, server.received[:, where].tolist(), server.clients, server.number))
        result = server.mean
        result[where] = server.received[:, where].sum(0)
        return result

    def after(self, one):
        got.append(one.memory["who"].tolist())

    mine = with_hooks(
        mixed=lambda self, shared: {"who": 2}, after_training=send, aggregate=aggregate, after_mixing=after
    )
    federation = make_federation(replace(METHODS["fedavg"], name="mine", algorithm=mine), 4, rounds=1)
    finish(replace(federation, participation=0.5))
    drawn = tuple(sorted(federation.order[i] for i in replace(federation, participation=0.5).plan(0).participants))
    assert rows == [(drawn, [[float(i), 1.0] for i in drawn], 4, 0)]
    assert got == [[float(sum(drawn)), 2.0]] * 4


def test_random_numbers_have_an_address(make_federation):
    drawn = {}

    def draw(self, one):
        drawn.setdefault((one.client, one.number), []).append(one.generator("noise").normal())

    for _ in range(2):
        run(make_federation, with_hooks(after_training=draw))
    assert all(first == again for first, again in drawn.values())
    assert len({first for first, _ in drawn.values()}) == len(drawn) == 6


@dataclass(frozen=True)
class Sized(firma.Algorithm):
    """Knows the model's size from `fitted`, and keeps as many numbers."""

    size: int = 0

    def fitted(self, model):
        return replace(self, size=model.layout().size)

    def memory(self, model, shared):
        return {"mine": torch.zeros(self.size)}

    def after_training(self, one):
        one.memory["mine"] = one.parameters


def test_an_algorithm_is_fitted_to_the_model_and_stays_the_same_run(make_federation):
    federation = make_federation(replace(METHODS["fedavg"], name="mine", algorithm=Sized()), 3, rounds=2)
    assert torch.equal(finish(federation)[0], finish(make_federation("fedavg", 3, rounds=2, backend="autograd"))[0])
    assert "Sized(size=0)" in federation.method.algorithm.identity


def test_a_step_knows_where_it_is(make_federation):
    steps = []

    def local_step(self, step):
        steps.append((step.client, step.number, step.index, float(step.generator("x").normal())))
        step.update(step.gradient(rows=slice(0, 4)))

    run(make_federation, with_hooks(local_step=local_step), epochs=1)
    assert sorted(each[:3] for each in steps) == [
        (client, number, index)
        for client, count in enumerate((3, 4, 2))
        for number in range(2)
        for index in range(count)
    ]
    assert len({each[3] for each in steps}) == len(steps)


def test_features_are_those_of_the_extractor_and_change_nothing(make_federation):
    federation = make_federation("fedavg", 1, rounds=1, epochs=1, batch=64)
    model = with_norms()
    seen = []

    def local_step(self, step):
        nowhere = torch.zeros_like(step.parameters)
        seen.append((step.features(), step.features(at=nowhere), step.outputs(), step.outputs(at=nowhere)))
        step.update(step.gradient(loss=step.loss))

    mine = replace(METHODS["fedavg"], name="mine", algorithm=with_hooks(local_step=local_step))
    ours = replace(federation, method=mine, models=[model])
    plain = Simulation(replace(federation, models=[model], backend="autograd"))
    simulation = Simulation(ours)
    list(simulation.rounds())
    list(plain.rounds())
    assert torch.equal(simulation.parameters, plain.parameters)
    assert all(torch.equal(simulation.buffers[0][name], kept) for name, kept in plain.buffers[0].items())
    shuffled = generator(federation.seed, "batches", 0, 0).permutation(len(federation.data[0].labels))
    with torch.no_grad():
        features = model.copy().extractor.eval()(federation.data[0].inputs[torch.from_numpy(shuffled)])
        torch.testing.assert_close(seen[0][0], features)
        torch.testing.assert_close(seen[0][2], model.copy().head(features))
    assert not seen[0][1].any()
    assert not seen[0][3].any()


def test_penalties_and_losses_are_part_of_the_gradient(make_federation):
    found = []

    def local_step(self, step):
        plain, twice = step.gradient(), step.gradient(loss=lambda outputs, targets: 2 * step.loss(outputs, targets))
        torch.testing.assert_close(twice, 2 * plain)
        pull = step.gradient(penalty=lambda features: features.square().sum()) - plain
        alone = step.gradient(
            penalty=lambda features: features.square().sum(), loss=lambda outputs, targets: 0 * outputs.sum()
        )
        torch.testing.assert_close(pull, alone, rtol=1e-3, atol=1e-4)
        found.append(float(pull.abs().max()))
        step.update(plain)

    run(make_federation, with_hooks(local_step=local_step), epochs=1)
    assert min(found) > 0.1


def test_what_a_hook_assigns_is_kept_in_processes_too(recipes, make_federation):
    """Moon assigns its memory: with layers that draw, clients train in forked processes, which share that memory."""
    drawing = SplitModel(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.2)), nn.Linear(16, 4))
    base = replace(make_federation("fedavg:algorithm=moon:Moon", 3), models=[drawing])
    found = [finish(replace(base, workers=workers))[0] for workers in (1, 2)]
    assert torch.equal(*found)


def test_other_parameters_that_begin_where_the_clients_own_do_are_others(make_federation):
    """A tensor of one repeated number lies in the client's own memory."""

    def repeated(self, step):
        step.update(step.gradient(at=step.parameters[:1].expand(len(step.parameters))))

    def copied(self, step):
        step.update(step.gradient(at=step.parameters[:1].repeat(len(step.parameters))))

    found = [run(make_federation, with_hooks(local_step=each))[0] for each in (repeated, copied)]
    assert torch.equal(*found)


def test_a_personal_model_of_ones_own_is_what_is_tested(make_federation):
    def keep(self, one):
        one.memory["personal"] = one.parameters * 0

    mine = with_hooks(memory=lambda self, model, shared: {"personal": model}, after_training=keep)
    assert not run(make_federation, mine)[0].any()
