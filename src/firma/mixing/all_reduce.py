"""An exact average without a server, by size or of equal weights: a ring all-reduce, with messages to the right only.

Reduce-scatter, then all-gather: N-1 steps each, one N-th of the parameters per step, so a client sends 2p(N-1)/N
numbers however large the ring is. Nobody sees more of anyone than a sum over at least one member of one piece.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from firma.mixing.kind import FLOAT, NUMBER, Average, ByClient, Cost
from firma.mixing.ring_order import neighbours
from firma.mixing.weights import by_size, in_average
from firma.protocol import Exchange, Exchanges, Expected, Message, Participant, Score, state
from firma.schedule import RoundPlan

NEEDS_SERVER = False


def mixture(plan: RoundPlan, order: Sequence[int], sizes: ByClient[int], accuracies: ByClient[float]) -> Average:
    """Every row holds the clients' shares of the samples, or equal ones; neither order nor accuracies matter."""
    del accuracies
    return Average(by_size([in_average(plan.weights, sizes[client]) for client in sorted(order)]))


def exchange(plan: RoundPlan, one: Participant) -> Exchanges:
    """Pieces travel to the right, first to be summed up, then to be copied; alone, a client keeps its parameters.

    A sum that is not admitted is left out: the piece is then the mean of those members that come after it.
    """
    size = len(one.order)
    if size == 1:
        return one.shared
    left, right = neighbours(one.order)[one.me]
    place = list(one.order).index(one.me)
    mine = in_average(plan.weights, one.samples)
    pieces = [piece * mine for piece in one.shared.tensor_split(size)]
    starts = [0]
    for piece in pieces:
        starts.append(starts[-1] + piece.numel())
    weights = [mine] * size
    for step in range(2 * (size - 1)):
        gathering = step >= size - 1
        ours, theirs = (place - step) % size, (place - step - 1) % size
        message = Message(state(plan, pieces[ours], starts[ours]), weight=weights[ours], wire=one.wire)
        arrived = (yield Exchange((right,), (left,), message, (plan.number, step)))[left]
        if not one.admits(left, arrived):
            continue
        weight = arrived.weight or 0.0
        pieces[theirs] = arrived.state.values if gathering else pieces[theirs] + arrived.state.values
        weights[theirs] = weight if gathering else weights[theirs] + weight
    mean = one.shared.clone()
    for start, piece, weight in zip(starts, pieces, weights, strict=False):
        mean[start : start + piece.numel()] = piece / weight
    return mean


def server(plan: RoundPlan, one: Participant) -> None:
    """There is no server."""
    del plan, one


def pass_weights(
    plan: RoundPlan, order: Sequence[int], me: int, arrived: Mapping[int, Message], score: Score | None
) -> dict[int, float]:
    """A member does not know how many samples the others have."""
    del plan, order, me, arrived, score
    return {}


def steps(plan: RoundPlan, members: int) -> int:
    """N-1 exchanges to sum up, N-1 to copy."""
    del plan
    return 2 * (members - 1)


def expected(plan: RoundPlan, order: Sequence[int], me: int, sender: int, step: int, elements: int) -> Expected | None:
    """The left neighbour sends one piece and the weight behind it."""
    del plan
    size = len(order)
    if size == 1 or me not in order or sender != neighbours(order)[me][0]:
        return None
    which = (list(order).index(me) - step - 1) % size
    parts = np.array_split(np.arange(elements), size)  # as torch.tensor_split cuts
    return Expected(int(parts[which][0]) if len(parts[which]) else 0, len(parts[which]), weight=True)


def lead(plan: RoundPlan, members: int) -> int:
    """By how many exchanges an honest neighbour can be ahead.

    Messages go to the right only, so the chain of who waits for whom comes back after N-1 links.
    """
    del plan
    return max(1, members - 1)


def cost(plan: RoundPlan, clients: int, elements: int) -> Cost:
    """2(N-1) steps; in each all clients together send all parameters once, and N weights."""
    del plan
    steps_taken = 2 * (clients - 1)
    return Cost(steps_taken * clients, steps_taken * (elements * FLOAT + clients * NUMBER))
