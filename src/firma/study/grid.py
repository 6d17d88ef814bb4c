"""The cells of the study: one method on one data set, dealt one way, under one preset, with one seed."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, cast

from firma.data.scenarios import STUDY as SCENARIOS
from firma.data.scenarios import parse
from firma.errors import BadInput
from firma.methods import METHODS, ablations, lookup, stable_columns
from firma.settings import Preset, check_preset, hyper_for, split_for

# Raised when the same configuration gives other figures than before: stored cells are then run again.
FIGURES = 1
PRESETS: tuple[Preset, ...] = ("published", "paper")
# What answers most questions comes first, so that a study cut short is still of use.
_METHODS = ("fibfl++", "fedavg", "local", "fedrep", "rdfl", "fibfl", "fibfl+")
_SCENARIOS = ("dir-0.1", "skew-1", "iid")
# Alone on top of the gated ring: A the order, B the passes, C the retention with its warm-up.
FIXES = {"A": "fibfl+:order=2-opt", "B": "fibfl+:passes=cover", "C": "fibfl+:retention=cosine,warmup=yes"}


@dataclass(frozen=True, slots=True)
class Federation:
    """The size of a federation in the study, and of the data it trains on."""

    clients: int
    rounds: int
    samples: int
    shape: tuple[int, ...]


# Cheap data sets first.
DATASETS: Mapping[str, Federation] = {
    "digits": Federation(5, 10, 1_437, (8, 8)),
    "mnist": Federation(10, 30, 60_000, (28, 28)),
    "fashion-mnist": Federation(10, 30, 60_000, (28, 28)),
    "cifar10": Federation(10, 30, 50_000, (32, 32, 3)),
}


@dataclass(frozen=True)
class Cell:
    """One run of the study; `settings` are the user's changes to the preset."""

    dataset: str
    scenario: str
    method: str
    preset: Preset
    seed: int
    clients: int
    rounds: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What a person calls it, and what `--only` matches."""
        return f"{self.dataset}/{self.scenario}/{self.method}/{self.preset}/{self.seed}"


@dataclass(frozen=True)
class Choice:
    """Which part of the study is asked for; nothing chosen is everything."""

    datasets: Sequence[str] = ()
    scenarios: Sequence[str] = ()
    methods: Sequence[str] = ()
    presets: Sequence[str] = ()
    seeds: int = 3
    rounds: int | None = None
    clients: int | None = None
    only: str = "*"
    ablations: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


def configuration(cell: Cell) -> dict[str, Any]:
    """All that decides a cell's figures, in plain data.

    Fields at their defaults are left out: a field that is added later leaves older cells valid. Who changes a default
    changes figures and raises `FIGURES`.
    """
    return {
        "figures": FIGURES,
        "dataset": cell.dataset,
        "scenario": cell.scenario,
        "columns": stable_columns(lookup(cell.method)),
        "hyper": hyper_for(cell.method, cell.preset, cell.settings).model_dump(exclude_defaults=True),
        "split": split_for(cell.preset, cell.settings).model_dump(exclude_defaults=True),
        "clients": cell.clients,
        "rounds": cell.rounds,
        "seed": cell.seed,
    }


def key(cell: Cell) -> str:
    """SHA-256 of the cell's configuration: the name of its file."""
    text = json.dumps(configuration(cell), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def ablation_rows() -> list[str]:
    """The full method with each of its columns switched back alone, and each fix alone on top of the gated ring."""
    return [*(row.name for row in ablations(METHODS["fibfl++"], METHODS["fibfl"])), *FIXES.values()]


def cells(choice: Choice) -> list[Cell]:
    """The chosen cells in the order in which they are run; each configuration once.

    Seed by seed, first the scenarios that tell most, over all data sets, then the others.
    """
    for name in choice.datasets:
        if name not in DATASETS and name != "all":
            raise BadInput(f"dataset = {name!r}: the study knows {', '.join(DATASETS)} and all")
    scenarios = _in_order(choice.scenarios, _SCENARIOS, SCENARIOS)
    for name in scenarios:
        parse(name)
    methods = _in_order(choice.methods, _METHODS, METHODS) + (ablation_rows() if choice.ablations else [])
    everything = not choice.datasets or "all" in choice.datasets
    grid = (
        _cell(dataset, scenario, method, preset, seed, choice)
        for seed in range(choice.seeds)
        for block in ([s for s in scenarios if s in _SCENARIOS], [s for s in scenarios if s not in _SCENARIOS])
        for dataset in DATASETS
        if everything or dataset in choice.datasets
        for scenario in block
        for method in methods
        for preset in (choice.presets or PRESETS)
    )
    wanted: dict[str, Cell] = {}
    for cell in grid:
        if _matches(cell, choice.only):
            wanted.setdefault(key(cell), cell)
    if not wanted:
        raise BadInput(f"only = {choice.only!r}: no cell of the study is called so; one is digits/iid/fedavg/paper/0")
    return list(wanted.values())


def _matches(cell: Cell, pattern: str) -> bool:
    return fnmatchcase(cell.name, pattern) or pattern in cell.name


def _cell(dataset: str, scenario: str, method: str, preset: str, seed: int, choice: Choice) -> Cell:
    check_preset(preset)
    size = DATASETS[dataset]
    clients, rounds = choice.clients or size.clients, choice.rounds or size.rounds
    return Cell(dataset, scenario, method, cast("Preset", preset), seed, clients, rounds, choice.settings)


def _in_order(chosen: Sequence[str], first: Iterable[str], known: Iterable[str]) -> list[str]:
    """What was chosen, or all that is known, with `first` in front."""
    names = list(dict.fromkeys(known if not chosen or "all" in chosen else chosen))
    return [name for name in first if name in names] + [name for name in names if name not in set(first)]
