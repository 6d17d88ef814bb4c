"""A checkpoint belongs to one architecture: equal shapes are not equal runs."""

import hashlib
import json
from dataclasses import asdict, replace

import numpy as np
import torch
from torch import nn

from firma.engines.checkpoint import RunCheckpoints, fingerprint
from firma.engines.simulation import Simulation
from firma.methods import stable_columns
from firma.models import SplitModel
from firma.models.architecture import describe, digest
from firma.settings import stable_settings
from tests.small_models import Tied, federation, seeded, sharing, train


def federation_of(make_federation, extractor):
    torch.manual_seed(0)
    return replace(make_federation("fedavg", 3), models=[SplitModel(extractor(), nn.Linear(16, 4))])


class Own(nn.Module):
    """Its option is an attribute that `extra_repr` does not show."""

    def __init__(self, power=1, act=torch.relu):
        super().__init__()
        self.layer, self.power, self.act = nn.Linear(12, 16), power, act

    def forward(self, x):
        return self.act(self.layer(x)) ** self.power


def closed_over(number):
    class Local(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(12, 16)

        def forward(self, x):
            return self.layer(x) * number

    return Local


def layered(*more):
    return lambda: nn.Sequential(nn.Linear(12, 16), *more)


def hooked():
    extractor = layered(nn.GELU())()
    extractor[1].register_forward_hook(lambda module, args, out: out * 2)
    return extractor


def frozen():
    extractor = layered(nn.GELU())()
    extractor[0].bias.requires_grad_(False)
    return extractor


def test_equal_shapes_are_not_equal_runs(make_federation):
    extractors = [
        layered(nn.GELU()), layered(nn.GELU(approximate="tanh")), layered(nn.Tanh()), layered(nn.Dropout(0.1)),
        layered(nn.Dropout(0.9)), layered(nn.ReLU()), layered(), hooked, frozen, Own, lambda: Own(power=2),
        lambda: Own(act=torch.tanh), lambda: Own(act=nn.functional.gelu), lambda: Own(act=lambda x: x + 1),
        lambda: Own(act=lambda x: x + 2), closed_over(1), closed_over(2),
    ]  # fmt: skip
    prints = [fingerprint(federation_of(make_federation, each)) for each in extractors]
    assert len(set(prints)) == len(prints)
    assert prints == [fingerprint(federation_of(make_federation, each)) for each in extractors]


def test_frozen_values_and_initial_buffers_decide_a_run_too(make_federation):
    prints = set()
    for change in (0.0, 1.0):
        run = federation_of(make_federation, lambda: nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16)))
        run.models[0].extractor[1].running_mean.add_(change)
        prints.add(fingerprint(run))
        run = federation_of(make_federation, frozen)
        run.models[0].extractor[0].bias.data.add_(change)
        prints.add(fingerprint(run))
    assert len(prints) == 4


def test_the_built_in_mlp_has_the_name_that_versions_0_1_and_0_2_gave_it(make_federation):
    """The formula of those versions, so that their checkpoints are found."""
    run = make_federation("fibfl++", 3)
    facts = {
        "method": {"name": run.method.name} | stable_columns(run.method), "hyper": stable_settings(run.hyper),
        "rounds": run.rounds, "seed": run.seed, "order": list(run.order), "wire": run.wire, "path": "compiled",
        "pieces": [asdict(piece) for piece in run.models[0].layout().pieces],
    }  # fmt: skip
    expected = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    expected.update(run.models[0].flat().numpy().tobytes())
    for each in run.data:
        for tensor in (each.inputs, each.labels, each.test_inputs, each.test_labels):
            expected.update(tensor.numpy().tobytes())
    assert fingerprint(run) == expected.hexdigest()


def test_a_checkpoint_is_not_taken_by_another_architecture(tmp_path):
    def build(act):
        return seeded(lambda: (nn.Sequential(nn.Linear(6, 12), act), nn.Linear(12, 3)))

    with_tanh = train(build(nn.Tanh())).history
    train(build(nn.GELU()), checkpoint=tmp_path)
    assert np.array_equal(train(build(nn.Tanh()), checkpoint=tmp_path).history, with_tanh)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_description_is_plain_data_and_values_are_not_in_it():
    model = SplitModel(*seeded(lambda: sharing(["running_mean"])))
    text = json.dumps(describe(model))
    assert '"buffer": "shared"' in text
    assert '"buffer": "private"' in text
    moved = model.filled(model.flat() + 1)
    assert digest(moved) == digest(model)
    tied = describe(SplitModel(nn.Sequential(Tied()), nn.Linear(6, 3)))
    assert [each.get("tied") for module in tied["modules"] for each in module.get("tensors", [])].count(
        "extractor.0.there.weight"
    ) == 1  # fmt: skip


def test_shared_and_frozen_tensors_survive_a_checkpoint(tmp_path):
    def build():
        extractor, head = sharing(True)
        extractor[0].bias.requires_grad_(False)
        return extractor, head

    pair = seeded(build)
    whole = train(pair, "fibfl", rounds=3)
    run = federation(pair)
    rounds = Simulation(run, checkpoints=RunCheckpoints(tmp_path, run)).rounds()
    next(rounds)
    rounds.close()
    again = Simulation(run, checkpoints=RunCheckpoints(tmp_path, run))
    history = np.stack([outcome.accuracies for outcome in again.rounds()])
    assert np.array_equal(history, whole.history)
    assert torch.equal(again.parameters, whole.parameters)
