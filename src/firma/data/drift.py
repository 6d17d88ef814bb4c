"""Drift: data that change over rounds, and which rows each client holds in which round.

`label-shift`: each client's class proportions move from the scenario's draw to a second one. `new-classes`: classes
that nobody has at first appear. `rotate-DEGREES`: inputs are rotated by a growing angle. Without `@ROUND` the change is
gradual, from the first round to the last; with it, everything changes in that round.

In every round the rules of a split hold: no row is held by two clients, training rows are never tested on, and a client
is tested on the distribution that it trains on in that round.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from firma.data.dataset import Dataset, with_classes
from firma.data.partition import (
    Overview,
    Partition,
    client_angles,
    clients_with_data,
    counted,
    default_scenario,
    label_proportions,
    matched,
    rows_of_all,
    seed_of,
    split_by_label,
)
from firma.data.scenarios import Indices, check_images, parse
from firma.data.standardise import Standardiser, fit_standardiser
from firma.errors import BadInput, suggestion
from firma.seeds import generator
from firma.settings import Split, Standardise, split_for

Kind = Literal["label-shift", "new-classes", "rotate"]
KINDS: tuple[Kind, ...] = ("label-shift", "new-classes", "rotate")
CHOICES = (
    "label-shift, label-shift-STRENGTH (from 0 to 1), new-classes, new-classes-K or rotate-DEGREES, each also with "
    "@ROUND (from 2)"
)
_NUMBER = r"\d+\.?\d*(?:e-?\d+)?|\.\d+"
_SPELLING = re.compile(rf"(?:(label-shift)(?:-({_NUMBER}))?|(new-classes)(?:-(\d+))?|(rotate)-({_NUMBER}))(?:@(\d+))?")
_SHIFTED = ("dir", "skew")  # scenarios in which clients' class proportions differ


@dataclass(frozen=True, slots=True)
class Drift:
    """A kind of drift and how strong it is; None: all of it, or half of the classes.

    `start` is the round, from 1, in which everything changes; None: a gradual change.
    """

    kind: Kind
    number: float | None = None
    start: int | None = None


def parse_drift(text: str) -> Drift:
    """Such as `label-shift`, `label-shift-0.5@10`, `new-classes-3` or `rotate-90`; a number of 0 is no drift."""
    if found := _SPELLING.fullmatch(text):
        kind = cast(Kind, found[1] or found[3] or found[5])
        number = found[2] or found[4] or found[6]
        drift = Drift(kind, None if number is None else float(number), None if found[7] is None else int(found[7]))
        too_strong = kind == "label-shift" and (drift.number or 0.0) > 1
        if not too_strong and (drift.number or 0.0) < float("inf") and (drift.start is None or drift.start > 1):
            return drift
    name = text.partition("@")[0]
    hint = "" if name.startswith(KINDS) else suggestion(name, KINDS)
    raise BadInput(f"drift {text!r} is invalid{hint}; choose from {CHOICES}")


@dataclass(frozen=True, eq=False)
class Timeline:
    """Rows that a client holds at some time: `rows[k]` in the rounds `first[k]` to `end[k]` - 1, counted from 0."""

    rows: Indices
    first: NDArray[np.int32]
    end: NDArray[np.int32]

    def held(self, number: int) -> NDArray[np.bool_]:
        """Which of the rows are held in a round."""
        return (self.first <= number) & (number < self.end)

    def at(self, number: int) -> Indices:
        """The rows of a round."""
        return self.rows[self.held(number)]


@dataclass(frozen=True, eq=False)
class DriftingPartition:
    """A partition for every round; `degrees` (R,) are added to the clients' own angles.

    `train` and `test` are one timeline per client. Everything else is as in `Partition`.
    """

    train: tuple[Timeline, ...]
    test: tuple[Timeline, ...]
    dropped: tuple[int, ...]
    angles: tuple[float, ...]
    standardise: Standardise
    units: Standardiser | None
    degrees: tuple[float, ...]
    rotates: bool

    @property
    def rounds(self) -> int:
        """R."""
        return len(self.degrees)

    def at(self, number: int) -> Partition:
        """The partition of round `number` (from 0)."""
        return Partition(
            tuple(each.at(number) for each in self.train), tuple(each.at(number) for each in self.test), self.dropped,
            tuple(self.angle(client, number) for client in range(len(self.train))) if self.turns else (),
            self.standardise, self.units,
        )  # fmt: skip

    @property
    def turns(self) -> bool:
        """Whether any inputs are rotated, by the scenario or by the drift."""
        return self.rotates or bool(self.angles)

    def angle(self, client: int, number: int) -> float:
        """By how many degrees a client's inputs are rotated in a round."""
        return (self.angles[client] if self.angles else 0.0) + self.degrees[number]

    def same(self, client: int, one: int, other: int) -> bool:
        """Whether a client has the same data in two rounds."""
        if one == other:
            return True
        both = self.train[client], self.test[client]
        rows_stay = all(np.array_equal(each.held(one), each.held(other)) for each in both)
        return rows_stay and self.degrees[one] == self.degrees[other]

    def proportions(self, dataset: Dataset, number: int) -> NDArray[np.float64]:
        """(N, G) label proportions of the training data in a round, by which 2-opt orders the ring."""
        return label_proportions(dataset, tuple(each.at(number) for each in self.train))


