"""Starting a federation on the engine that was asked for: this process, or a Ray cluster."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from firma.engines.checkpoint import RunCheckpoints
from firma.engines.federation import Federation, RoundOutcome
from firma.engines.simulation import Simulation
from firma.privacy.audit import Audit
from firma.settings import EngineName


class Engine(Protocol):
    """A federation in progress."""

    @property
    def parameters(self) -> Tensor | None:
        """(N, P) parameters of all clients, where one process can hold them."""

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
def started(place: EngineOptions) -> Iterator[Start]:
    """A function that starts federations; a cluster is joined, or started, once for all of them."""
    if place.engine == "simulation":
        yield lambda run, audit: Simulation(run, audit, RunCheckpoints.of(place.checkpoint, run))
        return
    from firma.engines.actor_pool import ActorPool
    from firma.engines.ray import RayFederation
    from firma.engines.ray_cluster import connected

    with connected(place.address), ActorPool(place.workers) as pool:
        yield lambda run, _: RayFederation(run, pool, RunCheckpoints.of(place.checkpoint, run), place.recover)
