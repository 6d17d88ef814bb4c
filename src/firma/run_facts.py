"""What two runs have in common and in what they differ, read off the configurations that their results recorded.

Facts are of two kinds. The conditions of a run are its data, how they are split, and every option; two methods are
compared under equal conditions. Its tuning is the preset, the hyperparameters that were set, and the order of the
clients that was stated: it may be a method's own.
"""

import hashlib
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from firma.data.catalogue import PUBLIC
from firma.errors import BadInput
from firma.method_lookup import lookup
from firma.methods import NEUTRAL_COLUMNS, columns
from firma.settings import NEUTRAL_SETTINGS, Hyper, Split, budget_is_reduced

Facts = dict[str, Hashable]
ABSENT = "default"  # shown for a setting that a run did not change
# What a configuration records beside its options: it follows from them, or says what the run was computed with.
_NOT_OPTIONS = (
    "hyper", "split", "settings", "set", "preset", "columns", "model", "dropped", "samples", "versions", "labels",
    "features", "client_names", "dishonest", "order", "bandwidth",
)  # fmt: skip
_WIRING = ("bandwidth", "order")  # a method's own, as its settings are: one has an order that another has no use for
# Options that results of earlier versions do not record, and the value that they had.
UNRECORDED_OPTIONS: Mapping[str, Any] = {
    "device": "cpu", "wire": "float32", "participation": 1.0, "task": "classification", "drift": "none",
    "attack": "none", "attackers": 0, "backend": "auto",
}  # fmt: skip


def conditions(config: Mapping[str, Any]) -> Facts:
    """Data set, scenario, every other option, and how the data are split; not the method, its tuning or the seed."""
    found = {name: value for name, value in config.items() if name not in _NOT_OPTIONS}
    found |= {name: value for name, value in UNRECORDED_OPTIONS.items() if name not in found}
    if "clients" in found:  # those that were left out for lack of data were asked for too
        found["clients"] = config["clients"] + len(config.get("dropped", ()))
    split = {name: value for name, value in NEUTRAL_SETTINGS.items() if name in Split.model_fields}
    return flat(found) | _model(config.get("model", {})) | flat(split | recorded_split(config))


def recorded_split(config: Mapping[str, Any]) -> dict[str, Any]:
    """How the data were split, by the names that the presets use now.

    The published preset recorded `quota = sequential` before it was `reduced`, and `standardise = none` before it was
    `constants`. They are read as what the preset has now wherever the two give the same data, so that older runs stay
    runs of the preset.
    """
    found = dict(config.get("split", {}))
    stated = config.get("set", config.get("settings", {}))
    if config.get("preset") != "published":
        return found
    reduced = budget_is_reduced(str(config.get("scenario", "")))
    if "quota" not in stated and found.get("quota") == "sequential" and not reduced:
        found["quota"] = "reduced"
    scaled = config.get("dataset") in PUBLIC  # other data have no constants
    if "standardise" not in stated and found.get("standardise", "none") == "none" and not scaled:
        found["standardise"] = "constants"
    return found


def tuning(config: Mapping[str, Any]) -> Facts:
    """The preset, the hyperparameters that the user set, and the order of the clients, if the user stated it."""
    given = config.get("set", config.get("settings", {}))
    found = {name: value for name, value in given.items() if name not in Split.model_fields}
    stated = {name: config[name] for name in _WIRING if name in config}
    return {"preset": config.get("preset", ABSENT)} | flat(found | stated)


def numbers(config: Mapping[str, Any]) -> Facts:
    """Every hyperparameter as it was used."""
    recorded = {**NEUTRAL_SETTINGS, **config.get("hyper", {})}
    return flat({name: value for name, value in recorded.items() if name in Hyper.model_fields})


def unlike(configs: Sequence[Mapping[str, Any]], method: str = "") -> dict[str, list[Hashable]]:
    """In what runs of a method differ other than the seed, with the values; empty if they may be averaged.

    A fact that only some of them recorded is left out: results of earlier versions record less.
    """
    everything = [everything_of(config, method) for config in configs]
    return _different(everything) or _different([sizes_of(config) for config in configs])


def everything_of(config: Mapping[str, Any], method: str) -> Facts:
    """Every fact of a run that decides its figures, beside its seed and its data."""
    wiring = {name: config.get(name, ABSENT) for name in _WIRING}
    return conditions(config) | numbers(config) | flat(wiring) | _columns(config, method)


