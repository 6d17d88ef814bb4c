"""Tables of any study: what was run, every metric by the options that vary, comparisons, worst clients, traffic."""

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np

from firma.comparison import Comparison, ComparisonTable, lower_is_better
from firma.report.groups import Group, Study, named, one_split, values_of
from firma.report.table import NOTHING, Entry, Table, mark_best, number, words
from firma.report.tables import command as command_of_cell
from firma.report.tables import slug, versions
from firma.run_config import command_line
from firma.run_facts import recorded_split
from firma.settings import Hyper, Split
from firma.statistics import LEVEL, MOST_FLIPS, Statistic, seeds_for_flips, side_by_side
from firma.sweep.store import Failure, StoredCell

# Metrics that other tables show, or that say the same as another one.
_ELSEWHERE = ("jain", "rounds_to_50", "worst_round", "largest_drop", "bytes_per_round", "messages_per_round")
_MOST_COLUMNS, _MOST_ROWS, _MOST_CASES = 12, 2000, 300
_ONE_SPLIT = (
    " All seeds have the same split of the data: the tests judge the noise of training, not of other splits "
    '(split_seed = "none" in [set] draws a split per seed).'
)
_SPREAD = "Mean ± standard deviation over seeds."
_BEST = (
    "Marked is the best over the seeds that all of a column share, or over all seeds if they share none; clear or not."
)


def study_tables(study: Study, found: ComparisonTable, failures: Sequence[Failure]) -> Iterator[Table]:
    """All tables, in the order in which a reader wants them."""
    yield overview(study, failures)
    if failures:
        yield failed(failures)
    yield results(study)
    yield from by_option(study)
    if found.overall:
        yield comparisons(study, found)
    if len(found.by_case) > len(found.overall):
        yield comparisons_by_case(study, found)
    yield worst_clients(study)
    yield traffic(study)


def last_tables(study: Study) -> Iterator[Table]:
    """What is needed to repeat the study: settings, versions, and the command of every run."""
    cells = [cell for group in study.groups for cell in group.cells]
    yield settings(study)
    yield versions(cells)
    yield runs(study)


def overview(study: Study, failures: Sequence[Failure] = ()) -> Table:
    """What the runs share, and what varies between them."""
    count = sum(len(group.cells) for group in study.groups)
    seeds = sorted({result.seed for group in study.groups for result in group.results})
    rows = [
        words("runs", str(count) + (f", and {len(failures)} that failed" if failures else "")),
        words("seeds", ", ".join(map(str, seeds))),
    ]
    rows += [words(f"{axis} (varies)", _listed(values_of(study, axis))) for axis in study.axes]
    names = dict.fromkeys(name for group in study.groups for name in group.facts if name not in study.axes)
    rows += [words(name, _listed(values_of(study, name))) for name in names]
    note = f"{study.repeats} repeated runs with the same configuration and seed are left out." if study.repeats else ""
    return Table("overview", "What was run", ("option", "values"), tuple(rows), note)


def failed(failures: Sequence[Failure]) -> Table:
    """The runs that failed, and why."""
    rows = [words(each.name, each.error) for each in failures]
    note = "They are part of no mean and no comparison. The same firma sweep command runs them again."
    return Table("failed", f"{len(rows)} failed runs", ("run", "why"), tuple(rows), note)


def results(study: Study) -> Table:
    """One row per group: the main metric with its confidence interval, then the others."""
    known = dict.fromkeys(name for group in study.groups for name in group.results[0].metrics)
    others = [name for name in known if name != study.metric and name not in _ELSEWHERE]
    rows = []
    for group in study.groups:
        main = group.statistic(study.metric)
        rows.append(
            (*_lead(study, group), number(len(group.cells), "{:.0f}"), _entry(main), _interval(main),
             *(_entry(group.statistic(name)) for name in others))
        )  # fmt: skip
    columns = (*(study.axes or ["method"]), "seeds", study.metric, f"{100 * LEVEL:.0f} % interval", *others)
    note = f"{_SPREAD} The interval is that of the mean, by Student's t; there is none of one or two seeds."
    return Table("results", "Results", columns, tuple(rows), note)


