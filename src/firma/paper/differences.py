"""Our runs of the published recipe minus what the paper prints: all of its 336 figures, and how many agree."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean
from textwrap import fill

from firma.methods import PAPER_METHODS
from firma.paper.grid import DATASETS, SCENARIOS
from firma.paper.judging import ONE_SEED
from firma.report.table import NOTHING, Entry, Table, as_markdown, number, words
from firma.statistics import LEVEL, Statistic, t_quantile
from firma.sweep.result_table import ResultTable

Place = tuple[str, str, str, str]  # data set, scenario, method, metric
_METRICS = {"mean_accuracy": ("accuracy in points", "{:+.1f}", 100.0), "gini": ("Gini coefficient", "{:+.3f}", 1.0)}


@dataclass(frozen=True, slots=True)
class Difference:
    """One printed figure beside ours; `agrees` is whether it may be one more run of ours."""

    ours: Statistic
    printed: float

    @property
    def value(self) -> float:
        """Ours minus printed."""
        return self.ours.mean - self.printed

    @property
    def agrees(self) -> bool:
        """Within the interval that holds one more run with 95 %; with one seed, within a point or 0.01 of a Gini."""
        return abs(self.value) <= (ONE_SEED if self.ours.seeds < 2 else _half_of_next(self.ours))


def differences(ours: ResultTable, printed: ResultTable) -> dict[Place, Difference]:
    """Every printed accuracy and Gini coefficient that our runs have, by place."""
    return {
        place: Difference(ours.statistics[place], theirs.mean)
        for place, theirs in printed.statistics.items()
        if place in ours.statistics
    }


def closeness(ours: ResultTable, printed: ResultTable) -> str:
    """How near the recipe as published comes to the printed figures, in a sentence."""
    found = differences(ours, printed)
    several = [each for each in found.values() if each.ours.seeds > 1]
    one = [each for place, each in found.items() if each.ours.seeds == 1 and place[3] == "mean_accuracy"]
    said = [
        f"{_agreeing(several)} of the {len(several)} printed figures (accuracy and Gini) that we ran with several "
        "seeds lie in the interval that holds one more run with 95 %" if several else "",
        f"where we ran one seed, {_agreeing(one)} of {len(one)} printed accuracies are within a point of ours"
        if one else "",
    ]  # fmt: skip
    text = f"By the recipe as published (`--preset published`), {'; '.join(filter(None, said)) or 'nothing was run'}."
    return fill(text, 120, break_on_hyphens=False)


def differences_page(ours: ResultTable, printed: ResultTable) -> str:
    """A page in Markdown: what agrees by data set, then every difference by data set and metric."""
    found = differences(ours, printed)
    text = [
        "# Ours minus printed\n",
        f"The paper prints {len(printed.statistics)} accuracies and Gini coefficients; our runs of its recipe (preset "
        f"published) have {len(found)} of them. The tables show ours minus printed; a dash was not run. Bold does not "
        "agree: with several seeds, the printed figure lies outside of the interval that holds one more run with "
        "95 %; with one seed, it is more than a point (0.01 of a Gini coefficient) from ours, which is a convention. "
        "[Deviations](deviations.md) says what explains such differences and what does not; [published](published.md) "
        "has the figures themselves.\n",
        as_markdown(_summary(found)),
        as_markdown(_by_method(found)),
    ]
    for dataset in DATASETS:
        for metric in _METRICS:
            if any(place[0] == dataset and place[3] == metric for place in found):
                table = _table(found, dataset, metric)
                text.append(f"## {table.title}\n\n" + as_markdown(table).split("\n", 2)[2])
    return "\n".join(text)


def _half_of_next(ours: Statistic) -> float:
    """Half of the interval that holds one more run."""
    return t_quantile(LEVEL, ours.seeds - 1) * (ours.deviation or 0.0) * sqrt(1 + 1 / ours.seeds)


def _agreeing(found: Sequence[Difference]) -> int:
    return [each.agrees for each in found].count(True)


def _summary(found: Mapping[Place, Difference]) -> Table:
    """By data set and metric: how many agree, the mean distance, and the largest."""
    rows = []
    for dataset in DATASETS:
        for metric, (title, form, scale) in _METRICS.items():
            here = {place: each for place, each in found.items() if (place[0], place[3]) == (dataset, metric)}
            if here:
                far = max(here, key=lambda place: abs(here[place].value))
                absolute = scale * mean(abs(each.value) for each in here.values())
                largest = f"{form.format(scale * here[far].value)} ({far[2]}, {far[1]})"
                agree = f"{_agreeing([*here.values()])} of {len(here)}"
                distance = number(absolute, form.replace("+", ""))
                rows.append((*words(dataset, title, _seeds(here.values()), agree), distance, Entry(largest)))
    columns = ("data set", "metric", "seeds", "agree", "mean distance", "largest difference")
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


def _table(found: Mapping[Place, Difference], dataset: str, metric: str) -> Table:
    """Methods down, scenarios across."""
    title, form, scale = _METRICS[metric]
    rows = []
    for method in PAPER_METHODS:
        if any(place[0] == dataset and place[2] == method for place in found):
            there = [found.get((dataset, scenario, method, metric)) for scenario in SCENARIOS]
            rows.append((Entry(method), *(_entry(each, form, scale) for each in there)))
    return Table(f"differences-{metric}-{dataset}", f"{dataset}, {title}", ("method", *SCENARIOS), tuple(rows))


def _entry(each: Difference | None, form: str, scale: float) -> Entry:
    if each is None:
        return NOTHING
    return Entry(form.format(scale * each.value), each.value, best=not each.agrees)


def _seeds(found: Iterable[Difference]) -> str:
    counts = sorted({each.ours.seeds for each in found})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