def _columns(config: Mapping[str, Any], method: str) -> Facts:
    """The columns of the method, under names of their own: `retention` is a setting, and `order` an option, as well.

    A row of the table is recorded by its name alone.
    """
    found = config.get("columns")
    if found is None:
        try:
            found = columns(lookup(method))
        except BadInput:  # a method that this version does not know, or none was named
            return {}
    return flat({f"column {name}": value for name, value in {**NEUTRAL_COLUMNS, **found}.items()})


def _different(everything: Sequence[Facts]) -> dict[str, list[Hashable]]:
    return {
        name: values
        for name in _names(everything)
        if all(name in each for each in everything) and len(values := distinct(each[name] for each in everything)) > 1
    }


def differing(runs: Sequence[Facts]) -> list[str]:
    """The facts in which runs differ."""
    return [name for name in _names(runs) if len(distinct(run.get(name, ABSENT) for run in runs)) > 1]


def varying(runs: Sequence[Facts]) -> list[str]:
    """The facts in which runs differ, without those that follow from another one that is listed.

    With five clients on one data set and ten on the other, the data set is listed and the number of clients is not.
    """
    kept: list[str] = []
    for name in differing(runs):
        if not any(follows(runs, name, other) for other in kept):
            kept.append(name)
    return kept


def own_tuning(runs: Sequence[Facts], option: str, tuned: Iterable[str]) -> list[str]:
    """The tuning that belongs to the values of an option: some two of them have no value of it in common.

    Where one method was run with a rate of 0.1 and another with 0.001 and 0.003, the rate is theirs. Where both were
    run with 0.1 and 0.001, it is a condition like any other.
    """

    def owned(name: str) -> bool:
        values: dict[Hashable, set[Hashable]] = {}
        for run in runs:
            values.setdefault(run.get(option, ABSENT), set()).add(run.get(name, ABSENT))
        return any(one.isdisjoint(other) for one, other in combinations(values.values(), 2))

    return [name for name in dict.fromkeys(tuned) if name != option and owned(name)]


def follows(runs: Sequence[Facts], name: str, other: str) -> bool:
    """Whether runs with equal values of `other` always have equal values of `name`."""
    seen: dict[Hashable, Hashable] = {}
    return all(seen.setdefault(run.get(other, ABSENT), run.get(name, ABSENT)) == run.get(name, ABSENT) for run in runs)


def distinct(values: Iterable[Hashable]) -> list[Hashable]:
    """The values once each, in the order in which they appear."""
    return list(dict.fromkeys(values))


def in_words(found: Mapping[str, Sequence[Hashable]], most: int = 4) -> str:
    """Differences as text: "clients (5, 10), scenario (iid, dir-0.1)"."""

    def listed(values: Sequence[Hashable]) -> str:
        return ", ".join(str(value) for value in values[:most]) + (", …" if len(values) > most else "")

    return ", ".join(f"{name} ({listed(values)})" for name, values in found.items())


def _model(recorded: Mapping[str, Any]) -> Facts:
    """A model's name and parameters, and fingerprints of its code; what follows from the data is left out."""
    if not recorded:
        return {}
    found: Facts = {"model": recorded["name"]}
    if recorded["kind"] != "built-in" or recorded["name"] != "mlp":  # the sizes of mlp are settings of the run
        found |= flat(recorded["settings"], "model.")
    if recorded["head"] is not None:
        found["model.head"] = recorded["head"]
    if recorded["files"]:
        found["model.code"] = _digest(recorded["files"])
    if recorded["kind"] == "objects":
        found["model.code"] = recorded["architecture"][:8]
    return found


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def sizes_of(config: Mapping[str, Any]) -> Facts:
    """Samples per client, where the split is the same for all seeds: other sizes are other data."""
    if config.get("split", {}).get("split_seed") is None or "samples" not in config:
        return {}
    return {"samples per client": tuple(config["samples"])}


def flat(found: Mapping[str, Any], prefix: str = "") -> Facts:
    """Nested tables as names with dots, lists as tuples."""
    leaves: Facts = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
            leaves |= flat(value, f"{prefix}{name}.")
        else:
            leaves[f"{prefix}{name}"] = _plain(value)
    return leaves


def _plain(value: Any) -> Hashable:
    if isinstance(value, list | tuple):
        return tuple(_plain(each) for each in value)
    return value if isinstance(value, Hashable) else repr(value)


def _names(runs: Sequence[Facts]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run))