def by_option(study: Study) -> Iterator[Table]:
    """The values of every other option that varies side by side; a table that would be too wide is left out."""
    for axis in study.places:
        values = values_of(study, axis)
        if len(values) > _MOST_COLUMNS:
            continue
        rows: dict[tuple[str, ...], dict[Any, Group]] = {}
        others = [each for each in study.axes if each != axis]
        for group in study.groups:
            lead = tuple(str(group.value(each)) for each in others)
            rows.setdefault(lead, {})[group.value(axis)] = group
        # With one other option, each column is a case, in which values can be compared.
        columns = [
            _column([row.get(value) for row in rows.values()], study.metric, len(others) == 1) for value in values
        ]
        body = tuple((*words(*lead), *(column[place] for column in columns)) for place, lead in enumerate(rows))
        title = f"{study.metric} by {axis}"
        note = f"{_SPREAD} {_BEST}" if len(others) == 1 else _SPREAD
        yield Table(slug("by", axis), title, (*others, *(named(axis, value) for value in values)), body, note)


def _column(groups: Sequence[Group | None], metric: str, marked: bool) -> list[Entry]:
    """The metric of some groups; the best is that over the seeds that all share."""
    entries = [NOTHING if group is None else _entry(group.statistic(metric)) for group in groups]
    if not marked:
        return entries
    known = {place: each for place, group in enumerate(groups) if group is not None and (each := group.series(metric))}
    alike = side_by_side(known)
    means = [alike[place].mean if place in alike else None for place, _ in enumerate(groups)]
    return mark_best(entries, not lower_is_better(metric), means)


def comparisons(study: Study, found: ComparisonTable) -> Table:
    """A against B over all cases."""
    rows = [(*words(each.a, each.b), number(each.cases, "{:.0f}"), *_compared(each)) for each in found.overall]
    columns = ("A", "B", "cases", *_COMPARED)
    return Table("comparisons", f"A against B: {found.metric}", columns, tuple(rows), _how(study, found.overall))


def comparisons_by_case(study: Study, found: ComparisonTable) -> Table:
    """A against B, case by case."""
    axes = study.places
    shown = found.by_case[:_MOST_CASES]
    rows = [
        (*words(*(str(case.get(axis, "—")) for axis in axes), each.a, each.b), *_compared(each)) for case, each in shown
    ]
    left = len(found.by_case) - len(shown)
    more = f" {left} more are left out; firma report --against names what to compare with." if left else ""
    columns = (*axes, "A", "B", *_COMPARED)
    title = f"A against B, case by case: {found.metric}"
    return Table(
        "comparisons-by-case", title, columns, tuple(rows), _how(study, [each for _, each in found.by_case]) + more
    )


_COMPARED = (
    "seeds",
    "difference",
    f"{100 * LEVEL:.0f} % interval",
    "p",
    "p (Holm)",
    "test",
    "wins/losses/ties",
    "A is",
    "why",
)


def _compared(each: Comparison) -> tuple[Entry, ...]:
    interval = NOTHING if each.interval is None else Entry(f"[{each.interval[0]:+.4f}, {each.interval[1]:+.4f}]")
    return (
        number(each.seeds, "{:.0f}"), number(None if isnan(each.difference) else each.difference, "{:+.4f}"), interval,
        number(each.p_value, "{:.3g}"), number(each.adjusted_p, "{:.3g}"),
        *words(each.test, f"{each.wins}/{each.losses}/{each.ties}", each.verdict, each.reason),
    )  # fmt: skip


def _how(study: Study, found: Sequence[Comparison]) -> str:
    """How to read a table of comparisons."""
    options, enough = " and ".join([study.lines, *study.own]), f"{seeds_for_flips(len(found))} to {MOST_FLIPS}"
    return (
        f"Pairs of runs share everything but the {options}, seed included. Difference: mean of A - B, averaged over "
        "cases within each seed; cases that lack some of the seeds are left out of it. The test is over seeds: "
        f"sign-flip, an exact permutation test, where there are enough of them (here {enough}), else paired t; one "
        "seed cannot be judged, and two hardly: there is no interval of fewer than three. The verdict is at "
        f"{1 - LEVEL:.2f}, with p adjusted by Holm's method for the number of comparisons in this table."
    ) + (_ONE_SPLIT if one_split(study) else "")


def worst_clients(study: Study) -> Table:
    """How well the clients do that do worst, in the last round, averaged over seeds."""
    rows = []
    for group in study.groups:
        final = [result.history[-1] for result in group.results]
        worst = [int(values.argmin()) for values in final]
        spread = float(np.mean([values.max() - values.min() for values in final]))
        rows.append(
            (*_lead(study, group), _entry(group.statistic("worst_client")), Entry(", ".join(map(str, worst))),
             _entry(group.statistic("worst_fifth")), number(spread, "{:.3f}"), _entry(group.statistic("gini")))
        )  # fmt: skip
    columns = (*(study.axes or ["method"]), "worst client", "which, by seed", "worst fifth", "best - worst", "gini")
    return Table("worst-clients", "Worst clients in the last round", columns, tuple(rows), _SPREAD)


