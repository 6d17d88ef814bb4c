"""Running the cells that are not there yet."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from firma.data.dataset import Dataset, load_dataset
from firma.experiment import OnRound, run
from firma.methods import lookup
from firma.models.catalogue import mlp
from firma.results import Result
from firma.ring_report import ring_report
from firma.schedule import phases, warmup_rounds
from firma.settings import hyper_for
from firma.study.grid import DATASETS, Cell
from firma.study.rings import ORDERED
from firma.study.store import is_done, save

# Another engine, such as a cluster's, is another function of this type.
Execute = Callable[[Cell, OnRound | None], tuple[Result, Mapping[str, Any]]]
_RING = ("ring_cost", "cost_identity", "cost_optimised", "saving_percent", "order")


@dataclass(frozen=True)
class Finished:
    """A cell that has just been written."""

    cell: Cell
    result: Result


def simulate(cell: Cell, on_round: OnRound | None) -> tuple[Result, Mapping[str, Any]]:
    """Run a cell in this process; with it comes what 2-opt saves on its ring, whoever uses that."""
    return _simulated(cell, _loaded(cell.dataset), on_round, workers=None)


def _simulated(
    cell: Cell, dataset: Dataset, on_round: OnRound | None, workers: int | None
) -> tuple[Result, Mapping[str, Any]]:
    result = run(
        dataset, cell.scenario, cell.method, clients=cell.clients, rounds=cell.rounds, seed=cell.seed,
        preset=cell.preset, settings=cell.settings, workers=workers, on_round=on_round,
    )  # fmt: skip
    report = ring_report(dataset, cell.scenario, ORDERED, cell.clients, cell.preset, cell.settings, cell.seed)
    return result, {name: report[name] for name in _RING}


def spread_cells(
    cells: Sequence[Cell], folder: Path, on_start: Callable[[Cell], None], address: str | None
) -> Iterator[Finished]:
    """Run cells on a Ray cluster, one a core at a time; this process alone writes, each when it is done."""
    from firma.engines.ray_cluster import connected, spread

    loaded: dict[str, Dataset] = {}

    def given(cell: Cell) -> Dataset:
        if cell.dataset not in loaded:
            loaded[cell.dataset] = _in_memory(load_dataset(cell.dataset))
        return loaded[cell.dataset]

    with connected(address):
        for cell, (result, ring) in spread(_alone, cells, given, on_start):
            save(folder, cell, result, ring)
            yield Finished(cell, result)


def _alone(cell: Cell, dataset: Dataset) -> tuple[Result, Mapping[str, Any]]:
    """A cell on one core of some node, which need not have the data set."""
    result, ring = _simulated(cell, dataset, None, workers=1)
    return replace(result, parameters=None, template=None), ring


def _in_memory(dataset: Dataset) -> Dataset:
    """The data set without files behind it."""
    return replace(dataset, x_train=np.asarray(dataset.x_train), x_test=np.asarray(dataset.x_test))


def pending(cells: Sequence[Cell], folder: Path) -> list[Cell]:
    """The cells that are not there yet, in order."""
    return [cell for cell in cells if not is_done(folder, cell)]


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    on_start: Callable[[Cell], None],
    on_round: OnRound,
    execute: Execute = simulate,
) -> Iterator[Finished]:
    """Run cells one after another, each written before the next one starts."""
    for cell in cells:
        on_start(cell)
        result, ring = execute(cell, on_round)
        save(folder, cell, result, ring)
        yield Finished(cell, result)


def work(cell: Cell) -> float:
    """What a cell costs, in samples times weights times epochs: for the estimate of the time left."""
    method, hyper, size = (
        lookup(cell.method),
        hyper_for(cell.method, cell.preset, cell.settings),
        DATASETS[cell.dataset],
    )
    extractor, head = sizes(cell.dataset, hyper.hidden, hyper.embedding)
    # The head's phase runs the extractor forwards only, a third of a training step.
    part = {"model": 1.0, "extractor": 1.0, "head": 1 / 3}
    usual = sum(phase.epochs * part[phase.trains] for phase in phases(method, hyper))
    warm = warmup_rounds(method, hyper, cell.rounds)
    epochs = (cell.rounds - warm) * usual + warm * max(hyper.head_epochs, hyper.extractor_epochs)
    return size.samples * (extractor + head) * (epochs + cell.rounds / 3)


@lru_cache
def sizes(dataset: str, hidden: int = 256, embedding: int = 128) -> tuple[int, int]:
    """Parameters of the extractor and of the head of the built-in model for ten classes."""
    parts = mlp(DATASETS[dataset].shape, 10, hidden, embedding)
    extractor, head = (sum(parameter.numel() for parameter in part.parameters()) for part in parts)
    return extractor, head


@lru_cache(maxsize=1)
def _loaded(name: str) -> Dataset:
    return load_dataset(name)
