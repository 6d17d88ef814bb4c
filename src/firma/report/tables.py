"""The tables of a sweep: every metric by method and scenario, comparisons, traffic, and how to repeat each cell.

What was not run is a dash. Where there is a reference, such as the results that a paper printed, it stands in brackets.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot

from firma.data.catalogue import SIZES
from firma.method_lookup import lookup
from firma.methods import METHODS, PAPER_METHODS
from firma.report.table import MISSING, NOTHING, Entry, Table, mark_best, number, words
from firma.run_facts import recorded_split
from firma.schedule import passes
from firma.settings import Hyper, Split
from firma.statistics import Statistic
from firma.sweep.cells import NEUTRAL, label
from firma.sweep.result_table import Case, ResultTable, result_tables
from firma.sweep.runner import parameter_counts
from firma.sweep.store import StoredCell, SweepResults

PERCENT, _THREE, _FOUR = "{:.1f}", "{:.3f}", "{:.4f}"
_ORDERED = "Rings are ordered before training: savings are known where no method was run, too."


@dataclass(frozen=True)
class Scope:
    """The data sets and scenarios that a report shows, run or not, and the reference beside the results."""

    datasets: Sequence[str]
    scenarios: Sequence[str]
    reference: ResultTable | None = None


def metric_tables(table: ResultTable, reference: ResultTable | None) -> Iterator[Table]:
    """Six tables per data set; accuracy and Gini have the reference beside them."""
    for dataset in table.datasets():
        yield by_scenario(table, reference, dataset, "mean_accuracy", "accuracy in %", PERCENT, 100)
        yield by_scenario(table, reference, dataset, "gini", "Gini coefficient", _THREE, 1, highest=False)
        yield by_scenario(table, None, dataset, "worst_client", "accuracy of the worst client in %", PERCENT, 100)
        fifth = "mean accuracy of the worst fifth of the clients in %"
        yield by_scenario(table, None, dataset, "worst_fifth", fifth, PERCENT, 100)
        half = "rounds to half of the final accuracy"
        yield by_scenario(table, None, dataset, "rounds_to_half_of_final", half, PERCENT, 1, highest=False)
        yield by_scenario(table, None, dataset, "plateau_std", "plateau σ", _FOUR, 1, highest=False)


def by_scenario(
    table: ResultTable, reference: ResultTable | None, dataset: str, metric: str, title: str, form: str, scale: float,
    highest: bool = True,
) -> Table:  # fmt: skip
    """Methods down, scenarios across: mean ± deviation over seeds, and in brackets the reference."""
    scenarios, methods = table.scenarios(dataset), _methods(table)
    columns = []
    for scenario in scenarios:
        case = (dataset, scenario)
        entries = [entry(table, case, method, metric, form, scale, reference) for method in methods]
        columns.append(mark_best(entries, highest))
    rows = tuple((Entry(method), *(column[row] for column in columns)) for row, method in enumerate(methods))
    name, runs = slug(metric, dataset, table.name), f"{table.name}{_seeds(table, dataset, metric)}"
    return Table(name, f"{dataset}, {title} ({runs})", ("method", *scenarios), rows, *_beside(reference))


def _methods(table: ResultTable) -> list[str]:
    """The methods of the paper's study, run or not, and all other rows of the design table that were run."""
    there = {method for _, _, method, _ in table.statistics}
    return [name for name in METHODS if name in there or name in PAPER_METHODS]


def savings(table: ResultTable, scope: Scope) -> Table:
    """What 2-opt saves of the ring's cost."""
    rows, reference = [], scope.reference
    for dataset in scope.datasets:
        entries = []
        for scenario in scope.scenarios:
            ours = table.savings.get((dataset, scenario))
            printed = reference.savings.get((dataset, scenario)) if reference is not None else None
            beside = _brackets(printed, PERCENT) if reference is not None else ""
            entries.append(NOTHING if ours is None else Entry(PERCENT.format(ours) + beside, ours, printed=printed))
        rows.append((Entry(dataset), *entries))
    note, source = _beside(reference)
    title = f"Ring cost saved by 2-opt, in % ({table.name})"
    columns = ("data set", *scope.scenarios)
    return Table(slug("savings", table.name), title, columns, tuple(rows), f"{_ORDERED} {note}".strip(), source)


