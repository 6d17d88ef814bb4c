"""The tables of a sweep: every metric by method and scenario, comparisons, traffic, and how to repeat each cell.

What was not run is a dash. Where there is a reference, such as the results that a paper printed, it stands in brackets.
"""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from firma.data.catalogue import SIZES
from firma.method_lookup import lookup
from firma.methods import METHODS, PAPER_METHODS
from firma.report.measures import measure_of
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
SPREAD = "Mean ± standard deviation over the seeds of a method."
PAIRED = (
    "Differences are paired by seed; ± is half of their 95 % interval, where there are three seeds or more. Bold is "
    "clear: the interval is on one side of zero or, with one or two seeds, the difference is more than one point, "
    "which is a convention."
)
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
    """Methods down, scenarios across: mean ± deviation over seeds, and in brackets the reference.

    The best of a column is that over the seeds that all of its methods share.
    """
    scenarios, methods = table.scenarios(dataset), _methods(table)
    columns, apart = [], []
    for scenario in scenarios:
        case = (dataset, scenario)
        entries = [entry(table, case, method, metric, form, scale, reference) for method in methods]
        alike = table.side_by_side(case, methods, metric)
        if len(alike) > 1 and not table.shared_seeds(case, alike, metric):
            apart.append(scenario)
        means = [alike[method].mean if method in alike else None for method in methods]
        columns.append(mark_best(entries, highest, means))
    rows = tuple((Entry(method), *(column[row] for column in columns)) for row, method in enumerate(methods))
    name, runs = slug(metric, dataset, table.name), f"{table.name}{_seeds(table, dataset, metric)}"
    note, source = _beside(reference)
    shared = f"; over all seeds in {', '.join(apart)}, where no seed is known to be shared" if apart else ""
    note = f"{SPREAD} Bold: the best over the seeds that all methods of the column share, clear or not{shared}. {note}"
    return Table(name, f"{dataset}, {title} ({runs})", ("method", *scenarios), rows, note.strip(), source)


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
    """One method against others on every data set that was run: points won and lost, paired by seed."""
    rows = []
    metrics = ("mean_accuracy", "worst_client")
    judged = {(other, metric): Counter[str]() for metric in metrics for other in rivals}
    for case in ((dataset, scenario) for dataset in table.datasets() for scenario in scope.scenarios):
        gains = []
        for metric in metrics:
            for other in rivals:
                points = gain(table, None, case, method, other, metric)
                gains.append(points)
                if points.value is not None:
                    judged[other, metric][
                        "too close" if not points.best else "above" if points.value > 0 else "below"
                    ] += 1
        own = entry(table, case, method, metrics[0], PERCENT, 100, None)
        rows.append((*words(*case), own, *gains, *_behind_best(table, case, method)))
    counts = "; ".join(
        f"{found['above']}, {found['below']} and {found['too close']} against {other} "
        f"({'mean' if metric == metrics[0] else 'worst client'})"
        for (other, metric), found in judged.items()
    )
    note = (
        f"Points by which {method} is above the other, in mean accuracy and for the worst client, and by which the "
        f"most accurate method is above {method}. {PAIRED} Cases in which it is clearly above, clearly below and too "
        f"close to call: {counts}."
    )
    rivalry = (*(f"mean, {other}" for other in rivals), *(f"worst, {other}" for other in rivals))
    columns = ("data set", "scenario", f"{method} %", *rivalry, "best method", f"over {method}")
    return Table(slug("duels", table.name), f"{method} against the others ({table.name})", columns, tuple(rows), note)


