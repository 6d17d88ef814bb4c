"""What a federation looks like: how many samples of each class every client holds, and the most similar scenario."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from firma.data.dataset import DatasetSource, load_dataset, with_classes
from firma.data.partition import class_counts, deal, default_scenario
from firma.errors import BadInput
from firma.mixing.ring_order import ring_cost, similarity, two_opt
from firma.paper.grid import SCENARIOS
from firma.settings import split_for

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Profile:
    """Class counts (N, C) of a federation's training data, and what else is known about it."""

    counts: Counts
    scenario: str  # of the study; the most similar one if it was not named
    named: bool
    dataset: str | None = None
    rounds: int = 30

    @property
    def clients(self) -> int:
        """N."""
        return len(self.counts)

    @property
    def dominant(self) -> float:
        """Samples of a client's largest class; the median over clients."""
        return float(np.median(self.counts.max(axis=1)))


def from_split(
    dataset: DatasetSource, scenario: str | None, clients: int | None, rounds: int | None, seed: int = 0
) -> Profile:
    """The profile of a data set that is split between clients as in the study, or as the data themselves say."""
    loaded = load_dataset(dataset)
    scenario, source = scenario or default_scenario(loaded), with_classes(loaded)
    partition = deal(source, scenario, source.clients if clients is None else clients, split_for("paper", {}), seed)
    counts = class_counts(source.y_train, partition.train, source.classes)
    named = scenario in SCENARIOS
    return Profile(counts, scenario if named else nearest(counts), named, source.name, rounds or source.rounds)


def from_counts(path: Path, rounds: int | None) -> Profile:
    """The profile in a CSV file: one row per client, one column per class; header and column of names are optional."""
    counts = read_counts(path)
    return Profile(counts, nearest(counts), False, None, rounds or 30)


def read_counts(path: Path) -> Counts:
    """(N, C) counts from a CSV file; an error names the client and the value that is not a count."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"--counts file {str(path)!r} cannot be read ({reason})") from None
    if rows and _is_header(rows[0]):
        rows = rows[1:]
    if rows and not all(_is_count(row[0]) for row in rows):
        rows = [row[1:] for row in rows]
    if not rows or not rows[0] or len({len(row) for row in rows}) != 1:
        raise BadInput(
            f"--counts file {str(path)!r} must have one row per client and one column per class, and rows of "
            "equal length"
        )
    for number, row in enumerate(rows, 1):
        for cell in row:
            if not _is_count(cell):
                raise BadInput(
                    f"--counts file {str(path)!r}: client {number} has {cell!r}; must be a number of samples"
                )
    counts = np.array([[int(cell) for cell in row] for row in rows], dtype=np.int64)
    if (counts.sum(axis=1) == 0).any():
        empty = int(np.flatnonzero(counts.sum(axis=1) == 0)[0]) + 1
        raise BadInput(f"--counts file {str(path)!r}: client {empty} has no samples; remove its row")
    return counts


def heterogeneity(counts: Counts) -> float:
    """Mean total variation distance of the clients' class proportions from the pooled ones, in [0, 1]; 0 is IID."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    pooled = counts.sum(axis=0) / counts.sum()
    return float(np.abs(shares - pooled).sum(axis=1).mean() / 2)


def imbalance(counts: Counts) -> float:
    """Standard deviation of the clients' sizes over their mean; 0 if all are equal."""
    sizes = counts.sum(axis=1)
    return float(sizes.std() / sizes.mean())


def nearest(counts: Counts) -> str:
    """The scenario of the study whose split of digits is most similar to these counts."""
    source, clients = load_dataset("digits"), int(np.clip(len(counts), 2, 20))

    def distance(scenario: str) -> float:
        partition = deal(source, scenario, clients, split_for("paper", {}), 0)
        known = class_counts(source.y_train, partition.train, source.classes)
        # How similar the mixtures are matters more than how unequal the sizes are.
        apart = abs(heterogeneity(known) - heterogeneity(counts))
        return apart + 0.25 * abs(imbalance(known) - imbalance(counts))

    return min(SCENARIOS, key=distance)


def saving(counts: Counts) -> float:
    """What 2-opt saves of the ring's cost, in percent."""
    alike = similarity(counts / counts.sum(axis=1, keepdims=True), "cosine")
    before, after = ring_cost(alike, range(len(counts))), ring_cost(alike, two_opt(alike))
    return 100 * (1 - after / before) if before > 0 else 0.0


def _is_header(row: list[str]) -> bool:
    """Names of classes: words, or the classes' own numbers 0, 1, 2, …"""
    cells = [cell.strip() for cell in row]
    numbers = [[str(index) for index in range(len(cells) - skipped)] for skipped in (0, 1)]
    return any(not _is_number(cell) for cell in cells[1:]) or cells == numbers[0] or cells[1:] == numbers[1]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_count(text: str) -> bool:
    return text.strip().isascii() and text.strip().isdigit()
