"""Gossip on a graph with Metropolis-Hastings weights, `passes` times per round: θ_i ← w_ii θ_i + Σ_j w_ij θ_j.

w_ij = 1/(1 + max(d_i, d_j)) for every neighbour j, and w_ii is the rest; d are the numbers of neighbours. On undirected
graphs the weights are symmetric, and on the exponential ones everybody has as many senders as receivers: either way
the matrix is doubly stochastic and keeps the clients' mean. A ring has 1/3 each, one peer at a time 1/2 and 1/2, and
the complete graph gives the exact mean. A client without a neighbour keeps its parameters.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from firma.graphs import Graph, furthest_lead, period, receivers, senders
from firma.mixing.combine import Gossip, Reads, combined, without
from firma.mixing.kind import FLOAT, Average, ByClient, Cost
from firma.mixing.matrix_blocks import Blocks, to_blocks
from firma.mixing.spectrum import Matrix
from firma.protocol import Exchange, Exchanges, Expected, Message, Participant, Score, state
from firma.schedule import RoundPlan

NEEDS_SERVER = False
_FULL = 512  # clients up to which the matrix of a round is held whole


def row(graph: Graph, order: Sequence[int], me: int, turn: int) -> dict[int, float]:
    """What a member blends in pass number `turn`: its own weight and those of the members that it receives from."""
    found = senders(graph, order, turn)
    mine = len(found[me])
    weights = {sender: 1 / (1 + max(mine, len(found[sender]))) for sender in found[me]}
    return {me: 1.0 - sum(weights.values())} | weights


def one_pass(graph: Graph, order: Sequence[int], turn: int = 0) -> Matrix:
    """(n, n) matrix of one pass; rows and columns are places in `order`."""
    matrix = np.zeros((len(order), len(order)))
    for here, there, weight in zip(*_entries(graph, order, turn), strict=True):
        matrix[here, there] = weight
    return matrix


def all_passes(graph: Graph, order: Sequence[int], passes: int, first: int = 0) -> Matrix:
    """(n, n) matrix of some passes, the first of which is number `first`; rows and columns are places in `order`."""
    if period(graph, len(order)) == 1:
        return np.linalg.matrix_power(one_pass(graph, order), passes)
    result = np.eye(len(order))
    for turn in range(first, first + passes):
        result = one_pass(graph, order, turn) @ result
    return result


def mixture(
    plan: RoundPlan, order: Sequence[int], sizes: ByClient[int], accuracies: ByClient[float]
) -> Average | Blocks | Gossip:
    """All passes of the round; every client counts alike, whatever its size."""
    del sizes, accuracies
    graph = _graph(plan)
    if plan.combine != "mean":
        return Gossip({me: _reads(graph, order, me, _turn(plan, 0)) for me in order}, plan.passes)
    if graph.topology == "complete":
        return Average(np.full(len(order), 1 / len(order)))
    return _blocks(graph, tuple(order), plan.passes, _turn(plan, 0) % period(graph, len(order)))


def exchange(plan: RoundPlan, one: Participant) -> Exchanges:
    """Send to the receivers of each pass and blend what the senders sent, own parameters first, then by number.

    The weight of a sender whose message is not admitted is this member's own.
    """
    graph, shared = _graph(plan), one.shared
    for step in range(steps(plan, len(one.order))):
        turn = _turn(plan, step)
        to, wait = receivers(graph, one.order, turn)[one.me], senders(graph, one.order, turn)[one.me]
        if not (to or wait):
            continue
        arrived = yield Exchange(to, wait, Message(state(plan, shared), wire=one.wire), (plan.number, step))
        usable = {sender: each.state.values for sender, each in arrived.items() if one.admits(sender, each)}
        if plan.combine != "mean":
            known, read = without(plan, _reads(graph, one.order, one.me, turn), usable)
            shared = combined(known, shared, [usable[sender] for sender in read.others], read)
            continue
        weights, own = row(graph, one.order, one.me, turn), shared
        shared = weights[one.me] * own
        for sender in wait:
            shared = shared + weights[sender] * usable.get(sender, own)
    return shared


def _reads(graph: Graph, order: Sequence[int], me: int, turn: int) -> Reads:
    """Whom a robust combine reads, in the order in which they are awaited."""
    weights, others = row(graph, order, me, turn), senders(graph, order, turn)[me]
    return Reads(tuple(others), tuple(weights[other] for other in others))


def server(plan: RoundPlan, one: Participant) -> None:
    """There is no server."""
    del plan, one


def pass_weights(
    plan: RoundPlan, order: Sequence[int], me: int, arrived: Mapping[int, Message], score: Score | None
) -> dict[int, float]:
    """What a member and its neighbours weigh in the round's first pass."""
    del arrived, score
    return row(_graph(plan), order, me, _turn(plan, 0))


def steps(plan: RoundPlan, members: int) -> int:
    """Exchanges per round: one for each pass."""
    return plan.passes if members > 1 else 0


def expected(plan: RoundPlan, order: Sequence[int], me: int, sender: int, step: int, elements: int) -> Expected | None:
    """Every neighbour that sends in this pass sends everything."""
    found = senders(_graph(plan), order, _turn(plan, step)).get(me, ())
    return Expected(0, elements) if sender in found else None


def lead(plan: RoundPlan, members: int) -> int:
    """By how many exchanges an honest neighbour can be ahead: one, or ⌈log₂ N⌉ where links have one direction."""
    return furthest_lead(_graph(plan), members)


def cost(plan: RoundPlan, clients: int, elements: int) -> Cost:
    """A message along every link in every pass."""
    graph = _graph(plan)
    order = range(clients) if plan.participants is None else plan.participants
    links = [sum(map(len, senders(graph, order, _turn(plan, step)).values())) for step in range(steps(plan, clients))]
    return Cost(sum(links), sum(links) * elements * FLOAT)


def _graph(plan: RoundPlan) -> Graph:
    assert plan.graph is not None  # this kind's plans have one
    return plan.graph


def _turn(plan: RoundPlan, step: int) -> int:
    """Passes before this one, over all rounds: with one peer at a time the next pass has the next peer."""
    return plan.number * plan.passes + step


def _entries(graph: Graph, order: Sequence[int], turn: int) -> tuple[list[int], list[int], list[float]]:
    """Row, column and value of every non-zero of one pass; rows and columns are places in `order`."""
    place = {member: at for at, member in enumerate(order)}
    here, there, values = [], [], []
    for member in order:
        for sender, weight in row(graph, order, member, turn).items():
            here.append(place[member])
            there.append(place[sender])
            values.append(weight)
    return here, there, values


@lru_cache(maxsize=16)  # a round's matrix is often that of an earlier round
def _blocks(graph: Graph, order: tuple[int, ...], passes: int, first: int) -> Blocks:
    if len(order) <= _FULL:
        return to_blocks(all_passes(graph, order, passes, first), order)
    from scipy.sparse import csr_array

    size = len(order)
    result: Any = None
    for turn in range(first, first + passes):
        here, there, values = _entries(graph, order, turn)
        one = csr_array((values, (here, there)), shape=(size, size))
        result = one if result is None else one @ result
        if not isinstance(result, np.ndarray) and 4 * result.nnz > size * size:
            result = result.toarray()
    return to_blocks(result, order)
