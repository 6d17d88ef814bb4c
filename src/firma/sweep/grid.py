"""A grid file: which runs a sweep consists of.

The keys are the options of `firma run`. A list is an axis: every combination of the values of all axes is run. In a
table such as `[set]`, each entry is an axis of its own. Combinations that are no product are stated as `[[grid]]`
tables: each is a product of its own on top of the keys above it, and all of their runs together are the sweep.

    dataset = "digits"                          # for all runs
    scenario = ["iid", "dir-0.1"]
    seeds = 5                                   # 0 to 4; or a list
    [[grid]]
    method = "fedavg"
    set = {rate = [0.1, 0.01]}
    [[grid]]
    method = ["fibfl", "fibfl++"]
    set = {rate = 0.001}
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

from firma.algorithms.catalogue import resolved
from firma.data.catalogue import SIZES, Size
from firma.data.dataset import load_dataset
from firma.data.drift import parse_drift
from firma.data.partition import default_scenario
from firma.data.scenarios import parse
from firma.errors import BadInput, unknown
from firma.method_lookup import lookup
from firma.methods import spelled_out
from firma.models.build import ModelSpec, model_spec, run_settings
from firma.models.reference import files
from firma.run_config import RunConfig, from_options, option_fields, read_toml
from firma.run_facts import ABSENT, Facts, distinct, flat, varying
from firma.settings import hyper_for, split_for
from firma.sweep.cells import Cell, key, references
from firma.tasks.task import TaskChoice

# How runs are computed, not what: one value for the whole sweep, and no part of a run's key.
EXECUTION = ("engine", "address", "workers", "checkpoint", "recover", "tensorboard", "mlflow")
_OWN_KEYS = ("grid", "out")
_LISTS = ("metric",)  # options that are lists themselves: several metrics are recorded by every run
_OF_A_CELL = ("dataset", "scenario", "method", "clients", "rounds", "seed", "seeds", "preset", "set", "standardise")
# Where the default of an option has changed: the value that runs had before, which is left out of their keys.
NEUTRAL_OPTIONS: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Grid:
    """The runs of a sweep in their order, how to compute them, where to write, and which runs are the same."""

    cells: Sequence[Cell]
    execution: Mapping[str, Any]
    out: Path | None
    same: Sequence[tuple[str, str]] = ()  # the name of a run that is left out, and of the equal one that is run


def read_grid(path: Path, changes: Mapping[str, Any] | None = None) -> Grid:
    """The sweep that a grid file describes; `changes` replace its keys, in every `[[grid]]` table too."""
    document = read_toml(path)
    try:
        return expand(document, changes or {})
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def expand(document: Mapping[str, Any], changes: Mapping[str, Any]) -> Grid:
    """All runs of a grid; everything that can be checked without training is checked here."""
    out = document.get("out")
    if out is not None and not isinstance(out, str):
        raise BadInput(f"out = {out!r}: must be a folder")
    runs = [run for table in _tables(document, changes) for run in _combinations(table)]
    execution = {name: _one(name, [run.pop(name, None) for run in runs]) for name in EXECUTION}
    stated = {name: value for name, value in execution.items() if value is not None}
    _check_execution(stated, runs)
    known = _Known()
    cells = [_cell(run, known) for run in runs]
    # Seed by seed, so that a sweep that is cut short has a little of everything.
    seeds = distinct(cell.seed for cell in cells)
    ordered = _named([cell for seed in seeds for cell in cells if cell.seed == seed])
    wanted: dict[tuple[str, str], Cell] = {}
    same = []
    for cell in ordered:
        first = wanted.setdefault((key(cell), cell.preset), cell)
        if first.name != cell.name:
            same.append((cell.name, first.name))
    return Grid(list(wanted.values()), stated, None if out is None else Path(out), same)


def _check_execution(stated: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> None:
    """Refuse what cannot be done: on Ray each run uses one core of some node, which keeps no checkpoint."""
    if from_options(stated).engine == "ray":
        found = [name for name in EXECUTION if name in stated and name not in ("engine", "address")]
        found += ["device"] if any(each.get("device", "cpu") != "cpu" for each in runs) else []
        if found:
            raise BadInput(
                f"--engine ray cannot be combined with {', '.join(found)}: on Ray, each run of a sweep uses one core"
            )


def select(cells: Sequence[Cell], pattern: str) -> list[Cell]:
    """The cells that every word of the pattern matches: method=fedavg or rate=0.* as a whole, other words as a part."""

    def matches(cell: Cell) -> bool:
        parts = cell.name.split()
        return all(
            any(fnmatchcase(part, word) for part in parts) if "=" in word else fnmatchcase(cell.name, f"*{word}*")
            for word in pattern.split()
        )

    found = [cell for cell in cells if matches(cell)]
    if not found:
        raise BadInput(f"--only {pattern!r} matches no run; runs are called {cells[0].name!r}; --dry-run lists them")
    return found


def _tables(document: Mapping[str, Any], changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One table of options per `[[grid]]`, with the keys above it and the changes on top."""
    known = [*option_fields(), *_OWN_KEYS]
    document = _underscored(document)
    tables = document.get("grid", [{}])
    if not isinstance(tables, list) or not tables or not all(isinstance(each, dict) for each in tables):
        raise BadInput("grid: must be one or more tables, each below a line [[grid]]")
    tables = [_underscored(table) for table in tables]
    shared = {name: value for name, value in document.items() if name not in _OWN_KEYS}
    for table in (shared, *tables):
        for name in table:
            if name not in known or (table is not shared and name in _OWN_KEYS):
                raise unknown("option", name, known)
    return [_merged(_merged(shared, table), changes) for table in tables]


