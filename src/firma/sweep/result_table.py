"""Results of many runs in one shape: every metric as mean, deviation and standard error over seeds."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from statistics import mean

from firma.data.catalogue import SIZES
from firma.data.scenarios import order
from firma.settings import PRESETS
from firma.statistics import Series, Statistic, independent_sum, paired_sum, shared_seeds, side_by_side, statistic
from firma.sweep.cells import label
from firma.sweep.store import StoredCell, SweepResults

Case = tuple[str, str]  # data set, scenario
Place = tuple[str, str, str, str]  # data set, scenario, method, metric


@dataclass(frozen=True)
class ResultTable:
    """Statistics by (data set, scenario, method, metric), and what 2-opt saves in percent by (data set, scenario).

    `name` is the label that its runs share, or names another source; `source` says in words where its figures are from,
    where the name does not. An `exact` table is taken at its word: nothing is known of its noise. `by_seed` has the
    values behind the statistics, where they are known.
    """

    name: str
    statistics: Mapping[Place, Statistic] = field(default_factory=dict)
    savings: Mapping[Case, float] = field(default_factory=dict)
    exact: bool = False
    source: str = ""
    by_seed: Mapping[Place, Series] = field(default_factory=dict)

    def get(self, case: Case, method: str, metric: str = "mean_accuracy") -> Statistic | None:
        """One statistic, or None if it was not run."""
        return self.statistics.get((*case, method, metric))

    def combined(self, case: Case, weights: Mapping[str, float], metric: str = "mean_accuracy") -> Statistic | None:
        """A weighted sum of methods over the seeds that they share: 1 and -1 give their difference.

        None if one of them was not run, or if they share no seed. Where values of single seeds are not known, seeds are
        taken as independent.
        """
        found = [each for method in weights if (each := self.get(case, method, metric)) is not None]
        if len(found) < len(weights):
            return None
        series, factors = [self._series(case, method, metric) for method in weights], list(weights.values())
        return paired_sum(series, factors) if all(series) else independent_sum(found, factors)

    def shared_seeds(self, case: Case, methods: Iterable[str], metric: str = "mean_accuracy") -> list[int]:
        """The seeds that all of these methods were run with; none where the values of single seeds are not known."""
        return shared_seeds([self._series(case, method, metric) for method in methods])

    def side_by_side(self, case: Case, methods: Iterable[str], metric: str = "mean_accuracy") -> dict[str, Statistic]:
        """Those of the methods that were run, over the seeds that they share; over all seeds if they share none."""
        found = {method: each for method in methods if (each := self.get(case, method, metric)) is not None}
        series = {method: self._series(case, method, metric) for method in found}
        return side_by_side(series) if all(series.values()) else found

    def _series(self, case: Case, method: str, metric: str) -> Series:
        return self.by_seed.get((*case, method, metric), {})

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
    return {name: table_of(name, groups.get(name, []), savings.get(name, {})) for name in names}


def _presets_first(name: str) -> tuple[int, str]:
    presets = list(reversed(PRESETS))
    return presets.index(name) if name in presets else len(presets), name


def table_of(name: str, cells: Iterable[StoredCell], ordered: Mapping[Case, float] | None = None) -> ResultTable:
    """Every metric over the seeds of each method, data set and scenario; `ordered` is what 2-opt saves where known."""
    values: dict[Place, list[float | None]] = {}
    by_seed: dict[Place, dict[int, float]] = {}
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
    saved = {**(ordered or {}), **{case: mean(found) for case, found in savings.items()}}
    return ResultTable(name, statistics, saved, by_seed=by_seed)


_COLUMNS = ("runs", "dataset", "scenario", "method", "metric", "mean", "deviation", "seeds", "by seed")


def to_csv(tables: Mapping[str, ResultTable], metrics: Iterable[str]) -> str:
    """Result tables as one small CSV file; values of single seeds, such as 0=0.9 1=0.8, keep what belongs together."""
    wanted = tuple(metrics)
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for name, table in tables.items():
        for place, found in sorted(table.statistics.items()):
            if place[3] in wanted:
                spread = "" if found.deviation is None else f"{found.deviation:.6g}"
                values = " ".join(f"{seed}={value:.6g}" for seed, value in sorted(table.by_seed.get(place, {}).items()))
                writer.writerow([name, *place, f"{found.mean:.6g}", spread, found.seeds, values])
        for case, saving in sorted(table.savings.items()):
            writer.writerow([name, *case, "", "saving_percent", f"{saving:.6g}", "", 1, ""])
    return buffer.getvalue()


def from_csv(text: str) -> dict[str, ResultTable]:
    """The inverse of `to_csv`."""
    found: dict[str, tuple[dict[Place, Statistic], dict[Case, float], dict[Place, dict[int, float]]]] = {}
    for row in csv.DictReader(StringIO(text)):
        case = (row["dataset"], row["scenario"])
        statistics, savings, by_seed = found.setdefault(row["runs"], ({}, {}, {}))
        if row["metric"] == "saving_percent":
            savings[case] = float(row["mean"])
            continue
        place = (*case, row["method"], row["metric"])
        spread = float(row["deviation"]) if row["deviation"] else None
        statistics[place] = Statistic(float(row["mean"]), spread, int(row["seeds"]))
        pairs = [pair.split("=") for pair in row["by seed"].split()]
        if pairs:
            by_seed[place] = {int(seed): float(value) for seed, value in pairs}
    return {
        name: ResultTable(name, statistics, savings, by_seed=by_seed)
        for name, (statistics, savings, by_seed) in found.items()
    }
