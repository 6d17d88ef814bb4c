"""Buffers: private to each client or shared, in exported models, and as forward leaves them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import firma
from firma.errors import BadInput
from firma.models import SplitModel
from firma.peer.wire.terms import signature
from firma.training.local_step import private_buffers
from tests.small_models import QUICK, accuracies, by_hand, client_data, normed, seeded, sharing, train, trained


def test_an_exported_model_is_as_accurate_as_the_last_row_of_the_history(tmp_path):
    result = train(seeded(normed), "fibfl", rounds=3)
    assert accuracies(result) == result.history[-1].tolist()
    assert "3 buffers are private to each client" in result.backend
    again = firma.load(result.save(tmp_path / "run"))
    stored = load_file(tmp_path / "run" / "parameters.safetensors")
    name = "extractor.1.running_mean"
    assert torch.equal(stored[f"client.2.buffer.{name}"], result.model(2).extractor[1].running_mean)
    assert torch.equal(again.buffers[2][name], result.buffers[2][name])
    assert int(again.buffers[0]["extractor.1.num_batches_tracked"]) > 0
    restored = replace(again, template=result.template)
    assert accuracies(restored) == result.history[-1].tolist()


@pytest.mark.parametrize("what", [True, ["running_mean", "running_var"], "1.running_mean"])
def test_buffers_travel_where_the_model_says_so(what):
    result = train(seeded(lambda: sharing(what)), rounds=2)
    layout = result.template.layout()
    shared = 12 if isinstance(what, str) else 24
    assert layout.buffers == shared
    assert layout.trained("extractor") == slice(shared, layout.extractor)
    assert signature(layout).tensors[0][0] == "extractor.1.running_mean"
    alone = train(seeded(normed), rounds=2)
    assert result.sent_bytes[0] - alone.sent_bytes[0] == 4 * shared * result.messages[0]
    means = [result.model(client).extractor[1].running_mean for client in range(3)]
    assert means[0].abs().sum() > 0
    assert torch.equal(means[0], means[1])
    assert set(result.buffers[0]) == {"extractor.1.num_batches_tracked"} | (
        {"extractor.1.running_var"} if isinstance(what, str) else set()
    )
    assert accuracies(result) == result.history[-1].tolist()
    assert not torch.equal(alone.buffers[0]["extractor.1.running_mean"], alone.buffers[1]["extractor.1.running_mean"])


def test_shared_buffers_are_not_touched_by_training():
    """Without mixing, sharing buffers changes nothing: no optimiser, clipping or proximal term reaches them."""
    settings = QUICK | {"proximal": 0.5, "clip": 0.1}
    runs = [train(seeded(lambda what=what: sharing(what)), "local", settings=settings) for what in (True, False)]
    assert torch.equal(runs[0].parameters[:, 24:], runs[1].parameters)
    assert torch.equal(runs[0].parameters[2, :12], runs[1].buffers[2]["extractor.1.running_mean"])
    assert np.array_equal(runs[0].history, runs[1].history)


def test_buffers_that_cannot_travel_are_told():
    with pytest.raises(BadInput, match=r"'running_men' is unknown .did you mean '1.running_mean'"):
        train(sharing(["running_men"]))
    with pytest.raises(BadInput, match="num_batches_tracked' is int64 and cannot be shared"):
        train(sharing(["num_batches_tracked"]))


class Moving(nn.Module):
    """A buffer that forward assigns anew, instead of changing it in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(dim=0)
        return x - self.mean


def test_a_buffer_that_forward_assigns_is_kept_per_client():
    model, data = (
        SplitModel(*seeded(lambda: (nn.Sequential(Moving(), nn.Linear(6, 4)), nn.Linear(4, 3)))),
        client_data(),
    )
    client = trained(model, data)
    expected = by_hand(model, data)
    torch.testing.assert_close(private_buffers(client)["extractor.0.mean"], expected.extractor[0].mean)
    result = train((model.extractor, model.head))
    assert not torch.equal(result.buffers[0]["extractor.0.mean"], result.buffers[1]["extractor.0.mean"])


def test_what_no_client_changes_is_not_shared_with_the_users_modules():
    pair = seeded(normed)
    train(pair)
    assert pair[0][1].running_mean.abs().sum() == 0
    assert int(pair[0][1].num_batches_tracked) == 0
