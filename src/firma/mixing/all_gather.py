"""Everybody gets everybody's parameters and combines them itself: each vector passes round the ring unchanged.

N-1 steps to the right, (N-1)p numbers per client; with combine = mean the same average as an all-reduce, at N/2 times
its traffic. It is what a robust combine needs, which must see single clients instead of sums.

Whatever a member receives has passed through others, any of which could change it. So in a last step every member
sends every other, directly, the digests of all that it holds, and a member uses only those vectors that are what their
origin itself says it sent. A digest that differs is reported with the two members between which the vector changed:
along the way from the origin, the last that holds what the origin says and the first that does not. One of the two
lies, or both, however many others lie: had both been honest, they would hold the same. Which of them it was, only a
signature of the origin can tell: `digest` is what it would sign, it names the round and the origin.

Weights by size are those of the vectors that were accepted, and the digest covers the sample count, so that nobody can
change another's. Its own count a member can still invent, just as it can scale its parameters: a mean trusts members.
With a robust combine all count alike and no count is sent.
"""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from firma.errors import BadInput
from firma.mixing.combine import Common, Gossip, Reads, combined, common, enough
from firma.mixing.kind import DIGEST, FLOAT, NUMBER, Average, ByClient, Cost
from firma.mixing.ring_order import neighbours
from firma.mixing.weights import by_size, in_average
from firma.protocol import Exchange, Exchanges, Expected, Message, Mismatch, Participant, Score, state
from firma.schedule import RoundPlan

if TYPE_CHECKING:
    from torch import Tensor

NEEDS_SERVER = False


def mixture(
    plan: RoundPlan, order: Sequence[int], sizes: ByClient[int], accuracies: ByClient[float]
) -> Average | Common | Gossip | None:
    """Every row holds the clients' shares of the samples, or equal ones; neither order nor accuracies matter.

    Clipping differs from client to client: each clips to its own vector. Every other combine gives all the same. With
    fewer clients than a robust combine requires, everybody keeps its own.
    """
    del accuracies
    clients = tuple(sorted(order))
    if plan.combine == "mean":
        return Average(by_size([in_average(plan.weights, sizes[client]) for client in clients]))
    if not enough(plan, len(clients)):
        return None
    if plan.combine == "clipped":
        return Gossip({client: _all_alike(client, clients) for client in clients})
    return Common(clients)


def exchange(plan: RoundPlan, one: Participant) -> Exchanges:
    """Vectors travel to the right until everybody has all, then digests are compared; alone, a client keeps its own."""
    order = list(one.order)
    if len(order) == 1:
        return one.shared
    if one.wire != "float32":
        raise BadInput(f"wire = {one.wire!r}: an all-gather passes extractors on bit for bit; use float32")
    left, right = neighbours(order)[one.me]
    weight = in_average(plan.weights, one.samples) if plan.combine == "mean" else None
    held = {one.me: Message(state(plan, one.shared), weight=weight)}
    place = order.index(one.me)
    for step in range(len(order) - 1):
        passed_on, theirs = order[place - step], order[place - step - 1]
        arrived = yield Exchange((right,), (left,), held[passed_on], (plan.number, step))
        held[theirs] = arrived[left]
    digests = {origin: digest(plan.number, origin, each) for origin, each in held.items()}
    others = tuple(sorted(set(order) - {one.me}))
    mine = tuple(digests[origin] for origin in order)
    table = Message(state(plan, one.shared[:0]), digests=mine)
    told = yield Exchange(others, others, table, (plan.number, len(order) - 1))
    claims = {member: dict(zip(order, message.digests, strict=True)) for member, message in told.items()}
    claims[one.me] = digests
    vouched = [origin for origin in sorted(order) if claims[origin][origin] == digests[origin]]
    accepted = [origin for origin in vouched if origin == one.me or one.admits(origin, held[origin])]
    if one.suspect is not None:
        for found in mismatches(order, claims, vouched):
            one.suspect(found)
    fewer = replace(plan, byzantine=max(plan.byzantine - (len(vouched) - len(accepted)), 0))  # these are found out
    return _result(fewer, one.me, {origin: held[origin] for origin in accepted})


