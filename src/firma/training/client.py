"""What a client is, what it is asked to do in a round, and what a trainer must be able to do."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firma.models.split import SplitModel
from firma.schedule import Phase
from firma.training.parts import FIRST, SECOND, STEPS, Memory, Recipe

BUFFER = "buffer."  # in a client's memory, what the modules hold besides parameters, such as running means


@dataclass(frozen=True)
class ClientData:
    """A client's samples: inputs (n, …), float32 or bytes that are multiplied by `scale`, and labels (n,) int64."""

    inputs: Tensor
    labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor
    scale: float = 1.0

    def to(self, device: torch.device) -> "ClientData":
        """The same on a device."""
        return ClientData(
            self.inputs.to(device), self.labels.to(device), self.test_inputs.to(device), self.test_labels.to(device),
            self.scale,
        )  # fmt: skip


@dataclass
class Client:
    """One client: its data, its parameters (P,) with the extractor first, and what it remembers between rounds."""

    number: int
    data: ClientData
    parameters: Tensor
    memory: Memory


@dataclass(frozen=True)
class Job:
    """Local training for one round, the same for all clients."""

    recipe: Recipe
    phases: tuple[Phase, ...]
    batch: int


class Trainer(Protocol):
    """Trains and scores clients one at a time; its work space is its own, so every worker has one."""

    def train(self, client: Client, job: Job, shuffle: np.random.Generator) -> None:
        """Train a client for one round, in place."""

    def correct(self, client: Client, test: bool) -> int:
        """How many of its test or training samples the client classifies correctly."""


def new_client(number: int, data: ClientData, parameters: Tensor, model: SplitModel, recipe: Recipe) -> Client:
    """A client before its first round, on the device of `parameters`; the model's buffers are copied, not shared."""
    device = parameters.device
    buffers = {BUFFER + name: tensor.detach().clone().to(device) for name, tensor in model.named_buffers()}
    return Client(number, data.to(device), parameters, buffers | recipe.memory(len(parameters), device))


def upgraded(saved: Mapping[str, Tensor], client: Client) -> dict[str, Tensor]:
    """Tensors under today's names, where version 0.1 saved them: moments as first and second, buffers by number."""
    buffers = [name for name in client.memory if name.startswith(BUFFER)]
    names = {"first": FIRST, "second": SECOND, "steps": STEPS}
    names |= {f"private.{number}": name for number, name in enumerate(buffers)}
    return {names.get(name, name): tensor for name, tensor in saved.items()}


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
