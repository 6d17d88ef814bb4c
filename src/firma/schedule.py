"""What round r does, read off the method's columns and numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from firma.graphs import Edge, Graph, reach
from firma.methods import Combine, Method, Shares, Weights
from firma.seeds import generator
from firma.settings import Hyper

Mixing = Literal["none", "star", "ring", "all-reduce", "all-gather", "graph"]


@dataclass(frozen=True, slots=True)
class Phase:
    """A number of epochs in which one part of the model is trained and the rest is frozen."""

    trains: Literal["model", "head", "extractor"]
    epochs: int
    steps: int | None = None  # batches after which it ends, if it has not ended before


class Gate(NamedTuple):
    """The accuracy gate, Eq. 6: neighbours below the threshold have no part in the posterior."""

    threshold: float
    posterior: float


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """One round: train these phases, then mix what is shared. `firma.mixing` says what each kind of mixing means."""

    number: int  # from 0
    phases: tuple[Phase, ...]
    mixing: Mixing
    shares: Shares
    passes: int = 1
    weights: Weights = "none"  # of the neighbours; of the clients in an average
    retention: float = 1.0  # per pass
    gate: Gate | None = None
    participants: tuple[int, ...] | None = None  # in ring order; None: all clients
    rate: float = 1.0  # factor of the learning rate in this round
    graph: Graph | None = None  # on which members mix, where that is not by the ring's pair of weights
    combine: Combine = "mean"  # of what arrives: see `firma.mixing.combine`
    byzantine: int = 0  # f, of which a robust combine withstands so many
    clip_radius: float | None = None  # of clipping; None: by the distances of what arrives

    @property
    def part(self) -> Literal["model", "extractor", "head"]:
        """The part of the model that is mixed."""
        return "extractor" if self.shares == "nothing" else self.shares


def participant_count(share: float, clients: int) -> int:
    """How many of N clients take part in a round: share · N, rounded half up, at least one."""
    return max(1, math.floor(share * clients + 0.5))


def participants(share: float, order: Sequence[int], seed: int, number: int) -> tuple[int, ...] | None:
    """Who takes part in round `number`, drawn by (seed, round): the ring `order` without the others; None: all.

    With the same seed and round, a larger share adds clients to those that a smaller one draws.
    """
    count = participant_count(share, len(order))
    if count == len(order):
        return None
    drawn = set(generator(seed, "participation", number).permutation(len(order))[:count].tolist())
    return tuple(client for client in order if client in drawn)


def warmup_rounds(method: Method, hyper: Hyper, rounds: int) -> int:
    """W: a sixth of the rounds, unless the user says otherwise."""
    if method.warmup == "no":
        return 0
    return rounds // 6 if hyper.warmup_rounds is None else min(hyper.warmup_rounds, rounds)


def passes(method: Method, clients: int, graph: Graph | None = None) -> int:
    """Exchanges per round: one, or as many as reach the far side of the ring, or of another graph."""
    if method.passes == "one":
        return 1
    return math.ceil(clients / 2) if graph is None or graph.topology == "ring" else reach(graph, clients)


def graph_of(method: Method, hyper: Hyper, seed: int = 0, edges: tuple[Edge, ...] = ()) -> Graph | None:
    """The graph on which a method mixes; None where it has a server or the ring's pair of weights, or mixes nothing."""
    match method.topology:
        case "none" | "star" | "all-reduce" | "all-gather":
            return None
        case "ring":
            return Graph("ring") if method.weights == "metropolis" else None
        case "regular":
            return Graph("regular", hyper.degree, seed)
        case "edges":
            return Graph("edges", edges=edges)
        case other:
            return Graph(other)


def round_retention(method: Method, hyper: Hyper, rounds: int, number: int) -> float:
    """γ_r of a whole round: constant, or the cosine of Eq. 10 over the rounds after the warm-up."""
    if method.retention == "constant":
        return hyper.retention
    warm = warmup_rounds(method, hyper, rounds)
    angle = math.pi * (number - warm) / max(rounds - warm - 1, 1)
    return hyper.retention_end + 0.5 * (hyper.retention_start - hyper.retention_end) * (1 + math.cos(angle))


