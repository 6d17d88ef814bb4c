"""Which engine runs a federation, and what must be there while it does."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from firma.engines.checkpoint import Keep
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
class Place:
    """Where a run takes place and where it is kept; the address is a Ray cluster's."""

    engine: EngineName = "simulation"
    address: str | None = None
    workers: int | None = None
    checkpoint: Path | None = None
    recover: int = 1


Start = Callable[[Federation, Audit | None], Engine]


@contextmanager
def started(place: Place) -> Iterator[Start]:
    """What starts a federation; a cluster is joined, or started, once for all that run here."""
    if place.engine == "simulation":
        yield lambda run, audit: Simulation(run, audit, Keep.of(place.checkpoint, run))
        return
    from firma.engines.actor_pool import Crew
    from firma.engines.ray import RayFederation
    from firma.engines.ray_cluster import connected

    with connected(place.address), Crew(place.workers) as crew:
        yield lambda run, _: RayFederation(run, crew, Keep.of(place.checkpoint, run), place.recover)
