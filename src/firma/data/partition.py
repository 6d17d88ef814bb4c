"""Dealing a data set to clients: scenarios for the training data, and matching test data."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firma.data.dataset import Dataset
from firma.data.scenario import Scenario, parse
from firma.errors import BadInput
from firma.hyper import Split

Indices = NDArray[np.int64]
_PRIMARY, _SECONDARY, _MINORITY = 0.55, 0.20, 0.03  # label skew: share of a client's budget per class


@dataclass(frozen=True)
class Partition:
    """Row numbers of every client's training and test samples, and who sat out for want of data."""

    train: tuple[Indices, ...]
    test: tuple[Indices, ...]
    dropped: tuple[int, ...]


def deal(dataset: Dataset, scenario: str, clients: int, split: Split, seed: int) -> Partition:
    """Who holds what. Every row goes to at most one client, in training and in test data alike."""
    kind = parse(scenario)
    if not 1 <= clients <= len(dataset.y_train):
        raise BadInput(f"clients = {clients}: from 1 to {len(dataset.y_train)}, the training samples of {dataset.name}")
    split_seed = seed if split.split_seed is None else split.split_seed
    train = _deal_labels(dataset.y_train, dataset.classes, kind, clients, split, split_seed)
    if split.tests == "matched":
        test = _matched(dataset, train, split_seed)
    else:
        test = _deal_labels(dataset.y_test, dataset.classes, kind, clients, split, split_seed)
    kept = [i for i in range(clients) if len(train[i]) >= split.min_samples and len(test[i]) > 0]
    if not kept:
        most = max(len(each) for each in train)
        raise BadInput(
            f"clients = {clients}: nobody would hold min_samples = {split.min_samples} training samples and a test "
            f"sample (the largest client has {most}); take fewer clients"
        )
    dropped = tuple(i for i in range(clients) if i not in kept)
    return Partition(tuple(train[i] for i in kept), tuple(test[i] for i in kept), dropped)


def class_counts(labels: NDArray[np.int64], parts: tuple[Indices, ...] | list[Indices], classes: int) -> Indices:
    """(N, C) samples of every class that every client holds."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def class_proportions(labels: NDArray[np.int64], parts: tuple[Indices, ...], classes: int) -> NDArray[np.float64]:
    """(N, C) class proportions; each row sums to 1."""
    counts = class_counts(labels, parts, classes)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True), dtype=np.float64)


def _deal_labels(
    labels: NDArray[np.int64], classes: int, kind: Scenario, clients: int, split: Split, seed: int
) -> list[Indices]:
    """One split of one half of the data, by a generator of its own."""
    rng = np.random.default_rng(seed)
    if kind.name == "iid":
        return np.array_split(rng.permutation(len(labels)), clients)
    if kind.name == "dir":
        return _dirichlet(labels, classes, kind.number, clients, rng)
    if split.quota == "sequential":
        return _skew_sequential(labels, classes, int(kind.number), clients, rng)
    shares = skew_shares(int(kind.number), clients, classes)
    return _take(labels, _fair_counts(labels, shares, classes), rng)


def _dirichlet(
    labels: NDArray[np.int64], classes: int, alpha: float, clients: int, rng: np.random.Generator
) -> list[Indices]:
    """For each class, shares of the clients from Dir(α·1); floors are taken in order, the last client gets the rest."""
    parts: list[list[Indices]] = [[] for _ in range(clients)]
    for label in range(classes):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.floor(rng.dirichlet(np.full(clients, alpha)) * len(rows)).astype(np.int64)[:-1].cumsum()
        for part, mine in zip(parts, np.split(rows, cuts), strict=True):
            part.append(mine)
    return [np.concatenate(part) for part in parts]


def skew_shares(primary: int, clients: int, classes: int) -> NDArray[np.float64]:
    """(N, C) share of a client's budget that each class is asked for; rows need not sum to 1."""
    if 2 * primary + 1 > classes:
        raise BadInput(f"scenario = 'skew-{primary}': K primary and K+1 secondary classes need 2K+1 of {classes}")
    shares = np.full((clients, classes), _MINORITY)
    for client in range(clients):
        first = client * primary
        shares[client, [(first + k) % classes for k in range(primary)]] = _PRIMARY
        shares[client, [(first + primary + k) % classes for k in range(primary + 1)]] = _SECONDARY
    return shares