def duels(table: ResultTable, scope: Scope, method: str, rivals: Sequence[str]) -> Table:
    """One method against others on every data set that was run: points won and lost."""
    rows = []
    metrics = ("mean_accuracy", "worst_client")
    wins = {(other, metric): [0, 0] for metric in metrics for other in rivals}
    for case in ((dataset, scenario) for dataset in table.datasets() for scenario in scope.scenarios):
        gains = []
        for metric in metrics:
            for other in rivals:
                points = gain(table, None, case, method, other, metric)
                gains.append(points)
                wins[other, metric][0] += points.value is not None and points.value > 0
                wins[other, metric][1] += points.value is not None
        best = max((found.mean for found in table.methods(case).values()), default=None)
        own = entry(table, case, method, metrics[0], PERCENT, 100, None)
        rows.append((*words(*case), own, *gains, number(None if best is None else 100 * best, PERCENT)))
    note = f"Points by which {method} is above the other, in mean accuracy and for the worst client. Won: " + ", ".join(
        f"{won} of {run} against {other} ({'mean' if metric == metrics[0] else 'worst client'})"
        for (other, metric), (won, run) in wins.items()
    )
    columns = ("data set", "scenario", f"{method} %", *(f"mean, {o}" for o in rivals), *(f"worst, {o}" for o in rivals))
    return Table(slug("duels", table.name), f"{method} against the others ({table.name})", (*columns, "best method %"),
                 tuple(rows), note + ".")  # fmt: skip


def communication(table: ResultTable) -> Table:
    """Bytes per round, all clients together: counted, beside the formula 2·N·K·p of four-byte weights."""
    rows = []
    for dataset in table.datasets():
        cases = [(dataset, each) for each in table.scenarios(dataset)]
        for name in _methods(table):
            found = (table.get(case, name, "bytes_per_round") for case in cases)
            # Less is sent in scenarios that leave clients out; the formula is that of the complete federation.
            counted = max((value.mean for value in found if value is not None), default=None)
            formula = formula_bytes(name, dataset, SIZES[dataset].clients) if dataset in SIZES else None
            ratio = None if counted is None or not formula else counted / formula
            rows.append(
                (Entry(dataset), Entry(name), number(_mega(counted), "{:.2f}"), number(_mega(formula), "{:.2f}"),
                 number(ratio, "{:.3f}"))
            )  # fmt: skip
    columns = ("data set", "method", "MB counted", "MB by formula", "ratio")
    note = (
        "Counted over all rounds: a warm-up round is one average, not K passes; the gate adds eight bytes per message."
    )
    name = slug("communication", table.name)
    return Table(name, f"Traffic per round, all clients together ({table.name})", columns, tuple(rows), note)


def formula_bytes(method: str, dataset: str, clients: int) -> float:
    """2·N·K·p, with p the extractor or the whole model; 0 for a method that shares nothing."""
    row = lookup(method)
    extractor, head = parameter_counts(dataset)
    shared = {"nothing": 0, "extractor": extractor, "model": extractor + head, "head": head}[row.shares]
    return 2.0 * clients * passes(row, clients) * shared * 4


def coverage(tables: Mapping[str, ResultTable], scope: Scope) -> Table:
    """How many scenarios and methods of the grid were run, and with how many seeds."""
    rows = []
    for name, table in tables.items():
        for dataset in scope.datasets:
            found = [table.get((dataset, scenario), method) for scenario in scope.scenarios for method in PAPER_METHODS]
            seeds = [each.seeds for each in found if each is not None]
            spread = MISSING if not seeds else _from_to(seeds)
            rows.append(
                (Entry(name), Entry(dataset), number(len(seeds), "{:.0f}"), Entry(str(len(found))), Entry(spread))
            )
    columns = ("runs", "data set", "run", "of", "seeds")
    return Table("coverage", "What was run", columns, tuple(rows), "Counted: pairs of a scenario and a method.")


def about_the_runs(results: SweepResults, scope: Scope) -> list[Table]:
    """What was run, and with which versions and settings."""
    runs = [coverage(result_tables(results), scope), versions(results.cells)]
    return [*runs, configuration(results.cells)] if results.cells else runs


def versions(cells: Sequence[StoredCell]) -> Table:
    """Versions and training backends that the cells were run with."""
    kinds: dict[tuple[str, ...], int] = {}
    for cell in cells:
        stated = cell.result.config["versions"]
        kind = (stated["firma"], stated["torch"], stated["python"], cell.result.backend)
        kinds[kind] = kinds.get(kind, 0) + 1
    rows = [(*words(*kind), number(count, "{:.0f}")) for kind, count in sorted(kinds.items())]
    return Table("versions", "Versions", ("firma", "torch", "python", "backend", "cells"), tuple(rows))


def configuration(cells: Sequence[StoredCell]) -> Table:
    """The numbers and switches of every method, under every label that was run."""
    seen: dict[tuple[str, str], Mapping[str, object]] = {}
    for cell in cells:
        config, method = cell.result.config, cell.result.method
        if method in METHODS:
            recorded = {**NEUTRAL, **config["hyper"], **recorded_split(config)}
            seen.setdefault((str(label(config, method)), method), recorded)
    names = [*Hyper.model_fields, *Split.model_fields]
    shown = sorted(seen, key=lambda each: (each[0], list(METHODS).index(each[1])))
    rows = [words(name, *(str(seen[each][name]) for each in shown)) for name in names]
    columns = ("setting", *(f"{method} ({name})" for name, method in shown))
    return Table("configuration", "Configuration", columns, tuple(rows))


