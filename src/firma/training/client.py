"""What a client is, what it is asked to do in a round, and what a trainer must be able to do."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from firma.methods import Method
from firma.models.split import Part
from firma.schedule import Phase
from firma.settings import Hyper


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
    """One client: its data and what it keeps between rounds.

    Inputs are (n, …), float32 or bytes that are multiplied by `scale`; labels are (n,) int64.
    """

    number: int
    inputs: Tensor
    labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor
    scale: float
    parameters: Tensor  # (P,), extractor first
    private: list[Tensor]  # buffers of the modules, such as running means
    moments: Moments | None  # kept across rounds, or None: a fresh optimiser every round


@dataclass(frozen=True)
class Job:
    """Local training of one round, the same for all clients."""

    method: Method
    hyper: Hyper
    phases: tuple[Phase, ...]


class Trainer(Protocol):
    """Trains and scores clients one at a time; its work space is its own, so every worker has one."""

    def train(self, client: Client, job: Job, shuffle: np.random.Generator) -> None:
        """Train a client for one round, in place."""

    def correct(self, client: Client, test: bool) -> int:
        """How many of its test or training samples the client classifies rightly."""


def epoch_orders(size: int, epochs: int, shuffle: np.random.Generator) -> NDArray[np.int64]:
    """(epochs, n) sample numbers: a new permutation every epoch."""
    orders = np.empty((epochs, size), dtype=np.int64)
    for epoch in range(epochs):
        orders[epoch] = shuffle.permutation(size)
    return orders


def batches(orders: NDArray[np.int64], batch: int) -> Iterator[NDArray[np.int64]]:
    """Sample numbers of every batch; the last batch of an epoch may be short."""
    for order in orders:
        for start in range(0, len(order), batch):
            yield order[start : start + batch]
