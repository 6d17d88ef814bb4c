"""The order of a ring by bandwidth: the slowest link first, for everybody on a ring waits for it in every pass."""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firma.errors import BadInput

Bandwidth = NDArray[np.float64]  # (N, N) Mbit/s from row to column; the diagonal does not matter
_EXACT = 7  # clients up to which all orders are tried
_STARTS = 16  # of the search beyond that


def read_bandwidth(path: Path) -> Bandwidth:
    """An (N, N) table of Mbit/s between clients, from a CSV file without titles; the diagonal may be empty."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadInput(f"bandwidth = {str(path)!r}: cannot be read ({why})") from None
    cells = [line.replace(";", ",").split(",") for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not cells or any(len(row) != len(cells) for row in cells):
        raise BadInput(
            f"bandwidth = {str(path)!r}: must be a square table, one row and one column per client; it has "
            f"{len(cells)} rows of {len(cells[0]) if cells else 0} columns"
        )
    found = np.full((len(cells), len(cells)), np.nan)
    for one, row in enumerate(cells):
        for other, text in enumerate(row):
            if one == other:
                continue
            try:
                found[one, other] = float(text)
            except ValueError:
                found[one, other] = np.nan
            if not (np.isfinite(found[one, other]) and found[one, other] > 0):
                raise BadInput(
                    f"bandwidth = {str(path)!r}: from client {one} to {other} is {text.strip()!r}; must be a number of "
                    "Mbit/s greater than 0"
                )
    return found


def link_speed(bandwidth: Bandwidth) -> Bandwidth:
    """(N, N) Mbit/s of each link, symmetric: neighbours send each other as much, so its slower direction counts."""
    return np.fmin(bandwidth, bandwidth.T)


def ring_links(bandwidth: Bandwidth, order: Sequence[int]) -> Bandwidth:
    """(N,) Mbit/s of the links once round the ring."""
    at = np.asarray(order)
    return np.asarray(link_speed(bandwidth)[at, np.roll(at, -1)])


def by_bandwidth(bandwidth: Bandwidth) -> list[int]:
    """An order whose slowest link is as fast as possible; among those, the second-slowest link decides, and so on.

    The total time round the ring is not what is minimised: neighbours exchange at the same time, and all wait for the
    slowest. Up to seven clients it is the best of all orders; beyond that, the best that
    reversals of segments (2-opt) find from several starts. Client 0 comes first; rings of up to three have one order.
    """
    size = len(bandwidth)
    if size <= 3:
        return list(range(size))
    with np.errstate(divide="ignore"):
        seconds = 1 / np.where(np.isnan(speed := link_speed(bandwidth)), np.inf, speed)
    if size <= _EXACT:
        return min(([0, *rest] for rest in permutations(range(1, size))), key=lambda order: _slowness(seconds, order))
    starts = [list(range(size)), *(_nearest(seconds, first) for first in range(min(size, _STARTS)))]
    best = min((_improved(seconds, order) for order in starts), key=lambda order: _slowness(seconds, order))
    at = best.index(0)
    return [*best[at:], *best[:at]]


def _slowness(seconds: Bandwidth, order: Sequence[int]) -> tuple[float, ...]:
    """Seconds per Mbit of the links, slowest first: what is compared."""
    at = np.asarray(order)
    return tuple(np.sort(seconds[at, np.roll(at, -1)])[::-1].tolist())


def _nearest(seconds: Bandwidth, first: int) -> list[int]:
    """Always on to the client that is reached fastest."""
    order, left = [first], set(range(len(seconds))) - {first}
    while left:
        here = order[-1]
        order.append(min(left, key=lambda client: (seconds[here, client], client)))
        left.remove(order[-1])
    return order


def _improved(seconds: Bandwidth, order: list[int]) -> list[int]:
    """2-opt: reverse a segment while the slower of the two new links is faster than that of the two old ones.

    Every reversal lowers the sorted list of slowness, so the search ends.
    """
    size, found = len(order), list(order)
    changed = True
    while changed:
        changed = False
        for i in range(size - 1):
            for j in range(i + 1, size - (i == 0)):
                a, b, c, d = found[i], found[i + 1], found[j], found[(j + 1) % size]
                old = sorted((seconds[a, b], seconds[c, d]), reverse=True)
                new = sorted((seconds[a, c], seconds[b, d]), reverse=True)
                if new[0] < old[0] - 1e-12 or (abs(new[0] - old[0]) <= 1e-12 and new[1] < old[1] - 1e-12):
                    found[i + 1 : j + 1] = found[i + 1 : j + 1][::-1]
                    changed = True
    return found
