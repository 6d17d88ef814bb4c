"""Runs of any study, grouped: runs of a group differ in the seed only, and groups in the options that vary."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from firma.comparison import ComparisonTable, compare_pairs, facts, metric_of
from firma.data.scenarios import order
from firma.errors import BadInput, unknown
from firma.methods import METHODS
from firma.results import Result
from firma.run_facts import (
    ABSENT,
    Facts,
    differing,
    distinct,
    everything_of,
    own_tuning,
    sizes_of,
    tuning,
    unlike,
    varying,
)
from firma.settings import Split
from firma.statistics import Series, Statistic, statistic
from firma.sweep.store import StoredCell


@dataclass(frozen=True)
class Group:
    """Runs that differ in the seed only, one per seed, and the facts that they share."""

    facts: Facts
    cells: Sequence[StoredCell]

    @property
    def results(self) -> list[Result]:
        """The results, by seed."""
        return [cell.result for cell in self.cells]

    def statistic(self, metric: str) -> Statistic | None:
        """A metric over the seeds; None if it has no value in some run."""
        series = self.series(metric)
        return None if series is None else statistic(list(series.values()))

    def series(self, metric: str) -> Series | None:
        """A metric with each seed; None if it has no value in some run."""
        values = {result.seed: result.metrics.get(metric) for result in self.results}
        known = {seed: float(value) for seed, value in values.items() if value is not None}
        return known if len(known) == len(values) else None

    def value(self, option: str) -> Hashable:
        """The value of an option, or that it was not stated."""
        return self.facts.get(option, ABSENT)


# Options that say where something is tried rather than what is tried: they are compared only if nothing else varies.
PLACES = ("dataset", "scenario", "clients", "rounds", "data", "code", *Split.model_fields)


@dataclass(frozen=True)
class Study:
    """All groups, the options that vary between them, and how many repeated runs were left out.

    `metric` is compared; `main` is the metric of which results keep every round. `lines` is the option whose values
    are compared, and drawn as lines: the method if it varies. `own` is what belongs to these values: their tuning,
    and the parameters of a model.
    """

    groups: Sequence[Group]
    axes: Sequence[str]
    metric: str
    main: str
    lines: str
    own: Sequence[str] = ()
    repeats: int = 0

    @property
    def places(self) -> list[str]:
        """The options that vary but are not compared: a case is one combination of their values."""
        return [axis for axis in self.axes if axis != self.lines and axis not in self.own]

    def case(self, group: Group) -> str:
        """The case of a group, in words."""
        return ", ".join(named(axis, group.value(axis)) for axis in self.places)

    def variant(self, group: Group) -> str:
        """What is compared: the value of the compared option, with its own tuning if it was run with several."""
        value = group.value(self.lines)
        mine = [each for each in self.groups if each.value(self.lines) == value]
        several = [name for name in self.own if len(distinct(each.value(name) for each in mine)) > 1]
        return " ".join([named(self.lines, value), *(named(name, group.value(name)) for name in several)])

    def variants(self) -> list[str]:
        """Every variant once, in the order of tables."""
        return [str(name) for name in distinct(self.variant(group) for group in self.groups)]

    def cases(self) -> dict[str, list[Group]]:
        """Groups that differ in what is compared only, by what they have in common."""
        found: dict[str, list[Group]] = {}
        for group in self.groups:
            found.setdefault(self.case(group), []).append(group)
        return found


def study_of(
    cells: Sequence[StoredCell], metric: str | None = None, by: str | None = None,
    named_by: Callable[[StoredCell], Facts] | None = None,
) -> Study:  # fmt: skip
    """Group the runs of a study; `by` names the option to compare. A run that is there twice counts once.

    `named_by` gives facts of a run that replace those that are read off its configuration.
    """
    cells = _of_one_task(cells, metric)
    found: dict[tuple[tuple[str, Hashable], ...], list[StoredCell]] = {}
    known = [_facts(cell) | (named_by(cell) if named_by is not None else {}) for cell in cells]
    own_facts = {id(cell): each for cell, each in zip(cells, known, strict=True)}
    for cell, each in zip(cells, known, strict=True):
        found.setdefault(tuple(sorted(each.items(), key=lambda item: item[0])), []).append(cell)
    groups, repeats = [], 0
    for _, members in found.items():
        for special, alike in _divided(members).items():
            by_seed: dict[int, StoredCell] = {}
            for cell in alike:
                by_seed.setdefault(cell.result.seed, cell)
            repeats += len(alike) - len(by_seed)
            chosen = [by_seed[seed] for seed in sorted(by_seed)]
            groups.append(Group(own_facts[id(chosen[0])] | dict(special), chosen))
    axes = varying([group.facts for group in groups])
    groups.sort(key=lambda group: [rank(axis, group.value(axis)) for axis in axes])
    names = dict.fromkeys(name for group in groups for name in group.facts)
    if by is not None and by not in names:
        raise unknown("option", by, axes or names)
    lines = by or next((axis for axis in axes if axis not in PLACES), axes[0] if axes else "method")
    runs = [cell.result for cell in cells]
    tuned = [name for run in runs for name in tuning(run.config)]
    known = [group.facts for group in groups]
    own = [*own_tuning(known, lines, tuned), *(name for name in differing(known) if name.startswith(f"{lines}."))]
    mains = distinct(f"mean_{run.main}" for run in runs)
    main = str(mains[0]) if len(mains) == 1 else "main metric"
    return Study(groups, axes, metric_of(runs, metric), main, lines, own, repeats)


def one_split(study: Study) -> bool:
    """Whether all seeds have the same split of the data among clients."""
    return all(group.facts.get("split_seed") is not None for group in study.groups)


def _of_one_task(cells: Sequence[StoredCell], metric: str | None) -> list[StoredCell]:
    """The runs that have the metric; without one, all of them, if they are of one task."""
    if not cells:
        raise BadInput("there are no finished runs to report")
    known = dict.fromkeys(name for cell in cells for name in cell.result.metrics)
    if metric is not None and metric not in known:
        raise unknown("metric", metric, known)
    mains = distinct(f"mean_{cell.result.main}" for cell in cells)
    if metric is None and len(mains) > 1:
        raise BadInput(
            f"the runs are of several tasks, with the main metrics {' and '.join(map(str, mains))}; report one at a "
            f"time: --metric {mains[0]} reports the runs that have it"
        )
    return [cell for cell in cells if metric is None or metric in cell.result.metrics]


def compared(study: Study, against: str | None = None, always: bool = False) -> ComparisonTable:
    """Every two values of the compared option; none if only data sets, scenarios and sizes vary, unless `always`."""
    if study.lines in PLACES and not always:
        return ComparisonTable(study.metric, [], [])
    pairs = [(cell.result, study.variant(group), group.facts) for group in study.groups for cell in group.cells]
    runs, variants, known = zip(*pairs, strict=True)
    if against is not None and f"{study.lines}={against}" in variants:
        against = f"{study.lines}={against}"  # the value alone is enough
    return compare_pairs(runs, variants, known, [study.lines, *study.own], study.metric, against)


def named(option: str, value: Hashable) -> str:
    """A value as a label: methods, data sets and scenarios by their names, others as option=value."""
    return str(value) if option in ("method", "dataset", "scenario") else f"{option}={value}"


def values_of(study: Study, axis: str) -> list[Hashable]:
    """The values of an option, in the order of tables."""
    return sorted(distinct(group.value(axis) for group in study.groups), key=lambda value: rank(axis, value))


def _facts(cell: StoredCell) -> Facts:
    """The facts of a run; data and models are called as the user called them."""
    found = facts(cell.result)
    if cell.key or cell.asked:  # the command line of versions that recorded no model had one only
        found.setdefault("model", "mlp")
    return found | {name: str(cell.asked[name]) for name in ("dataset",) if name in cell.asked}


def _divided(cells: Sequence[StoredCell]) -> Mapping[tuple[tuple[str, Hashable], ...], list[StoredCell]]:
    """Runs of equal facts that are not alike all the same: presets, data or code have changed between them."""
    found: dict[tuple[tuple[str, Hashable], ...], list[StoredCell]] = {}
    method = cells[0].result.method
    different = unlike([cell.result.config for cell in cells], method)
    inputs = [name for name in ("data", "code") if len(distinct(cell.inputs.get(name, "") for cell in cells)) > 1]
    for cell in cells:
        known = everything_of(cell.result.config, method) | sizes_of(cell.result.config)
        special: Facts = {name: str(known.get(name, ABSENT)) for name in different}
        special |= {name: cell.inputs.get(name, "")[:8] for name in inputs}
        found.setdefault(tuple(special.items()), []).append(cell)
    return found


def rank(axis: str, value: Hashable) -> tuple[int, float, str]:
    """Methods as in the design table, scenarios from even to uneven, numbers by size, all else by name."""
    if axis == "method" and value in METHODS:
        return 0, list(METHODS).index(str(value)), ""
    if axis == "scenario":
        try:
            kind, number = order(str(value))
        except BadInput:
            return 2, 0.0, str(value)
        return kind, number, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, str(value)