def progress(drift: Drift, rounds: int) -> list[float]:
    """(R,) how much of the change has happened in each round: from 0 to 1 in equal steps, or 0 and then 1."""
    if drift.start is not None:
        return [float(number + 1 >= drift.start) for number in range(rounds)]
    return [number / (rounds - 1) for number in range(rounds)]


def deal_over_rounds(
    dataset: Dataset, scenario: str, clients: int, split: Split, seed: int, drift: Drift, rounds: int
) -> DriftingPartition:
    """Split a data set among clients for every round. In the first round of a drift it is the split of `deal`.

    A client that has too few samples in some round is left out of all.
    """
    check_drift(drift, scenario, split, rounds)
    kind, classed = parse(scenario), with_classes(dataset)
    split_seed = seed_of(split, seed)
    if not 1 <= clients <= len(classed.y_train):
        limit = f"{len(classed.y_train)}, the number of training samples in {dataset.name}"
        raise BadInput(f"clients = {clients}: must be between 1 and {limit}")
    first = rows_of_all(classed, kind, clients, split, split_seed)
    stages = [_Stage(0, *first)]
    degrees, units = [0.0] * rounds, None
    match drift.kind:
        case "label-shift":
            again = int(generator(split_seed, "label shift").integers(2**31))
            drawn = split_by_label(classed.y_train, classed.classes, kind, clients, split, again)
            second = [drawn[i] for i in _moved_roles(clients, split_seed)]
            stages = _label_shift(classed, first[0], second, drift, rounds, split_seed)
        case "new-classes":
            stages = _new_classes(classed, stages[0], drift, rounds, split_seed)
        case "rotate":
            degrees = [(drift.number or 0.0) * share for share in progress(drift, rounds)]
            units = _units(dataset)
    every = range(clients)
    least = [min(len(stage.train[i]) for stage in stages) for i in every]
    kept = clients_with_data(least, [min(len(stage.test[i]) for stage in stages) for i in every], split)
    return DriftingPartition(
        tuple(timeline([(stage.start, stage.train[i]) for stage in stages], rounds) for i in kept),
        tuple(timeline([(stage.start, stage.test[i]) for stage in stages], rounds) for i in kept),
        tuple(i for i in every if i not in kept),
        client_angles(classed, kind, clients, kept),
        split.standardise, units, tuple(degrees), drift.kind == "rotate",
    )  # fmt: skip