def _underscored(table: Mapping[str, Any]) -> dict[str, Any]:
    """model-set and model_set are the same key, as for `firma run`."""
    return {name.replace("-", "_"): value for name, value in table.items()}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Options with others on top; entries of a table such as `set` are merged one by one."""
    merged = {**below, **above}
    for name, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(name), dict):
            merged[name] = below[name] | value
    return merged


def _combinations(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of all axes, seeds included."""
    axes = {name: _values(name, value) for name, value in table.items() if name not in ("seed", "seeds")}
    _check_attacks(axes)
    for seed in _seeds(table):
        for values in product(*axes.values()):
            yield dict(zip(axes, values, strict=True)) | {"seed": seed}


def _check_attacks(axes: Mapping[str, Sequence[Any]]) -> None:
    """Refuse axes of attacks whose product has attacks without attackers, or the other way round."""
    attacks, attackers = axes.get("attack", ["none"]), axes.get("attackers", [0])
    if len(attacks) * len(attackers) > 1 and any((a == "none") != (n == 0) for a in attacks for n in attackers):
        raise BadInput(
            f"attack = {list(attacks)} with attackers = {list(attackers)}: their product has attacks without "
            "attackers, or attackers without an attack; state honest runs in a [[grid]] table without either key, and "
            "the others in another one"
        )


def _values(name: str, value: Any) -> list[Any]:
    """The values of one option: those of a list, every combination of a table's entries, or the value itself."""
    if isinstance(value, dict):
        entries = [_values(f"{name}.{entry}", each) for entry, each in value.items()]
        return [dict(zip(value, chosen, strict=True)) for chosen in product(*entries)]
    if not isinstance(value, list) or name in _LISTS:
        return list(spelled_out([value])) if name == "method" else [value]
    if not value:
        raise BadInput(f"{name} = []: must have at least one value")
    return list(spelled_out(value)) if name == "method" else value


def _seeds(table: Mapping[str, Any]) -> list[Any]:
    """`seeds = 5` are five seeds from `seed` on, which is 0 unless it is stated; a list names the seeds."""
    seed, seeds = table.get("seed", 0), table.get("seeds", 1)
    named = [value for value in (seed, seeds) if isinstance(value, list)]
    if len(named) == 2 or (named and "seed" in table and "seeds" in table):
        raise BadInput("seed and seeds: cannot be combined with a list of seeds; state the list only")
    if named:
        if not named[0]:
            raise BadInput("seeds = []: must have at least one value")
        return list(named[0])
    checked = from_options({"seed": seed, "seeds": seeds})
    return list(range(checked.seed, checked.seed + checked.seeds))


def _one(name: str, values: Sequence[Any]) -> Any:
    """The value of an option that is the same for the whole sweep."""
    found = distinct(values)
    if len(found) > 1:
        raise BadInput(f"{name}: must be the same for all runs of a sweep, without a list; it is {found}")
    return found[0]


@dataclass(frozen=True)
class _Source:
    """What a data set says of itself: the scenario of a run that names none, its size, and whose it is."""

    scenario: str
    size: Size
    fingerprint: str = ""  # of the user's own data
    task: str = "classification"


@dataclass(frozen=True)
class _Known:
    """What has been looked at: data sets, and models with the hashes of their code."""

    sources: dict[tuple[str, TaskChoice], _Source] = field(default_factory=dict)
    models: dict[str, tuple[ModelSpec, dict[str, str]]] = field(default_factory=dict)

    def source(self, dataset: str, task: TaskChoice) -> _Source:
        """A data set, looked at once."""
        if (dataset, task) not in self.sources:
            self.sources[dataset, task] = _source(dataset, task)
        return self.sources[dataset, task]


