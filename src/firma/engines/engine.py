"""What an engine is given, what it returns for each round, and how the one that was asked for is started."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firma.algorithms.catalogue import algorithm_of
from firma.attacks import Attack
from firma.encoding import Wire
from firma.engines.drifting_data import DriftingData
from firma.graphs import Edge
from firma.methods import Method
from firma.models.split_model import SplitModel
from firma.privacy.message_audit import Audit
from firma.schedule import RoundPlan, participants, plan
from firma.settings import EngineName, Hyper
from firma.tasks.task import CLASSIFICATION, Task
from firma.training.backend import Backend
from firma.training.hooks import fitted
from firma.training.local_step import ClientData, Recipe, elements, recipe


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
    backend: str | Backend = "auto"  # how clients are trained: auto, autograd, or a ready-made backend
    workers: int | None = None  # clients trained at a time; None: one per core
    wire: Wire = "float32"  # how parameters are encoded in messages
    task: Task = CLASSIFICATION
    participation: float = 1.0  # share of the clients that take part in a round
    edges: tuple[Edge, ...] = ()  # of the user's own graph, between clients by number
    attack: Attack | None = None  # what dishonest clients do, and which they are
    drift: DriftingData | None = None  # clients' data in every round, where they change; `data` are those of the first
    orders: tuple[tuple[int, tuple[int, ...]], ...] = ()  # rounds (from 0) from which on the ring has another order

    @property
    def clients(self) -> int:
        """N; not the number of `data`, which a process of a cluster is given for its own clients only."""
        return len(self.order)

    @property
    def sizes(self) -> list[int]:
        """Training samples of every client."""
        return [len(each.labels) for each in self.data]

    def sizes_in(self, number: int) -> list[int]:
        """Training samples of every client in round `number` (from 0)."""
        return self.sizes if self.drift is None else self.drift.sizes(number)

    def order_in(self, number: int) -> tuple[int, ...]:
        """The ring of round `number` (from 0)."""
        return next((order for start, order in reversed(self.orders) if start <= number), self.order)

    @property
    def recipe(self) -> Recipe:
        """What local training is made of."""
        shares = "extractor" if self.method.shares == "nothing" else self.method.shares
        shared = self.models[0].layout().shared(shares)
        algorithm = fitted(algorithm_of(self.method, self.hyper), self.models[0])
        return recipe(self.method, self.hyper, self.task, algorithm, shared, self.models[0].outputs)

    def sent_elements(self, plan: RoundPlan) -> int:
        """How many numbers a client shares in a round: parameters, and vectors that are mixed with them."""
        return elements(self.models[0].layout().shared(plan.part)) + sum(self.recipe.mixed.values())

    def plan(self, number: int) -> RoundPlan:
        """What round `number` (from 0) does, and who takes part in it."""
        drawn = participants(self.participation, self.order_in(number), self.seed, number)
        count = len(self.order if drawn is None else drawn)
        planned = plan(self.method, self.hyper, count, self.rounds, number, self.seed, self.edges)
        return replace(planned, participants=drawn)

    def ring(self, plan: RoundPlan) -> tuple[int, ...]:
        """Who takes part in a planned round: the ring without the others, closed up in its order."""
        return self.order_in(plan.number) if plan.participants is None else plan.participants


@dataclass(frozen=True)
class RoundOutcome:
    """What is known after a round: the task's main metric on clients' test data (N,), and what was sent in it.

    `metrics` are all other metrics, (N,) each, by name; `main` is the name of the main one. `seconds` are those spent
    training, mixing and testing, and `claimed` the training accuracies by client, where a gate asked for them; both are
    empty for a round that comes from a checkpoint.
    """

    number: int
    scores: NDArray[np.float64]
    sent_bytes: int
    messages: int
    metrics: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    main: str = "accuracy"
    seconds: Mapping[str, float] = field(default_factory=dict)
    claimed: Mapping[int, float] = field(default_factory=dict)

    @property
    def accuracies(self) -> NDArray[np.float64]:
        """The scores, by the name that they have in classification."""
        return self.scores


def round_outcome(
    number: int, metrics: Mapping[str, NDArray[np.float64]], task: Task, sent_bytes: int, messages: int,
    marks: Sequence[float] = (), claimed: Mapping[int, float] = MappingProxyType({}),
) -> RoundOutcome:  # fmt: skip
    """An outcome from all metrics, (N,) each; `marks` are the times before and after each part of the round."""
    others = {name: values for name, values in metrics.items() if name != task.main}
    parts = zip(("training", "mixing", "testing"), pairwise(marks), strict=False)
    seconds = {part: end - start for part, (start, end) in parts}
    return RoundOutcome(number, metrics[task.main], sent_bytes, messages, others, task.main, seconds, claimed)


class Engine(Protocol):
    """A federation in progress."""

    @property
    def parameters(self) -> Tensor | None:
        """(N, P) parameters of all clients, where one process can hold them."""

    @property
    def buffers(self) -> Sequence[Mapping[str, Tensor]]:
        """The private buffers of every client's model, by name; empty where one process cannot hold them."""

    @property
    def described(self) -> str:
        """How clients are trained and why, for people."""

    def rounds(self) -> Iterator[RoundOutcome]:
        """Run all rounds, one outcome each."""


@dataclass(frozen=True)
class EngineOptions:
    """Which engine runs, with how many workers, and where checkpoints go; `address` is that of a Ray cluster."""

    engine: EngineName = "simulation"
    address: str | None = None
    workers: int | None = None
    checkpoint: Path | None = None
    recover: int = 1


Start = Callable[[Federation, Audit | None], Engine]


@contextmanager
def started(options: EngineOptions) -> Iterator[Start]:
    """A function that starts federations; a cluster is joined, or started, once for all of them."""
    from firma.engines.checkpoint import RunCheckpoints
    from firma.engines.simulation import Simulation

    def checkpoints(run: Federation) -> RunCheckpoints | None:
        return RunCheckpoints(options.checkpoint, run) if options.checkpoint is not None else None

    if options.engine == "simulation":
        yield lambda run, audit: Simulation(run, audit, checkpoints(run))
        return
    from firma.engines.actor_pool import ActorPool
    from firma.engines.ray import RayFederation
    from firma.engines.ray_cluster import connected

    with connected(options.address), ActorPool(options.workers) as pool:
        yield lambda run, _: RayFederation(run, pool, checkpoints(run), options.recover)