def _behind_best(table: ResultTable, case: Case, method: str) -> tuple[Entry, Entry]:
    """The most accurate method over the seeds that all share, and by how much it is above this one."""
    found = table.side_by_side(case, _methods(table))
    if method not in found or len(found) < 2:
        return NOTHING, NOTHING
    best = max(found, key=lambda name: found[name].mean)
    return Entry(best), NOTHING if best == method else gain(table, None, case, best, method)


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
    """How many scenarios of the grid were run with which methods, and with how many seeds."""
    rows = []
    for name, table in tables.items():
        for dataset in scope.datasets:
            there = dict.fromkeys(method for where, _, method, _ in table.statistics if where == dataset)
            others = [method for method in there if method not in PAPER_METHODS]
            rows.append(_covered(table, name, dataset, scope, "the paper's", PAPER_METHODS))
            rows += [_covered(table, name, dataset, scope, method, [method]) for method in others if ":" not in method]
            if parts := [method for method in others if ":" in method]:
                rows.append(_covered(table, name, dataset, scope, f"{len(parts)} with columns changed", parts))
    columns = ("runs", "data set", "methods", "run", "of", "seeds", "with other seeds")
    note = (
        "Counted: pairs of a scenario and a method. Seeds: of most of them; the others are listed with their number of "
        "seeds, a method without scenarios for all that it was run in."
    )
    return Table("coverage", "What was run", columns, tuple(rows), note)


def _covered(
    table: ResultTable, name: str, dataset: str, scope: Scope, called: str, methods: Sequence[str]
) -> tuple[Entry, ...]:
    """A row of `coverage`: how many of the pairs were run, the usual number of seeds, and what has another one."""
    seeds = {
        (method, scenario): found.seeds
        for method in methods
        for scenario in scope.scenarios
        if (found := table.get((dataset, scenario), method)) is not None
    }
    usual, unlike = (Counter(seeds.values()).most_common(1)[0][0] if seeds else 0), []
    for count in sorted({*seeds.values()} - {usual}):
        listed = []
        for method in dict.fromkeys(method for method, _ in seeds):
            ran = [scenario for which, scenario in seeds if which == method]
            here = [scenario for scenario in ran if seeds[method, scenario] == count]
            if here:
                listed.append(method if here == ran else f"{method} ({', '.join(here)})")
        unlike.append(f"{count}: {', '.join(listed)}")
    of = str(len(methods) * len(scope.scenarios))
    texts = (of, str(usual) if seeds else MISSING, "; ".join(unlike) or MISSING)
    return *words(name, dataset, called), number(len(seeds), "{:.0f}"), *words(*texts)


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
    table: ResultTable, reference: ResultTable | None, case: Case, one: str, other: str, metric: str = "mean_accuracy"
) -> Entry:
    """By how many points one method is above another, as `PAIRED` says, beside the reference."""
    weights = {one: 1.0, other: -1.0}
    ours = table.combined(case, weights, metric)
    theirs = None if reference is None else reference.combined(case, weights, metric)
    printed = None if theirs is None else 100 * theirs.mean
    beside = "" if printed is None else f" ({printed:+.1f})"
    if ours is None:
        return Entry(MISSING + beside, printed=printed)
    return Entry(points(ours) + beside, 100 * ours.mean, measure_of(metric, "accuracy").clear(ours), printed=printed)


def points(difference: Statistic, form: str = "{:.1f}") -> str:
    """A difference of shares in points, ± half of its interval."""
    half = difference.half()
    return f"{form.replace(':', ':+')}".format(100 * difference.mean) + (
        "" if half is None else f" ± {form.format(100 * half)}"
    )


def slug(*texts: str) -> str:
    """A name that can be a file's: without blanks and slashes."""
    return re.sub(r"[^\w.=+-]+", "-", "-".join(texts))


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
    return f", {from_to(counts)} seed{'s' if max(counts) > 1 else ''}" if counts else ""


def from_to(counts: Iterable[int]) -> str:
    """Numbers as "3", or "1 to 3"."""
    counts = list(counts)
    low, high = min(counts), max(counts)
    return str(high) if low == high else f"{low} to {high}"


def _mega(value: float | None) -> float | None:
    return None if value is None else value / 1e6
