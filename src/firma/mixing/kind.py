"""The interface that every kind of mixing implements, and which module implements it for a plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar, assert_never

import numpy as np
from numpy.typing import NDArray

from firma.graphs import every_sender, period, receivers
from firma.mixing.combine import Common, Gossip
from firma.mixing.matrix_blocks import Blocks
from firma.mixing.ring_order import neighbours
from firma.protocol import Exchanges, Expected, Message, Participant, Score
from firma.schedule import Mixing, RoundPlan

Value = TypeVar("Value")
FLOAT, NUMBER, DIGEST = 4, 8, 32  # bytes of a parameter, of an accuracy or weight beside parameters, of a digest


class Cost(NamedTuple):
    """What a round's mixing sends, all clients together."""

    messages: int
    bytes: int


@dataclass(frozen=True, eq=False)
class Average:
    """Everybody gets the same weighted mean: a matrix whose rows are all `weights` (n,), clients in ascending order."""

    weights: NDArray[np.float64]

    def matrix(self) -> NDArray[np.float64]:
        """(n, n)."""
        return np.tile(self.weights, (len(self.weights), 1))


ByClient = Mapping[int, Value] | Sequence[Value]  # numbers of clients, looked up by the client's number
# A round's matrix in the form in which it is applied, or who combines whose parameters where that is not linear; None:
# nobody shares.
Mixture = Average | Blocks | Common | Gossip | None


class Kind(Protocol):
    """One kind of mixing; its module implements this.

    `order` is the ring of the n clients that take part in the round, by number; `elements` is the size of what is
    shared. With a server, what is shared is the server's: clients that did not take part have it after the round, too.
    """

    NEEDS_SERVER: bool

    def mixture(
        self, plan: RoundPlan, order: Sequence[int], sizes: ByClient[int], accuracies: ByClient[float]
    ) -> Mixture:
        """The round's (n, n) matrix, given each client's samples and training accuracy by its number.

        `Common` or `Gossip` where the plan's combine is not the mean.
        """

    def exchange(self, plan: RoundPlan, one: Participant) -> Exchanges:
        """One member's part of the round, message by message."""

    def server(self, plan: RoundPlan, one: Participant) -> Exchanges | None:
        """The server's part, `one.order` being its clients and `one.shared` zeros; None where there is no server."""

    def pass_weights(
        self, plan: RoundPlan, order: Sequence[int], me: int, arrived: Mapping[int, Message], score: Score | None
    ) -> dict[int, float]:
        """What each member weighs in one pass of this member's blend, as far as the member knows it."""

    def steps(self, plan: RoundPlan, members: int) -> int:
        """Exchanges per round."""

    def expected(
        self, plan: RoundPlan, order: Sequence[int], me: int, sender: int, step: int, elements: int
    ) -> Expected | None:
        """What `sender` is to send `me` in an exchange; None: nothing."""

    def lead(self, plan: RoundPlan, members: int) -> int:
        """By how many exchanges an honest sender can be ahead of this member."""

    def cost(self, plan: RoundPlan, clients: int, elements: int) -> Cost:
        """Messages and bytes of the round with float32 parameters, message headers not included."""


def exchange(plan: RoundPlan, one: Participant) -> Exchanges:
    """One member's part of the planned round's mixing."""
    return kind_of(plan.mixing).exchange(plan, one)


def neighbours_in(plan: RoundPlan, order: Sequence[int]) -> Mapping[int, tuple[int, ...]]:
    """Whom each member may receive from in the planned round: its neighbours on the graph, else on the ring."""
    if plan.graph is None:
        return neighbours(order)
    first = plan.number * plan.passes
    return every_sender(plan.graph, order, range(first, first + plan.passes))


def partners(plan: RoundPlan, order: Sequence[int], me: int) -> tuple[int, ...]:
    """Everybody that a member sends to or receives from in rounds such as this one, without itself."""
    if plan.mixing == "all-gather":  # digests come from everybody
        return tuple(sorted(set(order) - {me}))
    if plan.graph is None:
        return tuple(sorted(set(neighbours(order)[me]) - {me}))
    turns = range(period(plan.graph, len(order)))
    heard = every_sender(plan.graph, order, turns)[me]
    return tuple(sorted({*heard, *(other for turn in turns for other in receivers(plan.graph, order, turn)[me])}))


def kind_of(mixing: Mixing) -> Kind:
    """The module of a kind of mixing. A new kind is one module and one case here."""
    from firma.mixing import all_gather, all_reduce, alone, graph, ring, star

    match mixing:
        case "ring":
            return ring
        case "graph":
            return graph
        case "star":
            return star
        case "all-reduce":
            return all_reduce
        case "all-gather":
            return all_gather
        case "none":
            return alone
        case _:
            assert_never(mixing)
