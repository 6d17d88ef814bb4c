"""Combining what arrives so that a few dishonest clients cannot decide the outcome: not linear, so not a matrix.

Among the n vectors that a client combines, its own included, up to f (`byzantine`) may be anything at all.

- `clipped`: θ_i + Σ_j w_j (θ_j - θ_i) min(1, τ / |θ_j - θ_i|), self-centred clipping (He, Karimireddy and Jaggi,
  Byzantine-robust decentralized learning via ClippedGossip, 2022). τ is `clip_radius`, or the distance of the farthest
  neighbour but f: at most f lie, so τ is at most the largest distance of an honest one. τ = ∞, or f = 0: the mean.
- `trimmed`: in each coordinate the mean without the f smallest and the f largest (Yin, Chen, Ramchandran and Bartlett,
  ICML 2018). f = 0: the mean. n ≥ 2f + 1.
- `median`: in each coordinate the median (the same). n ≥ 2f + 1.
- `krum`: the vector that is nearest to its n - f - 2 nearest others (Blanchard, El Mhamdi, Guerraoui and Stainer, NIPS
  2017). n ≥ 2f + 3.

The last three count every vector alike. So does clipping, but for weights that follow from the topology, such as those
of ring neighbours: how many samples a client has is only its own claim, and a liar could claim most of the weight.

With fewer vectors than f requires, for example because members are gone, a client keeps its own. A sum over clients is
no vector of anybody, so none of this can run on partial sums.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, assert_never

import numpy as np

from firma.errors import BadInput
from firma.graphs import senders
from firma.methods import Combine, Method
from firma.schedule import RoundPlan, plan
from firma.settings import Hyper, Wire

if TYPE_CHECKING:
    from torch import Tensor

_COLUMNS = 65536  # parameters that are sorted at a time


class Reads(NamedTuple):
    """Whom a client reads in one pass, with which weights; `kept` is the share that it keeps of its own."""

    others: tuple[int, ...]
    weights: tuple[float, ...]
    kept: float = 0.0


@dataclass(frozen=True, eq=False)
class Gossip:
    """Every client combines its own with those that it reads, `passes` times, one after another."""

    reads: Mapping[int, Reads]  # by client
    passes: int = 1


@dataclass(frozen=True, eq=False)
class Common:
    """Everybody gets the same combination of all of these clients, in ascending order."""

    clients: tuple[int, ...]


def needed(combine: Combine, byzantine: int, radius: float | None = None) -> int:
    """How many vectors, a client's own included, must be combined to withstand f liars among them."""
    match combine:
        case "mean":
            return 1
        case "clipped":
            return byzantine + 2 if radius is None and byzantine else 1
        case "trimmed" | "median":
            return 2 * byzantine + 1
        case "krum":
            return 2 * byzantine + 3
        case _:
            assert_never(combine)


def enough(plan: RoundPlan, members: int) -> bool:
    """Whether so many members are enough for the plan's combine: on a ring or a graph, a client and its neighbours.

    On a graph of the user's own, and in rounds with fewer members, a client with too few neighbours keeps its own.
    """
    return _fewest(plan, members) >= needed(plan.combine, plan.byzantine, plan.clip_radius)


def _fewest(plan: RoundPlan, members: int) -> int:
    """How many vectors, its own included, the client with the fewest neighbours combines; on a graph of edges, all."""
    if plan.graph is not None and plan.graph.topology != "edges":
        return 1 + min(len(each) for each in senders(plan.graph, range(members)).values())
    return min(members, 3) if plan.mixing == "ring" else members


def combined(plan: RoundPlan, own: "Tensor", received: "Sequence[Tensor]", reads: Reads) -> "Tensor":
    """(p,) what a client makes of its own vector (p,) and of those that it received, by the plan's combine.

    `reads` has their weights, in their order; those of weight 0, such as neighbours behind a closed gate, do not count.
    What is left of 1 is the own vector's. For `trimmed`, `median` and `krum`, weights say no more than who counts, and
    the client keeps the share `reads.kept` of its own.
    """
    counted = [(vector, weight) for vector, weight in zip(received, reads.weights, strict=True) if weight > 0]
    vectors = [vector for vector, _ in counted]
    if 1 + len(vectors) < needed(plan.combine, plan.byzantine, plan.clip_radius):
        return own.clone()
    if plan.combine in ("mean", "clipped"):
        radius = math.inf if plan.combine == "mean" else plan.clip_radius
        return clipped(own, vectors, [weight for _, weight in counted], plan.byzantine, radius)
    found = common(plan, [own, *vectors])
    return reads.kept * own + (1 - reads.kept) * found if reads.kept else found


def without(plan: RoundPlan, reads: Reads, usable: Collection[int]) -> tuple[RoundPlan, Reads]:
    """The same without members whose vectors cannot be used: they are found out, so fewer liars are left.

    With all of them usable, both are returned as they are.
    """
    kept = [(other, weight) for other, weight in zip(reads.others, reads.weights, strict=True) if other in usable]
    found = len(reads.others) - len(kept)
    if not found:
        return plan, reads
    fewer = replace(plan, byzantine=max(plan.byzantine - found, 0))
    return fewer, Reads(tuple(other for other, _ in kept), tuple(weight for _, weight in kept), reads.kept)


