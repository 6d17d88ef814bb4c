"""The paper's own tables and figures, and docs/reproduction.md, written from results and from nothing else."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from firma.data.dataset import load_dataset
from firma.data.partition import class_proportions, deal
from firma.methods import METHODS, PAPER_METHODS, Method, base_name
from firma.mixing import ring
from firma.mixing.ring_order import similarity, two_opt
from firma.paper.claims import CLAIMS
from firma.paper.grid import CASES, DATASETS, FIXES, FULL, GATED, PLAIN, RIVALS, SCENARIOS, ablation_rows
from firma.paper.judging import ClaimVerdict, higher
from firma.paper.published import published
from firma.report.data_figures import ring_picture
from firma.report.drawing import INK, Picture, Pictures, canvas, colour
from firma.report.figures import sweep_figures
from firma.report.table import Entry, Table, as_markdown, words
from firma.report.tables import (
    PERCENT,
    Scope,
    communication,
    coverage,
    duels,
    entry,
    gain,
    metric_tables,
    savings,
    slug,
    versions,
)
from firma.schedule import plan
from firma.settings import hyper_for, split_for
from firma.sweep.result_table import Case, ResultTable, result_tables
from firma.sweep.store import SweepResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The figures that docs/reproduction.md shows; `firma report` draws all of them.
DOCUMENT_FIGURES = (
    "design-space", "ring", "rankings-digits-published", "savings-published", "convergence-cifar10-recommended",
    "rankings-cifar10-recommended",
)  # fmt: skip
_ERROR = "Gains ± their standard errors."


def concerns(results: SweepResults) -> bool:
    """Whether results have anything of the paper's grid in them."""
    names = [*(cell.dataset for cell in results.cells), *(each.dataset for each in results.ring_orders)]
    return any(name in DATASETS for name in names)


def paper_scope() -> Scope:
    """The paper's four data sets and seven scenarios, with the results that it printed beside ours."""
    return Scope(DATASETS, SCENARIOS, published())


def paper_tables(tables: Mapping[str, ResultTable], scope: Scope) -> Iterator[Table]:
    """Every table that the results can fill at least in part; the claims come last."""
    for table in tables.values():
        yield from metric_tables(table, scope.reference)
        if table.statistics:
            yield ablation(table, scope)
            if any(":" in each[2] for each in table.statistics):
                yield parts(table)
            yield duels(table, scope, FULL, RIVALS)
            yield communication(table)
        yield savings(table, scope)
    yield claims_table(tables)


def ablation(table: ResultTable, scope: Scope) -> Table:
    """The paper's ablation at Dir 0.1: what the gate adds, what the three fixes add, both."""
    names = (PLAIN, GATED, FULL)
    steps = ((GATED, PLAIN), (FULL, GATED), (FULL, PLAIN))
    rows = []
    for dataset in scope.datasets:
        case = (dataset, "dir-0.1")
        accuracies = [entry(table, case, name, "mean_accuracy", PERCENT, 100, scope.reference) for name in names]
        gains = [gain(table, scope.reference, case, one, other, error=True) for one, other in steps]
        rows.append((Entry(dataset), *accuracies, *gains))
    title = f"Ablation at dir-0.1, accuracy in % and gains in points ({table.name})"
    columns = ("data set", *names, "Δ gate", "Δ fixes", "Δ both")
    note = f"{_ERROR} In brackets: printed in the paper."
    return Table(slug("ablation", table.name), title, columns, tuple(rows), note, "paper")


def parts(table: ResultTable) -> Table:
    """Each column of the full method switched back alone, and each fix alone on top of the gated ring, in points."""
    run = {each[:2] for each in table.statistics if ":" in each[2]}
    cases = [case for case in CASES if case in run] + sorted(run - set(CASES))
    letters = {row: letter for letter, row in FIXES.items()}
    rows = []
    for name in ablation_rows():
        base = base_name(name)
        text = f"fix {letters[name]} alone: {name}" if name in letters else f"without: {name}"
        gains = [gain(table, None, case, name, base, error=True) for case in cases]
        rows.append((Entry(text), Entry(base), *gains))
    columns = ("row", "compared with", *(f"{dataset} {scenario}" for dataset, scenario in cases))
    title = f"Parts of {FULL} switched on and off, gains in points ({table.name})"
    return Table(slug("fixes", table.name), title, columns, tuple(rows), _ERROR)


def claims_table(tables: Mapping[str, ResultTable]) -> Table:
    """Every claim, and its judgement on the paper's own tables and on each of ours."""
    rows = []
    for claim in CLAIMS:
        judged = [claim.check(table) for table in (published(), *tables.values())]
        texts = [f"{each.verdict}: {each.numbers}" for each in judged]
        if claim.computed:
            texts[1:] = ["as computed"] * len(tables)
        rows.append(words(claim.name, claim.where, claim.statement, claim.how, *texts))
    ours = (f"on our runs, {name}" for name in tables)
    columns = ("claim", "where", "what it says", "how it is checked", "on the paper's tables", *ours)
    note = "Open: not run, or closer than two standard errors; with a single seed, closer than one point."
    return Table("claims", "Claims and verdicts", columns, tuple(rows), note)


def paper_figures(results: SweepResults, scope: Scope) -> Pictures:
    """Those that need no runs, then those of the results."""
    yield Picture("design-space", "Which methods need a server, and which send the head.", design_space())
    yield Picture("ring", "The ring of digits at Dir 0.1, as given and as ordered by 2-opt.", digits_ring())
    yield from sweep_figures(results, scope)


