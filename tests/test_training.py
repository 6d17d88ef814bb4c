"""Trainers, optimisers and batches against torch's own and against each other."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numba import njit
from torch import nn

from firma.methods import METHODS
from firma.models import SplitModel, mlp
from firma.schedule import Phase
from firma.seeds import generator, torch_seed
from firma.settings import Hyper
from firma.training import kernels, tiles
from firma.training.autograd_trainer import AutogradTrainer
from firma.training.backend import choose, stack_of
from firma.training.compiled_trainer import CompiledTrainer
from firma.training.local_step import (
    Adam,
    Client,
    ClientData,
    Job,
    Recipe,
    Sgd,
    batches,
    epoch_orders,
    new_client,
    optimiser_memory,
    recipe,
)

CPU = torch.device("cpu")
PLAIN = Recipe(Sgd(0.01, 0.9))


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
    ours, memory = start.clone(), optimiser_memory(50, CPU)
    for _ in range(20):
        Adam(0.05)(ours, gradient(ours), memory, "head", slice(None))
    assert memory["optimiser.steps"].tolist() == [0, 20]
    leaf = start.clone().requires_grad_()
    torch.testing.assert_close(ours, quadratic_steps(torch.optim.Adam([leaf], lr=0.05), leaf))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs_sgd(momentum):
    start = torch.randn(50, generator=torch.Generator().manual_seed(1))
    ours, memory = start.clone(), optimiser_memory(50, CPU)
    for _ in range(20):
        Sgd(0.05, momentum)(ours, gradient(ours), memory, "head", slice(None))
    leaf = start.clone().requires_grad_()
    torch.testing.assert_close(ours, quadratic_steps(torch.optim.SGD([leaf], lr=0.05, momentum=momentum), leaf))


def test_batches_visit_every_sample_once_an_epoch():
    orders = epoch_orders(10, 3, generator(0, "batches", 0, 0))
    assert [len(each) for each in batches(orders, 4)] == [4, 4, 2] * 3
    assert all(sorted(order) == list(range(10)) for order in orders.tolist())
    assert orders[0].tolist() != orders[1].tolist()


def test_addresses_are_generators_of_their_own():
    draws = {tuple(generator(0, *address).integers(0, 1 << 30, 4)) for address in [("a", 0), ("a", 1), ("b", 0)]}
    assert len(draws) == 3
    assert generator(1, "x", 2).integers(0, 1 << 30) == generator(1, "x", 2).integers(0, 1 << 30)
    assert torch_seed(0, "initial weights", 0) == 1585001589601832752, "seeds are part of every figure ever printed"


def make_model(hidden=8, norm=True, relu=True, depth=2):
    """A stack of random shape with every parameter off its default."""
    layers, width = [nn.Flatten()], 6
    for _ in range(depth):
        layers += [nn.Linear(width, hidden), *([nn.LayerNorm(hidden)] * norm), *([nn.ReLU()] * relu)]
        width = hidden
    model = SplitModel(nn.Sequential(*layers), nn.Linear(width, 3))
    for _, parameter in model.named_parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape)
    return model


def make_client(flat, stored=False, size=23, moments=False):
    rng = np.random.default_rng(4)
    x = rng.integers(0, 256, (size, 2, 3)).astype(np.uint8)
    inputs = torch.from_numpy(x) if stored else torch.from_numpy(x.astype(np.float32) * np.float32(1 / 255))
    labels = torch.from_numpy(rng.integers(0, 3, size))
    memory = optimiser_memory(len(flat), CPU) if moments else {}
    return Client(0, ClientData(inputs, labels, inputs[:7], labels[:7], 1 / 255), flat, memory)


def make_job(method, hyper, *phases):
    row = METHODS[method] if isinstance(method, str) else method
    return Job(recipe(row, hyper), phases, hyper.batch)


SHAPES = [
    {"hidden": 8}, {"hidden": 37, "norm": False}, {"hidden": 5, "relu": False, "depth": 3},
    {"hidden": 300, "depth": 1}, {"norm": False, "relu": False, "depth": 1}, {"hidden": 32}, {"hidden": 64, "depth": 3},
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("trains", ["model", "head", "extractor"])
def test_compiled_training_is_autograds(shape, optimiser, trains):
    torch.manual_seed(2)
    model = make_model(**shape)
    stack, method = stack_of(model), replace(METHODS["fibfl"], optimiser=optimiser)
    job = make_job(method, Hyper(batch=8, rate=0.01), Phase(trains, 2), Phase(trains, 1))
    slow = make_client(model.flat(), moments=True)
    AutogradTrainer(model, CPU).train(slow, job, np.random.default_rng(1))
    fast = make_client(stack.turned(model.flat(), inward=True), stored=True, moments=True)
    CompiledTrainer(stack, 8).train(fast, job, np.random.default_rng(1))
    torch.testing.assert_close(stack.turned(fast.parameters, inward=False), slow.parameters, rtol=1e-3, atol=1e-5)
    first = [client.memory["optimiser.first"] for client in (fast, slow)]
    torch.testing.assert_close(stack.turned(first[0], inward=False), first[1], rtol=1e-2, atol=1e-5)
    if optimiser == "adam":
        assert fast.memory["optimiser.steps"].tolist() == slow.memory["optimiser.steps"].tolist()
    assert not torch.equal(fast.parameters, stack.turned(model.flat(), inward=True)), "nothing was trained"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("test", [True, False])
def test_compiled_accuracy_is_autograds(shape, test):
    torch.manual_seed(3)
    model = make_model(**shape)
    stack = stack_of(model)
    fast = CompiledTrainer(stack, 8).outputs(make_client(stack.turned(model.flat(), inward=True), stored=True), test)
    torch.testing.assert_close(fast, AutogradTrainer(model, CPU).outputs(make_client(model.flat()), test))


@pytest.mark.skipif(not tiles.PRODUCTS, reason="on this processor products are sgemm's")
@pytest.mark.parametrize("rows", [1, 8, 23])
@pytest.mark.parametrize(("n", "width"), [(4, 32), (64, 96), (260, 288), (784, 256)])
def test_products_of_tiles_are_products(rows, n, width):
    rng = np.random.default_rng(0)
    filled = -(-rows // tiles.ROWS) * tiles.ROWS
    left, weights = (rng.standard_normal(shape).astype(np.float32) for shape in ((filled, n), (n, width)))
    target = np.full((filled, width), np.nan, np.float32)
    packed = np.full(tiles.DEPTH * tiles.GROUP, np.nan, np.float32)
    product = njit(kernels._tiled_product.py_func)
    product(left.ctypes.data, rows, n, weights.ctypes.data, width, target.ctypes.data, packed.ctypes.data)
    np.testing.assert_allclose(target[:rows], left[:rows].astype(float) @ weights, rtol=1e-4, atol=1e-4)
    if n % tiles.COLUMNS == 0:
        back = np.full((filled, n), np.nan, np.float32)
        product_back = njit(kernels._tiled_product_back.py_func)
        product_back(target.ctypes.data, rows, width, weights.ctypes.data, n, back.ctypes.data, packed.ctypes.data)
        np.testing.assert_allclose(back[:rows], target[:rows].astype(float) @ weights.T, rtol=1e-4, atol=1e-2)


def test_bytes_and_floats_train_alike():
    model = make_model()
    stack, job = stack_of(model), make_job("fedavg", Hyper(batch=8), Phase("model", 2))
    results = []
    for stored in (True, False):
        client = make_client(stack.turned(model.flat(), inward=True), stored=stored)
        CompiledTrainer(stack, 8).train(client, job, np.random.default_rng(1))
        results.append(client.parameters)
    assert torch.equal(*results)


def test_turned_is_its_own_way_back():
    model = make_model()
    flat = torch.stack([model.flat(), model.flat() + 1])
    stack = stack_of(model)
    turned = stack.turned(flat, inward=True)
    assert not torch.equal(turned, flat)
    assert torch.equal(stack.turned(turned, inward=False), flat)


@pytest.mark.parametrize(
    ("extractor", "head"),
    [
        (nn.Sequential(nn.Linear(6, 4), nn.Tanh()), nn.Linear(4, 3)),
        (nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.LayerNorm(4)), nn.Linear(4, 3)),
        (nn.Sequential(nn.Linear(6, 4, bias=False)), nn.Linear(4, 3)),
        (nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4, elementwise_affine=False)), nn.Linear(4, 3)),
        (nn.Sequential(nn.ReLU(), nn.Linear(6, 4)), nn.Linear(4, 3)),
        (nn.Sequential(nn.Linear(6, 4)), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))),
        (nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5)), nn.Linear(4, 3)),
        (nn.Sequential(nn.Linear(6, 4).double()), nn.Linear(4, 3).double()),
    ],
)
def test_other_structures_go_by_autograd(extractor, head):
    model = SplitModel(extractor, head)
    assert isinstance(stack_of(model), str)
    assert choose(model, CPU, PLAIN, 8).name == "autograd"


def test_the_papers_model_is_compiled_unless_asked_otherwise():
    model = SplitModel(*mlp((8, 8), 10))
    assert choose(model, CPU, PLAIN, 64).name == "compiled"
    assert choose(model, CPU, PLAIN, 64, "autograd").name == "autograd"
    assert choose(model, torch.device("cuda"), PLAIN, 64, "auto").reason == "the device is cuda"


@pytest.mark.parametrize("trains", ["head", "extractor"])
def test_the_frozen_part_stays_as_it_was(trains):
    model = make_model()
    client = make_client(model.flat(), moments=True)
    job = make_job("fibfl", Hyper(batch=8), Phase(trains, 1))
    AutogradTrainer(model, CPU).train(client, job, np.random.default_rng(0))
    layout, other = model.layout(), {"head": "extractor", "extractor": "head"}[trains]
    assert torch.equal(client.parameters[layout.span(other)], model.flat()[layout.span(other)])
    assert not torch.equal(client.parameters[layout.span(trains)], model.flat()[layout.span(trains)])


def test_running_means_stay_with_their_client():
    model = SplitModel(nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.BatchNorm1d(4)), nn.Linear(4, 3))
    trainer = AutogradTrainer(model, CPU)
    data = make_client(model.flat()).data
    clients = [new_client(number, data, model.flat(), model, PLAIN) for number in range(2)]
    trainer.train(clients[0], make_job("fedavg", Hyper(batch=8), Phase("model", 1)), np.random.default_rng(0))
    trainer.outputs(clients[1], test=True)
    means = [client.memory["buffer.extractor.2.running_mean"] for client in clients]
    assert means[0].abs().sum() > 0, "client 0 saw data"
    assert means[1].abs().sum() == 0, "client 1 did not"


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
