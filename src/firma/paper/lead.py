"""The leading method case by case: what it gains over each rival, paired by seed, in accuracy and in fairness."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean

from firma.methods import DEFAULT_METHOD
from firma.paper.grid import CASES, FULL, RIVALS
from firma.report.measures import Measure, measure_of
from firma.report.table import NOTHING, Entry, Table, as_markdown
from firma.report.tables import points
from firma.statistics import Statistic
from firma.sweep.result_table import Case, ResultTable, table_of
from firma.sweep.store import StoredCell

LEAD = DEFAULT_METHOD
OTHERS = (FULL, *RIVALS)
MEASURES = tuple(measure_of(name, "accuracy") for name in ("mean_accuracy", "worst_client", "gini"))
_POINTS = "{:.2f}"


def gains(table: ResultTable, measure: Measure) -> dict[tuple[Case, str], Statistic]:
    """By case and rival: what the lead is better by, over the seeds that both were run with."""
    sign = -1.0 if measure.lower else 1.0
    found = {
        (case, rival): table.combined(case, {LEAD: sign, rival: -sign}, measure.name)
        for case in CASES
        for rival in OTHERS
    }
    return {each: gain for each, gain in found.items() if gain is not None}


def lead_page(cells: Sequence[StoredCell]) -> str:
    """A page in Markdown: for each measure a summary per rival, and a table of all cases."""
    table = table_of("recommended", cells)
    text = [
        f"# `{LEAD}` case by case\n\nWhat `{LEAD}` is better by, in points: positive is better, also for the Gini "
        "coefficient, which is in % here. Differences are paired by seed; ± is half of the 95 % interval, where there "
        "are three seeds or more. Bold ones are clear: the interval is on one side of zero or, with one or two seeds, "
        f"the difference is more than a point. *Seeds* are those of `{LEAD}`; where a rival shares fewer, their "
        "number is behind the difference. Recommended preset, test data.\n"
    ]
    for measure in MEASURES:
        found = gains(table, measure)
        text.append(f"## {measure.title[0].upper()}{measure.title[1:]}\n")
        text += [*_summary(found, measure), *_averages(table, measure), ""]
        text.append(as_markdown(_table(table, measure, found)).split("\n", 2)[2])
    return "\n".join(text)


def _summary(found: Mapping[tuple[Case, str], Statistic], measure: Measure) -> Iterator[str]:
    """How often the lead is clearly better or worse than each rival, and where it is worst."""
    for rival in OTHERS:
        here = {case: gain for (case, other), gain in found.items() if other == rival}
        if here:
            clear = [gain.mean > 0 for gain in here.values() if measure.clear(gain)]
            least = min(here, key=lambda case: here[case].mean)
            yield (
                f"- against `{rival}`, {len(here)} cases: {clear.count(True)} clearly better, {clear.count(False)} "
                f"clearly worse, {len(here) - len(clear)} too close to call; least {points(here[least], _POINTS)} "
                f"({', '.join(least)})"
            )


def _averages(table: ResultTable, measure: Measure) -> Iterator[str]:
    """The mean of every method over the cases that all of them were run in, and over the seeds that they share."""
    methods = (LEAD, *OTHERS)
    found = {case: table.side_by_side(case, methods, measure.name) for case in CASES}
    common = [each for each in found.values() if len(each) == len(methods)]
    if common:
        apart = [case for case in CASES if len(found[case]) == len(methods)
                 and not table.shared_seeds(case, methods, measure.name)]  # fmt: skip
        means = {method: mean(each[method].mean for each in common) for method in methods}
        ranked = sorted(methods, key=lambda method: means[method] if measure.lower else -means[method])
        told = ", ".join(f"`{method}` {100 * means[method]:.2f}" for method in ranked)
        unlike = f" (in {len(apart)} of them they share no seed)" if apart else ""
        yield f"- mean of the {len(common)} cases that all were run in{unlike}, over shared seeds, in %: {told}"


def _table(table: ResultTable, measure: Measure, found: Mapping[tuple[Case, str], Statistic]) -> Table:
    rows = []
    for case in CASES:
        own = table.get(case, LEAD, measure.name)
        if own is not None:
            entries = [_entry(found.get((case, rival)), measure, own.seeds) for rival in OTHERS]
            score = Entry(f"{100 * own.mean:.1f}", own.mean)
            rows.append((Entry(" ".join(case)), Entry(str(own.seeds), own.seeds), score, *entries))
    columns = ("case", "seeds", LEAD, *(f"over {rival}" for rival in OTHERS))
    return Table(f"lead-{measure.name}", measure.title, columns, tuple(rows))


def _entry(gain: Statistic | None, measure: Measure, seeds: int) -> Entry:
    if gain is None:
        return NOTHING
    shared = f" ({gain.seeds} seed{'s' if gain.seeds > 1 else ''})" if gain.seeds != seeds else ""
    return Entry(points(gain, _POINTS) + shared, gain.mean, best=measure.clear(gain))
