"""The paper's own tables and figures, drawn from results and from nothing else."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from firma.data.dataset import load_dataset
from firma.data.partition import class_proportions, deal
from firma.methods import METHODS, PAPER_METHODS, Method, base_name
from firma.mixing import ring
from firma.mixing.ring_order import similarity, two_opt
from firma.paper.claims import CLAIMS
from firma.paper.grid import CASES, DATASETS, FIXES, FULL, GATED, PLAIN, RIVALS, SCENARIOS, ablation_rows
from firma.paper.judging import RULES
from firma.paper.published import published
from firma.report.data_figures import ring_picture
from firma.report.drawing import INK, Picture, Pictures, canvas, colour
from firma.report.figures import sweep_figures
from firma.report.table import MISSING, Entry, Table, words
from firma.report.tables import (
    PAIRED,
    PERCENT,
    SPREAD,
    Scope,
    communication,
    duels,
    entry,
    from_to,
    gain,
    metric_tables,
    savings,
    slug,
)
from firma.schedule import plan
from firma.settings import hyper_for, split_for
from firma.sweep.result_table import ResultTable
from firma.sweep.store import SweepResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FIXES = "Δ fixes (order, passes, retention)"


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
        yield from special_tables(table, scope)
    yield claims_table(tables)


def special_tables(table: ResultTable, scope: Scope) -> Iterator[Table]:
    """The tables of one preset that do not show a metric by method and scenario."""
    if table.statistics:
        yield ablation(table, scope)
        if any(":" in each[2] for each in table.statistics):
            yield parts(table)
        yield duels(table, scope, FULL, RIVALS)
        yield communication(table)
    yield savings(table, scope)


def ablation(table: ResultTable, scope: Scope) -> Table:
    """The paper's ablation at Dir 0.1: what the gate adds, what the three fixes add, both."""
    names = (PLAIN, GATED, FULL)
    steps = ((GATED, PLAIN), (FULL, GATED), (FULL, PLAIN))
    rows = []
    for dataset in scope.datasets:
        case = (dataset, "dir-0.1")
        accuracies = [entry(table, case, name, "mean_accuracy", PERCENT, 100, scope.reference) for name in names]
        gains = [gain(table, scope.reference, case, one, other) for one, other in steps]
        rows.append((Entry(dataset), *accuracies, *gains))
    title = f"Ablation at dir-0.1, accuracy in % and gains in points ({table.name})"
    columns = ("data set", *names, "Δ gate", _FIXES, "Δ both")
    note = (
        f"{SPREAD} {PAIRED} The paper calls {_FIXES} the gain of its ring topology, though all three fixes are in it: "
        "the order of the ring, the number of passes, and the retention with its warm-up. In brackets: printed in the "
        "paper."
    )
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
        gains = [gain(table, None, case, name, base) for case in cases]
        found = [table.combined(case, {name: 1.0, base: -1.0}) for case in cases]
        seeds = [each.seeds for each in found if each is not None]
        rows.append((*words(text, base, from_to(seeds) if seeds else MISSING), *gains))
    columns = ("row", "compared with", "seeds", *(f"{dataset} {scenario}" for dataset, scenario in cases))
    title = f"Parts of {FULL} switched on and off, gains in points ({table.name})"
    note = (
        "By how much the row is above the method that it is compared with, over the seeds that both were run with: a "
        "negative figure in a row 'without' means that the part helps, a positive one in a row 'alone' that the fix "
        f"does. {PAIRED}"
    )
    return Table(slug("fixes", table.name), title, columns, tuple(rows), note)


def claims_table(tables: Mapping[str, ResultTable]) -> Table:
    """Every claim, and its judgement on the paper's own tables and on each of ours."""
    rows = []
    for claim in CLAIMS:
        judged = [claim.check(table) for table in (published(), *tables.values())]
        texts = [each.sentence for each in judged]
        if claim.computed:
            texts[1:] = ["as computed"] * len(tables)
        rows.append(words(claim.name, claim.where, claim.asked, claim.how, *texts))
    ours = (f"on our runs, {name}" for name in tables)
    columns = ("claim", "where", "what it says", "how it is checked", "on the paper's tables", *ours)
    note = f"{RULES} The paper's tables are taken as printed, one run each."
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
