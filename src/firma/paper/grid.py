"""The paper's grid: four data sets, seven scenarios, all methods, its presets, and each part of its method alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, cast

from firma.data.catalogue import SIZES
from firma.data.scenarios import parse
from firma.errors import BadInput, suggestion
from firma.method_lookup import ablations
from firma.methods import METHODS, PAPER_METHODS, spelled_out
from firma.settings import Preset, check_preset
from firma.sweep.cells import Cell, key
from firma.sweep.result_table import Case

DATASETS = ("digits", "mnist", "fashion-mnist", "cifar10")  # cheap ones first
SCENARIOS = ("iid", "dir-0.8", "dir-0.5", "dir-0.1", "skew-1", "skew-2", "skew-3")
CASES: tuple[Case, ...] = tuple((dataset, scenario) for dataset in DATASETS for scenario in SCENARIOS)
SKEW = tuple(case for case in CASES if case[1].startswith("skew"))
DIRICHLET = tuple(case for case in CASES if case[1].startswith("dir"))
IID = tuple(case for case in CASES if case[1] == "iid")
PRESETS: tuple[Preset, ...] = ("published", "paper")

FULL, GATED, PLAIN = "fibfl++", "fibfl+", "fibfl"  # the paper's method, and its two simpler relatives
RIVALS = ("fedavg", "fedrep", "rdfl", "local")
# Each fix alone on top of the gated ring: A the order, B the passes, C the retention with its warm-up.
FIXES = {"A": f"{GATED}:order=2-opt", "B": f"{GATED}:passes=cover", "C": f"{GATED}:retention=cosine,warmup=yes"}
# What answers most questions comes first, so that a study that is cut short is still of use.
_FIRST_METHODS = (FULL, "fedavg", "local", "fedrep", "rdfl", PLAIN, GATED)
_FIRST_SCENARIOS = ("dir-0.1", "skew-1", "iid")


@dataclass(frozen=True)
class Choice:
    """Which part of the grid is asked for; an empty field means everything."""

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


def ablation_rows() -> list[str]:
    """The full method with each of its columns switched back alone, and each fix alone on top of the gated ring."""
    return [*(row.name for row in ablations(METHODS[FULL], METHODS[PLAIN])), *FIXES.values()]


def cells(choice: Choice) -> list[Cell]:
    """The chosen cells in the order in which they are run; each configuration of a preset once.

    Seed by seed: first the scenarios that tell most, on all data sets, then the others.
    """
    for name in choice.datasets:
        if name not in DATASETS and name != "all":
            hint = suggestion(name, DATASETS)
            raise BadInput(f"--dataset {name} is not part of the study{hint}; choose from {', '.join(DATASETS)}, all")
    scenarios = _in_order(choice.scenarios, _FIRST_SCENARIOS, SCENARIOS)
    for name in scenarios:
        parse(name)
    asked = spelled_out("paper" if each == "all" else each for each in choice.methods)  # all of the study
    methods = _in_order(asked, _FIRST_METHODS, PAPER_METHODS) + (ablation_rows() if choice.ablations else [])
    everything = not choice.datasets or "all" in choice.datasets
    first = [name for name in scenarios if name in _FIRST_SCENARIOS]
    grid = (
        _cell(dataset, scenario, method, preset, seed, choice)
        for seed in range(choice.seeds)
        for block in (first, [name for name in scenarios if name not in first])
        for dataset in DATASETS
        if everything or dataset in choice.datasets
        for scenario in block
        for method in methods
        for preset in (choice.presets or PRESETS)
    )
    wanted: dict[tuple[str, str], Cell] = {}
    for cell in grid:
        if fnmatchcase(cell.name, choice.only) or choice.only in cell.name:
            wanted.setdefault((key(cell), cell.preset), cell)
    if not wanted:
        raise BadInput(f"--only {choice.only!r} matches no cell; cell names look like digits/iid/fedavg/paper/0")
    return list(wanted.values())


def _cell(dataset: str, scenario: str, method: str, preset: str, seed: int, choice: Choice) -> Cell:
    check_preset(preset)
    size = SIZES[dataset]
    clients, rounds = choice.clients or size.clients, choice.rounds or size.rounds
    return Cell(dataset, scenario, method, cast("Preset", preset), seed, clients, rounds, choice.settings)


def _in_order(chosen: Sequence[str], first: Iterable[str], known: Iterable[str]) -> list[str]:
    """What was chosen, or everything that is known, with `first` in front."""
    names = list(dict.fromkeys(known if not chosen or "all" in chosen else chosen))
    return [name for name in first if name in names] + [name for name in names if name not in set(first)]
