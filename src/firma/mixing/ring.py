"""Mixing with both ring neighbours, `passes` times per round: θ_i ← γ θ_i + (1 - γ)(a_L θ_L + a_R θ_R).

K passes are the K-th power of one row-stochastic matrix; the gate depends on the round's accuracies, which do not
change between passes. With two clients left and right are one, and a client that is alone keeps its parameters.

With a robust combine the passes are taken one after another.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from firma.mixing.combine import Gossip, Reads, combined, without
from firma.mixing.kind import FLOAT, NUMBER, ByClient, Cost
from firma.mixing.matrix_blocks import Blocks, to_blocks
from firma.mixing.ring_order import neighbours
from firma.mixing.spectrum import Matrix
from firma.mixing.weights import Row, pair, ring_row
from firma.protocol import Exchange, Exchanges, Expected, Message, Participant, Score, state
from firma.schedule import RoundPlan

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NEEDS_SERVER = False
_FULL = 512  # clients up to which the matrix of a round is held whole


def row(plan: RoundPlan, left: float = 1.0, right: float = 1.0) -> Row:
    """What a client blends in one pass of the plan, given its neighbours' training accuracies."""
    return ring_row(pair(plan.weights), plan.retention, plan.gate, left, right)


def rows(plan: RoundPlan, order: Sequence[int], accuracies: ByClient[float]) -> list[Row]:
    """The row of every client on the ring, in ascending order of client numbers; `accuracies[i]` is client i's."""
    return [row(plan, accuracies[left], accuracies[right]) for _, (left, right) in sorted(neighbours(order).items())]


def one_pass(order: Sequence[int], by_client: Sequence[Row]) -> Matrix:
    """(N, N) matrix of one pass on a ring of the clients 0 … N-1; `by_client[i]` is client i's row."""
    matrix = np.zeros((len(order), len(order)))
    for client, (left, right) in neighbours(order).items():
        matrix[client, client] += by_client[client].own
        matrix[client, left] += by_client[client].left
        matrix[client, right] += by_client[client].right
    return matrix


def sparse_power(rows: Sequence[Row], passes: int) -> "csr_array":
    """`passes` passes on a ring too large for a full matrix; rows and columns are positions, `rows` in their order.

    Even many passes reach a few neighbours only: a weight below 1e-14 is dropped on the way, and rows still sum to 1.
    """
    from scipy.sparse import csr_array, diags_array, eye_array

    size = len(rows)
    here = np.arange(size)
    one_pass = csr_array(
        (
            np.array(rows, dtype=np.float64).T.ravel(),
            (np.tile(here, 3), np.concatenate([here, here - 1, here + 1]) % size),
        ),
        shape=(size, size),
    )

    def product(left: csr_array, right: csr_array) -> csr_array:
        result = left @ right
        result.data[result.data < 1e-14] = 0.0
        result.eliminate_zeros()
        return csr_array(diags_array(1 / result.sum(axis=1)) @ result)

    result, square = csr_array(eye_array(size)), one_pass
    while passes:
        result = product(result, square) if passes & 1 else result
        passes >>= 1
        square = product(square, square) if passes else square
    return result


def all_passes(by_client: Sequence[Row], order: Sequence[int], passes: int) -> Blocks:
    """The matrix of `passes` passes in blocks; `by_client` are the rows, in ascending order of client numbers."""
    ranks = np.argsort(np.argsort(order))  # of each position's client among the clients; its number, if all take part
    if len(order) <= _FULL:
        whole = np.linalg.matrix_power(one_pass(ranks.tolist(), by_client), passes)
        return to_blocks(whole[np.ix_(ranks, ranks)], order)
    return to_blocks(sparse_power([by_client[rank] for rank in ranks], passes), order)


def mixture(
    plan: RoundPlan, order: Sequence[int], sizes: ByClient[int], accuracies: ByClient[float]
) -> Blocks | Gossip:
    """All passes of the round; every client counts alike, whatever its size."""
    del sizes
    if plan.combine != "mean":
        around = neighbours(order)
        found = {me: row(plan, accuracies[left], accuracies[right]) for me, (left, right) in around.items()}
        return Gossip({me: reads(plan, me, around[me], each) for me, each in found.items()}, plan.passes)
    return all_passes(rows(plan, order, accuracies), order, plan.passes)


