"""Frozen parameters stay and are not sent; tied ones train as torch trains them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import firma
from firma.errors import BadInput
from firma.methods import METHODS
from firma.models import SplitModel
from tests.small_models import (
    QUICK,
    Tied,
    accuracies,
    by_hand,
    client_data,
    seeded,
    stack,
    train,
    trained,
    with_one_memory,
    with_same_layer,
)


class Adapted(nn.Module):
    """A frozen linear layer plus a trainable product of two thin ones, as in LoRA."""

    def __init__(self, inputs, outputs, rank=2):
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.base.requires_grad_(False)
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def adapted(rank=2):
    return nn.Sequential(Adapted(6, 12, rank), nn.ReLU()), nn.Linear(12, 3)


@pytest.mark.parametrize("method", ["fedavg", "fibfl++", "fedrep"])
def test_frozen_parameters_stay_and_cost_nothing(method):
    pair = seeded(adapted)
    settings = QUICK | {"proximal": 0.1, "clip": 1.0}
    result = train(pair, method, settings=settings, rounds=3)
    small = 6 * 2 + 2 * 12
    assert result.parameters.shape[1] == small + 12 * 3 + 3
    wider = train(seeded(lambda: adapted(rank=3)), method, settings=settings, rounds=3)
    more = np.array(wider.sent_bytes) - np.array(result.sent_bytes)
    if method != "fibfl++":  # whose warm-up averages in pieces
        assert (more == 4 * (6 + 12) * np.array(result.messages)).all(), "nothing but the adapter is sent"
    for client in range(3):
        base = result.model(client).extractor[0].base
        assert torch.equal(base.weight, pair[0][0].base.weight)
        assert torch.equal(base.bias, pair[0][0].base.bias)
        assert not base.weight.requires_grad
        assert not torch.equal(result.model(client).extractor[0].up.weight, pair[0][0].up.weight)


@pytest.mark.parametrize("trains", ["model", "extractor", "head"])
def test_an_adapter_trains_as_in_a_plain_loop(trains):
    model, data = SplitModel(*seeded(adapted)), client_data()
    client = trained(model, data, trains)
    layout = model.layout()
    if trains == "model":
        torch.testing.assert_close(client.parameters, by_hand(model, data).flat(), rtol=1e-4, atol=1e-6)
    else:
        other = layout.span("head" if trains == "extractor" else "extractor")
        assert torch.equal(client.parameters[other], model.flat()[other])
    assert all(client.frozen[name].data_ptr() == own.data_ptr() for name, own in model.named_frozen()), "not copied"
    assert [piece.name for piece in layout.pieces][:2] == ["extractor.0.down.weight", "extractor.0.up.weight"]


def test_every_client_keeps_the_frozen_values_that_it_started_with(tmp_path):
    settings = QUICK | {"initial": "per-client"}
    result = train(adapted, settings=settings)
    bases = [result.model(client).extractor[0].base.weight for client in range(3)]
    assert not torch.equal(bases[0], bases[1])
    assert accuracies(result) == result.history[-1].tolist()
    again = firma.load(result.save(tmp_path / "run"))
    assert [set(each) for each in again.frozen] == [{"extractor.0.base.weight", "extractor.0.base.bias"}] * 3
    assert torch.equal(again.frozen[2]["extractor.0.base.weight"], bases[2])
    shared = train(adapted).save(tmp_path / "shared")
    assert "frozen.extractor.0.base.weight" in load_file(shared / "parameters.safetensors")


def test_parts_that_cannot_be_trained_are_told():
    def frozen(part):
        pair = seeded(adapted)
        pair[part].requires_grad_(False)
        return pair

    with pytest.raises(
        BadInput,
        match=r"extractor has no trainable parameters: all 4 are frozen, so .* nothing to share; put a layer",
    ):
        train(frozen(0))
    with pytest.raises(BadInput, match=r"head cannot be trained \(all its parameters are frozen\).*head_epochs"):
        train(frozen(1), "fedrep")
    with pytest.raises(BadInput, match=r"head cannot be trained \(all its parameters are frozen\)"):
        train(frozen(1), replace(METHODS["fedavg"], name="tuned", personal="tune-head"))
    for method, settings in (
        ("fedavg", QUICK), ("local", QUICK), ("fedrep", QUICK | {"head_epochs": 0}), ("per-fedavg", QUICK),
        ("fedavg-ft", QUICK),
    ):  # fmt: skip
        pair = frozen(1)
        result = train(pair, method, settings=settings)
        assert torch.equal(result.model(1).head.weight, pair[1].weight)
        assert torch.equal(result.model(1).extractor[0].up.weight, pair[0][0].up.weight) is False
    bare = (nn.Sequential(nn.Linear(6, 3)), nn.Identity())
    assert train(bare).parameters.shape[1] == 21
    with pytest.raises(BadInput, match="it has no parameters"):
        train(bare, "fedrep")


def test_tied_parameters_train_as_torch_trains_them():
    model, data = SplitModel(*seeded(lambda: (nn.Sequential(Tied(), nn.ReLU()), nn.Linear(6, 3)))), client_data()
    assert model.layout().size == 36 + 6 + 6 + 21
    torch.testing.assert_close(trained(model, data).parameters, by_hand(model, data).flat(), rtol=1e-4, atol=1e-6)
    exported = model.filled(trained(model, data).parameters).extractor[0]
    assert exported.back.weight is exported.there.weight
    twice = seeded(lambda: stack(with_same_layer))
    model = SplitModel(*twice)
    torch.testing.assert_close(trained(model, data).parameters, by_hand(model, data).flat(), rtol=1e-4, atol=1e-6)


def test_parameters_that_would_leave_or_overlap_are_refused():
    head = nn.Linear(6, 6)
    with pytest.raises(BadInput, match=r"share a parameter \('extractor.0.weight' is 'head.weight'\)"):
        train((nn.Sequential(head, nn.ReLU()), head))
    with pytest.raises(BadInput, match=r"'extractor.0.weight' and 'extractor.2.weight' share memory"):
        train(stack(with_one_memory))