def rate_factor(hyper: Hyper, rounds: int, number: int) -> float:
    """What the learning rate is multiplied by in a round: 1, or ½(1 + cos(πr/R)), which is 1 in the first round."""
    return 1.0 if hyper.schedule == "constant" else 0.5 * (1 + math.cos(math.pi * number / rounds))


def plan(
    method: Method, hyper: Hyper, clients: int, rounds: int, number: int, seed: int = 0, edges: tuple[Edge, ...] = ()
) -> RoundPlan:
    """The plan of round `number` (from 0), in which `clients` take part.

    A random graph is drawn by `seed`; `edges` are those of the user's own graph.
    """
    found = _mixing_plan(method, hyper, clients, rounds, number, graph_of(method, hyper, seed, edges))
    found = replace(found, rate=rate_factor(hyper, rounds, number))
    if method.combine == "mean":
        return found
    return replace(found, combine=method.combine, byzantine=hyper.byzantine, clip_radius=hyper.clip_radius)


def _mixing_plan(
    method: Method, hyper: Hyper, clients: int, rounds: int, number: int, graph: Graph | None
) -> RoundPlan:
    """What is trained, and how it is mixed."""
    if number < warmup_rounds(method, hyper, rounds):
        return _warmup(method, hyper, number)
    train, shares, weights = phases(method, hyper), method.shares, method.weights
    if graph is not None:
        return RoundPlan(number, train, "graph", shares, passes(method, clients, graph), weights, graph=graph)
    if method.topology in ("none", "star", "all-reduce", "all-gather"):
        return RoundPlan(number, train, method.topology, shares, weights=weights)
    count = passes(method, clients)
    per_pass = round_retention(method, hyper, rounds, number) ** (1 / count)  # Eq. 9
    gate = Gate(hyper.threshold, hyper.posterior) if method.gate == "yes" else None
    return RoundPlan(number, train, "ring", shares, count, weights, per_pass, gate)


def phases(method: Method, hyper: Hyper) -> tuple[Phase, ...]:
    """What a client trains in a round after the warm-up."""
    if method.training == "joint":
        return (Phase("model", hyper.epochs, hyper.local_steps),)
    extractor = Phase("extractor", hyper.extractor_epochs, hyper.local_steps)
    if method.training == "extractor":
        return (extractor,)
    return (Phase("head", hyper.head_epochs, hyper.local_steps), extractor)


def phases_of_a_run(method: Method, hyper: Hyper, rounds: int) -> tuple[Phase, ...]:
    """What clients train in any of the rounds: those of the first round and of the last, which is past the warm-up.

    Behind them is what makes a personal model, if clients have one.
    """
    found = tuple(phase for number in (0, rounds - 1) for phase in plan(method, hyper, 1, rounds, number).phases)
    if method.personal == "none":
        return found
    return (*found, Phase("head" if method.personal == "tune-head" else "model", hyper.personal_epochs))


def warmup_epochs(method: Method, hyper: Hyper) -> int:
    """Epochs of the whole model in a round of the warm-up: those of any round, where training is joint."""
    return hyper.epochs if method.training == "joint" else max(hyper.head_epochs, hyper.extractor_epochs)


def _warmup(method: Method, hyper: Hyper, number: int) -> RoundPlan:
    """Everybody trains everything and averages: extractors by an all-reduce on the ring, or models by a server.

    A robust combine must see every client's extractor instead of sums: an all-gather takes the place of the all-reduce.
    """
    train = (Phase("model", warmup_epochs(method, hyper), hyper.local_steps),)
    exact: Mixing = "all-reduce" if method.combine == "mean" else "all-gather"
    mixing: Mixing = "star" if hyper.warmup_shares == "model" else exact
    return RoundPlan(number, train, mixing, hyper.warmup_shares)
