"""The tables of the study, made from evidence; what was not run is a dash."""

from collections.abc import Iterator, Mapping

from firma.data.scenarios import STUDY as SCENARIOS
from firma.methods import METHODS
from firma.report.part_tables import ablation, communication, duels, entry, fixes, slug
from firma.report.table import MISSING, NOTHING, Entry, Table, mark_best, words
from firma.study.claims import CLAIMS
from firma.study.evidence import Evidence
from firma.study.grid import DATASETS

_ORDERED = "A ring is ordered before anyone trains: it is known where no method was run."
_PERCENT, _THREE, _FOUR = "{:.1f}", "{:.3f}", "{:.4f}"


def all_tables(paper: Evidence, bodies: Mapping[str, Evidence]) -> Iterator[Table]:
    """Every table that the evidence can fill at least in part."""
    for body in bodies.values():
        for dataset in body.datasets():
            yield by_scenario(body, paper, dataset, "mean_accuracy", "accuracy in %", _PERCENT, 100)
            yield by_scenario(body, paper, dataset, "gini", "Gini coefficient", _THREE, 1, highest=False)
            yield by_scenario(body, None, dataset, "worst_client", "worst client's accuracy in %", _PERCENT, 100)
            yield by_scenario(body, None, dataset, "worst_fifth", "worst fifth's accuracy in %", _PERCENT, 100)
            half = "rounds to half of the final accuracy"
            yield by_scenario(body, None, dataset, "rounds_to_half_of_final", half, _PERCENT, 1, highest=False)
            yield by_scenario(body, None, dataset, "plateau_std", "plateau σ", _FOUR, 1, highest=False)
        if body.figures:
            yield ablation(body, paper)
            if any(":" in key[2] for key in body.figures):
                yield fixes(body)
            yield duels(body)
            yield communication(body)
        yield savings(body, paper)
    yield claims(paper, bodies)


def by_scenario(
    body: Evidence, paper: Evidence | None, dataset: str, metric: str, title: str, form: str, scale: float,
    highest: bool = True,
) -> Table:  # fmt: skip
    """Methods down, scenarios across: mean ± deviation over seeds, and in brackets what the paper printed."""
    scenarios = [each for each in SCENARIOS if body.methods((dataset, each), metric)]
    scenarios += sorted({key[1] for key in body.figures if key[0] == dataset} - set(SCENARIOS))
    columns = []
    for scenario in scenarios:
        place = (dataset, scenario)
        entries = []
        for method in METHODS:
            printed = paper.get(place, method, metric) if paper is not None else None
            entries.append(entry(body.get(place, method, metric), form, scale, printed, paper is not None))
        columns.append(mark_best(entries, highest))
    rows = tuple((Entry(method), *(column[row] for column in columns)) for row, method in enumerate(METHODS))
    note = "In brackets: printed in the paper." if paper is not None else ""
    name = slug(metric, dataset, body.name)
    return Table(name, f"{dataset}, {title} ({body.name}{_seeds(body, dataset)})", ("method", *scenarios), rows, note)


def savings(body: Evidence, paper: Evidence) -> Table:
    """What 2-opt saves of the ring's cost."""
    rows = []
    for dataset in DATASETS:
        entries = []
        for scenario in SCENARIOS:
            ours, printed = body.savings.get((dataset, scenario)), paper.savings.get((dataset, scenario))
            beside = f" ({MISSING if printed is None else _PERCENT.format(printed)})"
            entries.append(NOTHING if ours is None else Entry(_PERCENT.format(ours) + beside, ours, printed=printed))
        rows.append((Entry(dataset), *entries))
    name = slug("savings", body.name)
    title = f"Ring cost saved by 2-opt, in % ({body.name})"
    return Table(name, title, ("data set", *SCENARIOS), tuple(rows), f"{_ORDERED} In brackets: printed in the paper.")


def claims(paper: Evidence, bodies: Mapping[str, Evidence]) -> Table:
    """Every claim, its verdict on the paper's own tables and on each body of runs."""
    rows = []
    for claim in CLAIMS:
        verdicts = [claim.check(body) for body in (paper, *bodies.values())]
        texts = [f"{verdict.outcome}: {verdict.figure}" for verdict in verdicts]
        if claim.computed:
            texts[1:] = ["as computed"] * len(bodies)
        rows.append(words(claim.name, claim.where, claim.says, claim.how, *texts))
    ours = (f"on our runs, {name}" for name in bodies)
    columns = ("claim", "where", "what it says", "how it is checked", "on the paper's tables", *ours)
    note = "Open: not run, or closer than two standard errors; with one seed, closer than a point."
    return Table("claims", "Claims and verdicts", columns, tuple(rows), note)


def _seeds(body: Evidence, dataset: str) -> str:
    counts = {figure.seeds for key, figure in body.figures.items() if key[0] == dataset and key[2] in METHODS}
    low, high = min(counts), max(counts)
    return f", {high} seed{'s' if high > 1 else ''}" if low == high else f", {low} to {high} seeds"
