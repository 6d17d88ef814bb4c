"""Running cells: one after another in this process, or side by side on a Ray cluster."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from firma.data.catalogue import SIZES, Size
from firma.data.dataset import Dataset, load_dataset
from firma.experiment import OnRound, run
from firma.methods import lookup
from firma.models.catalogue import mlp
from firma.results import Result
from firma.ring_cost import ring_report
from firma.schedule import phases, warmup_rounds
from firma.settings import hyper_for
from firma.sweep.cells import Cell
from firma.sweep.ring_savings import ORDERED_METHOD
from firma.sweep.store import save

# Runs one cell: its result, and what 2-opt saves on its ring.
Execute = Callable[[Cell, OnRound | None], tuple[Result, Mapping[str, Any]]]
_RING_FIELDS = ("ring_cost", "cost_identity", "cost_optimised", "saving_percent", "order")


@dataclass(frozen=True)
class FinishedCell:
    """A cell that has just been run and saved."""

    cell: Cell
    result: Result


def simulate(cell: Cell, on_round: OnRound | None) -> tuple[Result, Mapping[str, Any]]:
    """Run a cell in this process."""
    return _simulated(cell, _loaded(cell.dataset), on_round, workers=None)


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    on_start: Callable[[Cell], None],
    on_round: OnRound,
    execute: Execute = simulate,
) -> Iterator[FinishedCell]:
    """Run cells one after another; each is saved before the next one starts."""
    for cell in cells:
        on_start(cell)
        result, ring = execute(cell, on_round)
        save(folder, cell, result, ring)
        yield FinishedCell(cell, result)


def run_cells_on_ray(
    cells: Sequence[Cell], folder: Path, on_start: Callable[[Cell], None], address: str | None
) -> Iterator[FinishedCell]:
    """Run cells on a Ray cluster, one per core at a time; only this process writes, each cell when it is finished."""
    from firma.engines.ray_cluster import connected, spread

    loaded: dict[str, Dataset] = {}

    def data(cell: Cell) -> Dataset:
        if cell.dataset not in loaded:
            loaded[cell.dataset] = _in_memory(load_dataset(cell.dataset))
        return loaded[cell.dataset]

    with connected(address):
        for cell, (result, ring) in spread(_on_one_core, cells, data, on_start):
            save(folder, cell, result, ring)
            yield FinishedCell(cell, result)


def _on_one_core(cell: Cell, dataset: Dataset) -> tuple[Result, Mapping[str, Any]]:
    """A cell on one core of some node, which need not have the data set."""
    result, ring = _simulated(cell, dataset, None, workers=1)
    return replace(result, parameters=None, template=None), ring


def _simulated(
    cell: Cell, dataset: Dataset, on_round: OnRound | None, workers: int | None
) -> tuple[Result, Mapping[str, Any]]:
    result = run(
        dataset, cell.scenario, cell.method, clients=cell.clients, rounds=cell.rounds, seed=cell.seed,
        preset=cell.preset, settings=cell.settings, workers=workers, on_round=on_round,
    )  # fmt: skip
    report = ring_report(dataset, cell.scenario, ORDERED_METHOD, cell.clients, cell.preset, cell.settings, cell.seed)
    return result, {name: report[name] for name in _RING_FIELDS}


def _in_memory(dataset: Dataset) -> Dataset:
    """The data set without files behind it."""
    return replace(dataset, x_train=np.asarray(dataset.x_train), x_test=np.asarray(dataset.x_test))


def cost(cell: Cell) -> float:
    """What a cell costs, in samples times weights times epochs: for the estimate of the time that is left."""
    method, hyper = lookup(cell.method), hyper_for(cell.method, cell.preset, cell.settings)
    extractor, head = parameter_counts(cell.dataset, hyper.hidden, hyper.embedding)
    # The head's phase runs the extractor forwards only, a third of a training step.
    part = {"model": 1.0, "extractor": 1.0, "head": 1 / 3}
    usual = sum(phase.epochs * part[phase.trains] for phase in phases(method, hyper))
    warm = warmup_rounds(method, hyper, cell.rounds)
    epochs = (cell.rounds - warm) * usual + warm * max(hyper.head_epochs, hyper.extractor_epochs)
    return _size(cell.dataset).train * (extractor + head) * (epochs + cell.rounds / 3)


@lru_cache
def parameter_counts(dataset: str, hidden: int = 256, embedding: int = 128) -> tuple[int, int]:
    """Parameters of the extractor and of the head of the built-in model for a data set."""
    size = _size(dataset)
    parts = mlp(size.shape, size.classes, hidden, embedding)
    extractor, head = (sum(parameter.numel() for parameter in part.parameters()) for part in parts)
    return extractor, head


def _size(dataset: str) -> Size:
    """Of a built-in data set as the catalogue has it, which need not be downloaded; of any other as it is loaded."""
    if dataset in SIZES:
        return SIZES[dataset]
    source = _loaded(dataset)
    return Size(len(source.y_train), source.shape, source.classes, source.clients, source.rounds)


@lru_cache(maxsize=1)
def _loaded(name: str) -> Dataset:
    return load_dataset(name)
