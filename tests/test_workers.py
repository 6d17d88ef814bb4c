"""Worker processes: any number gives the same bits, whatever layers draw; and how they fail."""

import os
import random
import signal

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as recomputed

from firma.errors import BadInput
from firma.models import SplitModel
from firma.seeds import generator, torch_seed
from firma.training.local_step import batches, epoch_orders
from tests.small_models import descend, federation, normed, seeded, train


class Noisy(nn.Module):
    """Draws from wherever it is told, in training, and in evaluation if `always`."""

    def __init__(self, draw, always=False):
        super().__init__()
        self.draw, self.always, self.layer = draw, always, nn.Linear(6, 12)

    def forward(self, x):
        return self.layer(x) + (self.draw(x) if self.training or self.always else 0)


class Recomputed(nn.Module):
    """Dropout whose activations are computed again in the backward pass, from the generator's saved state."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.5), nn.ReLU())

    def forward(self, x):
        return recomputed(self.body, x, use_reentrant=False)


DRAWING = {
    "dropout": lambda: nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.3)),
    "torch": lambda: Noisy(lambda x: torch.rand(len(x), 1)),
    "numpy": lambda: Noisy(lambda x: float(np.random.rand())),  # noqa: NPY002
    "python": lambda: Noisy(lambda x: random.random()),
    "in evaluation": lambda: Noisy(lambda x: torch.randn(len(x), 12), always=True),
    "checkpointing": Recomputed,
}


@pytest.mark.parametrize("case", DRAWING)
def test_any_number_of_workers_gives_the_same_bits(case):
    pair = seeded(lambda: (DRAWING[case](), nn.Linear(12, 3)))
    runs = [train(pair, "fibfl++", workers=workers, clients=4) for workers in (1, 2, 3)]
    for workers, result in zip((1, 2, 3), runs, strict=True):
        assert f"autograd, {workers} at a time" in result.backend
        assert torch.equal(result.parameters, runs[0].parameters)
        assert np.array_equal(result.history, runs[0].history)
        for client, buffers in enumerate(result.buffers):
            assert all(torch.equal(kept, runs[0].buffers[client][name]) for name, kept in buffers.items())


def test_what_a_client_draws_is_torchs_own_at_its_address():
    """A plain loop after torch.manual_seed, at the address of client and round, draws the same numbers."""
    model = SplitModel(*seeded(lambda: (nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.5)), nn.Linear(12, 3))))
    result = train((model.extractor, model.head), "local", clients=2, rounds=1, workers=2)
    data = federation((model.extractor, model.head), "local", clients=2).data[1]
    copy = model.copy()
    whole = nn.Sequential(copy.extractor, copy.head)
    hyper = result.config["hyper"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(0, "layers", 1, 0))
        orders = batches(epoch_orders(len(data.labels), 2, generator(0, "batches", 1, 0)), 16)
        descend(whole, data, orders, hyper["rate"], hyper["momentum"])
    torch.testing.assert_close(result.parameters[1], copy.flat(), rtol=1e-4, atol=1e-6)


def test_a_loss_of_the_users_own_may_draw_too():
    def noisy(outputs, targets):
        return nn.functional.cross_entropy(outputs + torch.rand_like(outputs), targets)

    pair = seeded(lambda: (nn.Sequential(nn.Linear(6, 12), nn.Tanh()), nn.Linear(12, 3)))
    runs = [train(pair, clients=4, workers=workers, loss=noisy) for workers in (1, 2, 3)]
    assert all(torch.equal(each.parameters, runs[0].parameters) for each in runs)
    assert "autograd, 3 at a time" in runs[2].backend


def test_batch_normalisation_trains_on_all_cores():
    runs = [train(seeded(normed), workers=workers, clients=4) for workers in (1, 2, 3)]
    assert "autograd, 3 at a time" in runs[2].backend
    assert all(torch.equal(each.parameters, runs[0].parameters) for each in runs)


def test_what_hooks_record_stays_in_this_process():
    seen = []
    pair = seeded(lambda: (nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.2)), nn.Linear(12, 3)))
    pair[0][1].register_forward_hook(lambda module, args, out: seen.append(len(out)))
    result = train(pair, workers=2)
    assert "one at a time because layer 'extractor.1' has a forward hook" in result.backend
    assert sum(seen) > 3 * 2 * 50


def test_state_outside_buffers_is_told_and_does_not_depend_on_workers():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.steps = nn.Linear(6, 12), 0

        def forward(self, x):
            self.steps += self.training
            return self.layer(x) / (1 + 0.1 * self.steps)

    pair = seeded(lambda: (Counting(), nn.Linear(12, 3)))
    with pytest.warns(UserWarning, match="a training step changes 'extractor.steps', which is not a buffer"):
        runs = [train(pair, workers=workers) for workers in (1, 2)]
    assert torch.equal(runs[0].parameters, runs[1].parameters)
    assert "one at a time because a step changes 'extractor.steps'" in runs[1].backend


def test_an_error_in_a_worker_process_is_raised_here_with_its_traceback():
    class Strict(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 12)

        def forward(self, x):
            if len(x) > 10:
                raise ValueError(f"too many samples: {len(x)}")
            return self.layer(x)

    with pytest.raises(ValueError, match="too many samples: 16") as caught:
        train((Strict(), nn.Linear(12, 3)), workers=2)
    assert "in a worker process that trained client" in "".join(caught.value.__notes__)
    assert "in forward" in "".join(caught.value.__notes__)


def test_a_worker_process_that_is_killed_is_one_sentence():
    parent = os.getpid()

    class Dying(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 12)

        def forward(self, x):
            if os.getpid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
            return self.layer(x)

    with pytest.raises(BadInput, match=r"a worker process ended unexpectedly \(exit code -9\).*fewer workers"):
        train((Dying(), nn.Linear(12, 3)), workers=2)