def common(plan: RoundPlan, vectors: "Sequence[Tensor]") -> "Tensor":
    """(p,) the combination of vectors (p,) that count alike; at a server, or where everybody has all of them.

    The order of vectors does not matter, except to `krum` where two are equally near to the others: the first is taken.
    A single one is what it is.
    """
    if len(vectors) == 1:
        return vectors[0].clone()
    match plan.combine:
        case "trimmed":
            return trimmed_mean(vectors, plan.byzantine)
        case "median":
            return median(vectors)
        case "krum":
            return vectors[krum(vectors, plan.byzantine)].clone()
        case "mean":
            return trimmed_mean(vectors, 0)
        case "clipped":
            raise ValueError("clipping requires a client's own vector")
        case _:
            assert_never(plan.combine)


def clipped(
    own: "Tensor", received: "Sequence[Tensor]", weights: Sequence[float], byzantine: int, radius: float | None = None
) -> "Tensor":
    """(p,) own + Σ w_j · (difference to vector j, shortened to τ); τ = ∞ is the weighted mean.

    A vector at no finite distance has no part in it.
    """
    distances = [distance(vector, own) for vector in received]
    if radius is None:
        radius = sorted(distances)[len(distances) - byzantine - 1] if byzantine < len(distances) else 0.0
    result = own.clone()
    for vector, weight, far in zip(received, weights, distances, strict=True):
        if math.isfinite(far):
            result += (vector - own) * (weight if far <= radius else weight * radius / far)
    return result


def trimmed_mean(vectors: "Sequence[Tensor]", byzantine: int) -> "Tensor":
    """(p,) coordinate by coordinate, the mean of n vectors without the f smallest and the f largest values."""
    import torch

    rest = len(vectors) - 2 * byzantine
    result = torch.empty_like(vectors[0])
    for span, ordered in _sorted(vectors):
        total = ordered[byzantine].clone()  # added up in ascending order: the same whatever the order of vectors
        for row in ordered[byzantine + 1 : byzantine + rest]:
            total += row
        result[span] = total / rest
    return result


def median(vectors: "Sequence[Tensor]") -> "Tensor":
    """(p,) coordinate by coordinate, the median of n vectors; of an even number, the mean of the two in the middle."""
    import torch

    low, high = (len(vectors) - 1) // 2, len(vectors) // 2
    result = torch.empty_like(vectors[0])
    for span, ordered in _sorted(vectors):
        result[span] = ordered[low] if low == high else (ordered[low] + ordered[high]) / 2
    return result


def krum(vectors: "Sequence[Tensor]", byzantine: int) -> int:
    """The number of the vector with the least sum of squared distances to its n - f - 2 nearest others."""
    size = len(vectors)
    square = np.zeros((size, size))
    for i in range(size):
        for j in range(i):
            square[i, j] = square[j, i] = distance(vectors[i], vectors[j]) ** 2
    others = [np.sort(np.delete(square[i], i))[: size - byzantine - 2].sum() for i in range(size)]
    return int(np.argmin(others))


def distance(one: "Tensor", other: "Tensor") -> float:
    """Euclidean, in float64, added up by NumPy: torch's sums depend on the number of threads. ∞ if it is no number."""
    apart = one.detach().cpu().numpy().astype(np.float64) - other.detach().cpu().numpy()
    found = math.sqrt(np.square(apart).sum())
    return math.inf if math.isnan(found) else found


def _sorted(vectors: "Sequence[Tensor]") -> "list[tuple[slice, Tensor]]":
    """(n, …) values of each coordinate in ascending order, some coordinates at a time; NaN counts as the largest."""
    import torch

    spans = [slice(start, start + _COLUMNS) for start in range(0, len(vectors[0]), _COLUMNS)]
    return [(span, torch.stack([vector[span] for vector in vectors]).sort(dim=0).values) for span in spans]


def check_members(
    row: Method, hyper: Hyper, members: int, rounds: int, wire: Wire = "float32", clients: int | None = None
) -> None:
    """Refuse a robust combine of too few clients, and encodings in which an all-gather cannot pass vectors on.

    `members` take part in a round, of so many `clients`; whoever is alone in the federation combines nothing.
    """
    everybody = members if clients is None else clients
    for number in (0, rounds - 1):  # a round of the warm-up, if there is one, and the last
        today = plan(row, hyper, members, rounds, number)
        if today.mixing == "all-gather" and wire != "float32":
            raise BadInput(
                f"wire = {wire!r} cannot be combined with method {row.name!r}: members of an all-gather pass "
                "extractors on bit for bit and compare digests; use float32"
            )
        if today.combine == "clipped" and today.mixing == "star":
            raise BadInput(
                f"method {row.name!r}: combine = 'clipped' cannot be combined with warmup_shares = "
                f"{hyper.warmup_shares!r}, an average at a server; use extractor"
            )
        if everybody > 1 and not enough(today, members):
            least = needed(today.combine, today.byzantine, today.clip_radius)
            raise BadInput(
                f"method {row.name!r}: combine = {row.combine!r} with byzantine = {hyper.byzantine} requires at least "
                f"{least} clients to combine, and there are {_there(today, members, everybody)}"
            )


def _there(today: RoundPlan, members: int, clients: int) -> str:
    """How many vectors a client combines, and what to do if these are too few, for people."""
    fewest = _fewest(today, members)
    if fewest < members:
        count = "1 neighbour" if fewest == 2 else f"{fewest - 1} neighbours"
        return (
            f"{fewest}, a client and its {count}, however many clients there are; use a smaller byzantine, or a "
            "topology with more neighbours, such as complete or all-gather"
        )
    if members < clients:
        return f"{members} of {clients} in a round; use a smaller byzantine, a larger participation, or more clients"
    return f"{members}; use a smaller byzantine, or more clients"
