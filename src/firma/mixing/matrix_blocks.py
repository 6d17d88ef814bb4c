"""A round's matrix in blocks, and applying them to the stacked parameters of clients, in place and in little memory.

On a large ring even many passes reach a few neighbours only: clients that sit together read a stretch of the ring, and
time grows with N, not with N². On another graph with few links, a few clients at a time read just those they need.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Numbers = NDArray[np.int64]
_COLUMNS = 4096  # parameters at a time
_ROWS = 64  # clients at a time, neighbours on the ring
_SMALL = 256  # clients up to which everybody may read everybody
_SCATTERED_ROWS = 4  # clients at a time, where what they read lies anywhere
_NEGLIGIBLE = 1e-10  # weights below this cannot be seen in float32, even a thousand of them
_NONE: "Mapping[int, Tensor]" = {}


@dataclass(frozen=True)
class Block:
    """Clients that sit together, and what each takes of the clients they read: (clients, sources) weights."""

    clients: Numbers
    sources: slice | Numbers  # into the sources of all blocks
    weights: NDArray[np.float32]


@dataclass(frozen=True)
class Blocks:
    """A round's matrix: whose parameters are read, and the blocks of clients that read them."""

    sources: Numbers  # clients in ring order; one may occur twice
    blocks: tuple[Block, ...]
    position: Numbers  # of every client on the ring, -1: takes no part; empty in a part for one group
    rows: int = _ROWS  # clients per block

    def for_group(self, group: Sequence[int]) -> "Blocks":
        """What clients that sit together, in ring order, need; blocks shared with other groups stay whole.

        Whole, so that every product has the shape that it has without groups, and its sums come out the same. No
        blocks if none of the group takes part.
        """
        numbers = np.asarray(group)
        seats = self.position[numbers[numbers < len(self.position)]]
        seats = seats[seats >= 0]
        if not len(seats):
            return Blocks(self.sources[:0], (), self.position[:0])
        kept = self.blocks[seats[0] // self.rows : seats[-1] // self.rows + 1]
        read = np.unique(np.concatenate([np.arange(len(self.sources))[block.sources] for block in kept]))
        moved = [Block(b.clients, _moved(b.sources, read), b.weights) for b in kept]
        return Blocks(self.sources[read], tuple(moved), self.position[:0], self.rows)

    def matrix(self) -> NDArray[np.float64]:
        """(n, n) over the clients that take part, in ascending order, for a look at all of it."""
        clients = np.flatnonzero(self.position >= 0)
        full = np.zeros((len(clients), len(clients)))
        for block in self.blocks:
            for rank, row in zip(np.searchsorted(clients, block.clients), block.weights, strict=True):
                np.add.at(full[rank], np.searchsorted(clients, self.sources[block.sources]), row)
        return full


def _moved(sources: slice | Numbers, read: Numbers) -> slice | Numbers:
    """Sources as places in `read`, which holds all of them in ascending order."""
    if isinstance(sources, slice):
        start, stop = np.searchsorted(read, (sources.start, sources.stop - 1))
        return slice(int(start), int(stop) + 1)
    return np.searchsorted(read, sources)


def to_blocks(matrix: Any, order: Sequence[int]) -> Blocks:
    """Blocks of an (n, n) matrix, full or sparse, whose rows and columns are positions on the ring `order`."""
    size, clients = len(order), np.asarray(order)
    matrix = _without_negligible(matrix)
    reach = _reach(matrix)
    position = np.full(clients.max() + 1, -1)
    position[clients] = np.arange(size)
    around = 2 * reach if 2 * reach + _ROWS < size else 0  # 0: everybody reads everybody
    if not around and size > _SMALL and 4 * _SCATTERED_ROWS * len(matrix.nonzero()[0]) < size * size:
        return Blocks(clients, tuple(_scattered(matrix, clients)), position, _SCATTERED_ROWS)
    sources = np.arange(-reach, size + reach) % size if around else np.arange(size)
    blocks = []
    for start in range(0, size, _ROWS):
        stop = min(start + _ROWS, size)
        span = slice(start, stop + around) if around else slice(0, size)
        part = matrix[start:stop][:, sources[span]]
        part = part if isinstance(part, np.ndarray) else part.toarray()
        blocks.append(Block(clients[start:stop], span, part.astype(np.float32)))
    return Blocks(clients[sources], tuple(blocks), position)


def _scattered(matrix: Any, clients: Numbers) -> Iterator[Block]:
    """Blocks of a matrix with few non-zeros that lie anywhere."""
    for start in range(0, len(clients), _SCATTERED_ROWS):
        part = matrix[start : start + _SCATTERED_ROWS]
        read = np.unique(part.nonzero()[1])
        held = part[:, read]
        held = held if isinstance(held, np.ndarray) else held.toarray()
        yield Block(clients[start : start + _SCATTERED_ROWS], read, held.astype(np.float32))


def _one_by_one(work: Callable[[slice], None], spans: Sequence[slice]) -> None:
    for span in spans:
        work(span)


def apply(
    mixing: Blocks, shared: "Tensor", clients: Sequence[int], others: "Mapping[int, Tensor]" = _NONE,
    spread: Callable[[Callable[[slice], None], Sequence[slice]], None] = _one_by_one,
) -> None:  # fmt: skip
    """shared ← matrix · shared; `shared` (n, P) has a row for each of `clients`, `others` are (P,) rows from elsewhere.

    Columns do not interact, so `spread` may work on spans of them side by side. Clients in no block keep their rows.
    """
    if not mixing.blocks:
        return
    import torch
    from torch import Tensor

    place = {client: row for row, client in enumerate(clients)}
    runs = [
        torch.tensor([place[client] for client in run], device=shared.device) if ours else [others[c] for c in run]
        for ours, run in _runs(mixing.sources.tolist(), place)
    ]
    groups = []
    for block in mixing.blocks:
        kept = [at for at, client in enumerate(block.clients.tolist()) if client in place]
        rows = torch.tensor([place[client] for client in block.clients[kept].tolist()], device=shared.device)
        whole = slice(None) if len(kept) == len(block.clients) else torch.tensor(kept, device=shared.device)
        weights = torch.tensor(block.weights, dtype=shared.dtype, device=shared.device)
        read = block.sources if isinstance(block.sources, slice) else torch.tensor(block.sources, device=shared.device)
        groups.append((rows, whole, read, weights))

    def work(span: slice) -> None:
        piece = shared[:, span]
        read = [piece[run] if isinstance(run, Tensor) else torch.stack([row[span] for row in run]) for run in runs]
        before = read[0] if len(read) == 1 else torch.cat(read)
        for rows, kept_rows, sources, weights in groups:
            piece[rows] = (weights @ before[sources])[kept_rows]

    spread(work, [slice(start, start + _COLUMNS) for start in range(0, shared.shape[1], _COLUMNS)])


def _runs(sources: list[int], ours: Mapping[int, int]) -> Iterator[tuple[bool, list[int]]]:
    """The sources, cut where the ring passes from our clients to others' and back."""
    return ((own, list(run)) for own, run in groupby(sources, key=ours.__contains__))


def _without_negligible(matrix: Any) -> Any:
    """The matrix, full or sparse, without weights that nobody could see; rows sum to 1 again."""
    if isinstance(matrix, np.ndarray):
        matrix = np.where(matrix < _NEGLIGIBLE, 0.0, matrix)
        return matrix / matrix.sum(axis=1, keepdims=True)
    matrix.data[matrix.data < _NEGLIGIBLE] = 0.0
    matrix.eliminate_zeros()
    matrix.data /= np.repeat(matrix.sum(axis=1), np.diff(matrix.indptr))
    return matrix


def _reach(matrix: Any) -> int:
    """The farthest position, counted along the ring, that has a weight anywhere."""
    here, there = matrix.nonzero()
    apart = np.abs(here.astype(np.int64) - there)
    return int(np.minimum(apart, matrix.shape[0] - apart).max())
