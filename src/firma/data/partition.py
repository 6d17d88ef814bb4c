"""A data set split among clients: training data by a scenario, matching test data, and a summary of the split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firma.data import scenarios
from firma.data.dataset import Array, Dataset, with_classes
from firma.data.scenarios import Indices, Scenario, check_images, parse, rotated, rotated_pairs
from firma.data.standardise import Standardiser, is_standardised, standardiser_of
from firma.errors import BadInput
from firma.settings import Split, Standardise, split_for
from firma.tasks.targets import label_shares


@dataclass(frozen=True)
class Partition:
    """Row numbers of each client's training and test samples, and the clients left out for lack of data.

    `angles` are the degrees by which each client's images are rotated; empty if none are. Of a table, pairs of features
    are rotated, in the units that `units` describes. `standardise` says how each client's inputs are standardised,
    after they were rotated.
    """

    train: tuple[Indices, ...]
    test: tuple[Indices, ...]
    dropped: tuple[int, ...]
    angles: tuple[float, ...] = ()
    standardise: Standardise = "none"
    units: Standardiser | None = None


def deal(dataset: Dataset, scenario: str, clients: int, split: Split, seed: int) -> Partition:
    """Split a data set among clients. Each row goes to at most one client, in the training and in the test data."""
    kind, dataset = parse(scenario), with_classes(dataset)
    if not 1 <= clients <= len(dataset.y_train):
        limit = f"{len(dataset.y_train)}, the number of training samples in {dataset.name}"
        raise BadInput(f"clients = {clients}: must be between 1 and {limit}")
    train, test = rows_of_all(dataset, kind, clients, split, seed_of(split, seed))
    kept = clients_with_data([len(each) for each in train], [len(each) for each in test], split)
    dropped = tuple(i for i in range(clients) if i not in kept)
    angles = client_angles(dataset, kind, clients, kept)
    return Partition(tuple(train[i] for i in kept), tuple(test[i] for i in kept), dropped, angles, split.standardise)


def seed_of(split: Split, seed: int) -> int:
    """The seed of a split: its own, or that of the run."""
    return seed if split.split_seed is None else split.split_seed


def rows_of_all(
    dataset: Dataset, kind: Scenario, clients: int, split: Split, seed: int
) -> tuple[list[Indices], list[Indices]]:
    """Training and test rows of every client, before any is left out; the data set has classes."""
    if kind.name == "natural":
        return _natural(dataset, clients, seed)
    train = split_by_label(dataset.y_train, dataset.classes, kind, clients, split, seed)
    if split.tests == "matched":
        return train, matched(dataset, train, seed)
    return train, split_by_label(dataset.y_test, dataset.classes, kind, clients, split, seed)


def clients_with_data(train: Sequence[int], test: Sequence[int], split: Split) -> list[int]:
    """The clients that take part, given how many training and test samples each has."""
    kept = [i for i in range(len(train)) if train[i] >= split.min_samples and test[i] > 0]
    if not kept:
        raise BadInput(
            f"clients = {len(train)}: no client would have {split.min_samples} training samples (min_samples) and one "
            f"test sample; the largest has {max(train)} training samples; use fewer clients or a lower min_samples"
        )
    return kept


def client_angles(dataset: Dataset, kind: Scenario, clients: int, kept: Sequence[int]) -> tuple[float, ...]:
    """By how many degrees the scenario rotates each client's images; empty if it rotates none."""
    if kind.name != "rotate":
        return ()
    check_images(dataset.shape, dataset.name)
    return tuple(kind.number * i / max(clients - 1, 1) for i in kept)


def default_scenario(dataset: Dataset) -> str:
    """The scenario of a run that names none: natural if the data set names clients, else skew-1.

    skew-1 requires three classes; with two, and for tasks without classes, it is dir-0.5.
    """
    if dataset.client_train is not None:
        return "natural"
    return "skew-1" if dataset.task == "classification" and dataset.classes > 2 else "dir-0.5"


