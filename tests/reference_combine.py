"""Robust combines written as their papers state them, in plain NumPy and loops; nothing of the package is used."""

import itertools

import numpy as np


def trimmed(pool, f):
    """Coordinate by coordinate: sort, drop f at either end, average."""
    return np.array([sorted(column)[f : len(column) - f] for column in np.asarray(pool, np.float64).T]).mean(axis=1)


def median(pool, f):
    del f
    return np.median(np.asarray(pool, np.float64), axis=0)


def krum(pool, f):
    """Every subset of n - f - 2 others of every vector is tried: the least sum is that of the nearest."""
    pool = [np.asarray(each, np.float64) for each in pool]
    scores = []
    for i, one in enumerate(pool):
        apart = [float(((one - other) ** 2).sum()) for j, other in enumerate(pool) if j != i]
        scores.append(min(sum(chosen) for chosen in itertools.combinations(apart, len(pool) - f - 2)))
    return pool[min(range(len(pool)), key=lambda i: (scores[i], i))]


POOLED = {"trimmed": trimmed, "median": median, "krum": krum}


def clipped(own, received, weights, f, radius):
    """own + Σ w · clip(difference, τ); τ is the (n - f)-th smallest distance."""
    own = np.asarray(own, np.float64)
    differences = [np.asarray(each, np.float64) - own for each in received]
    lengths = sorted(float(np.linalg.norm(each)) for each in differences)
    tau = lengths[len(lengths) - f - 1] if radius is None else radius
    total = own.copy()
    for difference, weight in zip(differences, weights, strict=True):
        length = float(np.linalg.norm(difference))
        total += weight * difference * (1.0 if length <= tau else tau / length)
    return total


def mixed(topology, combine, theta, order, f, radius, passes, kept, accuracies, gate):
    """(N, p) after a round's mixing of θ; on a ring of equal weights, with an accuracy gate (τ, posterior) or None."""
    theta, pair = np.asarray(theta, np.float64), (0.5, 0.5)
    size = len(theta)
    least = {"clipped": f + 2 if f and radius is None else 1, "krum": 2 * f + 3}.get(combine, 2 * f + 1)
    if topology != "ring":
        if size < least:
            return theta
        if combine != "clipped":
            return np.tile(POOLED[combine](theta, f), (size, 1))
        return np.stack(
            [clipped(theta[i], np.delete(theta, i, 0), [1 / size] * (size - 1), f, radius) for i in range(size)]
        )
    for _ in range(passes if size > 1 else 0):
        before = theta.copy()
        for place, me in enumerate(order):
            left, right = order[place - 1], order[(place + 1) % size]
            blend = pair
            if gate is not None:
                open_to = [a if a >= gate[0] else 0.0 for a in (accuracies[left], accuracies[right])]
                if sum(open_to) == 0:
                    continue
                share = (1 - gate[1]) * pair[0] + gate[1] * open_to[0] / sum(open_to)
                blend = (share, 1 - share)
            weights = {}
            for other, weight in zip((left, right), blend, strict=True):
                weights[other] = weights.get(other, 0.0) + (1 - kept) * weight
            weights = {other: weight for other, weight in weights.items() if weight > 0}
            if 1 + len(weights) < least:
                continue
            received = [before[other] for other in weights]
            if combine == "clipped":
                theta[me] = clipped(before[me], received, list(weights.values()), f, radius)
            else:
                theta[me] = kept * before[me] + (1 - kept) * POOLED[combine]([before[me], *received], f)
    return theta


def offsets(topology, size):
    """How many places further along the ring a member's neighbours sit, by the definition of two regular graphs."""
    if topology == "complete":
        return list(range(1, size))
    return sorted({2**power % size for power in range(size) if 2**power < size})  # exponential


def on_graph(topology, combine, theta, order, f, radius, passes):
    """(N, p) after a round's mixing of θ on a graph whose members all have as many neighbours: equal weights."""
    theta, size = np.asarray(theta, np.float64), len(theta)
    away = offsets(topology, size)
    least = {"clipped": f + 2 if f and radius is None else 1, "krum": 2 * f + 3}.get(combine, 2 * f + 1)
    for _ in range(passes if 1 + len(away) >= least else 0):
        before = theta.copy()
        for place, me in enumerate(order):
            received = [before[order[place - step]] for step in away]
            if combine == "clipped":
                theta[me] = clipped(before[me], received, [1 / (1 + len(away))] * len(away), f, radius)
            else:
                theta[me] = POOLED[combine]([before[me], *received], f)
    return theta
