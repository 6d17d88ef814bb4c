"""The order of clients on the ring: neighbours, the cost of an order, and the 2-opt search for a cheaper one."""

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Similarity = NDArray[np.float64]


def similarity(proportions: NDArray[np.float64], kind: Literal["cosine", "dot"]) -> Similarity:
    """(N, N) similarity of (N, C) class proportions: the cosine of Eq. 8, or the plain products that were published."""
    q = np.asarray(proportions, dtype=np.float64)
    if kind == "cosine":
        q = q / np.linalg.norm(q, axis=1, keepdims=True)
    return q @ q.T


def neighbours(order: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Left and right neighbour of every client on the ring `order`; on a ring of one, itself."""
    size = len(order)
    return {client: (order[p - 1], order[(p + 1) % size]) for p, client in enumerate(order)}


def ring_cost(alike: Similarity, order: Sequence[int]) -> float:
    """Sum of similarities of neighbours once round the ring, Eq. 8."""
    return float(alike[np.asarray(order), np.roll(order, -1)].sum())


def two_opt(alike: Similarity) -> list[int]:
    """An order that no reversal of a segment improves, from the identity, first improvement first.

    For i < j the segment i+1 … j is reversed: the edges (i, i+1) and (j, j+1) give way to (i, j) and (i+1, j+1).
    Client 0 stays where it is. Rings of up to three clients have one order only.
    """
    size = len(alike)
    order = np.arange(size)
    improved = size > 3
    while improved:
        improved = False
        for i in range(size - 1):
            j = i + 1
            while j < size:
                j = _first_gain(alike, order, i, j)
                if j < size:
                    order[i + 1 : j + 1] = order[i + 1 : j + 1][::-1].copy()
                    improved = True
                    j += 1
    return [int(client) for client in order]


def total_variation(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """(N,) distances ½ Σ_c |p_c - q_c| of (N, C) proportions: 0 for equal ones, 1 where no class is in both."""
    return np.asarray(0.5 * np.abs(one - other).sum(axis=1), dtype=np.float64)


def orders_over_rounds(
    proportions: Callable[[int], NDArray[np.float64]],
    rounds: int,
    kind: Literal["cosine", "dot"],
    every: int = 0,
    when: float | None = None,
) -> list[tuple[int, tuple[int, ...]]]:
    """The rounds (from 0) in which 2-opt orders the ring, and the orders; `proportions(r)` are those of round r.

    The ring is ordered in round 0, every `every` rounds (0: never), and when some client's proportions are farther than
    `when` from what they were when it was last ordered (None: never). Proportions that do not change give one order.
    """
    seen = proportions(0)
    found = [(0, tuple(two_opt(similarity(seen, kind))))]
    for number in range(1, rounds):
        now = proportions(number) if when is not None or (every and number % every == 0) else seen
        moved = when is not None and bool((total_variation(now, seen) > when).any())
        if moved or (every and number % every == 0):
            same = np.array_equal(now, seen)
            found.append((number, found[-1][1] if same else tuple(two_opt(similarity(now, kind)))))
            seen = now
    return found


def _first_gain(alike: Similarity, order: NDArray[np.int64], i: int, start: int) -> int:
    """The first j ≥ start whose reversal saves more than 1e-9, or N; the pair (0, N-1) changes nothing."""
    size = len(order)
    stop = size - 1 if i == 0 else size
    if start >= stop:
        return size
    ends, after = order[start:stop], order[(np.arange(start, stop) + 1) % size]
    here, following = order[i], order[i + 1]
    gain = alike[here, following] + alike[ends, after] - alike[here, ends] - alike[following, after]
    better = np.flatnonzero(gain > 1e-9)
    return start + int(better[0]) if len(better) else size