def client_inputs(dataset: Dataset, partition: Partition, client: int) -> tuple[Array, Array]:
    """Training and test inputs of one client, as stored; rotated and standardised if the partition says so."""
    train, test = dataset.x_train[partition.train[client]], dataset.x_test[partition.test[client]]
    if partition.angles:
        degrees, units = partition.angles[client], partition.units
        train, test = turned(train, degrees, units), turned(test, degrees, units)
    fitted = standardiser_of(dataset, partition.standardise, train)
    return (train, test) if fitted is None else (fitted.apply(train), fitted.apply(test))


def turned(inputs: Array, degrees: float, units: Standardiser | None) -> Array:
    """Images rotated; or the pairs of features of a table, if `units` of features are given."""
    return rotated(inputs, degrees) if units is None else rotated_pairs(inputs, degrees, units.mean, units.deviation)


def client_standardisers(dataset: Dataset, partition: Partition) -> tuple[Standardiser, ...]:
    """How each client's inputs are standardised; empty if they are not."""
    if not is_standardised(dataset, partition.standardise):
        return ()
    stored = replace(partition, standardise="none")
    found = (
        standardiser_of(dataset, partition.standardise, client_inputs(dataset, stored, client)[0])
        for client in range(len(partition.train))
    )
    return tuple(each for each in found if each is not None)


def input_form(dataset: Dataset, partition: Partition) -> tuple["np.dtype[np.generic]", float]:
    """Dtype of what `client_inputs` gives, and the factor that turns it into what a model sees."""
    standardised = is_standardised(dataset, partition.standardise)
    return (np.dtype(np.float32), 1.0) if standardised else (dataset.x_train.dtype, dataset.scale)


def class_counts(labels: NDArray[np.int64], parts: tuple[Indices, ...] | list[Indices], classes: int) -> Indices:
    """(N, C) number of samples of each class that each client holds."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


def class_proportions(labels: NDArray[np.int64], parts: tuple[Indices, ...], classes: int) -> NDArray[np.float64]:
    """(N, C) class proportions; each row sums to 1."""
    counts = class_counts(labels, parts, classes)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True), dtype=np.float64)


def label_proportions(dataset: Dataset, parts: tuple[Indices, ...]) -> NDArray[np.float64]:
    """(N, G) proportions by which 2-opt orders the ring; each row sums to 1.

    Of classes; for multi-label each label's share of all labels that a client's rows have; for regression of the
    classes that stand for the target (see `tasks.targets.classes_of`).
    """
    if dataset.task == "multi-label":
        return np.stack([label_shares(dataset.y_train[part]) for part in parts])
    grouped = with_classes(dataset)
    return class_proportions(grouped.y_train, parts, grouped.classes)


def split_by_label(
    labels: NDArray[np.int64], classes: int, kind: Scenario, clients: int, split: Split, seed: int
) -> list[Indices]:
    """Split the training or the test data by class labels, with a generator of its own."""
    rng = np.random.default_rng(seed)
    if kind.name in ("iid", "rotate"):
        return np.array_split(rng.permutation(len(labels)), clients)
    if kind.name == "dir":
        return scenarios.dirichlet(labels, classes, kind.number, clients, rng)
    if kind.name == "quantity":
        return scenarios.take(labels, scenarios.quantity_counts(labels, classes, kind.number, clients, rng), rng)
    primary = int(kind.number)
    if split.quota == "fair":
        shares = scenarios.skew_shares(primary, clients, classes)
        return scenarios.take(labels, scenarios.fair_counts(labels, shares, classes), rng)
    if split.quota == "reduced":
        budget = scenarios.reduced_budget(len(labels), clients, primary)
    else:
        budget = scenarios.sequential_budget(len(labels), clients)
    return scenarios.skew_sequential(labels, classes, primary, clients, budget, rng)


def _natural(dataset: Dataset, clients: int, seed: int) -> tuple[list[Indices], list[Indices]]:
    """Rows by the clients that the data name; test data that name none are matched to the training data."""
    if dataset.client_train is None:
        raise BadInput(
            f"scenario = 'natural': {dataset.name} does not name the client of each row; choose another scenario"
        )
    if clients != len(dataset.client_names):
        named = f"{dataset.name} names {len(dataset.client_names)} clients"
        raise BadInput(f"clients = {clients}: {named}, and scenario natural uses all of them; omit clients")
    train = _by_client(dataset.client_train, clients)
    if dataset.client_test is None:
        return train, matched(dataset, train, seed)
    return train, _by_client(dataset.client_test, clients)


def _by_client(owners: Indices, clients: int) -> list[Indices]:
    ends = np.bincount(owners, minlength=clients).cumsum()
    return np.split(np.argsort(owners, kind="stable"), ends[:-1])


def matched(dataset: Dataset, train: list[Indices], seed: int) -> list[Indices]:
    """Test rows in the class proportions of each client's training data, as many as the scarcest class allows."""
    counts = class_counts(dataset.y_train, train, dataset.classes)
    held = np.bincount(dataset.y_test, minlength=dataset.classes)
    used = counts.sum(axis=0)
    testable = (used > 0) & (held > 0)
    if not testable.any():
        raise BadInput(f"dataset {dataset.name}: no class of the training data occurs in the test data")
    scale = (held[testable] / used[testable]).min()
    wanted = np.where(testable, counts * scale, 0.0)
    totals = wanted.sum(axis=1, keepdims=True)
    small = (totals > 0) & (totals < 1)  # a client with any data is tested on at least one sample
    wanted = np.where(small, wanted / np.where(small, totals, 1.0), wanted)
    return scenarios.take(dataset.y_test, scenarios.apportion(wanted, held), np.random.default_rng(seed))


