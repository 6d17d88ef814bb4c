"""Applying a round's matrix to the stack of all clients' parameters, in place and in little memory."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from firma.mixing import Matrix

_COLUMNS = 8192  # parameters at a time
_ROWS = 64  # clients at a time, neighbours on the ring
_NOTHING = 1e-10  # weights below this cannot be seen in float32, even a thousand of them


def blend(matrix: Matrix, shared: Tensor, order: Sequence[int]) -> None:
    """shared ← matrix · shared for (N, N) and (N, P).

    On a large ring even many passes reach a few neighbours only: for clients that sit together, the columns in which
    all have nothing are left out, and time grows with N, not with N².
    """
    visible = np.where(matrix < _NOTHING, 0.0, matrix)
    visible /= visible.sum(axis=1, keepdims=True)
    groups = []
    for start in range(0, len(order), _ROWS):
        rows = np.asarray(order[start : start + _ROWS])
        columns = np.flatnonzero(visible[rows].any(axis=0))
        part = torch.from_numpy(visible[np.ix_(rows, columns)]).to(shared)
        groups.append((torch.from_numpy(rows).to(shared.device), torch.from_numpy(columns).to(shared.device), part))
    for start in range(0, shared.shape[1], _COLUMNS):
        piece = shared[:, start : start + _COLUMNS]
        mixed = torch.empty(piece.shape, dtype=shared.dtype, device=shared.device)
        for clients, heard, part in groups:
            mixed[clients] = part @ (piece if len(heard) == len(order) else piece[heard])
        piece.copy_(mixed)
