"""docs/reproduction.md and the pages beside it, written from results and from nothing else.

The first page is short: what the paper says, what we find, why the two differ. The others hold every claim, every table
and figure of the paper with ours beside it, and all tables of each preset.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from textwrap import fill

from firma.methods import LEADING_METHODS, METHODS
from firma.paper.after_warmup import claim_tables
from firma.paper.claim_checks import COLLAPSE, loss
from firma.paper.claims import CLAIMS, Claim
from firma.paper.claims_page import WIDTH, claims_page, count
from firma.paper.correspondences import correspondences_page, figures_page, untitled
from firma.paper.differences import closeness, differences_page
from firma.paper.grid import CASES, DATASETS, FULL, RIVALS, SCENARIOS
from firma.paper.judging import contrast, higher, listed
from firma.paper.lead import LEAD, lead_page
from firma.paper.published import published
from firma.paper.report import paper_tables
from firma.report.table import Entry, Table, as_markdown, mark_best, words
from firma.report.tables import PERCENT, Scope, coverage, slug, versions
from firma.sweep.result_table import ResultTable, by_label, result_tables
from firma.sweep.store import SweepResults

_FIRST_FIGURE = "rankings-digits-published"
_SOUND, _PUBLISHED = "recommended", "published"
# What a reader of the abstract wants to know first.
HEADLINES = (
    "skew-wins", "skew-peak", "highest", "fedavg-leads", "fedrep-collapse", "heads-lose", "ring-positive",
    "beats-local",
)  # fmt: skip
_PRINTED = """## Printed and rerun

Why our runs of the paper's recipe (`--preset published`) differ from what it prints:

{closeness}

- **The split of label skew.** The printed figures agree with smaller shares than the text has at K = 2 and 3, and so
  do the savings by 2-opt. The preset uses them.
- **Kept momentum.** RDFL and FedRep as printed agree with optimisers that are kept across rounds. The preset resets
  them; `--method rdfl:persistent=yes` does not.
- **RDFL never mixes.** Its printed figures are those of plain local training, and the preset has them so.
- **Standardised inputs.** The text says that inputs are in [0, 1]; its public code scales them otherwise, and so does
  the preset.{unit}
- **Clients keep 0.7** of their own parameters in FibFL and FibFL+ as printed, and in the preset; the text has 0.5. Both
  swing from round to round, and one last round is printed.
- **Not explained**: K = 2 on MNIST and CIFAR-10, and single figures of FibFL+ on digits.

[Deviations](reproduction/deviations.md) has the search, [differences](reproduction/differences.md) every figure.

"""
_SOUNDLY = """## Rerun and soundly tested