def _result(plan: RoundPlan, me: int, accepted: Mapping[int, Message]) -> "Tensor":
    """(p,) the combination of what was accepted, in ascending order of members, which makes it the same for all."""
    vectors = {origin: message.state.values for origin, message in accepted.items()}
    if plan.combine == "clipped":
        reads = _all_alike(me, tuple(vectors))
        return combined(plan, vectors[me], [vectors[other] for other in reads.others], reads)
    if plan.combine != "mean":
        return common(plan, list(vectors.values())) if enough(plan, len(vectors)) else vectors[me].clone()
    total = sum(message.weight or 0.0 for message in accepted.values())
    mean = vectors[me] * 0.0
    for origin, message in accepted.items():
        mean = mean + vectors[origin] * ((message.weight or 0.0) / total)
    return mean


def _all_alike(me: int, clients: tuple[int, ...]) -> Reads:
    others = tuple(client for client in clients if client != me)
    return Reads(others, (1 / len(clients),) * len(others))


def digest(number: int, origin: int, message: Message) -> bytes:
    """(32,) SHA-256 of a vector as float32 with its sample count, and of whose it is in which round."""
    head = struct.pack("<IId", number, origin, message.weight or 0.0)
    values = message.state.values.detach().cpu().contiguous().numpy()
    return hashlib.sha256(head + np.ascontiguousarray(values, dtype="<f4").tobytes()).digest()


def mismatches(
    order: Sequence[int], claims: Mapping[int, Mapping[int, bytes]], accepted: Sequence[int]
) -> list[Mismatch]:
    """For each origin on whose vector members disagree, where it changed first on its way round the ring.

    `claims[member][origin]` is the digest of what a member says it holds of an origin.
    """
    found = []
    for place, origin in enumerate(order):
        way = [order[(place + step) % len(order)] for step in range(len(order))]
        for before, after in pairwise(way):
            if claims[after][origin] != claims[origin][origin]:
                found.append(Mismatch(origin, before, after, origin in accepted))
                break
    return found


def server(plan: RoundPlan, one: Participant) -> None:
    """There is no server."""
    del plan, one


def pass_weights(
    plan: RoundPlan, order: Sequence[int], me: int, arrived: Mapping[int, Message], score: Score | None
) -> dict[int, float]:
    """Known only once all vectors are here and compared, which is after the first exchange."""
    del plan, order, me, arrived, score
    return {}


def steps(plan: RoundPlan, members: int) -> int:
    """N-1 exchanges of vectors, one of digests."""
    del plan
    return members if members > 1 else 0


def expected(plan: RoundPlan, order: Sequence[int], me: int, sender: int, step: int, elements: int) -> Expected | None:
    """The left neighbour sends a whole vector, with its sample count for a mean; in the end all send N digests."""
    size = len(order)
    if size == 1 or sender == me or me not in order or sender not in order:
        return None
    if step == size - 1:
        return Expected(0, 0, digests=size)
    if sender != neighbours(order)[me][0]:
        return None
    return Expected(0, elements, weight=plan.combine == "mean")


def lead(plan: RoundPlan, members: int) -> int:
    """By how many exchanges an honest member can be ahead.

    Messages go to the right only, so the chain of who waits for whom comes back after N-1 links.
    """
    del plan
    return max(1, members - 1)


def cost(plan: RoundPlan, clients: int, elements: int) -> Cost:
    """N-1 steps in which every client sends a vector, for a mean with its count; then N digests to all others."""
    links = clients * (clients - 1)
    counts = NUMBER if plan.combine == "mean" else 0
    return Cost(2 * links, links * (elements * FLOAT + counts + clients * DIGEST))