def command(cell: StoredCell) -> str:
    """The `firma run` command that repeats this cell."""
    result = cell.result
    called = label(result.config, result.method)
    text = ["firma", "run", "--dataset", cell.dataset, "--scenario", cell.scenario, "--method", result.method]
    text += ["--preset", called.preset, "--seed", str(result.seed)]
    for name, value in called.settings.items():
        text += ["--set", f"{name}={value}"]
    for name, value in called.sizes.items():
        text += [f"--{name}", str(value)]
    return shlex.join(text)


def cell_table(cells: Sequence[StoredCell]) -> Table:
    """Every cell that was run: its results, how long it took, and how to run it again."""
    rows = []
    for cell in sorted(cells, key=lambda each: (each.dataset, each.scenario, each.result.method, each.result.seed)):
        result = cell.result
        accuracy, gini = result.metrics["mean_accuracy"], result.metrics["gini"]
        rows.append(
            (
                Entry(cell.dataset), Entry(cell.scenario), Entry(result.method),
                Entry(str(label(result.config, result.method))), number(result.seed, "{:.0f}"),
                number(accuracy, "{:.4f}"), number(gini, "{:.4f}"), number(result.seconds, "{:.1f}"),
                Entry(command(cell)),
            )
        )  # fmt: skip
    columns = ("data set", "scenario", "method", "runs", "seed", "accuracy", "Gini", "seconds", "command")
    return Table("cells", f"All {len(rows)} cells, and how to repeat each", columns, tuple(rows))


def entry(
    table: ResultTable, case: Case, method: str, metric: str, form: str, scale: float, reference: ResultTable | None
) -> Entry:
    """Mean ± deviation of a metric and, in brackets, the reference's value."""
    ours = table.get(case, method, metric)
    printed = reference.get(case, method, metric) if reference is not None else None
    known = printed.mean if printed is not None else None
    beside = _brackets(None if known is None else known * scale, form) if reference is not None else ""
    if ours is None:
        return NOTHING if printed is None else Entry(MISSING + beside, printed=known)
    spread = "" if ours.deviation is None else f" ± {form.format(ours.deviation * scale)}"
    return Entry(form.format(ours.mean * scale) + spread + beside, ours.mean, False, ours.deviation, known)


def gain(
    table: ResultTable, reference: ResultTable | None, case: Case, one: str, other: str,
    metric: str = "mean_accuracy", error: bool = False,
) -> Entry:  # fmt: skip
    """By how many points one method is above another, with its standard error if wanted, beside the reference."""

    def points(results: ResultTable) -> float | None:
        first, second = results.get(case, one, metric), results.get(case, other, metric)
        return None if first is None or second is None else 100 * (first.mean - second.mean)

    ours, printed = points(table), points(reference) if reference is not None else None
    beside = "" if printed is None else f" ({printed:+.1f})"
    if ours is None:
        return Entry(MISSING + beside, printed=printed)
    spread = _standard_error(table.get(case, one, metric), table.get(case, other, metric)) if error else ""
    return Entry(f"{ours:+.1f}{spread}{beside}", ours, printed=printed)


def slug(*texts: str) -> str:
    """A name that can be a file's: without blanks and slashes."""
    return re.sub(r"[^\w.=+-]+", "-", "-".join(texts))


def _standard_error(*found: Statistic | None) -> str:
    """Of a difference of means over seeds, in points; empty where one of them has a single seed."""
    errors = [each.standard_error for each in found if each is not None and each.standard_error is not None]
    return f" ± {100 * hypot(*errors):.1f}" if len(errors) == len(found) else ""


def _beside(reference: ResultTable | None) -> tuple[str, str]:
    """The note on what stands in brackets, and the name of its columns in a CSV file."""
    return ("", "") if reference is None else (f"In brackets: {reference.source}.", reference.name)


def _brackets(value: float | None, form: str) -> str:
    return f" ({MISSING if value is None else form.format(value)})"


def _seeds(table: ResultTable, dataset: str, metric: str) -> str:
    found = table.statistics.items()
    counts = [
        each.seeds
        for (where, _, method, what), each in found
        if (where, what) == (dataset, metric) and method in METHODS
    ]
    return f", {_from_to(counts)} seed{'s' if max(counts) > 1 else ''}" if counts else ""


def _from_to(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(high) if low == high else f"{low} to {high}"


def _mega(value: float | None) -> float | None:
    return None if value is None else value / 1e6
