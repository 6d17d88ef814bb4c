"""Our runs of the published recipe beside what the paper prints: all of its 336 figures, and which are excluded."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean
from textwrap import fill

from firma.methods import PAPER_METHODS
from firma.paper.claims_page import WIDTH
from firma.paper.correspondences import untitled
from firma.paper.grid import DATASETS, SCENARIOS
from firma.paper.judging import ONE_SEED
from firma.report.table import MISSING, NOTHING, Entry, Table, as_markdown, number, words
from firma.statistics import FEWEST, LEVEL, Statistic, t_quantile
from firma.sweep.result_table import ResultTable

Place = tuple[str, str, str, str]  # data set, scenario, method, metric
_GINI = "gini"


@dataclass(frozen=True, slots=True)
class _Metric:
    """How figures of a metric are shown: as the paper prints them, and their differences."""

    title: str
    form: str
    scale: float = 1.0

    def show(self, value: float, signed: bool = False) -> str:
        """A value, or a difference with its sign; the minus is a real one."""
        text = (self.form.replace("{:", "{:+") if signed else self.form).format(self.scale * value)
        return text.replace("-", "−")


_METRICS = {"mean_accuracy": _Metric("accuracy in %", "{:.2f}", 100.0), _GINI: _Metric("Gini coefficient", "{:.4f}")}


@dataclass(frozen=True, slots=True)
class Difference:
    """One printed figure beside ours."""

    ours: Statistic
    printed: float
    metric: str = "mean_accuracy"

    @property
    def value(self) -> float:
        """Ours minus printed."""
        return self.ours.mean - self.printed

    @property
    def half(self) -> float | None:
        """Half of the interval that holds one more run with 95 %; None with one or two seeds."""
        if self.ours.seeds < FEWEST or self.ours.deviation is None:
            return None
        spread = self.ours.deviation * sqrt(1 + 1 / self.ours.seeds)
        return t_quantile(LEVEL, self.ours.seeds - 1) * spread

    @property
    def excluded(self) -> bool | None:
        """Whether the printed figure lies outside of that interval; with one or two seeds, whether an accuracy is more
        than a point away. None for Gini coefficients with one or two seeds: most are smaller than such a tolerance.
        """
        if self.half is not None:
            return abs(self.value) > self.half
        return None if self.metric == _GINI else abs(self.value) > ONE_SEED


def differences(ours: ResultTable, printed: ResultTable) -> dict[Place, Difference]:
    """Every printed accuracy and Gini coefficient that our runs have, by place."""
    return {
        place: Difference(ours.statistics[place], theirs.mean, place[3])
        for place, theirs in printed.statistics.items()
        if place in ours.statistics
    }


def closeness(ours: ResultTable, printed: ResultTable) -> str:
    """How near the recipe as published comes to the printed figures, in a sentence."""
    found = list(differences(ours, printed).values())
    several = [each for each in found if each.half is not None]
    few = [each for each in found if each.half is None and each.excluded is not None]
    outside = (
        f"{_excluded(several)} of the {len(several)} with three seeds or more lie outside of the interval that holds"
    )
    far = f"{_excluded(few)} of the {len(few)} accuracies with fewer seeds are more than a point from ours"
    said = [f"{outside} one more run with 95 %" if several else "", far if few else ""]
    told = "; ".join(filter(None, said)) or "nothing was run by the recipe yet"
    text = f"Of the {len(printed.statistics)} printed figures (accuracy and Gini), {len(found)} were rerun: {told}."
    return fill(text, WIDTH, break_on_hyphens=False)


def differences_page(ours: ResultTable, printed: ResultTable) -> str:
    """A page in Markdown: what is excluded by data set, then every figure by data set and metric."""
    found = differences(ours, printed)
    lead = (
        f"The paper prints {len(printed.statistics)} accuracies and Gini coefficients; our runs of its recipe (preset "
        f"`published`) have {len(found)} of them. A cell reads: printed → ours (ours minus printed); a dash was not "
        "run. With three seeds or more, ± is half of the interval that holds one more run of ours with 95 %, and "
        "**bold** figures lie outside of it. All others are *not excluded*, which says little where it is wide. With "
        "one or two seeds there is no interval: an accuracy is bold if it is more than a point from ours, which is a "
        "convention, and Gini coefficients are not judged. [Deviations](deviations.md) says what explains such "
        f"differences and what does not.{f' {ours.source}' if ours.source else ''}"
    )
    text = ["# Printed and rerun\n", fill(lead, WIDTH, break_on_hyphens=False) + "\n"]
    text += [as_markdown(_summary(found)), as_markdown(_by_method(found))]
    for dataset in DATASETS:
        for metric in _METRICS:
            table = _table(found, printed, dataset, metric)
            text.append(f"## {table.title}\n\n{untitled(table)}")
    return "\n".join(text)


def _excluded(found: Sequence[Difference]) -> int:
    return [each.excluded for each in found].count(True)


def _summary(found: Mapping[Place, Difference]) -> Table:
    """By data set and metric: how many are excluded, the mean distance, and the largest."""
    rows = []
    for dataset in DATASETS:
        for metric, shown in _METRICS.items():
            here = {place: each for place, each in found.items() if (place[0], place[3]) == (dataset, metric)}
            if not here:
                rows.append(words(dataset, shown.title, *[MISSING] * 4))
                continue
            far = max(here, key=lambda place: abs(here[place].value))
            judged = [each for each in here.values() if each.excluded is not None]
            excluded = f"{_excluded(judged)} of {len(judged)}" if judged else "not judged"
            distance = shown.show(mean(abs(each.value) for each in here.values()))
            largest = f"{shown.show(here[far].value, signed=True)} ({far[2]}, {far[1]})"
            rows.append(words(dataset, shown.title, _seeds(here.values()), excluded, distance, largest))
    columns = ("data set", "metric", "seeds", "excluded", "mean distance", "largest difference")
    return Table("differences", "How near our runs are", columns, tuple(rows))


def _by_method(found: Mapping[Place, Difference]) -> Table:
    """By method: the mean difference of the accuracies in points, over the cases that were run, by data set."""
    rows = []
    for method in PAPER_METHODS:
        entries = list(_mean_differences(found, method))
        if any(entry is not NOTHING for entry in entries):
            rows.append((Entry(method), *entries))
    columns = ("method", *DATASETS)
    note = "Mean over the scenarios that were run; positive: ours is more accurate than what is printed."
    return Table("differences-by-method", "Mean difference in accuracy, in points", columns, tuple(rows), note)


def _mean_differences(found: Mapping[Place, Difference], method: str) -> Iterator[Entry]:
    for dataset in DATASETS:
        here = [each.value for (where, _, name, metric), each in found.items()
                if (where, name, metric) == (dataset, method, "mean_accuracy")]  # fmt: skip
        yield number(100 * mean(here), "{:+.1f}") if here else NOTHING


def _table(found: Mapping[Place, Difference], printed: ResultTable, dataset: str, metric: str) -> Table:
    """Methods down, scenarios across: every printed figure, and ours where it was run."""
    rows = []
    for method in PAPER_METHODS:
        places = [(dataset, scenario, method, metric) for scenario in SCENARIOS]
        if all(place in printed.statistics for place in places):
            entries = [_entry(printed.statistics[place].mean, found.get(place), _METRICS[metric]) for place in places]
            rows.append((Entry(method), *entries))
    title = f"{dataset}, {_METRICS[metric].title}"
    return Table(f"differences-{metric}-{dataset}", title, ("method", *SCENARIOS), tuple(rows))


def _entry(printed: float, each: Difference | None, shown: _Metric) -> Entry:
    if each is None:
        return Entry(f"{shown.show(printed)} → {MISSING}")
    half = "" if each.half is None else f" ± {shown.show(each.half)}"
    text = f"{shown.show(printed)} → {shown.show(each.ours.mean)}{half} ({shown.show(each.value, signed=True)})"
    return Entry(text, best=each.excluded is True)


def _seeds(found: Iterable[Difference]) -> str:
    counts = sorted({each.ours.seeds for each in found})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
