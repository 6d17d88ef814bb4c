"""What an engine is given, and what it returns for each round."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from firma.encoding import Wire
from firma.methods import Method
from firma.models.split import SplitModel
from firma.schedule import RoundPlan, plan
from firma.settings import Hyper
from firma.training.client import ClientData
from firma.training.parts import Recipe, recipe


@dataclass(frozen=True)
class Federation:
    """Everything that decides the outcome of a run."""

    method: Method
    hyper: Hyper
    rounds: int
    seed: int
    order: tuple[int, ...]
    data: Sequence[ClientData]
    models: Sequence[SplitModel]  # what each client starts from; a single one is shared by all
    device: torch.device
    backend: str = "auto"  # how clients are trained: auto, or autograd
    workers: int | None = None  # clients trained at a time; None: one per core
    wire: Wire = "float32"  # how parameters are encoded in messages

    @property
    def clients(self) -> int:
        """N."""
        return len(self.data)

    @property
    def sizes(self) -> list[int]:
        """Training samples of every client."""
        return [len(each.labels) for each in self.data]

    @property
    def recipe(self) -> Recipe:
        """What local training is made of."""
        return recipe(self.method, self.hyper)

    def plan(self, number: int) -> RoundPlan:
        """What round `number` (from 0) does."""
        return plan(self.method, self.hyper, self.clients, self.rounds, number)


@dataclass(frozen=True)
class RoundOutcome:
    """What is known after a round: test accuracies (N,), and what was sent in it."""

    number: int
    accuracies: NDArray[np.float64]
    sent_bytes: int
    messages: int