def digits_ring() -> "Figure":
    """Digits at Dir 0.1 on five clients, with the weights of one pass of the plain ring."""
    source, hyper = load_dataset("digits"), hyper_for(PLAIN, "paper", {})
    partition = deal(source, "dir-0.1", source.clients, split_for("paper", {}), 0)
    proportions = class_proportions(source.y_train, partition.train, source.classes)
    ordered = two_opt(similarity(proportions, hyper.ring_cost))
    one = plan(METHODS[PLAIN], hyper, len(proportions), source.rounds, 0)
    orders = [("as given", range(len(proportions))), ("as ordered by 2-opt", ordered)]
    return ring_picture(proportions, orders, ring.row(one), "digits, dir-0.1: each pie shows a client's classes")


_QUADRANTS = {
    (False, False): "server, head sent",
    (True, False): "server, head private",
    (False, True): "no server, head sent",
    (True, True): "no server, head private",
}


def design_space() -> "Figure":
    """Two by two, read off the columns of the design table."""
    from matplotlib.patches import Rectangle

    figure = canvas(6.4, 4.6)
    axes = figure.add_subplot()
    groups: dict[tuple[bool, bool], list[str]] = {quadrant: [] for quadrant in _QUADRANTS}
    for row in (METHODS[name] for name in PAPER_METHODS):
        groups[_quadrant(row)].append(row.name)
    for (private, free), title in _QUADRANTS.items():
        fill = "#eef4fb" if private and free else "#f7f7f7"
        axes.add_patch(Rectangle((private, free), 1, 1, facecolor=fill, edgecolor="white", linewidth=3))
        axes.text(private + 0.05, free + 0.93, title, va="top", fontsize=9, color=INK)
        for rank, name in enumerate(groups[private, free]):
            across, down = rank % 2, rank // 2
            x, y = private + 0.12 + 0.44 * across, free + 0.62 - 0.26 * down
            axes.plot(x, y, marker="o", markersize=10, color=colour(name))
            axes.text(x + 0.06, y, name, va="center", fontsize=11, color=INK)
    axes.set(xlim=(0, 2), ylim=(0, 2), xticks=[0.5, 1.5], yticks=[0.5, 1.5])
    axes.set_xticklabels(["head is sent", "head stays private"])
    axes.set_yticklabels(["server", "no server"], rotation=90, va="center")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("Design space (local shares nothing at all)", fontsize=11)
    return figure


def _quadrant(row: Method) -> tuple[bool, bool]:
    return row.shares != "model", row.topology != "star"


_VERDICTS: Mapping[ClaimVerdict, str] = {"holds": "hold", "fails": "fail", "undecided": "are undecided"}
_LEAD = """# Reproduction

This page is generated by `firma report RESULTS --markdown docs/reproduction.md`; no number in it is typed by hand.
Values are mean ± standard deviation over seeds, in brackets what the paper printed; a dash was not run. A case is a
data set and a scenario. `firma reproduce --out RESULTS` runs the study, and continues it after an interruption; `firma
report RESULTS` draws all figures, of which this page shows a few.

There are three presets. `published` sets every switch as in the published study. `paper` has the paper's numbers with
sound switches; most important, clients are tested on the classes that they hold. `recommended` has the sound switches,
and numbers that were chosen for every method on validation data (benchmarks/choose_numbers.py).
"""


def document(results: SweepResults, scope: Scope, figures: Mapping[str, str]) -> str:
    """The whole page in Markdown; `figures` maps links to captions."""
    tables = result_tables(results)
    ready = list(paper_tables(tables, scope))
    text = [
        _LEAD,
        "## In short\n",
        *_short(tables),
        "## What was run\n",
        as_markdown(coverage(tables, scope)),
        as_markdown(versions(results.cells)),
    ]
    if figures:
        text += ["## Figures\n", *(f"![{caption}]({link})\n" for link, caption in figures.items())]
    text += ["## Claims\n", _counted(published()), *(_counted(table) for table in tables.values())]
    text += [as_markdown(table) for table in ready if table.name == "claims"]
    for name in tables:
        ending = slug("", name)
        text += [f"## Runs: {name}\n", *(as_markdown(table) for table in ready if table.name.endswith(ending))]
    return "\n".join(text)


def _short(tables: Mapping[str, ResultTable]) -> Iterator[str]:
    """What most readers come for: against each baseline and against training alone, how often and by how much."""
    for table in tables.values():
        for other in RIVALS:
            gains = {
                case: 100 * (own.mean - theirs.mean)
                for case in CASES
                if (own := table.get(case, FULL)) and (theirs := table.get(case, other))
            }
            if gains:
                judged = Counter(higher(FULL, other)(table, case) for case in gains)
                clear = f"{judged[True]} clearly above, {judged[False]} clearly below, {judged[None]} too close to call"
                yield f"- {table.name}: `{FULL}` against `{other}`, mean accuracy: {_won_and_lost(gains)}; {clear}."
    yield "\nClear means more than two standard errors, or more than one point with a single seed.\n"


def _won_and_lost(gains: Mapping[Case, float]) -> str:
    """How many were won, and the two extremes."""
    ranked = sorted(gains, key=lambda case: gains[case])
    low, high = (f"{gains[case]:+.1f} points ({', '.join(case)})" for case in (ranked[0], ranked[-1]))
    return f"above in {sum(points > 0 for points in gains.values())} of {len(gains)}, from {low} to {high}"


def _counted(table: ResultTable) -> str:
    """How many claims hold on one table; computed claims are counted with the paper's tables only."""
    judged = Counter(claim.check(table).verdict for claim in CLAIMS if table.exact or not claim.computed)
    counts = ", ".join(f"{judged[verdict]} {text}" for verdict, text in _VERDICTS.items())
    where = "On the paper's own tables, and by computation" if table.exact else f"On our runs, {table.name}"
    return f"{where}: {counts}.\n"
