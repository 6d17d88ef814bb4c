"""What a report shows of a study: places, what is compared in them, and who is best where.

A place is a data set with a scenario and whatever else varies but is not compared. A variant is what is compared, such
as a method. Where presets vary as a condition, the reader switches between them, and nothing is compared across.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

from firma.report.groups import PLACES, Group, Study, named, rank, values_of
from firma.report.measures import Measure, measures_of, steps
from firma.run_facts import distinct, follows
from firma.statistics import Series, Statistic, paired_sum, side_by_side, statistic

Mark = Literal["", "close", "best"]  # close: too close to the best to call
Reference = Callable[[Group, str], float | None]  # the value that somebody else reported of a metric
SWITCH = "preset"
_SWITCH_ORDER = ("recommended", "published", "paper")


@dataclass(frozen=True)
class Place:
    """Where something was tried: its data set, what it is called there, and the values of the options that vary."""

    dataset: str
    label: str
    values: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.dataset}, {self.label}"


@dataclass(frozen=True)
class Board:
    """Groups by (preset, place, variant), each a position in `switch`, `places` and `variants`.

    Variants in `aside` are shown on demand and are never the best.
    """

    study: Study
    switch: Sequence[str]  # empty text where presets do not vary
    places: Sequence[Place]
    variants: Sequence[str]
    aside: frozenset[int]
    measures: Sequence[Measure]
    groups: Mapping[tuple[int, int, int], Group]
    values: Mapping[tuple[int, int, int], Mapping[str, Statistic]]  # every metric of a group over its seeds
    by_seed: Mapping[tuple[int, int, int], Mapping[str, Series]]  # and with each seed

    @property
    def datasets(self) -> list[str]:
        """The data sets, in the order of their places."""
        return [str(name) for name in distinct(place.dataset for place in self.places)]

    @property
    def options(self) -> list[str]:
        """The options that tell places apart."""
        names = distinct(name for place in self.places for name in place.values)
        return [str(name) for name in names if len({place.values.get(str(name)) for place in self.places}) > 1]

    def places_of(self, switch: int, dataset: str | None = None) -> list[int]:
        """The places where something was run."""
        there = {place for each, place, _ in self.groups if each == switch}
        return [k for k in sorted(there) if dataset in (None, self.places[k].dataset)]

    def variants_of(self, switch: int) -> list[int]:
        """The variants that were run, without those set aside, unless there are no others."""
        there = sorted({variant for each, _, variant in self.groups if each == switch})
        return [k for k in there if k not in self.aside] or there

    def statistics(self, switch: int, place: int, measure: Measure) -> dict[int, Statistic]:
        """The metric of every variant in a place, without those set aside; those that have no value are left out."""
        found = {}
        for variant in self.variants_of(switch):
            value = self.values.get((switch, place, variant), {}).get(measure.name)
            if value is not None and isfinite(value.mean):
                found[variant] = value
        return found

    def side_by_side(self, switch: int, place: int, measure: Measure, variants: Iterable[int]) -> dict[int, Statistic]:
        """The metric of these variants over the seeds that they share; over all of their seeds if they share none."""
        return side_by_side({each: self.by_seed[switch, place, each][measure.name] for each in variants})

    def missing(self, switch: int) -> list[tuple[int, int]]:
        """The pairs of a place and a variant that were not run, though either was."""
        pairs = [(place, variant) for place in self.places_of(switch) for variant in self.variants_of(switch)]
        return [(place, variant) for place, variant in pairs if (switch, place, variant) not in self.groups]


def board_of(study: Study, chosen: bool = False, condition: bool = False, aside: Callable[[str], bool] | None = None
             ) -> Board:  # fmt: skip
    """Lay out a study; `chosen`: the option to compare was named by the user; `condition`: presets are not compared."""
    if study.lines in PLACES and not chosen:
        study = replace(study, lines="method")
    if condition:
        study = replace(study, own=[name for name in study.own if name != SWITCH])
    switched = SWITCH in study.places or (condition and len(values_of(study, SWITCH)) > 1)
    facts = [group.facts for group in study.groups]
    axes = [axis for axis in study.places if axis not in (SWITCH, "dataset")]
    if switched:
        axes = [axis for axis in axes if not follows(facts, axis, SWITCH)]
    switch = sorted((str(value) for value in values_of(study, SWITCH)), key=_presets_first) if switched else [""]
    datasets = [str(value) for value in values_of(study, "dataset")]
    sized = sorted(datasets, key=lambda name: (name not in _built_in(), _built_in().get(name, 0), name))
    found: dict[tuple[str, str], tuple[tuple[object, ...], Place]] = {}
    rows: list[tuple[int, Place, str, Group]] = []
    for group in study.groups:
        place = _place(group, axes)
        order = (sized.index(place.dataset), *(rank(axis, group.value(axis)) for axis in axes))
        _, place = found.setdefault((place.dataset, place.label), (order, place))
        rows.append((switch.index(str(group.value(SWITCH))) if switched else 0, place, study.variant(group), group))
    places = [place for _, place in sorted(found.values(), key=lambda each: each[0])]
    variants = study.variants()
    groups = {(k, places.index(place), variants.index(variant)): group for k, place, variant, group in rows}
    by_seed = {key: _by_seed(group) for key, group in groups.items()}
    values = {
        key: {name: statistic(list(each.values())) for name, each in found.items()} for key, found in by_seed.items()
    }
    measures = measures_of(_recorded(list(values.values()), study.metric), study.groups[0].results[0].main)
    return Board(
        study, switch, places, variants,
        frozenset(k for k, name in enumerate(variants) if aside is not None and aside(name)),
        sorted(measures, key=lambda each: each.name != study.metric), groups,
        values, by_seed,
    )  # fmt: skip


def _recorded(values: Sequence[Mapping[str, Statistic]], metric: str) -> list[str]:
    """The metrics that at least half of the groups have: what few of them recorded cannot be compared."""
    counts = Counter(name for each in values for name in each)
    return [name for name in dict.fromkeys([metric, *counts]) if 2 * counts[name] >= len(values) or name == metric]


def _by_seed(group: Group) -> dict[str, Series]:
    """Every metric that all runs of a group have, with each seed."""
    known = {result.seed: result.metrics for result in group.results}
    return {
        name: {seed: float(value) for seed, each in known.items() if (value := each[name]) is not None}
        for name in group.results[0].metrics
        if all(each.get(name) is not None for each in known.values())
    }


def marks(board: Board, switch: int, place: int, measure: Measure) -> dict[int, Mark]:
    """Who is best in a place over the seeds that all share, and who is too close to call; nobody is best alone.

    A difference to the best is paired by seed; where the two share none, it is too close to call.
    """
    there = board.statistics(switch, place, measure)
    if len(there) < 2:
        return {}
    found = board.side_by_side(switch, place, measure, there)
    sign = -1 if measure.lower else 1
    first = max(found, key=lambda variant: sign * found[variant].mean)
    best, series = found[first].mean, {each: board.by_seed[switch, place, each][measure.name] for each in found}

    def mark(variant: int) -> Mark:
        if found[variant].mean == best:
            return "best"
        behind = paired_sum([series[first], series[variant]], [sign, -sign])
        return "" if behind is not None and behind.mean > 0 and measure.clear(behind, best) else "close"

    return {variant: mark(variant) for variant in found}


def marks_in_words(measure: Measure) -> str:
    """What the marks mean."""
    return (
        "★ best of its row, over the seeds that all of it share; ≈ too close to the best to call: the 95 % interval of "
        f"the difference, paired by seed, holds zero, or it is within {measure.convention} with one or two seeds"
    )


def bounds(board: Board, switch: int, measure: Measure) -> tuple[float, ...]:
    """The steps of distance to the best that have a colour each, for one preset and metric."""
    distances = []
    for place in board.places_of(switch):
        values = [each.mean * measure.scale for each in board.statistics(switch, place, measure).values()]
        if values:
            distances.append(max(values) - min(values))
    return steps(measure, distances)


def _place(group: Group, axes: Sequence[str]) -> Place:
    values = {axis: str(group.value(axis)) for axis in axes}
    label = ", ".join(named(axis, group.value(axis)) for axis in axes) or str(group.value("scenario"))
    return Place(str(group.value("dataset")), label, {"dataset": str(group.value("dataset")), **values})


def _presets_first(name: str) -> tuple[int, str]:
    return _SWITCH_ORDER.index(name) if name in _SWITCH_ORDER else len(_SWITCH_ORDER), name


def _built_in() -> Mapping[str, int]:
    """The built-in data sets and their places in the catalogue."""
    from firma.data.catalogue import SIZES

    return {name: place for place, name in enumerate(SIZES)}
