"""Running cells: one after another in this process, or side by side on a Ray cluster."""

import atexit
import hashlib
import importlib
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from firma.data.catalogue import SIZES, Size
from firma.data.dataset import Dataset, load_dataset
from firma.errors import BadInput
from firma.experiment import run
from firma.method_lookup import lookup
from firma.models.catalogue import mlp
from firma.models.reference import sources, user_modules
from firma.results import Result
from firma.ring_cost import ring_report
from firma.run_config import OnRound, option_fields
from firma.schedule import phases, warmup_epochs, warmup_rounds
from firma.settings import hyper_for
from firma.sweep.cells import Cell, references
from firma.sweep.ring_savings import ORDERED_METHOD
from firma.sweep.store import forget_failure, record_failure, save
from firma.sweep.stored_events import live_place, tell_failed, tell_finished
from firma.tasks.diagnosis import diverged

# Runs one cell: its result, and what 2-opt saves on its ring.
Execute = Callable[[Cell, OnRound | None], tuple[Result, Mapping[str, Any]]]
_RING_FIELDS = ("ring_cost", "cost_identity", "cost_optimised", "saving_percent", "order")


@dataclass(frozen=True)
class FinishedCell:
    """A cell that has just been run and saved."""

    cell: Cell
    result: Result


@dataclass(frozen=True)
class FailedCell:
    """A cell that has no result: one sentence that says why and, for errors other than bad input, the traceback."""

    cell: Cell
    error: str
    details: str = ""


def simulate(cell: Cell, on_round: OnRound | None, live: Path | None = None) -> tuple[Result, Mapping[str, Any]]:
    """Run a cell in this process; `live` is the folder whose live.jsonl follows it."""
    return _simulated(cell, _loaded(cell.dataset), on_round, None, live)


def sweep_execute(execution: Mapping[str, Any], live: Path | None = None) -> Execute:
    """What runs a cell of anybody's grid in this process, with options such as `workers` that do not change results.

    `live` is the folder whose live.jsonl follows it.
    """

    held: dict[tuple[str, str], Dataset] = {}

    def execute(cell: Cell, on_round: OnRound | None) -> tuple[Result, Mapping[str, Any]]:
        if _data_key(cell) not in held:
            held.clear()  # before the next one is loaded: both may be large
            held[_data_key(cell)] = _load(cell)
        place = live_place(live, cell) if live is not None else None
        return run(**_run_options(cell, held[_data_key(cell)]) | dict(execution), on_round=on_round, live=place), {}

    return execute


def run_cells(
    cells: Sequence[Cell],
    folder: Path,
    on_start: Callable[[Cell], None],
    on_round: OnRound,
    execute: Execute = simulate,
) -> Iterator[FinishedCell]:
    """Run cells one after another; each is saved before the next one starts, and an error ends them all."""
    for cell in cells:
        on_start(cell)
        result, ring = execute(cell, on_round)
        save(folder, cell, result, ring)
        yield FinishedCell(cell, result)


def sweep_cells(
    cells: Sequence[Cell],
    folder: Path,
    on_start: Callable[[Cell], None],
    on_round: OnRound,
    execute: Execute,
) -> Iterator[FinishedCell | FailedCell]:
    """Run cells one after another; one that fails is reported, and the others are run all the same."""
    for cell in cells:
        on_start(cell)
        yield _saved(folder, cell, _attempt(cell, execute, on_round))


def run_cells_on_ray(
    cells: Sequence[Cell], folder: Path, on_start: Callable[[Cell], None], address: str | None
) -> Iterator[FinishedCell]:
    """Run cells on a Ray cluster, one per core at a time; only this process writes, each cell when it is finished."""
    from firma.engines.ray_cluster import connected, spread

    with connected(address):
        for cell, (result, ring) in spread(_on_one_core, cells, _data_of_cells(), on_start):
            save(folder, cell, result, ring)
            tell_finished(folder, cell, result)
            yield FinishedCell(cell, result)