@dataclass(frozen=True, eq=False)
class Overview:
    """A split in numbers: `train` and `test` are (N, C) samples of each class, `names` the N clients.

    `columns` are the names of the features, if they have any; `settings` those of the split.
    """

    dataset: str
    scenario: str
    preset: str
    names: tuple[str, ...]
    labels: tuple[str, ...]
    train: Indices
    test: Indices
    dropped: tuple[str, ...]
    columns: tuple[str, ...]
    settings: Mapping[str, Any]
    partition: Partition

    def as_dict(self) -> dict[str, Any]:
        """The overview as plain data, ready for JSON."""
        rows = [
            {"client": name, "train": int(train.sum()), "test": int(test.sum()),
             "train_classes": train.tolist(), "test_classes": test.tolist()}
            | ({"degrees": self.partition.angles[place]} if self.partition.angles else {})
            for place, (name, train, test) in enumerate(zip(self.names, self.train, self.test, strict=True))
        ]  # fmt: skip
        return {
            "dataset": self.dataset,
            "scenario": self.scenario,
            "preset": self.preset,
            "classes": list(self.labels),
            "clients": rows,
            "dropped": list(self.dropped),
            "columns": list(self.columns),
        }


def overview(
    dataset: Dataset, scenario: str | None, clients: int | None, preset: str, settings: Mapping[str, Any], seed: int
) -> Overview:
    """Split a data set as a run would, and count."""
    chosen, dataset = scenario or default_scenario(dataset), with_classes(dataset)
    count = dataset.clients if clients is None else clients
    split = split_for(preset, settings)
    return counted(dataset, chosen, preset, split, deal(dataset, chosen, count, split, seed))


def counted(dataset: Dataset, scenario: str, preset: str, split: Split, partition: Partition) -> Overview:
    """A split in numbers; the data set has classes."""
    count = len(partition.train) + len(partition.dropped)
    all_names = dataset.client_names if scenario == "natural" else tuple(str(client) for client in range(count))
    kept = [client for client in range(count) if client not in set(partition.dropped)]
    return Overview(
        dataset=dataset.name,
        scenario=scenario,
        preset=preset,
        names=tuple(all_names[client] for client in kept),
        labels=dataset.labels or tuple(str(label) for label in range(dataset.classes)),
        train=class_counts(dataset.y_train, partition.train, dataset.classes),
        test=class_counts(dataset.y_test, partition.test, dataset.classes),
        dropped=tuple(all_names[client] for client in partition.dropped),
        columns=dataset.columns,
        settings=split.model_dump(),
        partition=partition,
    )
