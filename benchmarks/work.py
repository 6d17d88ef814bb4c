"""The work that is measured, and how many floating-point operations it needs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from firma.data.dataset import Dataset, load_dataset
from firma.data.partition import deal
from firma.engines.engine import Federation
from firma.experiment import assemble
from firma.method_lookup import lookup
from firma.methods import METHODS
from firma.models import ModelSpec
from firma.schedule import RoundPlan
from firma.settings import Split, hyper_for


@dataclass(frozen=True)
class Work:
    """Methods on a data set dealt evenly; `naive` clients of it are timed for the naive loop, the rest is scaled."""

    about: str
    methods: tuple[str, ...]
    dataset: str
    clients: int
    samples: int  # of each client; 0: what the data set has
    rounds: int  # timed, unless the command says otherwise
    naive: int


WORKS = {
    "W1": Work("fedavg, MNIST, 10 x 6,000", ("fedavg",), "mnist", 10, 6000, 3, 4),
    "W2": Work("fibfl++, MNIST, 10 x 6,000", ("fibfl++",), "mnist", 10, 6000, 2, 1),
    "W3": Work("fibfl++, CIFAR-10, 10 x 5,000", ("fibfl++",), "cifar10", 10, 5000, 1, 1),
    "W4": Work("seven methods, digits, 5 clients", tuple(METHODS), "digits", 5, 0, 5, 5),
    "W5": Work("fibfl++, MNIST, 200 x 100", ("fibfl++",), "mnist", 200, 100, 2, 20),
    "W6": Work("fibfl++, MNIST, 1,000 x 60", ("fibfl++",), "mnist", 1000, 60, 1, 30),
}


def scaling(clients: int) -> Work:
    """60 samples each, however many clients there are."""
    return Work(f"fibfl++, MNIST, {clients:,} x 60", ("fibfl++",), "mnist", clients, 60, 3, 0)


def federations(work: Work, rounds: int, seed: int = 0) -> Iterator[Federation]:
    """What to run, one federation a method, all ordinary rounds: there is no warm-up."""
    dataset = load_dataset(work.dataset)
    if work.samples:
        dataset = first_rows(dataset, work.clients * work.samples)
    for name in work.methods:
        hyper = hyper_for(name, "paper", {"warmup_rounds": 0})
        partition = deal(dataset, "iid", work.clients, Split(), seed)
        yield assemble(dataset, partition, lookup(name), hyper, rounds, seed, ModelSpec("mlp"), "cpu")


def first_rows(dataset: Dataset, count: int) -> Dataset:
    """The data set with fewer training rows."""
    return replace(dataset, x_train=dataset.x_train[:count], y_train=dataset.y_train[:count])


def operations(run: Federation) -> float:
    """Floating-point operations of one round: matrix products only, those that the method really needs.

    A trained step: 2 a weight forward, 2 a weight that is trained for its gradient, 2 a weight behind the first layer
    for the gradient of its input. A frozen extractor is passed once. The gate needs the training accuracy, everybody
    the test accuracy. Mixing is not counted.
    """
    return sum(client_operations(run, run.plan(0), i) for i in range(run.clients))


def client_operations(run: Federation, plan: RoundPlan, client: int) -> float:
    """The share of one client."""
    widths = (math.prod(run.data[0].inputs.shape[1:]), run.hyper.hidden, run.hyper.hidden, run.hyper.embedding)
    extractor = [inputs * outputs for inputs, outputs in pairwise(widths)]
    head = widths[-1] * run.models[0].head.out_features
    every = sum(extractor) + head
    behind = every - extractor[0]
    samples, tests = len(run.data[client].labels), len(run.data[client].test_labels)
    total = 2 * every * (tests + (samples if plan.gate is not None else 0))
    for phase in plan.phases:
        seen = samples * phase.epochs
        if phase.trains == "head":
            total += 2 * sum(extractor) * samples + 4 * head * seen
        else:
            trained = every if phase.trains == "model" else every - head
            total += 2 * (every + trained + behind) * seen
    return total


def trained_samples(run: Federation) -> int:
    """Samples that pass through training in one round, every epoch counted."""
    return sum(run.sizes) * sum(phase.epochs for phase in run.plan(0).phases)
