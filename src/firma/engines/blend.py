"""Applying a round's matrix to the stacked parameters of clients, in place and in little memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firma.mixing import Row, beside, power, ring_matrix, ring_row, sparse_power
from firma.schedule import RoundPlan

Numbers = NDArray[np.int64]
_COLUMNS = 4096  # parameters at a time
_ROWS = 64  # clients at a time, neighbours on the ring
_NOTHING = 1e-10  # weights below this cannot be seen in float32, even a thousand of them
_NOBODY: Mapping[int, Tensor] = {}
_FULL = 512  # clients up to which the matrix of a round is held whole


@dataclass(frozen=True)
class Stretch:
    """Clients that sit together, whom they hear, and what of each: (clients, heard) weights."""

    clients: Numbers
    heard: slice  # of the weave's clients
    part: NDArray[np.float32]


@dataclass(frozen=True)
class Weave:
    """A round's mixing on the ring: whose parameters are needed, and the stretches that need them."""

    heard: Numbers  # clients in the order of their seats; one may be there twice
    stretches: tuple[Stretch, ...]
    seat: Numbers  # of every client; nothing in a part of a weave

    def of(self, group: Sequence[int]) -> "Weave":
        """What clients that sit together, in the order of their seats, need; stretches shared with others stay whole.

        Whole, so that every product has the shape that it has without groups, and its sums come out the same.
        """
        chosen = self.stretches[self.seat[group[0]] // _ROWS : self.seat[group[-1]] // _ROWS + 1]
        first, last = chosen[0].heard.start, chosen[-1].heard.stop
        moved = [Stretch(s.clients, slice(s.heard.start - first, s.heard.stop - first), s.part) for s in chosen]
        return Weave(self.heard[first:last], tuple(moved), self.seat[:0])


def weave(rows: Sequence[Row], order: Sequence[int], passes: int) -> Weave:
    """The mixing of `passes` passes; `rows[i]` is client i's.

    On a large ring even many passes reach a few neighbours only: clients that sit together hear a stretch of the ring,
    and time grows with N, not with N².
    """
    size, seats = len(order), np.asarray(order)
    seated: Any = (
        power(ring_matrix(order, rows), passes)[np.ix_(seats, seats)]
        if size <= _FULL
        else sparse_power([rows[client] for client in order], passes)
    )
    seated = _cut(seated)
    reach = _reach(seated)
    heard = np.arange(-reach, size + reach) % size if 2 * reach + _ROWS < size else np.arange(size)
    around = len(heard) - size  # 0: everybody hears everybody
    stretches = []
    for start in range(0, size, _ROWS):
        stop = min(start + _ROWS, size)
        span = slice(start, stop + around) if around else slice(0, size)
        part = seated[start:stop][:, heard[span]]
        part = part if isinstance(part, np.ndarray) else part.toarray()
        stretches.append(Stretch(seats[start:stop], span, part.astype(np.float32)))
    return Weave(seats[heard], tuple(stretches), np.argsort(seats))


def woven(plan: RoundPlan, order: Sequence[int], accuracies: Sequence[float]) -> Weave:
    """The mixing of a planned round, given the training accuracies (N,)."""
    rows = [
        ring_row(plan.pair, plan.retention, plan.gate, accuracies[left], accuracies[right])
        for _, (left, right) in sorted(beside(order).items())
    ]
    return weave(rows, order, plan.passes)


def _one_by_one(work: Callable[[slice], None], spans: Sequence[slice]) -> None:
    for span in spans:
        work(span)


def blend(
    mixing: Weave, shared: Tensor, clients: Sequence[int], lent: Mapping[int, Tensor] = _NOBODY,
    spread: Callable[[Callable[[slice], None], Sequence[slice]], None] = _one_by_one,
) -> None:  # fmt: skip
    """shared ← weave · shared; `shared` (n, P) holds a row of each of `clients`, `lent` are others' (P,) rows.

    Parameters do not meet in it, so `spread` may work on spans of them side by side.
    """
    place = {client: row for row, client in enumerate(clients)}
    runs = [
        torch.tensor([place[client] for client in run], device=shared.device) if ours else [lent[c] for c in run]
        for ours, run in _runs(mixing.heard.tolist(), place)
    ]
    groups = []
    for stretch in mixing.stretches:
        kept = [at for at, client in enumerate(stretch.clients.tolist()) if client in place]
        rows = torch.tensor([place[client] for client in stretch.clients[kept].tolist()], device=shared.device)
        whole = slice(None) if len(kept) == len(stretch.clients) else torch.tensor(kept, device=shared.device)
        groups.append(
            (rows, whole, stretch.heard, torch.tensor(stretch.part, dtype=shared.dtype, device=shared.device))
        )

    def work(span: slice) -> None:
        piece = shared[:, span]
        heard = [piece[run] if isinstance(run, Tensor) else torch.stack([row[span] for row in run]) for run in runs]
        before = heard[0] if len(heard) == 1 else torch.cat(heard)
        for rows, kept_rows, hears, part in groups:
            piece[rows] = (part @ before[hears])[kept_rows]

    spread(work, [slice(start, start + _COLUMNS) for start in range(0, shared.shape[1], _COLUMNS)])


def _runs(heard: list[int], ours: Mapping[int, int]) -> Iterator[tuple[bool, list[int]]]:
    """Those heard, cut where the ring passes from our clients to others' and back."""
    return ((own, list(run)) for own, run in groupby(heard, key=ours.__contains__))


def _cut(seated: Any) -> Any:
    """The matrix, full or sparse, without weights that nobody could see; rows sum to 1 again."""
    if isinstance(seated, np.ndarray):
        seated = np.where(seated < _NOTHING, 0.0, seated)
        return seated / seated.sum(axis=1, keepdims=True)
    seated.data[seated.data < _NOTHING] = 0.0
    seated.eliminate_zeros()
    seated.data /= np.repeat(seated.sum(axis=1), np.diff(seated.indptr))
    return seated


def _reach(seated: Any) -> int:
    """The farthest seat, counted along the ring, in which anybody has a part."""
    here, there = seated.nonzero()
    apart = np.abs(here.astype(np.int64) - there)
    return int(np.minimum(apart, seated.shape[0] - apart).max())