def traffic(study: Study) -> Table:
    """What was sent, all clients together."""
    rows = []
    for group in study.groups:
        sent = group.statistic("bytes_per_round")
        total = float(np.mean([sum(result.sent_bytes) for result in group.results])) / 1e6
        rows.append(
            (*_lead(study, group), number(None if sent is None else sent.mean / 1e6, "{:.3f}"),
             _entry(group.statistic("messages_per_round"), "{:.1f}"), number(total, "{:.2f}"),
             _entry(group.statistic(study.metric)))
        )  # fmt: skip
    columns = (*(study.axes or ["method"]), "MB per round", "messages per round", "MB in total", study.metric)
    return Table("traffic", "Traffic of all clients together", columns, tuple(rows))


def settings(study: Study) -> Table:
    """The hyperparameters of every kind of run; only those that differ, if there are many kinds."""
    kinds: dict[str, Mapping[str, Any]] = {}
    for group in study.groups:
        config = group.results[0].config
        stated = {name: value for name, value in config.get("set", {}).items() if name in study.axes}
        label = " ".join([group.results[0].method, *(f"{name}={value}" for name, value in stated.items())])
        kinds.setdefault(label, {**config.get("hyper", {}), **recorded_split(config)})
    names = [*Hyper.model_fields, *Split.model_fields]
    if len(kinds) > _MOST_COLUMNS:
        names = [name for name in names if len({str(each.get(name)) for each in kinds.values()}) > 1]
    rows = [words(name, *(str(each.get(name, "—")) for each in kinds.values())) for name in names]
    return Table("settings", "Settings", ("setting", *kinds), tuple(rows))


def runs(study: Study) -> Table:
    """Every run, and the command that repeats it."""
    rows = []
    for group in study.groups:
        for cell in group.cells:
            result = cell.result
            rows.append(
                (*_lead(study, group), number(result.seed, "{:.0f}"), number(result.metrics[study.metric], "{:.4f}"),
                 number(result.seconds, "{:.1f}"), Entry(command(cell)))
            )  # fmt: skip
    columns = (*(study.axes or ["method"]), "seed", study.metric, "seconds", "command")
    left = len(rows) - _MOST_ROWS
    note = f"{left} more are left out." if left > 0 else ""
    return Table("cells", f"All {len(rows)} runs, and how to repeat each", columns, tuple(rows[:_MOST_ROWS]), note)


def command(cell: StoredCell) -> str:
    """The `firma run` command that repeats a run."""
    if not cell.asked:
        return command_of_cell(cell)
    return command_line(cell.asked)


def as_document(study: Study, found: ComparisonTable, failures: Sequence[Failure]) -> dict[str, Any]:
    """The study as plain data, ready for JSON."""
    return {
        "metric": study.metric,
        "varies": list(study.axes),
        "groups": [
            {
                "options": dict(group.facts),
                "seeds": [result.seed for result in group.results],
                "metrics": {
                    name: _numbers(each)
                    for name in group.results[0].metrics
                    if (each := group.statistic(name)) is not None
                },
            }
            for group in study.groups
        ],
        "comparisons": [each.as_dict() for each in found.overall],
        "comparisons_by_case": [
            {"case": {axis: case[axis] for axis in study.axes if axis in case}} | each.as_dict()
            for case, each in found.by_case
        ],
        "failed": [{"run": each.name, "error": each.error} for each in failures],
    }


def _numbers(found: Statistic) -> dict[str, Any]:
    between = found.interval()
    return {
        "mean": found.mean, "deviation": found.deviation, "seeds": found.seeds,
        "interval": None if between is None else list(between),
    }  # fmt: skip


def _lead(study: Study, group: Group) -> tuple[Entry, ...]:
    return words(*(str(group.value(axis)) for axis in (study.axes or ["method"])))


def _entry(found: Statistic | None, form: str = "") -> Entry:
    """Mean ± deviation, with as many digits as its size needs."""
    if found is None or isnan(found.mean):
        return NOTHING
    shape = form or ("{:.4f}" if abs(found.mean) < 10 else "{:.1f}")
    spread = "" if found.deviation is None else f" ± {shape.format(found.deviation)}"
    return Entry(shape.format(found.mean) + spread, found.mean, False, found.deviation)


def _interval(found: Statistic | None) -> Entry:
    between = None if found is None else found.interval()
    return NOTHING if between is None else Entry(f"[{between[0]:.4f}, {between[1]:.4f}]")


def _listed(values: Sequence[Any], most: int = 20) -> str:
    return ", ".join(map(str, values[:most])) + (f", … ({len(values)} in all)" if len(values) > most else "")
