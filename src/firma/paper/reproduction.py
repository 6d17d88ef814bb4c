"""docs/reproduction.md and the pages beside it, written from results and from nothing else.

The first page is short: what the paper says, what we find, why the two differ. The others hold every claim, every table
and figure of the paper with ours beside it, and all tables of each preset.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import mean

from firma.methods import LEADING_METHODS
from firma.paper.claims import CLAIMS, Claim
from firma.paper.differences import closeness, differences_page
from firma.paper.grid import CASES, DATASETS, FULL, RIVALS, SCENARIOS
from firma.paper.judging import ClaimVerdict, higher
from firma.paper.lead import LEAD, lead_page
from firma.paper.published import published
from firma.paper.report import claims_table, paper_tables
from firma.report.table import Entry, Table, as_markdown, mark_best, words
from firma.report.tables import PERCENT, Scope, coverage, slug, versions
from firma.sweep.result_table import ResultTable, by_label, result_tables
from firma.sweep.store import SweepResults

# The figures that the pages show; `firma report` draws all of them.
DOCUMENT_FIGURES = (
    "design-space", "ring", "rankings-digits-published", "savings-published", "convergence-cifar10-recommended",
    "rankings-cifar10-recommended",
)  # fmt: skip
_FIRST_FIGURE = "rankings-cifar10-recommended"
_SOUND, _PUBLISHED = "recommended", "published"
_VERDICTS: Mapping[ClaimVerdict, str] = {"holds": "hold", "fails": "fail", "undecided": "are undecided"}
# What a reader of the abstract wants to know first.
HEADLINES = (
    "skew-wins", "skew-peak", "highest", "highest-serverless", "fedavg-leads", "fedrep-collapse", "ring-positive",
    "beats-local",
)  # fmt: skip
_LEAD = """# Reproduction

What the FIRMA paper says, what we find, and why the two differ. This page, the claims and all tables are written by
`firma report RESULTS --markdown docs/reproduction.md`; no result on them is typed by hand.

A *case* is a data set with a scenario; the paper has 28. `digits` is its MNIST-1797, `mnist` its MNIST-60k; `dir-0.1`
is Dir 0.1, `skew-1` is label skew with K = 1. `local` is training alone, `frame` this project's method; neither is in
the paper. Digits have five to ten seeds, the large data sets one, and [not every case was run](reproduction/runs.md).
*Clear* is what exceeds the noise of the seeds, paired, or one point where there is one seed (a convention); the rest is
*too close to call*. The paper's own tables are taken as printed, one run each.
"""
_WHY = """## Why they differ

{closeness}

