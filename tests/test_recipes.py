"""The recipes in examples/methods as they are: against rows of the table, naive oracles and FedAvg."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from firma.algorithms.catalogue import algorithm_of
from firma.method_lookup import lookup
from firma.mixing.ring_order import neighbours
from firma.privacy import Audit
from firma.seeds import generator
from reference import Numbers, joint_sgd, make_sites, parameters, present
from reference_algorithms import load
from tests.own_methods import RECIPES, SCAFFOLD, finish, with_norms

LINES = {"fedprox": 30, "scaffold": 60, "fedbn": 15, "fedavgm": 40, "fedadam": 40, "fedsam": 40, "moon": 40}
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


def test_recipes_are_as_short_as_promised():
    assert {path.stem for path in RECIPES.glob("*.py")} == set(LINES)
    for name, most in LINES.items():
        assert len((RECIPES / f"{name}.py").read_text().splitlines()) <= most, name


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_fedprox_is_the_setting_proximal(recipes, make_federation, share):
    ours = replace(make_federation("fedavg:algorithm=fedprox:FedProx(mu=0.3)", 4), participation=share)
    theirs = replace(make_federation("fedavg", 4, proximal=0.3), participation=share)
    assert torch.equal(finish(ours)[0], finish(theirs)[0])
    assert not torch.equal(finish(ours)[0], finish(replace(theirs, method=lookup("fedavg"), hyper=ours.hyper))[0])


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_scaffold_is_the_row_scaffold_and_costs_the_same(recipes, make_federation, share):
    ours, theirs = (replace(make_federation(row, 4), participation=share) for row in (SCAFFOLD, "scaffold"))
    assert torch.equal(finish(ours)[0], finish(theirs)[0])
    assert finish(ours)[1] == finish(theirs)[1]
    elements = ours.models[0].layout().size
    clients = len(ours.ring(ours.plan(0)))
    assert finish(ours)[1][0] == (2 * clients, 2 * clients * 2 * elements * 4 + 8 * clients)


def test_scaffold_by_messages(recipes, make_federation):
    ours = make_federation(SCAFFOLD, 4)
    by_messages = finish(ours, Audit(neighbours(ours.order)))
    torch.testing.assert_close(by_messages[0], finish(ours)[0], **CLOSE)
    assert by_messages[1] == finish(ours)[1]


def test_fedbn_is_the_column_private(recipes, make_federation):
    def run(row):
        from firma.training.private_parameters import with_private

        base = make_federation(row, 4)
        return finish(
            replace(base, models=[with_private(with_norms(), base.method, algorithm_of(base.method, base.hyper))])
        )

    ours, theirs, plain = run("fedavg:algorithm=fedbn:FedBN"), run("fedavg:private=norm"), run("fedavg")
    assert torch.equal(ours[0], theirs[0])
    assert ours[1] == theirs[1] != plain[1]
    assert not torch.equal(ours[0], plain[0])


def served(federation, change):
    """FedAvg at a naive server that makes its next model by `change(x, mean)`."""
    hyper = federation.hyper
    numbers = Numbers(
        lr=hyper.rate, momentum=hyper.momentum, batch=hyper.batch, e=hyper.epochs, share=federation.participation
    )
    model = federation.models[0]
    sites = make_sites([(each.inputs, each.labels) for each in federation.data], model.extractor, model.head)
    x = parameters(sites[0])
    for r in range(federation.rounds):
        there = present(sites, federation.seed, r, numbers, list(federation.order))
        for site in there:
            load(site, x)
            joint_sgd(site, generator(federation.seed, "batches", site.number, r), numbers)
        total = sum(len(site.y) for site in there)
        x = change(x, sum(parameters(site) * (len(site.y) / total) for site in there))
    return x.expand(len(sites), -1)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_server_momentum_agrees_with_the_oracle(recipes, make_federation, share):
    federation = replace(
        make_federation("fedavg:algorithm=fedavgm:FedAvgM(momentum=0.8,rate=0.7)", 5), participation=share
    )
    velocity = 0.0

    def change(x, mean):
        nonlocal velocity
        velocity = 0.8 * velocity + mean - x
        return x + 0.7 * velocity

    torch.testing.assert_close(finish(federation)[0], served(federation, change), rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_fedadam_agrees_with_the_oracle(recipes, make_federation, share):
    federation = replace(make_federation("fedavg:algorithm=fedadam:FedAdam(rate=0.03)", 5), participation=share)
    m, v = 0.0, 1e-6

    def change(x, mean):
        nonlocal m, v
        m, v = 0.9 * m + 0.1 * (mean - x), 0.99 * v + 0.01 * (mean - x) ** 2
        return x + 0.03 * m / (v**0.5 + 1e-3)

    torch.testing.assert_close(finish(federation)[0], served(federation, change), rtol=2e-3, atol=5e-5)


def test_server_momentum_of_nothing_is_fedavg(recipes, make_federation):
    ours = make_federation("fedavg:algorithm=fedavgm:FedAvgM(momentum=0,rate=1)", 4)
    torch.testing.assert_close(finish(ours)[0], finish(make_federation("fedavg", 4))[0], **CLOSE)
    assert finish(ours)[1] == finish(make_federation("fedavg", 4))[1]
    moved = make_federation("fedavg:algorithm=fedavgm:FedAvgM(momentum=0.9)", 4)
    assert not torch.allclose(finish(moved)[0], finish(ours)[0], **CLOSE)


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("recipe", ["fedavgm:FedAvgM", "fedadam:FedAdam"])
def test_a_server_by_messages_is_the_same_bit_by_bit(recipes, make_federation, recipe, backend):
    federation = replace(make_federation(f"fedavg:algorithm={recipe}", 5, backend=backend), participation=0.6)
    ours, messages = finish(federation), finish(federation, Audit(neighbours(federation.order)))
    assert torch.equal(ours[0], messages[0])
    assert ours[1] == messages[1]


def test_a_server_shares_extractors_too(recipes, make_federation):
    federation = make_federation("fedrep:algorithm=fedavgm:FedAvgM(momentum=0,rate=1)", 4)
    torch.testing.assert_close(finish(federation)[0], finish(make_federation("fedrep", 4))[0], **CLOSE)


@pytest.mark.parametrize("nothing", ["fedsam:FedSAM(rho=0)", "moon:Moon(mu=0)", "fedprox:FedProx(mu=0)"])
def test_settings_of_nothing_are_fedavg(recipes, make_federation, nothing):
    name = nothing.partition("(")[0]
    plain = finish(make_federation("fedavg", 4, backend="autograd"))[0]
    assert torch.equal(finish(make_federation(f"fedavg:algorithm={nothing}", 4))[0], plain)
    assert not torch.allclose(finish(make_federation(f"fedavg:algorithm={name}", 4))[0], plain, **CLOSE)


def test_moon_agrees_with_a_naive_step(recipes, make_federation):
    """One client, one step a round: the gradient of the written-out loss, with the previous round's model."""
    federation = make_federation("fedavg:algorithm=moon:Moon(mu=2.0)", 1, rounds=3, batch=64, epochs=1, momentum=0.0)
    data, model = federation.data[0], federation.models[0].copy()
    whole = nn.Sequential(model.extractor, model.head)
    start = [p.detach().clone() for p in whole.parameters()]

    def features(values):
        names = [name for name, _ in model.extractor.named_parameters()]
        return torch.func.functional_call(model.extractor, dict(zip(names, values, strict=False)), data.inputs)

    previous = start
    for _ in range(3):
        now = [p.detach().clone() for p in whole.parameters()]
        z, near, far = model.extractor(data.inputs), features(now).detach(), features(previous).detach()
        a, b = (torch.nn.functional.cosine_similarity(z, each).div(0.5).exp() for each in (near, far))
        loss = nn.functional.cross_entropy(model.head(z), data.labels) - 2.0 * (a / (a + b)).log().mean()
        whole.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in whole.parameters():
                p.sub_(p.grad, alpha=0.01)
        previous = [p.detach().clone() for p in whole.parameters()]
    expected = torch.cat([p.detach().reshape(-1) for p in whole.parameters()])
    torch.testing.assert_close(finish(federation)[0][0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("wire", ["bfloat16", "int8"])
@pytest.mark.parametrize("row", [SCAFFOLD, "fedavg:algorithm=fedavgm:FedAvgM"])
def test_messages_may_be_rounded(recipes, make_federation, row, wire):
    federation = make_federation(row, 3)
    rounded, exact = finish(replace(federation, wire=wire)), finish(federation)
    assert rounded[1][0][1] < exact[1][0][1]
    torch.testing.assert_close(rounded[0], exact[0], rtol=0.05, atol=0.05)
    assert not torch.equal(rounded[0], exact[0])
