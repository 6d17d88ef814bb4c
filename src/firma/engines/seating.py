"""Which clients live together when they live in several processes, and whom each process must hear of the others."""

from collections.abc import Sequence

import numpy as np

from firma.engines.blend import Weave


def groups(order: Sequence[int], sizes: Sequence[int], threads: Sequence[int]) -> list[tuple[int, ...]]:
    """Clients that sit together, a group for every process, with samples in proportion to its threads."""
    count = min(len(threads), len(order))
    held = np.array([sizes[client] for client in order], dtype=np.float64)
    middles = held.cumsum() - held / 2
    shares = np.cumsum(threads[:count]) / sum(threads[:count]) * held.sum()
    cuts = [0]
    for number, cut in enumerate(np.searchsorted(middles, shares[:-1]), start=1):
        cuts.append(min(max(int(cut), cuts[-1] + 1), len(order) - (count - number)))
    return [tuple(order[start:stop]) for start, stop in zip(cuts, [*cuts[1:], len(order)], strict=True)]


def loans(shares: Sequence[Weave], parts: Sequence[Sequence[int]]) -> list[dict[int, list[int]]]:
    """For every group, which of its clients' parameters it lends to which other: those that its share hears."""
    owner = {client: group for group, clients in enumerate(parts) for client in clients}
    lent: list[dict[int, list[int]]] = [{} for _ in parts]
    for borrower, share in enumerate(shares):
        for client in dict.fromkeys(share.heard.tolist()):
            if owner[client] != borrower:
                lent[owner[client]].setdefault(borrower, []).append(client)
    return lent
