"""Results of many runs in one shape: every metric as mean, deviation and standard error over seeds."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from math import hypot, sqrt
from statistics import mean

from firma.data.catalogue import SIZES
from firma.data.scenarios import order
from firma.settings import PRESETS
from firma.statistics import Statistic, statistic
from firma.sweep.cells import label
from firma.sweep.store import StoredCell, SweepResults

Case = tuple[str, str]  # data set, scenario


@dataclass(frozen=True)
class ResultTable:
    """Statistics by (data set, scenario, method, metric), and what 2-opt saves in percent by (data set, scenario).

    `name` is the label that its runs share, or names another source, which `source` then says in words. An `exact`
    table is taken at its word: nothing is known of its noise. `by_seed` has the values behind the statistics, which a
    table that was read from a file lacks.
    """

    name: str
    statistics: Mapping[tuple[str, str, str, str], Statistic] = field(default_factory=dict)
    savings: Mapping[Case, float] = field(default_factory=dict)
    exact: bool = False
    source: str = ""
    by_seed: Mapping[tuple[str, str, str, str], Mapping[int, float]] = field(default_factory=dict)

    def get(self, case: Case, method: str, metric: str = "mean_accuracy") -> Statistic | None:
        """One statistic, or None if it was not run."""
        return self.statistics.get((*case, method, metric))

    def combined(self, case: Case, weights: Mapping[str, float], metric: str = "mean_accuracy") -> Statistic | None:
        """A weighted sum of methods, seed by seed: 1 and -1 give their difference. None if one of them was not run.

        Where values of single seeds are not known, seeds are taken as independent.
        """
        found = {method: self.get(case, method, metric) for method in weights}
        known = {method: each for method, each in found.items() if each is not None}
        if len(known) < len(weights):
            return None
        series = [self.by_seed.get((*case, method, metric), {}) for method in weights]
        common = sorted(set(series[0]).intersection(*series[1:]))
        if common:
            return statistic(
                [
                    sum(weight * values[seed] for weight, values in zip(weights.values(), series, strict=True))
                    for seed in common
                ]
            )
        mean_of_all = sum(weight * known[method].mean for method, weight in weights.items())
        errors = [known[method].standard_error for method in weights]
        if None in errors:
            return Statistic(mean_of_all)
        seeds = min(each.seeds for each in known.values())
        error = hypot(*(weight * (each or 0.0) for weight, each in zip(weights.values(), errors, strict=True)))
        return Statistic(mean_of_all, error * sqrt(seeds), seeds)

    def datasets(self) -> list[str]:
        """The data sets that were run, built-in ones first."""
        return in_order({name for name, *_ in self.statistics}, list(SIZES))

    def scenarios(self, dataset: str | None = None) -> list[str]:
        """The scenarios that were run, on one data set or on any."""
        return sorted({each[1] for each in self.statistics if dataset in (None, each[0])}, key=order)

    def methods(self, case: Case, metric: str = "mean_accuracy") -> dict[str, Statistic]:
        """All methods that have this metric in a case."""
        keys = [each for each in self.statistics if each[:2] == case and each[3] == metric]
        return {each[2]: self.statistics[each] for each in keys}


def in_order(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Known names in their order, then the others by name."""
    there = set(names)
    return [name for name in known if name in there] + sorted(there - set(known))


def by_label(cells: Iterable[StoredCell]) -> dict[str, list[StoredCell]]:
    """Cells by label, plain presets first; runs with different numbers are never mixed."""
    groups: dict[str, list[StoredCell]] = {}
    for cell in cells:
        groups.setdefault(str(label(cell.result.config, cell.result.method)), []).append(cell)
    return {name: groups[name] for name in sorted(groups, key=_presets_first)}


def result_tables(results: SweepResults) -> dict[str, ResultTable]:
    """One table per label; what 2-opt saves is known wherever the ring was ordered, run or not."""
    groups = by_label(results.cells)
    savings: dict[str, dict[Case, float]] = {}
    for ring in results.ring_orders:
        savings.setdefault(ring.preset, {})[ring.dataset, ring.scenario] = ring.saving_percent
    names = sorted({*groups, *savings}, key=_presets_first)
    return {name: _table(name, groups.get(name, []), savings.get(name, {})) for name in names}


def _presets_first(name: str) -> tuple[int, str]:
    presets = list(reversed(PRESETS))
    return presets.index(name) if name in presets else len(presets), name


def _table(name: str, cells: Iterable[StoredCell], ordered: Mapping[Case, float]) -> ResultTable:
    """Every metric over the seeds of each method, data set and scenario."""
    values: dict[tuple[str, str, str, str], list[float | None]] = {}
    by_seed: dict[tuple[str, str, str, str], dict[int, float]] = {}
    savings: dict[Case, list[float]] = {}
    for cell in cells:
        if "saving_percent" in cell.ring:
            savings.setdefault((cell.dataset, cell.scenario), []).append(float(cell.ring["saving_percent"]))
        for metric, value in cell.result.metrics.items():
            place = (cell.dataset, cell.scenario, cell.result.method, metric)
            values.setdefault(place, []).append(value)
            if value is not None:
                by_seed.setdefault(place, {})[cell.result.seed] = float(value)
    statistics = {
        each: statistic([value for value in found if value is not None])
        for each, found in values.items()
        if None not in found
    }
    saved = {**ordered, **{case: mean(found) for case, found in savings.items()}}
    return ResultTable(name, statistics, saved, by_seed=by_seed)


def to_csv(tables: Mapping[str, ResultTable], metrics: Iterable[str]) -> str:
    """Result tables as one small CSV file."""
    wanted = tuple(metrics)
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["runs", "dataset", "scenario", "method", "metric", "mean", "deviation", "seeds"])
    for name, table in tables.items():
        for (dataset, scenario, method, metric), found in sorted(table.statistics.items()):
            if metric in wanted:
                spread = "" if found.deviation is None else f"{found.deviation:.6g}"
                writer.writerow([name, dataset, scenario, method, metric, f"{found.mean:.6g}", spread, found.seeds])
        for (dataset, scenario), saving in sorted(table.savings.items()):
            writer.writerow([name, dataset, scenario, "", "saving_percent", f"{saving:.6g}", "", 1])
    return buffer.getvalue()


def from_csv(text: str) -> dict[str, ResultTable]:
    """The inverse of `to_csv`."""
    statistics: dict[str, dict[tuple[str, str, str, str], Statistic]] = {}
    savings: dict[str, dict[Case, float]] = {}
    for row in csv.DictReader(StringIO(text)):
        case = (row["dataset"], row["scenario"])
        ours = statistics.setdefault(row["runs"], {})
        if row["metric"] == "saving_percent":
            savings.setdefault(row["runs"], {})[case] = float(row["mean"])
        else:
            spread = float(row["deviation"]) if row["deviation"] else None
            ours[(*case, row["method"], row["metric"])] = Statistic(float(row["mean"]), spread, int(row["seeds"]))
    return {name: ResultTable(name, statistics[name], savings.get(name, {})) for name in statistics}
