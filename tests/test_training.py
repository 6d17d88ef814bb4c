"""Learner, optimisers and batches against torch's own."""

import numpy as np
import pytest
import torch
from torch import nn

from firma.models import SplitModel, mlp
from firma.models.learner import AutogradLearner
from firma.optim import adam_step, sgd_step
from firma.seeds import generator, torch_seed
from firma.training import batches

CPU = torch.device("cpu")


def quadratic_steps(optimiser, values, steps=20):
    """Parameters after some steps on a bumpy bowl."""
    target = torch.linspace(-1, 1, values.numel())
    for _ in range(steps):
        optimiser.zero_grad()
        (((values - target) ** 2).sum() + values.sin().sum()).backward()
        optimiser.step()
    return values.detach()


def gradient(values):
    return 2 * (values - torch.linspace(-1, 1, values.numel())) + values.cos()


def test_adam_is_torchs_adam():
    start = torch.randn(50, generator=torch.Generator().manual_seed(1))
    ours, first, second = start.clone(), torch.zeros(50), torch.zeros(50)
    for step in range(1, 21):
        adam_step(ours, gradient(ours), first, second, step, 0.05)
    leaf = start.clone().requires_grad_()
    torch.testing.assert_close(ours, quadratic_steps(torch.optim.Adam([leaf], lr=0.05), leaf))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs_sgd(momentum):
    start = torch.randn(50, generator=torch.Generator().manual_seed(1))
    ours, velocity = start.clone(), torch.zeros(50)
    for _ in range(20):
        sgd_step(ours, gradient(ours), velocity, 0.05, momentum)
    leaf = start.clone().requires_grad_()
    torch.testing.assert_close(ours, quadratic_steps(torch.optim.SGD([leaf], lr=0.05, momentum=momentum), leaf))


def test_batches_visit_every_sample_once_an_epoch():
    indices = list(batches(10, 4, 3, generator(0, "batches", 0, 0), CPU))
    assert [len(each) for each in indices] == [4, 4, 2] * 3
    epochs = [torch.cat(indices[k : k + 3]) for k in (0, 3, 6)]
    assert all(sorted(epoch.tolist()) == list(range(10)) for epoch in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()


def test_addresses_are_generators_of_their_own():
    draws = {tuple(generator(0, *address).integers(0, 1 << 30, 4)) for address in [("a", 0), ("a", 1), ("b", 0)]}
    assert len(draws) == 3
    assert generator(1, "x", 2).integers(0, 1 << 30) == generator(1, "x", 2).integers(0, 1 << 30)
    assert torch_seed(0, "initial weights", 0) == 1585001589601832752, "seeds are part of every figure ever printed"


@pytest.mark.parametrize("trains", ["model", "head", "extractor"])
def test_only_the_part_that_trains_gets_a_gradient(trains):
    model = SplitModel(*mlp((6,), 3, 8, 4))
    learner, layout = AutogradLearner(model, CPU), model.layout()
    gradients = torch.full((layout.size,), 7.0)
    learner.bind(model.flat(), gradients, [])
    learner.backward(torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1]), trains)
    other = {"model": [], "head": ["extractor"], "extractor": ["head"]}[trains]
    assert (gradients[layout.span(trains)] != 7).all()
    assert all((gradients[layout.span(part)] == 7).all() for part in other)


def test_running_means_stay_with_their_client():
    model = SplitModel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.Linear(4, 2))
    learner = AutogradLearner(model, CPU)
    assert not learner.cacheable
    flat, gradients = model.flat(), torch.zeros(model.layout().size)
    private = [[each.clone() for each in model.buffers()] for _ in range(2)]
    learner.bind(flat, gradients, private[0])
    learner.backward(torch.randn(8, 3) + 5, torch.zeros(8, dtype=torch.int64), "model")
    learner.bind(flat, gradients, private[1])
    assert private[0][0].abs().sum() > 0, "client 0 saw data"
    assert private[1][0].abs().sum() == 0, "client 1 did not"


def test_layout_puts_the_extractor_first():
    layout = SplitModel(*mlp((6,), 3, 8, 4)).layout()
    assert layout.names(0, layout.extractor)[-1] == "extractor.7.bias"
    assert layout.names(layout.extractor, layout.size) == ("head.weight", "head.bias")
    assert layout.pieces[-1].stop == layout.size


def test_filled_is_the_inverse_of_flat():
    model = SplitModel(*mlp((6,), 3, 8, 4))
    other = model.filled(torch.arange(float(model.layout().size)))
    assert torch.equal(other.flat(), torch.arange(float(model.layout().size)))
    assert not np.array_equal(model.flat().numpy(), other.flat().numpy())