[Deviations](reproduction/deviations.md) says what explains the rest; all of it is shown [table by
table](reproduction/correspondences.md). Change what is tested, and the picture turns over
([methods.md](methods.md#three-presets) has the details):

- **What clients are tested on.** As published, a client's training and test data are two independent draws, so at
  Dir 0.1 it is tested on classes that it never saw. That alone makes private heads collapse. Ours have the class
  proportions of the training data.
- **How models start.** As published, every client starts from weights of its own, and averaging unrelated networks
  gives chance level: most of the slow start that the paper puts down to the ring. Ours start from the same weights,
  which everybody derives from the seed.
- **A baseline that never mixes.** The printed figures of RDFL agree with plain local training, a ring whose clients
  keep all of their own parameters (on digits at Dir 0.1 only if momentum is kept across rounds).
- **Who averages the warm-up.** As published, a server averages whole models, heads included, in the first sixth of the
  rounds. Ours averages extractors on the ring.
- **Hyperparameters.** The paper's learning rate and epochs are poor for its own method. Those of `recommended` were
  chosen for every method alike, on validation data ([benchmarks/choose_numbers.py](../benchmarks/choose_numbers.py)).
- **Smaller ones.** Quotas of label skew, the cost that 2-opt minimises, and which clients are left out as too small.
"""
_PRESETS = {
    "published": "every switch as in the published study",
    "paper": "the paper's hyperparameters with sound switches: above all, clients are tested on the classes they hold",
    "recommended": "sound switches, and hyperparameters chosen on validation data",
}


@dataclass(frozen=True)
class Shown:
    """A table or figure of the paper: its number, what it shows, and where ours is."""

    number: str
    shows: str
    ours: tuple[str, ...]  # names of our tables or figures, without the preset
    link: str = ""  # to another page that has it, in place of tables or figures


def _results_of(dataset: str, first: int) -> tuple[Shown, Shown]:
    return (
        Shown(f"Table {first}", f"{dataset}: accuracy", (slug("mean_accuracy", dataset),)),
        Shown(f"Table {first + 1}", f"{dataset}: Gini coefficient", (slug("gini", dataset),)),
    )


_HYPERPARAMETERS = (
    "`firma methods NAME`; [how ours were chosen](../methods.md#how-the-recommended-hyperparameters-were-chosen)"
)
CORRESPONDENCES = (
    Shown("Table 1", "design properties of the methods", (), "[methods](../methods.md), `firma methods --table`"),
    Shown("Table 2", "parameters sent per round (ours: MB)", ("communication",)),
    Shown("Table 3", "data sets", (), "[data](../data.md), `firma data`"),
    Shown("Table 4", "hyperparameters", (), _HYPERPARAMETERS),
    *_results_of("cifar10", 5),
    *_results_of("fashion-mnist", 7),
    *_results_of("mnist", 9),
    *_results_of("digits", 11),
    Shown("Table 13", "what the gate and the three fixes add", ("ablation", "fixes")),
    Shown("Table 14", "which method to use when", (), "`firma advise`; the claims `guide-…` in [claims](claims.md)"),
    Shown("Figure 1", "design space", ("design-space",)),
    Shown("Figure 2", "the ring", ("ring",)),
    *(
        Shown(f"Figure {number}", f"{dataset}: accuracy over rounds", (slug("convergence", dataset),))
        for number, dataset in enumerate(("cifar10", "fashion-mnist", "mnist", "digits"), 3)
    ),
    *(
        Shown(f"Figure {number}", f"{dataset}: worst to best", (slug("rankings", dataset),))
        for number, dataset in enumerate(("cifar10", "fashion-mnist", "mnist", "digits"), 7)
    ),
    Shown("Figure 11", "cifar10: speed and plateaus", (slug("speed", "cifar10"),)),
    Shown("Figure 12", "digits: speed and plateaus", (slug("speed", "digits"),)),
    Shown("Figure 13", "savings by 2-opt; accuracy against fairness", ("savings", "fairness")),
    Shown("Figure 14", "radar over all data sets", ("radar",)),
)


def documents(results: SweepResults, scope: Scope, figures: Mapping[str, str]) -> dict[str, str]:
    """All pages in Markdown, by their path beside the first one; `figures` maps links of that page to captions."""
    tables = result_tables(results)
    ready = list(paper_tables(tables, scope))
    pages = {"reproduction.md": _first_page(tables, scope, figures)}
    pages["reproduction/claims.md"] = _claims_page(tables)
    pages["reproduction/correspondences.md"] = _correspondences_page(tables, ready, figures)
    for name, table in tables.items():
        pages[f"reproduction/{slug(name)}.md"] = _preset_page(table, ready)
    if _PUBLISHED in tables:
        pages["reproduction/differences.md"] = differences_page(tables[_PUBLISHED], published())
    if sound := by_label(results.cells).get(_SOUND):
        pages["reproduction/lead.md"] = lead_page(sound)
    pages["reproduction/runs.md"] = "\n".join(
        ["# What was run\n", as_markdown(coverage(tables, scope)), as_markdown(versions(results.cells))]
    )
    return pages


def _first_page(tables: Mapping[str, ResultTable], scope: Scope, figures: Mapping[str, str]) -> str:
    text = [_LEAD, "## What the paper says, what we find\n", as_markdown(headlines(tables))]
    text += [counted_claims(table) for table in (published(), *tables.values())]
    text += ["\n[Every claim with its verdicts](reproduction/claims.md).\n"]
    text.append(_WHY.format(closeness=closeness(tables.get(_PUBLISHED, ResultTable(_PUBLISHED)), published())))
    if _SOUND in tables:
        text += ["## Who wins where, soundly tested\n", as_markdown(winners(tables[_SOUND], scope))]
        text += [*against_rivals(tables[_SOUND]), f"\n[`{LEAD}` case by case](reproduction/lead.md), paired by seed.\n"]
    shown = {link: caption for link, caption in figures.items() if _FIRST_FIGURE in link}
    text += [f"![{caption}]({link})\n" for link, caption in shown.items()]
    text += [
        "## All of it\n",
        "- [Every table and figure of the paper, ours beside it](reproduction/correspondences.md)",
        "- [Ours minus printed](reproduction/differences.md): all 336 figures of its tables, and which of them agree",
        "- [Where the printed figures deviate from its recipe](reproduction/deviations.md), and what explains them",
    ]
    for name in tables:
        text.append(f"- [All tables, {name}](reproduction/{slug(name)}.md): {_PRESETS.get(name, 'changed settings')}")
    text.append("- [What was run](reproduction/runs.md), with versions")
    text.append("- `firma reproduce --out RESULTS` runs the study, and continues it after an interruption;")
    text.append("  `firma report RESULTS` draws all figures and a page to browse")
    return "\n".join(text) + "\n"


def headlines(tables: Mapping[str, ResultTable]) -> Table:
    """The claims of the abstract, judged on the paper's own tables, on its recipe and on sound runs."""
    chosen = [published(), *(tables[name] for name in (_PUBLISHED, _SOUND) if name in tables)]
    named = {claim.name: claim for claim in CLAIMS}
    rows = [_judged(named[name], chosen) for name in HEADLINES]
    titles = {_PUBLISHED: "its recipe, run by us", _SOUND: "sound tests, tuned hyperparameters"}
    columns = ("the paper says", "its own tables", *(titles[table.name] for table in chosen[1:]))
    return Table("headlines", "The main claims", columns, tuple(rows))


def _judged(claim: Claim, tables: list[ResultTable]) -> tuple[Entry, ...]:
    statement = claim.statement[0].upper() + claim.statement[1:]
    return words(statement, *(claim.check(table).sentence for table in tables))


def winners(table: ResultTable, scope: Scope) -> Table:
    """Mean accuracy over the scenarios that all listed methods have run, by data set."""
    cases = {
        dataset: [
            (dataset, scenario)
            for scenario in SCENARIOS
            if all(table.get((dataset, scenario), name) for name in (FULL, *RIVALS))
        ]
        for dataset in scope.datasets
    }
    names = [name for name in LEADING_METHODS if name in (FULL, *RIVALS) or _covers(table, name, cases)]
    columns = []
    for here in cases.values():
        found = [[table.get(case, name) for case in here] for name in names]
        entries = [_mean([100 * each.mean for each in row if each is not None], len(here)) for row in found]
        columns.append(mark_best(entries))
    rows = tuple((Entry(name), *(column[row] for column in columns)) for row, name in enumerate(names))
    heads = tuple(f"{dataset} ({len(here)} scenarios)" for dataset, here in cases.items())
    note = (
        f"Mean test accuracy in %, over the scenarios of a data set that were run with {FULL} and with all of "
        f"{', '.join(RIVALS)}. Bold: the highest, clear or not."
    )
    return Table("winners", f"Mean accuracy ({table.name})", ("method", *heads), rows, note)


def _covers(table: ResultTable, name: str, cases: Mapping[str, list[tuple[str, str]]]) -> bool:
    return any(here and all(table.get(case, name) for case in here) for here in cases.values())


def _mean(values: list[float], wanted: int) -> Entry:
    if not wanted or len(values) < wanted:
        return Entry("—")
    return Entry(PERCENT.format(mean(values)), mean(values))


def against_rivals(table: ResultTable) -> Iterator[str]:
    """How often the paper's method is above each rival, and by how much."""
    for other in RIVALS:
        gains = {
            case: 100 * (own.mean - theirs.mean)
            for case in CASES
            if (own := table.get(case, FULL)) and (theirs := table.get(case, other))
        }
        if gains:
            judged = Counter(higher(FULL, other)(table, case) for case in gains)
            ranked = sorted(gains, key=lambda case: gains[case])
            low, high = (f"{gains[case]:+.1f} points ({', '.join(case)})" for case in (ranked[0], ranked[-1]))
            clear = (
                f"{judged[True]} clearly above, {judged[False]} clearly below, {judged['too close']} too close to call"
            )
            yield f"- `{FULL}` against `{other}` in {len(gains)} cases: {clear}; from {low} to {high}."


def _claims_page(tables: Mapping[str, ResultTable]) -> str:
    text = ["# Claims\n", *(counted_claims(table) for table in (published(), *tables.values())), ""]
    return "\n".join([*text, as_markdown(claims_table(tables))])


def _correspondences_page(tables: Mapping[str, ResultTable], ready: list[Table], figures: Mapping[str, str]) -> str:
    """Every table and figure of the paper in its order, with ours, preset by preset."""
    there = {table.name: table for table in ready}
    drawn = {link.rpartition("/")[2].removesuffix(".png"): link for link in figures}
    rows = []
    for shown in CORRESPONDENCES:
        places = [shown.link] if shown.link else []
        for part in shown.ours:
            places += _places(part, tables, there, drawn, len(shown.ours) > 1)
        rows.append(words(shown.number, shown.shows, "; ".join(places) or "not run yet"))
    lead = (
        "# The paper, table by table and figure by figure\n\n"
        "In our tables the printed value stands in brackets beside ours; [differences](differences.md) has ours minus "
        "printed for all 336 figures of Tables 5 to 12. Figures that are not shown here are drawn by "
        "`firma report evidence --figures figures`, under the name that is given.\n"
    )
    table = Table("correspondences", "Correspondences", ("in the paper", "shows", "ours"), tuple(rows))
    shown_here = [f"![{caption}](../{link})\n" for link, caption in figures.items()]
    return "\n".join([lead, as_markdown(table), *shown_here])


def _places(
    part: str, tables: Mapping[str, ResultTable], there: Mapping[str, Table], drawn: Mapping[str, str], several: bool
) -> Iterator[str]:
    """Links to our versions of a table or figure, for each preset that has it; named, if it is one of several."""
    if part in drawn:
        yield f"[{part}](../{drawn[part]})"
    for name, table in tables.items():
        full = slug(part, name)
        label = f"{name}, {part}" if several else name
        if full in there:
            yield f"[{label}]({slug(name)}.md#{_anchor(there[full])})"
        if full in drawn:
            yield f"[{label}{', drawn' if full in there else ''}](../{drawn[full]})"
        elif full not in there and _is_figure(part) and _has_runs(part, table):
            yield f"`{full}`"


def _is_figure(part: str) -> bool:
    return part.startswith(("convergence", "rankings", "speed", "savings", "fairness", "radar"))


def _has_runs(part: str, table: ResultTable) -> bool:
    """Whether `firma report` draws this figure for the preset: its data set was run, or any where it shows all."""
    named = [dataset for dataset in DATASETS if part.endswith(slug("", dataset))]
    # slug("", "mnist") also ends "fashion-mnist": the longest name counts
    return max(named, key=len) in table.datasets() if named else bool(table.statistics)


def _preset_page(table: ResultTable, ready: list[Table]) -> str:
    ending = slug("", table.name)
    what = _PRESETS.get(table.name, "changed settings")
    lead = (
        f"# All tables: {table.name}\n\n{what[0].upper()}{what[1:]}. Values are mean ± standard deviation over seeds, "
        "in brackets what the paper printed; a dash was not run.\n"
    )
    found = [each for each in ready if each.name.endswith(ending)]
    return "\n".join([lead, *(f"## {each.title}\n\n{_untitled(each)}" for each in found)])


def _untitled(table: Table) -> str:
    """A table in Markdown whose title is a heading above it, so that others can link to it."""
    return as_markdown(table).split("\n", 2)[2]


def _anchor(table: Table) -> str:
    """The link to a heading, as the usual Markdown renderers make it: letters, digits and hyphens of the title."""
    kept = "".join(sign for sign in table.title.lower() if sign.isalnum() or sign in " -_")
    return kept.replace(" ", "-")


def counted_claims(table: ResultTable) -> str:
    """How many claims hold on one table; computed claims are counted with the paper's tables only."""
    judged = Counter(claim.check(table).verdict for claim in CLAIMS if table.exact or not claim.computed)
    counts = ", ".join(f"{judged[verdict]} {text}" for verdict, text in _VERDICTS.items())
    where = "On the paper's own tables, and by computation" if table.exact else f"On our runs, {table.name}"
    return f"- {where}: {counts}."
