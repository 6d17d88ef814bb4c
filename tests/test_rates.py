"""Weight decay and the schedule of the learning rate, against torch's optimisers and by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from firma.engines.simulation import Simulation
from firma.methods import METHODS
from firma.schedule import Phase, plan, rate_factor
from firma.seeds import generator
from firma.settings import Hyper
from firma.training.autograd_trainer import AutogradTrainer
from firma.training.backend import stack_of
from firma.training.compiled_trainer import CompiledTrainer
from test_simulation import CLOSE, finish
from test_training import CPU, make_client, make_job, make_model

DECAY, RATE = 0.5, 0.02  # so large that a step without it is seen at once


def by_hand(model, client, optimiser, shuffle, trains, epochs, batch):
    """Mini-batches by torch.optim: AdamW; or SGD whose parameters shrink by 1 - rate · λ before every step."""
    own = model.copy()
    parts = {"model": [own.extractor, own.head], "extractor": [own.extractor], "head": [own.head]}[trains]
    trained = [p for part in parts for p in part.parameters()]
    if optimiser == "adam":
        stepper = torch.optim.AdamW(trained, lr=RATE, weight_decay=DECAY)
    else:
        stepper = torch.optim.SGD(trained, lr=RATE, momentum=0.9)
    for _ in range(epochs):
        order = shuffle.permutation(len(client.data.labels))
        for start in range(0, len(order), batch):
            rows = torch.from_numpy(order[start : start + batch])
            stepper.zero_grad()
            nn.functional.cross_entropy(
                own.head(own.extractor(client.data.inputs[rows])), client.data.labels[rows]
            ).backward()
            if optimiser == "sgd":
                with torch.no_grad():
                    for p in trained:
                        p.mul_(1 - RATE * DECAY)
            stepper.step()
    return own.flat()


@pytest.mark.parametrize("hidden", [8, 64])  # of 64, the kernel for Adam goes by tiles
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("trains", ["model", "head", "extractor"])
def test_weight_decay_is_decoupled_and_the_same_in_both_backends(optimiser, trains, hidden):
    torch.manual_seed(2)
    model = make_model(hidden=hidden)
    stack, method = stack_of(model), replace(METHODS["fibfl"], optimiser=optimiser)
    hyper = Hyper(batch=8, rate=RATE, weight_decay=DECAY)
    job = make_job(method, hyper, Phase(trains, 2))
    slow = make_client(model.flat(), moments=True)
    AutogradTrainer(model, CPU).train(slow, job, np.random.default_rng(1))
    fast = make_client(stack.turned(model.flat(), inward=True), moments=True)
    CompiledTrainer(stack, 8).train(fast, job, np.random.default_rng(1))
    expected = by_hand(model, make_client(model.flat()), optimiser, np.random.default_rng(1), trains, 2, 8)
    torch.testing.assert_close(slow.parameters, expected, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(stack.turned(fast.parameters, inward=False), expected, rtol=1e-3, atol=1e-5)
    free = make_client(model.flat(), moments=True)
    AutogradTrainer(model, CPU).train(
        free, make_job(method, Hyper(batch=8, rate=RATE), Phase(trains, 2)), np.random.default_rng(1)
    )
    assert not torch.allclose(free.parameters, expected, rtol=1e-2, atol=1e-3), "decay makes no difference"
    frozen = {"model": slice(0, 0), "head": model.layout().span("extractor"), "extractor": model.layout().span("head")}
    assert torch.equal(slow.parameters[frozen[trains]], model.flat()[frozen[trains]]), "what is frozen does not shrink"


def test_the_schedule_is_half_a_cosine():
    cosine = Hyper(schedule="cosine")
    factors = [rate_factor(cosine, 30, number) for number in range(30)]
    assert factors[0] == 1
    assert factors[15] == pytest.approx(0.5)
    assert factors == sorted(factors, reverse=True)
    assert factors[29] == pytest.approx(math.sin(math.pi / 60) ** 2), "small, but not 0"
    assert {rate_factor(Hyper(), 30, number) for number in range(30)} == {1.0}
    assert plan(METHODS["fedavg"], cosine, 3, 30, 15).rate == pytest.approx(0.5)


@pytest.mark.parametrize("backend", ["auto", "autograd"])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_each_round_trains_at_its_own_rate(make_federation, backend, optimiser):
    """One client alone, by torch.optim at the rate of each round, with a fresh optimiser each time."""
    row = replace(METHODS["local"], optimiser=optimiser)
    federation = make_federation(row, 1, rounds=4, rate=0.05, schedule="cosine", backend=backend)
    model, data = federation.models[0].copy(), federation.data[0]
    trained = [*model.extractor.parameters(), *model.head.parameters()]
    for number in range(4):
        rate = 0.05 * 0.5 * (1 + math.cos(math.pi * number / 4))
        made = (
            torch.optim.SGD(trained, lr=rate, momentum=0.9)
            if optimiser == "sgd"
            else torch.optim.Adam(trained, lr=rate)
        )
        shuffle = generator(federation.seed, "batches", 0, number)
        for _ in range(2):
            order = shuffle.permutation(len(data.labels))
            for start in range(0, len(order), 16):
                rows = torch.from_numpy(order[start : start + 16])
                made.zero_grad()
                nn.functional.cross_entropy(
                    model.head(model.extractor(data.inputs[rows])), data.labels[rows]
                ).backward()
                made.step()
    torch.testing.assert_close(finish(federation)[0][0], model.flat(), **CLOSE)


def test_a_round_of_a_schedule_is_a_round_at_that_rate(make_federation):
    """The first round is that of a constant rate, bit by bit; the second is not."""
    first, second = zip(
        *(
            [
                outcome.metrics["loss"].tolist()
                for outcome in Simulation(make_federation("fibfl", 3, rounds=2, **changes)).rounds()
            ]
            for changes in ({}, {"schedule": "cosine"})
        ),
        strict=True,
    )
    assert first[0] == first[1]
    assert second[0] != second[1]