def _cell(options: Mapping[str, Any], known: _Known) -> Cell:
    """The cell of one combination of options, with the defaults of its data set filled in."""
    config, models = from_options(options), known.models
    if config.method is None and isinstance(config.dataset, str):
        config = config.with_method(known.source(config.dataset, config.task).task)
    if not isinstance(config.method, str) or not isinstance(config.dataset, str):
        raise BadInput(f"method = {config.method!r} and dataset = {config.dataset!r}: must be text")
    others = _other_options(config)
    resolved(lookup(config.method))
    wanted = repr((config.model, config.model_set, config.head, config.loss, config.metric, config.method))
    if wanted not in models:
        spec = model_spec(config.model, config.model_set, config.head)
        models[wanted] = spec, code_hashes(others | {"method": config.method})
    model, code = models[wanted]
    code = code | _wiring_hashes(config)
    hyper_for(config.method, config.preset, run_settings(model, config.settings))
    split_for(config.preset, config.settings)
    if config.scenario is not None:
        parse(config.scenario)
    if config.drift is not None:
        parse_drift(config.drift)
    source = known.source(config.dataset, config.task)
    return Cell(
        config.dataset, config.scenario or source.scenario, config.method, config.preset, config.seed,
        config.clients or source.size.clients, config.rounds or source.size.rounds, dict(config.settings), others,
        source.fingerprint, code, size=source.size,
    )  # fmt: skip


def _other_options(config: RunConfig) -> dict[str, Any]:
    """The options that have no field of `Cell` and are not neutral."""
    neutral = {each.name: each.default if each.default is not MISSING else None for each in fields(RunConfig)}
    found = {}
    for option, name in option_fields().items():
        if option not in (*_OF_A_CELL, *EXECUTION):
            value = getattr(config, name)
            if value != NEUTRAL_OPTIONS.get(option, neutral[name]) and value not in (None, {}, ()):
                found[option] = list(value) if isinstance(value, tuple) else value
    return found


def _source(dataset: str, task: TaskChoice) -> _Source:
    """Of a built-in data set as the catalogue has it; the user's own data are loaded."""
    if dataset in SIZES and task in ("auto", "classification"):
        return _Source("skew-1", SIZES[dataset])
    found = load_dataset(dataset, task=task)
    size = Size(len(found.y_train), found.shape, found.classes, found.clients, found.rounds)
    return _Source(default_scenario(found), size, fingerprint(dataset), found.task)


def fingerprint(dataset: str) -> str:
    """SHA-256 of the user's own data, a file or a folder of files; empty for a data set that is known by its name."""
    path = Path(dataset) if Path(dataset).exists() else Path(dataset.rpartition(":")[0])
    if dataset in SIZES or not path.name or not path.exists():
        return ""
    if path.is_file():
        return _file_hash(path)
    digest = hashlib.sha256()
    for each in sorted(each for each in path.rglob("*") if each.is_file()):
        digest.update(f"{each.relative_to(path).as_posix()}\0{_file_hash(each)}\n".encode())
    return digest.hexdigest()


def code_hashes(options: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of every file of the code that an option refers to as MODULE:FUNCTION; empty if there is none."""
    return {name: digest for each in references(options) for name, digest in files(each).items()}


def _wiring_hashes(config: RunConfig) -> dict[str, str]:
    """SHA-256 of the files that describe a graph, an order or bandwidths; empty if there is none."""
    stated = {"graph": config.graph, "order": config.order, "bandwidth": config.bandwidth}
    paths = {name: Path(value) for name, value in stated.items() if isinstance(value, str | Path)}
    return {name: _file_hash(path) for name, path in paths.items() if path.is_file()}


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _named(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, called by their method, by what varies in the grid, and by their seed."""
    known = [_facts(cell) for cell in cells]
    names = distinct(["method", *varying(known)])
    words = [[*(f"{name}={each.get(str(name), ABSENT)}" for name in names)] for each in known]
    return [
        replace(cell, called=" ".join([*each, f"seed={cell.seed}"])) for cell, each in zip(cells, words, strict=True)
    ]


def _facts(cell: Cell) -> Facts:
    found: dict[str, Any] = {
        "method": cell.method, "dataset": cell.dataset, "scenario": cell.scenario, "preset": cell.preset,
        "clients": cell.clients, "rounds": cell.rounds, "drift": "none", **cell.settings,
    }  # fmt: skip
    return flat(found | dict(cell.options))
