"""Applying a round's matrix to the stack of all clients' parameters, in place and in little memory."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from firma.mixing import Matrix

_COLUMNS = 4096  # parameters at a time
_ROWS = 64  # clients at a time, neighbours on the ring
_NOTHING = 1e-10  # weights below this cannot be seen in float32, even a thousand of them


def blend(matrix: Matrix, shared: Tensor, order: Sequence[int]) -> None:
    """shared ← matrix · shared for (N, N) and (N, P).

    On a large ring even many passes reach a few neighbours only: clients that sit together hear a stretch of the ring,
    and time grows with N, not with N².
    """
    size, seats = len(order), np.asarray(order)
    seated = matrix[np.ix_(seats, seats)]
    seated = np.where(seated < _NOTHING, 0.0, seated)
    seated /= seated.sum(axis=1, keepdims=True)
    reach = _reach(seated)
    heard = np.arange(-reach, size + reach) % size if 2 * reach + _ROWS < size else np.arange(size)
    around = len(heard) - size  # 0: everybody hears everybody
    groups = []
    for start in range(0, size, _ROWS):
        stop = min(start + _ROWS, size)
        span = slice(start, stop + around) if around else slice(0, size)
        part = torch.from_numpy(seated[start:stop, heard[span]]).to(shared)
        groups.append((torch.from_numpy(seats[start:stop]).to(shared.device), span, part))
    rows = torch.from_numpy(seats[heard]).to(shared.device)
    for start in range(0, shared.shape[1], _COLUMNS):
        piece = shared[:, start : start + _COLUMNS]
        before = piece[rows]
        for clients, span, part in groups:
            piece[clients] = part @ before[span]


def _reach(seated: Matrix) -> int:
    """The farthest seat, counted along the ring, in which anybody has a part."""
    here, there = np.nonzero(seated)
    apart = np.abs(here - there)
    return int(np.minimum(apart, len(seated) - apart).max())