Why the picture turns over between the recipe and the [other presets](methods.md#three-presets):

- **What clients are tested on.** In the recipe a client's training and test data are two independent draws: at Dir 0.1
  it is tested on classes that it never saw, and private heads collapse. Ours have the same class proportions.
- **How models start.** In the recipe each client starts from weights of its own, and the average of unrelated networks
  is at chance: the slow start that the paper puts down to the ring. Ours share their first weights.
- **Who averages the warm-up.** In the recipe a server averages whole models, heads included, in the first sixth of the
  rounds. Round 6 of 30, whose changes the paper puts down to the ring ([jump](reproduction/claims.md#jump),
  [decay](reproduction/claims.md#decay)), is the first without it. Ours averages extractors on the ring.
- **Hyperparameters.** Those of `recommended` were chosen for every method alike, on validation data.

"""
_NOTES = """`digits` is the paper's MNIST-1797, `mnist` its MNIST-60k, `skew-1` label skew with K = 1. A *case* is one
of its 28 pairs of a data set and a scenario. Not in the paper are `local`, training alone, and `frame`, this project's
method. {seeds} *Clear* is what exceeds the noise of the seeds, paired, or a convention with one or two
seeds ([rules](reproduction/claims.md)). `firma report RESULTS --markdown docs/reproduction.md` writes this page; no
result on it is typed."""
_LINKS = """
- [Every table and figure of the paper, ours beside it](reproduction/correspondences.md); [its figures, from our
  runs](reproduction/figures.md)
- [What was run](reproduction/runs.md); `firma reproduce --out RESULTS` runs the study, or continues it"""
_PRESETS = {
    "published": "every switch as in the published study",
    "paper": "the paper's hyperparameters with sound switches: above all, clients are tested on the classes they hold",
    "recommended": "sound switches, and hyperparameters chosen on validation data",
}


def documents(results: SweepResults, scope: Scope, figures: Mapping[str, str]) -> dict[str, str]:
    """All pages in Markdown, by their path beside the first one; `figures` maps links of that page to captions."""
    tables = claim_tables(results)
    ready = list(paper_tables(tables, scope))
    pages = {"reproduction.md": _first_page(tables, scope, figures)}
    pages["reproduction/claims.md"] = claims_page(tables)
    pages["reproduction/correspondences.md"] = correspondences_page(tables, ready, figures)
    pages["reproduction/figures.md"] = figures_page(tables, figures)
    for name, table in tables.items():
        pages[f"reproduction/{slug(name)}.md"] = _preset_page(table, ready)
    pages["reproduction/differences.md"] = differences_page(_of(tables, _PUBLISHED), published())
    if sound := by_label(results.cells).get(_SOUND):
        pages["reproduction/lead.md"] = lead_page(sound)
    pages["reproduction/runs.md"] = "\n".join(
        ["# What was run\n", as_markdown(coverage(result_tables(results), scope)), as_markdown(versions(results.cells))]
    )
    return pages


def _indented(sentence: str) -> str:
    """What continues an item of a list, on lines of its own; nothing, if there is nothing to say."""
    lines = fill(sentence, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return f"\n{lines}" if sentence else ""


def _of(tables: Mapping[str, ResultTable], name: str) -> ResultTable:
    return tables.get(name, ResultTable(name))


def _first_page(tables: Mapping[str, ResultTable], scope: Scope, figures: Mapping[str, str]) -> str:
    text = ["# Reproduction\n", _paragraph(in_short(tables)), "## What the paper says, what we find\n"]
    text.append(as_markdown(headlines(tables)).split("\n", 2)[2])
    recipe = _of(tables, _PUBLISHED)
    text.append(_PRINTED.format(closeness=closeness(recipe, published()), unit=_indented(recipe.source)))
    text += [f"![{caption}]({link})\n" for link, caption in figures.items() if _FIRST_FIGURE in link]
    text.append(_SOUNDLY)
    if _SOUND in tables:
        text += ["## Who wins, soundly tested\n", as_markdown(winners(tables[_SOUND], scope)).split("\n", 2)[2]]
        text.append(f"[`{LEAD}` case by case](reproduction/lead.md), paired by seed.\n")
    notes = " ".join(_NOTES.format(seeds=seeds_told(tables)).split())
    text += ["## Notes\n", fill(notes, WIDTH, break_on_hyphens=False, break_long_words=False), _LINKS]
    pages = ", ".join(f"[{name}](reproduction/{slug(name)}.md)" for name in tables)
    text.append(fill(f"- All tables: {pages}", WIDTH, subsequent_indent="  ", break_on_hyphens=False))
    return "\n".join(text).replace("\n\n\n", "\n\n") + "\n"


def _paragraph(sentences: Sequence[str]) -> str:
    return fill(" ".join(sentences), WIDTH, break_on_hyphens=False, break_long_words=False) + "\n"


def in_short(tables: Mapping[str, ResultTable]) -> list[str]:
    """The answer in a few sentences, each said only if there are runs for it."""
    own = count(published())
    found = [
        f"In short: of the paper's {own.total()} claims, its own tables and formulas bear out {own['holds']} and "
        f"contradict {own['fails']}; {own['undecided']} cannot be checked from them."
    ]
    if (recipe := _of(tables, _PUBLISHED)).statistics:
        judged = count(recipe)
        found.append(
            f"Run by its recipe, {judged['holds']} of the {judged.total()} claims about results hold, "
            f"{judged['fails']} fail and {judged['undecided']} are open, for lack of runs or seeds."
        )
    sound = _of(tables, _SOUND)
    found += _heads(sound)
    found += _wins(sound)
    return [*found, "[Every claim](reproduction/claims.md) has its verdicts on a page of its own."]


def _heads(table: ResultTable) -> Iterator[str]:
    """Whether private heads collapse where clients are tested on what they hold."""
    both = [name for name in DATASETS if all(table.get((name, each), "fedrep") for each in ("iid", "dir-0.1"))]
    lost = {dataset: _lost(table, dataset) for dataset in both}
    if not lost:
        return
    told = listed([f"{-100 * points:+.1f} on {dataset}" for dataset, points in lost.items()])
    printed = listed([f"{-100 * _lost(published(), dataset):+.1f}" for dataset in lost])
    fallen = [dataset for dataset, points in lost.items() if points >= COLLAPSE]
    verb = f"collapse on {', '.join(fallen)}" if fallen else "do not collapse"
    yield (
        f"Tested on the classes that clients hold, private heads {verb} at Dir 0.1: the accuracy of FedRep there, "
        f"minus that on IID data, is in points {told}, where the paper prints {printed}."
    )


def _lost(table: ResultTable, dataset: str) -> float:
    """What FedRep loses from IID to Dir 0.1; 0 if one of them was not run."""
    found = contrast(table, loss(dataset))
    return 0.0 if found is None else found.mean


def _wins(table: ResultTable) -> Iterator[str]:
    """How FibFL++ does against FedAvg, FedRep and training alone in sound runs."""
    told = []
    for other, name in (("fedavg", "FedAvg"), ("fedrep", "FedRep"), ("local", "training alone")):
        judged = [found for case in CASES if (found := higher(FULL, other)(table, case)) != "not run"]
        if judged:
            wins, losses = judged.count(True), judged.count(False)
            told.append(f"than {name} in {wins} of {len(judged)} cases (less so in {losses})")
    if told:
        yield f"There FibFL++ is clearly more accurate {listed(told)}."


def seeds_told(tables: Mapping[str, ResultTable]) -> str:
    """With how many seeds each data set was run, over all presets."""
    told = []
    for dataset in DATASETS:
        found = [
            each.seeds
            for table in tables.values()
            for (where, _, method, _), each in table.statistics.items()
            if where == dataset and method in METHODS
        ]
        if found:
            low, high = min(found), max(found)
            told.append(f"{dataset} {low if low == high else f'{low} to {high}'}")
    seeds = f"Seeds: {', '.join(told)}" if told else "Nothing was run"
    return f"{seeds}; [not every case was run](reproduction/runs.md)."


def headlines(tables: Mapping[str, ResultTable]) -> Table:
    """The claims of the abstract, judged on the paper's own tables, on its recipe and on sound runs."""
    chosen = [published(), _of(tables, _PUBLISHED), _of(tables, _SOUND)]
    named = {claim.name: claim for claim in CLAIMS}
    rows = [_judged(named[name], chosen) for name in HEADLINES]
    columns = ("the paper says", "its own tables", "its recipe, run by us", "soundly tested and tuned")
    return Table("headlines", "The main claims", columns, tuple(rows))


def _judged(claim: Claim, tables: Sequence[ResultTable]) -> tuple[Entry, ...]:
    statement = f"[{claim.asked}](reproduction/claims.md#{claim.name})"
    return words(statement, *(claim.check(table).brief for table in tables))


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
    heads = tuple(f"{dataset} ({len(here)})" for dataset, here in cases.items())
    note = "Mean accuracy in % over the scenarios, in brackets how many, that were run with FibFL++ and its rivals."
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


def _preset_page(table: ResultTable, ready: Sequence[Table]) -> str:
    ending = slug("", table.name)
    what = _PRESETS.get(table.name, "changed settings")
    lead = (
        f"# All tables: {table.name}\n\n{what[0].upper()}{what[1:]}. Values are mean ± standard deviation over seeds, "
        f"in brackets what the paper printed; a dash was not run.{f' {table.source}' if table.source else ''}\n"
    )
    found = [each for each in ready if each.name.endswith(ending)]
    return "\n".join([lead, *(f"## {each.title}\n\n{untitled(each)}" for each in found)])
