"""Every aggregation as one row-stochastic matrix: rows of the ring, of the star, and what powers of them do."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firma.methods import Weights

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Matrix = NDArray[np.float64]
GOLDEN = (1 + math.sqrt(5)) / 2
_PAIRS = {"golden": (1 / GOLDEN, 1 / GOLDEN**2), "half": (0.5, 0.5)}


class Row(NamedTuple):
    """What a client blends in one pass: weights of itself, its left and its right neighbour; they sum to 1."""

    own: float
    left: float
    right: float


class Gate(NamedTuple):
    """The accuracy gate: who falls below the threshold has no part in the posterior, Eq. 6."""

    threshold: float
    posterior: float


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
    weight = (1 - gate.posterior) * prior[0] + gate.posterior * gated_left / total
    return weight, 1.0 - weight


def ring_row(
    prior: tuple[float, float],
    retention: float,
    gate: Gate | None = None,
    left: float = 1.0,
    right: float = 1.0,
) -> Row:
    """One client's row, Eqs. 4 to 7: the only place where a neighbour's weight is computed.

    `left` and `right` are the neighbours' training accuracies. Both gated, or retention 1: the client keeps its own.
    """
    blend = prior if gate is None else gated_pair(prior, gate, left, right)
    if blend is None:
        return Row(1.0, 0.0, 0.0)
    return Row(retention, (1 - retention) * blend[0], (1 - retention) * blend[1])


def beside(order: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Left and right neighbour of every client on the ring `order`; on a ring of one, itself."""
    size = len(order)
    return {client: (order[p - 1], order[(p + 1) % size]) for p, client in enumerate(order)}


def ring_matrix(order: Sequence[int], rows: Sequence[Row]) -> Matrix:
    """(N, N) matrix of one pass; `rows[i]` is client i's. With N = 2 left and right are one, with N = 1 oneself."""
    matrix = np.zeros((len(order), len(order)))
    for client, (left, right) in beside(order).items():
        matrix[client, client] += rows[client].own
        matrix[client, left] += rows[client].left
        matrix[client, right] += rows[client].right
    return matrix


def size_weights(sizes: Sequence[int]) -> NDArray[np.float64]:
    """Shares of the samples, n_i / n: what every row of a star's matrix holds."""
    return np.asarray(sizes, dtype=np.float64) / float(sum(sizes))


def star_matrix(sizes: Sequence[int]) -> Matrix:
    """(N, N) matrix of an average by size: every row is the same."""
    return np.tile(size_weights(sizes), (len(sizes), 1))


def power(matrix: Matrix, passes: int) -> Matrix:
    """`passes` synchronous passes in one matrix."""
    return np.linalg.matrix_power(matrix, passes)


def sparse_power(rows: Sequence[Row], passes: int) -> "csr_array":
    """The same for a ring that is too large for a full matrix; rows and columns are seats, `rows` in their order.

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


def spectral_radius(matrix: Matrix) -> float:
    """Largest modulus among the eigenvalues but the leading 1: how slowly disagreement dies. 0 for one client."""
    moduli = np.sort(np.abs(np.linalg.eigvals(matrix)))
    return float(moduli[-2]) if len(moduli) > 1 else 0.0


def min_influence(matrix: Matrix) -> float:
    """The smallest weight that any client has in any other: coverage as a number, not as a pattern."""
    return float(matrix.min())
