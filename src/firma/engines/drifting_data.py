"""Clients' data that change over rounds, made for one client and one round at a time from the rows of a data set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from firma.data.dataset import Array, Dataset
from firma.data.drift import DriftingPartition, Timeline
from firma.data.partition import client_standardisers, turned
from firma.data.standardise import Standardiser
from firma.models.split_model import InputKind
from firma.training.local_step import ClientData, as_tensor


@dataclass(frozen=True, eq=False)
class DriftingData:
    """Data of the clients `numbers` in every round; nothing but the rows of the data set is held in memory.

    Inputs are standardised by each client's data of the first round.
    """

    drift: str  # as it is spelled
    dataset: Dataset
    partition: DriftingPartition
    kind: InputKind
    numbers: tuple[int, ...]
    standardisers: tuple[Standardiser, ...] = ()

    def client(self, number: int, round_number: int, train: bool = True, test: bool = True) -> ClientData:
        """A client's data in a round (from 0); the inputs of what is not asked for, training or test, are missing."""
        place = self.numbers.index(number)
        rows, test_rows = (part[place].at(round_number) for part in (self.partition.train, self.partition.test))
        source = self.dataset
        return ClientData(
            self._inputs(source.x_train, rows if train else rows[:0], place, round_number),
            torch.from_numpy(source.y_train[rows]),
            self._inputs(source.x_test, test_rows if test else test_rows[:0], place, round_number),
            torch.from_numpy(source.y_test[test_rows]),
            1.0 if self.standardisers else source.scale,
        )

    def size(self, number: int, round_number: int) -> int:
        """Training samples of a client in a round."""
        return int(self.partition.train[self.numbers.index(number)].held(round_number).sum())

    def sizes(self, round_number: int) -> list[int]:
        """Training samples of every client in a round."""
        return [self.size(number, round_number) for number in self.numbers]

    def test_labels(self, round_number: int) -> list[Array]:
        """Labels of every client's test data in a round."""
        return [self.dataset.y_test[each.at(round_number)] for each in self.partition.test]

    def same(self, number: int, one: int, other: int) -> bool:
        """Whether a client has the same data in two rounds."""
        return self.partition.same(self.numbers.index(number), one, other)

    def for_clients(self, numbers: Sequence[int]) -> "DriftingData":
        """The data of some clients, with the rows that they hold in some round and no others."""
        places = [self.numbers.index(number) for number in numbers]
        rows, train = _packed([self.partition.train[place] for place in places])
        test_rows, test = _packed([self.partition.test[place] for place in places])
        source = self.dataset
        dataset = replace(
            source,
            x_train=np.asarray(source.x_train[rows]), y_train=source.y_train[rows],
            x_test=np.asarray(source.x_test[test_rows]), y_test=source.y_test[test_rows],
            client_train=None, client_test=None,
        )  # fmt: skip
        angles = tuple(self.partition.angles[place] for place in places) if self.partition.angles else ()
        some = replace(self.partition, train=train, test=test, angles=angles)
        return replace(
            self, dataset=dataset, partition=some, numbers=tuple(numbers),
            standardisers=tuple(self.standardisers[place] for place in places if self.standardisers),
        )  # fmt: skip

    def digest(self, update: Callable[[bytes], None]) -> None:
        """All that decides clients' data after the first round, as bytes."""
        for each in (*self.partition.train, *self.partition.test):
            for array in (each.rows, each.first, each.end):
                update(array.tobytes())
        update(np.array(self.partition.degrees).tobytes())
        for inputs, targets, parts in (
            (self.dataset.x_train, self.dataset.y_train, self.partition.train),
            (self.dataset.x_test, self.dataset.y_test, self.partition.test),
        ):
            for each in parts:
                update(np.ascontiguousarray(inputs[each.rows]).tobytes())
                update(np.ascontiguousarray(targets[each.rows]).tobytes())

    def _inputs(self, stored: Array, rows: NDArray[np.int64], place: int, round_number: int) -> torch.Tensor:
        inputs = stored[rows]
        if self.partition.turns:
            inputs = turned(inputs, self.partition.angle(place, round_number), self.partition.units)
        if self.standardisers:
            inputs = self.standardisers[place].apply(inputs)
        return as_tensor(inputs, self.kind)


def drifting_data(drift: str, dataset: Dataset, partition: DriftingPartition, kind: InputKind) -> DriftingData:
    """Data of all clients."""
    standardisers = client_standardisers(dataset, partition.at(0))
    return DriftingData(drift, dataset, partition, kind, tuple(range(len(partition.train))), standardisers)


def _packed(timelines: Sequence[Timeline]) -> tuple[NDArray[np.int64], tuple[Timeline, ...]]:
    """The rows that occur in some timeline, ascending, and the timelines with their places among these."""
    rows = np.unique(np.concatenate([each.rows for each in timelines]))
    return rows, tuple(replace(each, rows=np.searchsorted(rows, each.rows)) for each in timelines)
