"""Weights of clients in a blend: the golden pair, the accuracy gate, shares by size."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firma.methods import Weights
from firma.schedule import Gate

GOLDEN = (1 + math.sqrt(5)) / 2
_PAIRS = {"golden": (1 / GOLDEN, 1 / GOLDEN**2), "half": (0.5, 0.5)}


class Row(NamedTuple):
    """What a client blends in one pass: weights of itself, its left and its right neighbour; they sum to 1."""

    own: float
    left: float
    right: float


def pair(weights: Weights) -> tuple[float, float]:
    """Weights of the left and the right neighbour, Eq. 3: (1/φ, 1/φ²) or (1/2, 1/2)."""
    return _PAIRS[weights]


def gated_pair(prior: tuple[float, float], gate: Gate, left: float, right: float) -> tuple[float, float] | None:
    """The pair after the accuracy gate, Eqs. 6 and 7; None if both neighbours fail it.

    Equal accuracies above the threshold give prior/2 + 1/4 each; posterior = 0 gives the prior.
    """
    gated_left = left if left >= gate.threshold else 0.0
    gated_right = right if right >= gate.threshold else 0.0
    total = gated_left + gated_right
    if total <= 0.0:
        return None
    weight = (1 - gate.posterior) * prior[0] + gate.posterior * (gated_left / total)
    return weight, 1.0 - weight


def ring_row(
    prior: tuple[float, float], retention: float, gate: Gate | None = None, left: float = 1.0, right: float = 1.0
) -> Row:
    """One client's row, Eqs. 4 to 7: the only place where a neighbour's weight is computed.

    `left` and `right` are the neighbours' training accuracies. Both gated, or retention 1: the client keeps its own.
    """
    blend = prior if gate is None else gated_pair(prior, gate, left, right)
    if blend is None:
        return Row(1.0, 0.0, 0.0)
    return Row(retention, (1 - retention) * blend[0], (1 - retention) * blend[1])


def by_size(sizes: Sequence[float]) -> NDArray[np.float64]:
    """(N,) shares of the samples, n_i / n."""
    return np.asarray(sizes, dtype=np.float64) / float(sum(sizes))


def in_average(weights: Weights, samples: int) -> float:
    """What a client with so many samples weighs in an average: its samples, or 1 where all count alike."""
    return 1.0 if weights == "equal" else float(samples)
