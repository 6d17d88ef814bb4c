"""Which clients share a process on a cluster, and which parameters pass between the processes."""

from collections.abc import Sequence

import numpy as np

from firma.mixing.matrix_blocks import Blocks


def groups(order: Sequence[int], sizes: Sequence[int], threads: Sequence[int]) -> list[tuple[int, ...]]:
    """Groups of clients that sit together on the ring, one per process, with samples in proportion to its threads."""
    count = min(len(threads), len(order))
    held = np.array([sizes[client] for client in order], dtype=np.float64)
    middles = held.cumsum() - held / 2
    shares = np.cumsum(threads[:count]) / sum(threads[:count]) * held.sum()
    cuts = [0]
    for number, cut in enumerate(np.searchsorted(middles, shares[:-1]), start=1):
        cuts.append(min(max(int(cut), cuts[-1] + 1), len(order) - (count - number)))
    return [tuple(order[start:stop]) for start, stop in zip(cuts, [*cuts[1:], len(order)], strict=True)]


def transfers(parts: Sequence[Blocks], placed: Sequence[Sequence[int]]) -> list[dict[int, list[int]]]:
    """For every group, which of its clients' parameters it sends to which other group: those that the other reads."""
    return sent_between([part.sources.tolist() for part in parts], placed)


def sent_between(read: Sequence[Sequence[int]], placed: Sequence[Sequence[int]]) -> list[dict[int, list[int]]]:
    """The same, given which clients' parameters each group reads."""
    owner = {client: group for group, clients in enumerate(placed) for client in clients}
    sent: list[dict[int, list[int]]] = [{} for _ in placed]
    for reader, part in enumerate(read):
        for client in dict.fromkeys(part):
            if owner[client] != reader:
                sent[owner[client]].setdefault(reader, []).append(client)
    return sent
