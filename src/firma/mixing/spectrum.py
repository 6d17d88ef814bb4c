"""How fast a mixing matrix mixes, and how far it reaches."""

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def power(matrix: Matrix, passes: int) -> Matrix:
    """`passes` synchronous passes in one matrix."""
    return np.linalg.matrix_power(matrix, passes)


def spectral_radius(matrix: Matrix) -> float:
    """Largest modulus among the eigenvalues but the leading 1: how slowly disagreement dies. 0 for one client."""
    moduli = np.sort(np.abs(np.linalg.eigvals(matrix)))
    return float(moduli[-2]) if len(moduli) > 1 else 0.0


def min_influence(matrix: Matrix) -> float:
    """The smallest weight that any client has in any other: coverage as a number, not as a pattern of non-zeros."""
    return float(matrix.min())
