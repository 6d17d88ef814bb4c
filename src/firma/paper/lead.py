"""The leading method case by case: what it gains over each rival, paired by seed, in accuracy and in fairness."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from firma.methods import DEFAULT_METHOD
from firma.paper.grid import CASES, FULL, RIVALS
from firma.paper.judging import ONE_SEED
from firma.report.table import NOTHING, Entry, Table, as_markdown
from firma.statistics import Statistic, statistic
from firma.statistics import is_clear as more_than_noise
from firma.sweep.result_table import Case
from firma.sweep.store import StoredCell

LEAD = DEFAULT_METHOD
OTHERS = (FULL, *RIVALS)
Values = Mapping[tuple[Case, str, int], float]  # case, method, seed


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric that methods are compared by; `sign` is -1 where less is better."""

    metric: str
    title: str
    sign: int = 1


MEASURES = (
    Measure("mean_accuracy", "mean accuracy"),
    Measure("worst_client", "accuracy of the worst client"),
    Measure("gini", "Gini coefficient", -1),
)


def gains(cells: Sequence[StoredCell], measure: Measure) -> dict[tuple[Case, str], Statistic]:
    """By case and rival: 100 times what the lead is better by, one difference per seed that both were run with."""
    values = _values(cells, measure)
    found: dict[tuple[Case, str], list[float]] = {}
    for (case, method, seed), value in sorted(values.items()):
        own = values.get((case, LEAD, seed))
        if method in OTHERS and own is not None:
            found.setdefault((case, method), []).append(100 * measure.sign * (own - value))
    return {each: statistic(differences) for each, differences in found.items()}


def is_clear(gain: Statistic) -> bool:
    """Whether a gain in points is more than noise."""
    return more_than_noise(gain, 100 * ONE_SEED)


def lead_page(cells: Sequence[StoredCell]) -> str:
    """A page in Markdown: for each measure a summary per rival, and a table of all cases."""
    text = [
        f"# `{LEAD}` case by case\n\nWhat `{LEAD}` is better by, in points: positive is better, also for the Gini "
        "coefficient, which is in % here. Differences are paired by seed; ± is half of the 95 % interval, where there "
        "are several seeds. Bold ones are clear: the interval is on one side of zero or, with a single seed, the "
        "difference is more than a point. Recommended preset, test data.\n"
    ]
    for measure in MEASURES:
        found = gains(cells, measure)
        text.append(f"## {measure.title[0].upper()}{measure.title[1:]}\n")
        text += [*_summary(found), *_averages(cells, measure), ""]
        text.append(as_markdown(_table(cells, measure, found)).split("\n", 2)[2])
    return "\n".join(text)


def _values(cells: Sequence[StoredCell], measure: Measure) -> Values:
    return {
        ((cell.dataset, cell.scenario), cell.result.method, cell.result.seed): float(value)
        for cell in cells
        if (cell.dataset, cell.scenario) in CASES and (value := cell.result.metrics.get(measure.metric)) is not None
    }


def _summary(found: Mapping[tuple[Case, str], Statistic]) -> Iterator[str]:
    """How often the lead is clearly better or worse than each rival, and where it is worst."""
    for rival in OTHERS:
        here = {case: gain for (case, other), gain in found.items() if other == rival}
        if here:
            clear = [gain.mean > 0 for gain in here.values() if is_clear(gain)]
            least = min(here, key=lambda case: here[case].mean)
            yield (
                f"- against `{rival}`, {len(here)} cases: {clear.count(True)} clearly better, {clear.count(False)} "
                f"clearly worse, {len(here) - len(clear)} too close to call; least {_points(here[least])} "
                f"({', '.join(least)})"
            )


def _averages(cells: Sequence[StoredCell], measure: Measure) -> Iterator[str]:
    """The mean of every method over the cases that all of them were run in."""
    values = _values(cells, measure)
    methods = (LEAD, *OTHERS)
    of = {
        method: {case: _mean(values, case, method) for case in CASES if _mean(values, case, method) is not None}
        for method in methods
    }
    common = [case for case in CASES if all(case in of[method] for method in methods)]
    if common:
        means = {method: mean(of[method][case] or 0.0 for case in common) for method in methods}
        ranked = sorted(methods, key=lambda method: -measure.sign * means[method])
        told = ", ".join(f"`{method}` {100 * means[method]:.2f}" for method in ranked)
        yield f"- mean of the {len(common)} cases that all were run in, in %: {told}"


def _mean(values: Values, case: Case, method: str) -> float | None:
    found = [value for (where, which, _), value in values.items() if (where, which) == (case, method)]
    return mean(found) if found else None


def _table(cells: Sequence[StoredCell], measure: Measure, found: Mapping[tuple[Case, str], Statistic]) -> Table:
    values = _values(cells, measure)
    rows = []
    for case in CASES:
        own = _mean(values, case, LEAD)
        if own is not None:
            seeds = len([seed for (where, which, seed) in values if (where, which) == (case, LEAD)])
            entries = [_entry(found.get((case, rival))) for rival in OTHERS]
            rows.append((Entry(" ".join(case)), Entry(str(seeds), seeds), Entry(f"{100 * own:.1f}", own), *entries))
    columns = ("case", "seeds", LEAD, *(f"over {rival}" for rival in OTHERS))
    return Table(f"lead-{measure.metric}", measure.title, columns, tuple(rows))


def _entry(gain: Statistic | None) -> Entry:
    return NOTHING if gain is None else Entry(_points(gain), gain.mean, best=is_clear(gain))


def _points(gain: Statistic) -> str:
    interval = gain.interval()
    return f"{gain.mean:+.2f}" + ("" if interval is None else f" ± {gain.mean - interval[0]:.2f}")