def sweep_cells_on_ray(
    cells: Sequence[Cell], folder: Path, on_start: Callable[[Cell], None], address: str | None
) -> Iterator[FinishedCell | FailedCell]:
    """The same for the cells of anybody's grid, of which some may fail."""
    from firma.engines.ray_cluster import connected, spread

    data = _data_of_cells()
    sent: dict[tuple[str, str, str], _Sent] = {}

    def given(cell: Cell) -> _Sent:
        identity = (*_data_key(cell), repr(sorted(cell.code.items())))
        if identity not in sent:
            own = user_modules(each.module for each in references({**cell.options, "method": cell.method}))
            sent[identity] = _Sent(data(cell), {name: raw for each in own for name, raw in sources(each).items()})
        return sent[identity]

    with connected(address):
        for cell, outcome in spread(_attempt_on_one_core, cells, given, on_start):
            done = _saved(folder, cell, outcome)
            if isinstance(done, FinishedCell):
                tell_finished(folder, cell, done.result)
            yield done


@dataclass(frozen=True)
class _Sent:
    """What a node needs and may not have: the data set, and files of the user's own code."""

    dataset: Dataset
    code: Mapping[str, bytes]


def _data_of_cells() -> Callable[[Cell], Dataset]:
    """The data set of a cell, in memory; each is loaded once."""
    loaded: dict[tuple[str, str], Dataset] = {}

    def data(cell: Cell) -> Dataset:
        if _data_key(cell) not in loaded:
            loaded[_data_key(cell)] = _in_memory(_load(cell))
        return loaded[_data_key(cell)]

    return data


def _data_key(cell: Cell) -> tuple[str, str]:
    """What decides how data are read: their name or path, and the task, by which targets are labels or numbers."""
    return cell.dataset, cell.options.get("task", "auto")


def _load(cell: Cell) -> Dataset:
    return load_dataset(cell.dataset, task=cell.options.get("task", "auto"))


def _attempt(cell: Cell, execute: Execute, on_round: OnRound | None) -> FailedCell | tuple[Result, Mapping[str, Any]]:
    """The outcome of a cell, or why there is none: bad input, an error of the user's own code, or divergence."""
    try:
        result, ring = execute(cell, on_round)
    except BadInput as error:
        return FailedCell(cell, str(error))
    except Exception as error:
        return FailedCell(cell, f"{type(error).__name__}: {error}", traceback.format_exc())
    sentence = divergence(result)
    return (result, ring) if sentence is None else FailedCell(cell, sentence)


def _saved(
    folder: Path, cell: Cell, outcome: FailedCell | tuple[Result, Mapping[str, Any]]
) -> FinishedCell | FailedCell:
    if not isinstance(outcome, FailedCell):
        try:
            save(folder, cell, *outcome)
            forget_failure(folder, cell)
            return FinishedCell(cell, outcome[0])
        except ValueError as error:  # a number that JSON does not have
            outcome = FailedCell(cell, f"training diverged: a value is not a finite number ({error})")
    record_failure(folder, cell, outcome.error, outcome.details)
    tell_failed(folder, cell, outcome.error)
    return outcome


def check_data(cells: Sequence[Cell]) -> None:
    """Refuse built-in data sets that are not on this machine, before anything is run."""
    for name in dict.fromkeys(cell.dataset for cell in cells):
        if name in SIZES:
            load_dataset(name)


def divergence(result: Result) -> str | None:
    """That a run has diverged, in one sentence: its loss, a metric or a parameter is not a finite number; else None."""
    losses, rate = result.curves.get("loss"), result.config["hyper"]["rate"]
    if losses is not None and not np.isfinite(losses[-1]).all():
        first = int(np.argmin(np.isfinite(losses).all(axis=1)))
        return diverged(first, {"loss": losses[first]}, rate)
    sound = np.isfinite(result.history).all(axis=1)
    if not sound.all():
        return f"training diverged: the test results of round {int(np.argmin(sound)) + 1} are not finite numbers"
    if result.parameters is not None and not bool(result.parameters.isfinite().all()):
        return "training diverged: parameters of the trained models are not finite numbers"
    return None


def _on_one_core(cell: Cell, dataset: Dataset) -> tuple[Result, Mapping[str, Any]]:
    """A cell on one core of some node, which need not have the data set."""
    result, ring = _simulated(cell, dataset, None, workers=1)
    return replace(result, parameters=None, template=None), ring


