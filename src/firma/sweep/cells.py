"""Cells of a sweep: one run each, the key that its result is stored under, and what a run is called in tables.

The key is the SHA-256 of everything that decides the results. It must never change for a cell that was run, or the
cell would be run again:

- The columns of version 0.1's design table are always part of the key.
- A column that was added later, and every setting, is part of the key only where it differs from its neutral value:
  the value that computes what was computed before the column or setting existed.
- Neutral values never change, even when a default does.
- A value that computes what an older value of its setting computed is written as the older one: `quota = reduced` as
  `sequential`, wherever the two split alike, and `standardise = constants` as `none` for data that have no constants.
- Options that are no field of `Cell`, fingerprints of data and hashes of code are part of the key only where there are
  any.

Whoever adds a column or a setting adds its neutral value beside it (`methods.NEUTRAL_COLUMNS`,
`settings.NEUTRAL_SETTINGS`); a test fails until it is there. The neutral values of version 0.1's settings are here.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from firma.algorithms.catalogue import reference_of
from firma.data.catalogue import PUBLIC, SIZES, Size
from firma.method_lookup import lookup
from firma.methods import stable_columns
from firma.models.reference import Reference, parsed
from firma.run_facts import recorded_split
from firma.settings import NEUTRAL_SETTINGS, Preset, budget_is_reduced, hyper_for, split_for

# Raised when the same configuration gives other results than before: all cells are then run again. The stored name of
# this number is "figures", as in version 0.1.
RESULTS_VERSION = 1
COLUMNS_OF_0_1 = (
    "topology", "shares", "weights", "gate", "order", "passes", "retention", "training", "optimiser", "persistent",
    "warmup",
)  # fmt: skip
SETTINGS_OF_0_1: Mapping[str, Any] = {
    "rate": 0.01, "momentum": 0.9, "batch": 64, "epochs": 5, "head_epochs": 1, "extractor_epochs": 20,
    "threshold": 0.35, "posterior": 0.5, "retention": 0.5, "retention_start": 0.4, "retention_end": 0.05,
    "warmup_rounds": None, "warmup_shares": "extractor", "hidden": 256, "embedding": 128, "initial": "shared",
    "ring_cost": "cosine",
    "split_seed": 42, "tests": "matched", "scored_on": "test", "quota": "fair", "min_samples": 10,
}  # fmt: skip
NEUTRAL: Mapping[str, Any] = {**SETTINGS_OF_0_1, **NEUTRAL_SETTINGS}


@dataclass(frozen=True)
class Cell:
    """One run; `settings` are the user's changes to the preset, `options` the options of a run that have no field here.

    `data` is the fingerprint of the user's own data, `code` the hash of each file that an option refers to. `called` is
    the name of the run among those of its grid, `size` that of data that are not built in.
    """

    dataset: str
    scenario: str
    method: str
    preset: Preset
    seed: int
    clients: int
    rounds: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    code: Mapping[str, str] = field(default_factory=dict)
    called: str = field(default="", compare=False)
    size: Size | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """What the grid calls it, else DATASET/SCENARIO/METHOD/PRESET/SEED."""
        return self.called or f"{self.dataset}/{self.scenario}/{self.method}/{self.preset}/{self.seed}"


def configuration(cell: Cell) -> dict[str, Any]:
    """Everything that decides a cell's results, as plain data."""
    hyper = hyper_for(cell.method, cell.preset, cell.settings).model_dump()
    split = split_for(cell.preset, cell.settings).model_dump()
    added = {"options": dict(cell.options), "data": cell.data, "code": dict(cell.code)}
    facts = {
        "figures": RESULTS_VERSION,
        # The user's own data are known by their content: they may be moved to another folder.
        "dataset": PurePath(cell.dataset).name if cell.data else cell.dataset,
        "scenario": cell.scenario,
        "columns": stable_columns(lookup(cell.method)),
        "hyper": decisive(hyper),
        "split": decisive_split(split, cell.scenario, cell.dataset),
        "clients": cell.clients,
        "rounds": cell.rounds,
        "seed": cell.seed,
    }
    return facts | {name: value for name, value in added.items() if value}


def decisive(values: Mapping[str, Any], neutral: Mapping[str, Any] = NEUTRAL) -> dict[str, Any]:
    """The settings that are part of the key: those that are not neutral."""
    return {name: value for name, value in values.items() if value != neutral[name]}


def decisive_split(values: Mapping[str, Any], scenario: str, dataset: str) -> dict[str, Any]:
    """The settings of a split that are part of the key, by what they compute of these data under this scenario."""
    found = decisive(values)
    if found.get("quota") == "reduced" and not budget_is_reduced(scenario):
        found["quota"] = "sequential"
    if found.get("standardise") == "constants" and dataset not in PUBLIC:
        del found["standardise"]
    return found


def key(cell: Cell) -> str:
    """The cell's key in the store."""
    return digest(configuration(cell))


def as_options(cell: Cell) -> dict[str, Any]:
    """The options of `firma run` that repeat a cell."""
    return {
        "dataset": cell.dataset, "scenario": cell.scenario, "method": cell.method, "preset": cell.preset,
        "seed": cell.seed, "clients": cell.clients, "rounds": cell.rounds, **cell.options, "set": dict(cell.settings),
    }  # fmt: skip


def references(options: Mapping[str, Any]) -> list[Reference]:
    """The code of the user's own that options refer to as MODULE:FUNCTION, that of a method's algorithm included."""
    values = [each for value in options.values() for each in (value if isinstance(value, list) else [value])]
    found = [parsed(each) for each in values if isinstance(each, str)]
    if "method" in options:
        found.append(reference_of(lookup(options["method"])))
    return [each for each in found if each is not None]


def digest(facts: Mapping[str, Any]) -> str:
    """SHA-256 of a configuration, whatever the order of its fields."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Label:
    """What a run is called in tables: its preset, changed settings, and sizes that are not the data set's defaults."""

    preset: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, float | str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Such as "paper rate=0.001 rounds=2"."""
        return " ".join([self.preset, *(f"{name}={value}" for name, value in {**self.settings, **self.sizes}.items())])


def label(config: Mapping[str, Any], method: str) -> Label:
    """The label of a run, from what its result recorded: the preset and the settings that were changed.

    Two runs of one label and method have the same numbers. If a preset has changed since a run was made, the label also
    states the numbers in which the run differs from the preset as it is now. Version 0.1 did not record changed
    settings; they are found in the same way.
    """
    preset, changed = config["preset"], config.get("settings", {})
    recorded = {**NEUTRAL, **config["hyper"], **recorded_split(config)}
    today = hyper_for(method, preset, changed).model_dump() | split_for(preset, changed).model_dump()
    settings = {name: recorded[name] for name in today if name in changed or recorded[name] != today[name]}
    usual = SIZES.get(config["dataset"])
    sizes = {"clients": config["clients"] + len(config["dropped"]), "rounds": config["rounds"]}
    unusual: dict[str, float | str] = {
        name: size for name, size in sizes.items() if usual is None or size != getattr(usual, name)
    }
    if (share := config.get("participation", 1.0)) != 1.0:
        unusual["participation"] = share
    if count := config.get("attackers", 0):
        unusual[config["attack"]] = count
    unusual |= {name: config[name] for name in ("drift", "backend", "bandwidth", "order") if name in config}
    return Label(preset, settings, unusual)