def _skew_sequential(
    labels: NDArray[np.int64], classes: int, primary: int, clients: int, rng: np.random.Generator
) -> list[Indices]:
    """As published: client by client until a class runs dry, so late clients may get little or nothing."""
    pools = [np.flatnonzero(labels == label) for label in range(classes)]
    for pool in pools:
        rng.shuffle(pool)
    budget = max(20, len(labels) // clients)
    asked = (skew_shares(primary, clients, classes) * budget).astype(np.int64)
    parts = []
    for wishes in asked:
        parts.append(np.concatenate([pool[:wish] for pool, wish in zip(pools, wishes, strict=True)]))
        pools = [pool[wish:] for pool, wish in zip(pools, wishes, strict=True)]
    return parts


def _fair_counts(labels: NDArray[np.int64], shares: NDArray[np.float64], classes: int) -> Indices:
    """(N, C) samples in the given shares, the same number for every client, no class over-asked."""
    mix = shares / shares.sum(axis=1, keepdims=True)
    held = np.bincount(labels, minlength=classes)
    budget = int((held / mix.sum(axis=0)).min())
    for size in range(budget, 0, -1):
        counts = apportion(mix * size, held)
        if (counts.sum(axis=1) == size).all():
            return counts
    raise BadInput(f"clients = {len(shares)}: too many for {len(labels)} samples in {classes} classes")


def apportion(wanted: NDArray[np.float64], held: NDArray[np.int64]) -> Indices:
    """Whole numbers near (N, C) `wanted`: each row's rounded-down sum where columns allow, no column above `held`.

    Floors first, then what a row still lacks goes to its largest remainders among the classes that are left.
    """
    counts = np.floor(wanted + 1e-9).astype(np.int64)
    left = held - counts.sum(axis=0)
    for row, wishes in enumerate(wanted):
        lacking = int(np.floor(wishes.sum() + 1e-9)) - int(counts[row].sum())
        for label in np.argsort(counts[row] - wishes, kind="stable"):
            if lacking > 0 and left[label] > 0 and wishes[label] > 0:
                counts[row, label] += 1
                left[label] -= 1
                lacking -= 1
    return counts


def _take(labels: NDArray[np.int64], counts: Indices, rng: np.random.Generator) -> list[Indices]:
    """Rows by (N, C) counts: every class is shuffled once and cut up in the order of the clients."""
    parts: list[list[Indices]] = [[] for _ in counts]
    for label in range(counts.shape[1]):
        rows = rng.permutation(np.flatnonzero(labels == label))
        for part, mine in zip(parts, np.split(rows, counts[:, label].cumsum())[:-1], strict=True):
            part.append(mine)
    return [np.concatenate(part) for part in parts]


def _matched(dataset: Dataset, train: list[Indices], seed: int) -> list[Indices]:
    """Test rows in every client's own training proportions, as many as the scarcest class allows."""
    counts = class_counts(dataset.y_train, train, dataset.classes)
    held = np.bincount(dataset.y_test, minlength=dataset.classes)
    used = counts.sum(axis=0)
    testable = (used > 0) & (held > 0)
    if not testable.any():
        raise BadInput(f"dataset {dataset.name}: no class of the training data is in the test data")
    scale = (held[testable] / used[testable]).min()
    wanted = np.where(testable, counts * scale, 0.0)
    totals = wanted.sum(axis=1, keepdims=True)
    small = (totals > 0) & (totals < 1)  # a client with any data is tested on one sample at least
    wanted = np.where(small, wanted / np.where(small, totals, 1.0), wanted)
    return _take(dataset.y_test, apportion(wanted, held), np.random.default_rng(seed))