def _attempt_on_one_core(cell: Cell, sent: _Sent) -> FailedCell | tuple[Result, Mapping[str, Any]]:
    def execute(cell: Cell, on_round: OnRound | None) -> tuple[Result, Mapping[str, Any]]:
        _unpack(sent.code)
        return run(**_run_options(cell, sent.dataset), workers=1, on_round=on_round), {}

    outcome = _attempt(cell, execute, None)
    if isinstance(outcome, FailedCell):
        return outcome
    return replace(outcome[0], parameters=None, template=None), outcome[1]


def _unpack(code: Mapping[str, bytes]) -> None:
    """Make files of the user's own code importable in this process, from a folder that is removed when it ends."""
    if not code:
        return
    digest = hashlib.sha256(b"".join(path.encode() + raw for path, raw in sorted(code.items()))).hexdigest()[:16]
    name = f"firma-code-{digest}-"
    if any(name in each for each in sys.path):
        return
    folder = Path(tempfile.mkdtemp(prefix=name))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for path, raw in code.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(raw)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def _run_options(cell: Cell, dataset: Dataset) -> dict[str, Any]:
    """The parameters of `firma.run` that decide a cell's results."""
    own: dict[str, Any] = {
        "dataset": dataset, "scenario": cell.scenario, "method": cell.method, "clients": cell.clients,
        "rounds": cell.rounds, "seed": cell.seed, "preset": cell.preset, "settings": cell.settings,
    }  # fmt: skip
    fields = option_fields()
    return own | {fields[option]: value for option, value in cell.options.items()}


def _simulated(
    cell: Cell, dataset: Dataset, on_round: OnRound | None, workers: int | None, live: Path | None = None
) -> tuple[Result, Mapping[str, Any]]:
    place = live_place(live, cell) if live is not None else None
    result = run(**_run_options(cell, dataset), workers=workers, on_round=on_round, live=place)
    report = ring_report(dataset, cell.scenario, ORDERED_METHOD, cell.clients, cell.preset, cell.settings, cell.seed)
    return result, {name: report[name] for name in _RING_FIELDS}


def _in_memory(dataset: Dataset) -> Dataset:
    """The data set without files behind it."""
    return replace(dataset, x_train=np.asarray(dataset.x_train), x_test=np.asarray(dataset.x_test))


def cost(cell: Cell) -> float:
    """What a cell costs, in samples times weights times epochs: for the estimate of the time that is left."""
    method, hyper = lookup(cell.method), hyper_for(cell.method, cell.preset, cell.settings)
    size = cell.size or SIZES[cell.dataset]
    weights = sum(_parameter_counts(size, hyper.hidden, hyper.embedding))
    # The head's phase runs the extractor forwards only, a third of a training step.
    part = {"model": 1.0, "extractor": 1.0, "head": 1 / 3}
    usual = sum(phase.epochs * part[phase.trains] for phase in phases(method, hyper))
    warm = warmup_rounds(method, hyper, cell.rounds)
    epochs = (cell.rounds - warm) * usual + warm * warmup_epochs(method, hyper)
    taking_part = float(cell.options.get("participation", 1.0))
    return size.train * weights * (taking_part * epochs + cell.rounds / 3)


def parameter_counts(dataset: str, hidden: int = 256, embedding: int = 128) -> tuple[int, int]:
    """Parameters of the extractor and of the head of the built-in model for a data set."""
    return _parameter_counts(_size(dataset), hidden, embedding)


@lru_cache
def _parameter_counts(size: Size, hidden: int, embedding: int) -> tuple[int, int]:
    parts = mlp(size.shape, size.classes, hidden, embedding)
    extractor, head = (sum(parameter.numel() for parameter in part.parameters()) for part in parts)
    return extractor, head


@lru_cache
def _size(dataset: str) -> Size:
    """Of a built-in data set as the catalogue has it, which need not be downloaded; of any other as it is loaded."""
    if dataset in SIZES:
        return SIZES[dataset]
    source = load_dataset(dataset)
    return Size(len(source.y_train), source.shape, source.classes, source.clients, source.rounds)


@lru_cache(maxsize=1)
def _loaded(name: str) -> Dataset:
    return load_dataset(name)