def reads(plan: RoundPlan, me: int, pair_of: tuple[int, int], weights: Row) -> Reads:
    """Whom a client reads in one pass: its neighbours, one if left is right, nobody if it is alone."""
    total: dict[int, float] = {}
    for other, weight in zip(pair_of, (weights.left, weights.right), strict=True):
        if other != me:
            total[other] = total.get(other, 0.0) + weight
    return Reads(tuple(total), tuple(total.values()), plan.retention)


def exchange(plan: RoundPlan, one: Participant) -> Exchanges:
    """Blend with both neighbours, `plan.passes` times; a gated neighbour still sends and is waited for.

    Accuracies are sent once per round. Scores are computed in every pass: a dishonest neighbour could cheat later. The
    weight of a neighbour whose message is not admitted is this member's own.
    """
    left, right = neighbours(one.order)[one.me]
    others = tuple(sorted({left, right} - {one.me}))
    shared, weights = one.shared, None
    for step in range(plan.passes if others else 0):
        accuracy = one.accuracy if plan.gate is not None and step == 0 else None
        message = Message(state(plan, shared), accuracy, wire=one.wire)
        arrived = yield Exchange(others, others, message, (plan.number, step))
        if weights is None or (one.score is not None and plan.gate is not None):
            found = _accuracies(arrived, one.score if plan.gate is not None else None)
            weights = row(plan, found[left], found[right])
        usable = {sender: each.state.values for sender, each in arrived.items() if one.admits(sender, each)}
        if plan.combine != "mean":
            known, read = without(plan, reads(plan, one.me, (left, right), weights), usable)
            shared = combined(known, shared, [usable[other] for other in read.others], read)
            continue
        blend = weights.left * usable.get(left, shared) + weights.right * usable.get(right, shared)
        shared = weights.own * shared + blend
    return shared


def server(plan: RoundPlan, one: Participant) -> None:
    """There is no server."""
    del plan, one


def pass_weights(
    plan: RoundPlan, order: Sequence[int], me: int, arrived: Mapping[int, Message], score: Score | None
) -> dict[int, float]:
    """What a member and its neighbours weigh in one pass, by member, once the neighbours' messages are in.

    With clipping a neighbour weighs at most as much; in an order statistic weights have no meaning.
    """
    if plan.combine not in ("mean", "clipped"):
        return {}
    left, right = neighbours(order)[me]
    found = _accuracies(arrived, score)
    weights = row(plan, found[left], found[right])
    total = dict.fromkeys((me, left, right), 0.0)
    for member, weight in ((me, weights.own), (left, weights.left), (right, weights.right)):
        total[member] += weight
    return total


def steps(plan: RoundPlan, members: int) -> int:
    """Exchanges per round: one for each pass."""
    return plan.passes if members > 1 else 0


def expected(plan: RoundPlan, order: Sequence[int], me: int, sender: int, step: int, elements: int) -> Expected | None:
    """Both neighbours send everything in every pass, and in the first one their accuracy where there is a gate."""
    if sender == me or sender not in neighbours(order).get(me, ()):
        return None
    return Expected(0, elements, accuracy=plan.gate is not None and step == 0)


def lead(plan: RoundPlan, members: int) -> int:
    """By how many exchanges an honest neighbour can be ahead.

    One: nobody starts the exchange after the next before this member has sent its part of the next.
    """
    del plan, members
    return 1


def cost(plan: RoundPlan, clients: int, elements: int) -> Cost:
    """A message to each neighbour in each pass (one if N = 2); with the gate each is sent one accuracy per round."""
    links = clients * min(clients - 1, 2)
    gate = links * NUMBER if plan.gate is not None else 0
    return Cost(links * plan.passes, links * plan.passes * elements * FLOAT + gate)


def _accuracies(arrived: Mapping[int, Message], score: Score | None) -> dict[int, float]:
    """The neighbours' accuracies: as scored, or as they claim; 1 where no gate asked."""
    if score is not None:
        return {sender: score(sender, message.state.values) for sender, message in arrived.items()}
    return {sender: 1.0 if message.accuracy is None else message.accuracy for sender, message in arrived.items()}
