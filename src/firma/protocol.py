"""One peer's round as a generator that yields exchanges: no sockets, no clock, no threads.

A driver runs `peer_round`, delivers each `Exchange` and sends back what arrived, keyed by sender. What travels is an
`ExtractorState`, which has no place for a head; only the baselines that share whole models send a `ModelState`.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from firma.encoding import Wire
from firma.mixing import beside, ring_row
from firma.schedule import RoundPlan

SERVER = -1  # the hub of a star; ring methods never speak to it


@dataclass(frozen=True, slots=True)
class ExtractorState:
    """Elements [start, start + len) of the flat extractor."""

    values: Tensor
    start: int = 0


@dataclass(frozen=True, slots=True)
class ModelState:
    """All parameters of a model, head included: what methods without head privacy send."""

    values: Tensor
    start: int = 0


State = ExtractorState | ModelState


@dataclass(frozen=True, slots=True)
class Message:
    """What one peer sends another: parameters and at most one agreed number of each kind."""

    state: State
    accuracy: float | None = None  # training accuracy, where a gate needs it
    weight: float | None = None  # samples behind an average
    wire: Wire = "float32"  # how the parameters are written on their way


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send `message` to every peer in `to`, then wait for one message of the same tag from every peer in `wait`."""

    to: tuple[int, ...]
    wait: tuple[int, ...]
    message: Message
    tag: tuple[int, int]  # round, step


Peer = Generator[Exchange, dict[int, Message], Tensor]
Score = Callable[[int, Tensor], float]  # how good a neighbour's extractor is, whatever the neighbour says


def peer_round(
    me: int, order: Sequence[int], plan: RoundPlan, shared: Tensor, accuracy: float, samples: int,
    wire: Wire = "float32", score: Score | None = None,
) -> Peer:  # fmt: skip
    """Client `me`'s part of a round's mixing; returns its new shared parameters.

    `shared` is the flat extractor, or the whole flat model where the plan shares it. What is sent is written as `wire`;
    what a client keeps of its own is never rounded. With `score` the gate asks it, not the neighbours' own word.
    """
    if plan.mixing == "ring":
        return _ring(me, order, plan, shared, accuracy, wire, score)
    if plan.mixing == "all-reduce":
        return _all_reduce(me, order, plan, shared, samples, wire)
    if plan.mixing == "star":
        return _spoke(plan, shared, samples, wire)
    return _nothing(shared)


def wrap(plan: RoundPlan, values: Tensor, start: int = 0) -> State:
    """The kind of state that the plan shares."""
    return ModelState(values, start) if plan.shares == "model" else ExtractorState(values, start)


def _nothing(shared: Tensor) -> Peer:
    """A round without mixing: a generator that yields nothing."""
    yield from ()
    return shared


def _ring(
    me: int, order: Sequence[int], plan: RoundPlan, shared: Tensor, accuracy: float, wire: Wire, score: Score | None
) -> Peer:
    """Blend with both neighbours, `plan.passes` times; a gated neighbour still sends and is waited for.

    Accuracies are told once a round. Scores are asked in every pass: a liar could send rubbish from the second one on.
    """
    left, right = beside(order)[me]
    others = tuple(sorted({left, right} - {me}))
    if not others:
        return shared
    row = None
    for step in range(plan.passes):
        told = accuracy if plan.gate is not None and step == 0 else None
        message = Message(wrap(plan, shared), told, wire=wire)
        arrived = yield Exchange(others, others, message, (plan.number, step))
        if row is None or (score is not None and plan.gate is not None):
            found = accuracies(arrived, score if plan.gate is not None else None)
            row = ring_row(plan.pair, plan.retention, plan.gate, found[left], found[right])
        blend = row.left * arrived[left].state.values + row.right * arrived[right].state.values
        shared = row.own * shared + blend
    return shared


def accuracies(arrived: Mapping[int, Message], score: Score | None) -> dict[int, float]:
    """The neighbours' accuracies: as scored, or as they say themselves; 1 where no gate asked."""
    if score is not None:
        return {sender: score(sender, said.state.values) for sender, said in arrived.items()}
    return {sender: 1.0 if said.accuracy is None else said.accuracy for sender, said in arrived.items()}


def _all_reduce(me: int, order: Sequence[int], plan: RoundPlan, shared: Tensor, samples: int, wire: Wire) -> Peer:
    """Average over the whole ring by size, with messages to the right neighbour only.

    Reduce-scatter, then all-gather: N-1 steps each, one N-th of the parameters a step. Nobody sees more of anyone
    than a sum over at least one peer of one piece.
    """
    size = len(order)
    if size == 1:
        return shared
    left, right = beside(order)[me]
    place = list(order).index(me)
    pieces = [piece * samples for piece in shared.tensor_split(size)]
    starts = [0]
    for piece in pieces:
        starts.append(starts[-1] + piece.numel())
    weights = [float(samples)] * size
    for step in range(2 * (size - 1)):
        gathering = step >= size - 1
        mine, theirs = (place - step) % size, (place - step - 1) % size
        message = Message(wrap(plan, pieces[mine], starts[mine]), weight=weights[mine], wire=wire)
        arrived = (yield Exchange((right,), (left,), message, (plan.number, step)))[left]
        weight = arrived.weight or 0.0
        pieces[theirs] = arrived.state.values if gathering else pieces[theirs] + arrived.state.values
        weights[theirs] = weight if gathering else weights[theirs] + weight
    mean = shared.clone()
    for start, piece, weight in zip(starts, pieces, weights, strict=False):
        mean[start : start + piece.numel()] = piece / weight
    return mean


def _spoke(plan: RoundPlan, shared: Tensor, samples: int, wire: Wire) -> Peer:
    """A client of a star: send to the server, take what it sends back."""
    message = Message(wrap(plan, shared), weight=float(samples), wire=wire)
    arrived = yield Exchange((SERVER,), (SERVER,), message, (plan.number, 0))
    return arrived[SERVER].state.values


def hub_round(clients: Sequence[int], plan: RoundPlan, blank: Tensor, wire: Wire = "float32") -> Peer:
    """The server of a star: wait for everybody, send everybody the average by size."""
    nothing = Message(wrap(plan, blank[:0]))
    arrived = yield Exchange((), tuple(clients), nothing, (plan.number, 0))
    total = sum(message.weight or 0.0 for message in arrived.values())
    mean = blank
    for client in clients:
        mean = mean + arrived[client].state.values * ((arrived[client].weight or 0.0) / total)
    yield Exchange(tuple(clients), (), Message(wrap(plan, mean), wire=wire), (plan.number, 0))
    return mean
