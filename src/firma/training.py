"""Local training of one client in one round: phases of epochs over shuffled batches."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from firma.hyper import Hyper
from firma.methods import Method
from firma.models.learner import Learner
from firma.models.split import Layout, Part
from firma.optim import adam_step, sgd_step
from firma.schedule import Phase


@dataclass
class Moments:
    """An optimiser's memory: (P,) buffers, and how many Adam steps each part has taken."""

    first: Tensor
    second: Tensor
    steps: dict[Part, int] = field(default_factory=lambda: {"extractor": 0, "head": 0})

    def reset(self) -> None:
        """Back to a fresh optimiser."""
        self.first.zero_()
        self.second.zero_()
        self.steps = {"extractor": 0, "head": 0}


@dataclass
class Client:
    """One client: its data and what it keeps between rounds. Inputs are (n, …) float32, labels (n,) int64."""

    number: int
    inputs: Tensor
    labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor
    parameters: Tensor  # (P,), extractor first
    private: list[Tensor]  # buffers of the modules, such as running means
    moments: Moments | None  # kept across rounds, or None: a fresh optimiser every round


def train(
    client: Client, learner: Learner, gradients: Tensor, scratch: Moments, method: Method, hyper: Hyper,
    phases: tuple[Phase, ...], shuffle: np.random.Generator,
) -> None:  # fmt: skip
    """Train one client for one round; `gradients` and `scratch` are (P,) work space that clients take in turn."""
    moments = client.moments or scratch
    if client.moments is None:
        moments.reset()
    learner.bind(client.parameters, gradients, client.private)
    for phase in phases:
        frozen = learner.features(client.inputs) if phase.trains == "head" and learner.cacheable else None
        for chosen in batches(len(client.labels), hyper.batch, phase.epochs, shuffle, client.inputs.device):
            labels = client.labels[chosen]
            if frozen is None:
                learner.backward(client.inputs[chosen], labels, phase.trains)
            else:
                learner.backward_head(frozen[chosen], labels)
            step(client.parameters, gradients, moments, learner.layout, phase.trains, method, hyper)


def batches(size: int, batch: int, epochs: int, shuffle: np.random.Generator, device: torch.device) -> Iterator[Tensor]:
    """Index tensors of every batch; each epoch is a new permutation, the last batch of an epoch may be short."""
    for _ in range(epochs):
        permutation = torch.from_numpy(shuffle.permutation(size)).to(device)
        yield from torch.split(permutation, batch)


def step(
    parameters: Tensor,
    gradients: Tensor,
    moments: Moments,
    layout: Layout,
    trains: Part,
    method: Method,
    hyper: Hyper,
) -> None:
    """One optimiser step on the part that trains; Adam counts the steps of extractor and head apart."""
    if method.optimiser == "sgd":
        span = layout.span(trains)
        sgd_step(parameters[span], gradients[span], moments.first[span], hyper.rate, hyper.momentum)
        return
    parts: tuple[Part, ...] = ("extractor", "head") if trains == "model" else (trains,)
    for part in parts:
        span = layout.span(part)
        moments.steps[part] += 1
        adam_step(
            parameters[span],
            gradients[span],
            moments.first[span],
            moments.second[span],
            moments.steps[part],
            hyper.rate,
        )


def accuracy(client: Client, learner: Learner, gradients: Tensor, test: bool) -> float:
    """Share of right answers on the client's test or training data."""
    learner.bind(client.parameters, gradients, client.private)
    inputs, labels = (client.test_inputs, client.test_labels) if test else (client.inputs, client.labels)
    return learner.correct(inputs, labels) / len(labels)