def overviews(
    dataset: Dataset, scenario: str | None, clients: int | None, preset: str, settings: Mapping[str, Any], seed: int,
    drift: str, rounds: int,
) -> dict[int, Overview]:  # fmt: skip
    """Split a data set as a run would, and count, in the first, the middle and the last round (from 1)."""
    chosen, split = scenario or default_scenario(dataset), split_for(preset, settings)
    count = dataset.clients if clients is None else clients
    found = deal_over_rounds(dataset, chosen, count, split, seed, parse_drift(drift), rounds)
    classed = with_classes(dataset)
    return {
        number + 1: counted(classed, chosen, preset, split, found.at(number))
        for number in (0, (rounds - 1) // 2, rounds - 1)
    }


def check_drift(drift: Drift, scenario: str, split: Split, rounds: int) -> None:
    """Refuse what makes no sense, as far as it can be said without the data."""
    if rounds < 2:
        raise BadInput(f"drift requires at least 2 rounds, and there is {rounds}: nothing can change in a single round")
    if drift.start is not None and drift.start > rounds:
        raise BadInput(f"drift: @{drift.start} is after the last round; with {rounds} rounds it must be 2 to {rounds}")
    if split.tests != "matched":
        raise BadInput(
            f"tests = {split.tests!r} cannot be combined with drift: clients would be tested on a distribution that "
            "they do not have; use --set tests=matched"
        )
    if drift.kind == "label-shift" and parse(scenario).name not in _SHIFTED:
        raise BadInput(
            f"drift = 'label-shift' requires scenario dir-ALPHA or skew-K, in which clients' class proportions differ; "
            f"scenario {scenario} has no second draw of them"
        )


class _Stage(NamedTuple):
    """From a round on, training and test rows of all clients."""

    start: int
    train: list[Indices]
    test: list[Indices]


def _moved_roles(clients: int, seed: int) -> list[int]:
    """Which client's part of the second draw each client gets: never its own, because label skew goes by numbers."""
    rng = generator(seed, "roles after the label shift")
    while clients > 1:
        roles = rng.permutation(clients)
        if (roles != np.arange(clients)).all():
            return [int(role) for role in roles]
    return [0]


def _label_shift(
    dataset: Dataset, first: list[Indices], second: list[Indices], drift: Drift, rounds: int, seed: int
) -> list[_Stage]:
    """Every row moves from its first owner to its second at a time of its own, so that it never has two.

    In expectation a client then has (1 - t) n_c + t n'_c samples of class c when a share t of the change has happened.
    """
    before, after = _owners(first, len(dataset.y_train)), _owners(second, len(dataset.y_train))
    times = move_times(dataset.y_train, before, after, generator(seed, "times of the label shift"))
    strength, stages = 1.0 if drift.number is None else drift.number, []
    shares = progress(drift, rounds)
    for number in range(rounds):
        if number and shares[number] == shares[number - 1]:
            continue
        now = np.where(times <= strength * shares[number], after, before)
        train = [
            np.concatenate([old[now[old] == i], new[(now[new] == i) & (before[new] != i)]])
            for i, (old, new) in enumerate(zip(first, second, strict=True))
        ]
        stages.append(_Stage(number, train, matched(dataset, train, seed)))
    return stages


def _owners(parts: Sequence[Indices], rows: int) -> Indices:
    """(n,) the client that holds each row, -1 where nobody does."""
    owners = np.full(rows, -1, dtype=np.int64)
    for client, part in enumerate(parts):
        owners[part] = client
    return owners


def move_times(labels: Indices, before: Indices, after: Indices, rng: np.random.Generator) -> NDArray[np.float64]:
    """(n,) when each row changes hands, in (0, 1].

    The m rows of one class that go from one client to one other move at times (k + u) / m for k = 0 … m-1, in random
    order, with one u drawn from (0, 1] for them: at any time t, within one row of tm of them have moved.
    """
    many = max(int(before.max()), int(after.max())) + 2
    flow = (labels * many + before + 1) * many + after + 1
    _, which, sizes = np.unique(flow, return_inverse=True, return_counts=True)
    shuffled = rng.permutation(len(labels))
    by_flow = shuffled[np.argsort(which[shuffled], kind="stable")]
    rank = np.empty(len(labels), dtype=np.int64)
    rank[by_flow] = np.arange(len(labels)) - np.repeat(sizes.cumsum() - sizes, sizes)
    phases = 1.0 - rng.random(len(sizes))
    return np.asarray((rank + phases[which]) / sizes[which], dtype=np.float64)


def _new_classes(dataset: Dataset, whole: _Stage, drift: Drift, rounds: int, seed: int) -> list[_Stage]:
    """Some classes, drawn by the seed, are held by nobody at first; gradually: they appear one after another."""
    there = np.unique(dataset.y_train)
    count = len(there) // 2 if drift.number is None else int(drift.number)
    if count >= len(there):
        raise BadInput(
            f"drift = 'new-classes-{count}': the data have {len(there)} classes, and at least one must be there from "
            f"the start; use at most {len(there) - 1}"
        )
    new = generator(seed, "new classes").permutation(there)[:count]
    if drift.start is not None:
        appear = [drift.start - 1] * count
    else:
        appear = [min(max(1, (place + 1) * rounds // (count + 1)), rounds - 1) for place in range(count)]
    stages = []
    for start in sorted({0, *appear}):
        absent = [label for label, since in zip(new, appear, strict=True) if since > start]
        halves = [
            [rows[~np.isin(labels[rows], absent)] for rows in parts]
            for labels, parts in ((dataset.y_train, whole.train), (dataset.y_test, whole.test))
        ]
        stages.append(_Stage(start, *halves))
    return stages


def _units(dataset: Dataset) -> Standardiser | None:
    """The units in which a table's features are rotated: means and deviations of all training data; None for images."""
    if len(dataset.shape) != 1:
        check_images(dataset.shape, dataset.name)
        return None
    if dataset.x_train.dtype.kind != "f" or dataset.shape[0] < 2:
        raise BadInput(
            f"drift = 'rotate-…': inputs of {dataset.name} are {dataset.x_train.dtype} of shape {dataset.shape}; they "
            "must be images, or tables of at least two features that are floating-point numbers"
        )
    return replace(fit_standardiser(dataset.x_train), scale=1.0)


def timeline(stages: Sequence[tuple[int, Indices]], rounds: int) -> Timeline:
    """One client's rows over time, from its rows in every stage (first round, rows); rows keep their order."""
    rows, first, end = (np.empty(0, dtype=np.int64) for _ in range(3))
    places = np.empty(0, dtype=np.int64)  # of those that are held, among all
    for start, now in stages:
        stays = np.isin(rows[places], now)
        end[places[~stays]] = start
        fresh = now[~np.isin(now, rows[places])]
        places = np.concatenate([places[stays], np.arange(len(rows), len(rows) + len(fresh))])
        rows, first = np.concatenate([rows, fresh]), np.concatenate([first, np.full(len(fresh), start)])
        end = np.concatenate([end, np.full(len(fresh), rounds)])
    return Timeline(rows, first.astype(np.int32), end.astype(np.int32))
