"""Every table and figure of the paper in its order, with ours beside it: two pages of docs/reproduction.

correspondences.md says where ours is; figures.md shows the figures.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from firma.data.catalogue import PUBLIC, SIZES
from firma.methods import METHODS, Method, properties
from firma.paper.advice import PAPER_BEST
from firma.paper.claim_checks import SIX
from firma.paper.claims import CLAIMS
from firma.paper.claims_page import WIDTH
from firma.paper.grid import DATASETS, SCENARIOS
from firma.report.table import NOTHING, Entry, Table, as_markdown, number, words
from firma.report.tables import slug
from firma.schedule import plan
from firma.settings import Hyper, Preset, hyper_for
from firma.sweep.result_table import ResultTable

_PUBLISHED: Preset = "published"
_SOUND: Preset = "recommended"


@dataclass(frozen=True)
class Shown:
    """A table or figure of the paper: its number, what it shows, and where ours is."""

    number: str
    shows: str
    ours: tuple[str, ...] = ()  # names of our tables or figures, without the preset
    link: str = ""  # to what has it for all presets, in place of tables or figures


def _results_of(dataset: str, first: int) -> tuple[Shown, Shown]:
    return (
        Shown(f"Table {first}", f"{dataset}: accuracy", (slug("mean_accuracy", dataset),)),
        Shown(f"Table {first + 1}", f"{dataset}: Gini coefficient", (slug("gini", dataset),)),
    )


CORRESPONDENCES = (
    Shown("Table 1", "design properties of the methods", link="[below](#table-1-design-properties)"),
    Shown("Table 2", "parameters sent per round (ours: MB)", ("communication",)),
    Shown("Table 3", "data sets", link="[below](#table-3-data-sets)"),
    Shown("Table 4", "hyperparameters", link="[below](#table-4-hyperparameters)"),
    *_results_of("cifar10", 5),
    *_results_of("fashion-mnist", 7),
    *_results_of("mnist", 9),
    *_results_of("digits", 11),
    Shown("Table 13", "what the gate and the three fixes add", ("ablation", "fixes")),
    Shown("Table 14", "which method to use when", link="[below](#table-14-which-method-to-use)"),
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
_LEAD = """# The paper, table by table and figure by figure

The third column is the same experiment: the published recipe, run by us. The fourth is another experiment: clients are
tested on the classes that they hold (presets `recommended` and `paper`), so its figures cannot agree with the printed
ones. In our tables the printed value stands in brackets beside ours; [differences](differences.md) has every number of
Tables 5 to 12, and [figures](figures.md) the paper's figures, drawn from our runs. Those of other presets are drawn by
`firma report evidence --figures figures`, under the name that is given.
"""
_FIGURES = """# The paper's figures, from our runs

Every figure of the paper in its order, drawn from our runs of its recipe (`published`): the same experiment.
[Correspondences](correspondences.md) has the tables, and the same figures for other presets. Several seeds are drawn as
their mean; a band is one standard deviation. A tick or a circle is what the paper prints.
"""
_BEYOND = "Beyond the paper"


# The figures that the pages show; `firma report` draws all of them.
_UNTRAINED = ("design-space", "ring")
_PARTS = [part for shown in CORRESPONDENCES if shown.number.startswith("Figure") for part in shown.ours]
DOCUMENT_FIGURES = (
    *(part if part in _UNTRAINED else slug(part, _PUBLISHED) for part in _PARTS),
    slug("convergence-cifar10", _SOUND),
)


def figures_page(tables: Mapping[str, ResultTable], figures: Mapping[str, str]) -> str:
    """The page of figures in Markdown; `figures` maps links of the first page to captions."""
    captions = {_stem(link): (link, caption) for link, caption in figures.items()}
    text = [_FIGURES]
    if source := tables.get(_PUBLISHED, ResultTable(_PUBLISHED)).source:
        text.append(fill(f"These runs are not among them: {source[0].lower()}{source[1:]}", WIDTH) + "\n")
    headings = dict.fromkeys(_heading(stem) for stem in DOCUMENT_FIGURES)
    for heading in headings:
        stems = [stem for stem in DOCUMENT_FIGURES if _heading(stem) == heading and stem in captions]
        text.append(f"## {heading}\n")
        text += [f"![{captions[stem][1]}](../{captions[stem][0]})\n" for stem in stems] or ["Not run yet.\n"]
    return "\n".join(text)


def _stem(link: str) -> str:
    return link.rpartition("/")[2].removesuffix(".png")


def _heading(stem: str) -> str:
    """The heading below which the page of figures shows a figure."""
    for shown in CORRESPONDENCES:
        if shown.number.startswith("Figure") and stem in (
            *shown.ours,
            *(slug(part, _PUBLISHED) for part in shown.ours),
        ):
            return f"{shown.number}, {shown.shows}"
    return _BEYOND


def correspondences_page(tables: Mapping[str, ResultTable], ready: Sequence[Table], figures: Mapping[str, str]) -> str:
    """The page in Markdown; `figures` maps links of the first page to captions."""
    there = {table.name: table for table in ready}
    drawn = {_stem(link): f"figures.md#{anchor(_heading(_stem(link)))}" for link in figures}
    rows = [words(shown.number, shown.shows, *_ours(shown, tables, there, drawn)) for shown in CORRESPONDENCES]
    columns = ("in the paper", "shows", "the same experiment (`published`)", "another experiment")
    table = Table("correspondences", "Correspondences", columns, tuple(rows))
    small = [_design(), _data(), _hyperparameters(), _guide(tables)]
    text = [_LEAD, as_markdown(table), *(f"## {each.title}\n\n{untitled(each)}" for each in small)]
    return "\n".join(text)


def _ours(
    shown: Shown, tables: Mapping[str, ResultTable], there: Mapping[str, Table], drawn: Mapping[str, str]
) -> tuple[str, str]:
    """Links to our versions: those of the published recipe, and those of the other presets."""
    if shown.link:
        return shown.link, shown.link
    same = [f"[{part}]({drawn[part]})" for part in shown.ours if part in drawn]  # it needs no runs
    if same:
        return "; ".join(same), "the same"
    several = len(shown.ours) > 1
    names = sorted(tables, key=lambda name: (name != _SOUND, name))
    found = {
        name: [place for part in shown.ours for place in _places(part, name, there, drawn, several)]
        for name in (_PUBLISHED, *(name for name in names if name != _PUBLISHED))
    }
    others = [place for name, places in found.items() if name != _PUBLISHED for place in places]
    return "; ".join(found[_PUBLISHED]) or "not run yet", "; ".join(others) or "not run yet"


def _places(part: str, name: str, there: Mapping[str, Table], drawn: Mapping[str, str], several: bool) -> Iterator[str]:
    """Links to our version of a table or figure under one preset; named, if it is one of several."""
    full = slug(part, name)
    label = f"{name}, {part}" if several else name
    if full in there:
        yield f"[{label}]({slug(name)}.md#{anchor(there[full].title)})"
    if full in drawn:
        yield f"[{label}{', drawn' if full in there else ''}]({drawn[full]})"
    elif full not in there and _has_runs(part, there, name):
        yield f"`{full}`"


def _has_runs(part: str, there: Mapping[str, Table], preset: str) -> bool:
    """Whether a figure can be drawn with `firma report`: the runs that it shows are there."""
    named = [name for name in SIZES if part.endswith(f"-{name}")]
    if named:  # "-mnist" also ends "-fashion-mnist": the longest name counts
        return slug("mean_accuracy", max(named, key=len), preset) in there
    return part in ("fairness", "radar") and slug("communication", preset) in there


def _design() -> Table:
    """Table 1: as printed and, with the warm-up included, as the methods run."""
    rows = []
    for name in SIX:
        printed = properties(METHODS[name])
        entries = [Entry(name)]
        for what in ("no central server", "private head"):
            entries.append(_mark(printed[what]))
            entries += [_mark(_in_all_rounds(METHODS[name], what, preset)) for preset in (_PUBLISHED, _SOUND)]
        rows.append(tuple(entries))
    columns = ("method", "no central server, printed", "published", "recommended", "private head, printed", "published",
               "recommended")  # fmt: skip
    note = (
        "Ours is over all of 30 rounds, warm-up included: as published, FibFL++ averages whole models at a server in "
        "the first five. The other properties are those of `firma methods --table` ([methods](../methods.md))."
    )
    return Table("design", "Table 1, design properties", columns, tuple(rows), note)


def _in_all_rounds(row: Method, what: str, preset: Preset) -> bool:
    """Whether no round of 30 has a server, or whether none sends a head."""
    hyper = hyper_for(row, preset, {})
    rounds = [plan(row, hyper, 10, 30, number) for number in range(30)]
    if what == "no central server":
        return all(each.mixing != "star" for each in rounds)
    return all(each.shares not in ("model", "head") for each in rounds)


def _mark(has: bool) -> Entry:
    return Entry("yes" if has else "no")


_PRINTED_SAMPLES = {"cifar10": 50_000, "fashion-mnist": 60_000, "mnist": 60_000, "digits": 1_437}
_DIGITS_TESTS = 360


def _data() -> Table:
    """Table 3 and ours: training samples as printed, and the sizes that runs have."""
    rows = []
    for name, printed in _PRINTED_SAMPLES.items():
        size = SIZES[name]
        tests = PUBLIC[name].test if name in PUBLIC else _DIGITS_TESTS
        sizes = (size.train, tests, size.clients, size.rounds, size.train // size.clients)
        rows.append((Entry(name), number(printed, "{:,.0f}"), *(number(each, "{:,.0f}") for each in sizes)))
    columns = ("data set", "samples, printed", "training samples", "test samples", "clients", "rounds", "per client")
    note = "The paper calls digits MNIST-1797, and mnist MNIST-60k. [Data](../data.md) says where they come from."
    return Table("data", "Table 3, data sets", columns, tuple(rows), note)


def _hyperparameters() -> Table:
    """Table 4: the hyperparameters of every method under our presets."""
    rows = [words(name, _numbers(name, _PUBLISHED), _numbers(name, "paper"), _numbers(name, _SOUND)) for name in SIX]
    note = (
        "`published` and `paper` have the printed ones, but for γ of RDFL, FibFL and FibFL+ as published, printed 0.5: "
        "their printed accuracies are those of a ring that does not mix (RDFL) or keeps 0.7 "
        "([deviations](deviations.md#what-was-found)). "
        "[Methods](../methods.md#how-the-recommended-hyperparameters-were-chosen) says how others were chosen."
    )
    return Table(
        "hyperparameters",
        "Table 4, hyperparameters",
        ("method", "published", "paper", "recommended"),
        tuple(rows),
        note,
    )


def _numbers(name: str, preset: Preset) -> str:
    row, hyper = METHODS[name], hyper_for(name, preset, {})
    shown: dict[str, Any] = {"rate": hyper.rate}
    shown |= {"E": hyper.epochs} if row.training == "joint" else {"Eh": hyper.head_epochs, "Ee": hyper.extractor_epochs}
    if row.retention == "constant":
        shown["γ"] = hyper.retention
    if row.retention == "cosine":
        shown["γ"] = f"{hyper.retention_start} to {hyper.retention_end}"
    if row.gate == "yes":
        shown["τ"] = hyper.threshold
    usual = Hyper.model_fields
    for field in ("schedule", "local_steps", "weight_decay"):
        if (value := getattr(hyper, field)) != usual[field].default:
            shown[field.replace("_", " ")] = value
    return ", ".join(f"{key} {value}" for key, value in shown.items())


# The rows of Table 14 that name a scenario: the runner-up is the paper's.
_RUNNERS_UP = {
    "iid": "fibfl++, fedrep", "dir-0.8": "fibfl++", "dir-0.5": "fibfl++", "dir-0.1": "fibfl++", "skew-1": "rdfl",
    "skew-2": "rdfl", "skew-3": "fibfl++",
}  # fmt: skip
# The others: scenario, the paper's best and runner-up, and the claim that judges it.
_NEEDS = (
    ("N ≤ 5", "fibfl++", "rdfl", "guide-small"),
    ("fairness-critical", "fibfl++", "fedavg", "guide-fairness"),
    ("bandwidth-limited", "fedavg", "fedrep", "traffic"),
    ("fast warm-start", "fibfl, fibfl+", "rdfl", "warm-start"),
    ("unknown distribution", "fibfl++", "rdfl", "guide-unknown"),
)


def _guide(tables: Mapping[str, ResultTable]) -> Table:
    """Table 14: the paper's choice, and the most accurate of the six on every data set that was run with all six."""
    ours = [tables.get(name, ResultTable(name)) for name in (_PUBLISHED, _SOUND)]
    rows = [
        words(
            scenario, ", ".join(PAPER_BEST[scenario]), _RUNNERS_UP[scenario], *(_best(scenario, each) for each in ours)
        )
        for scenario in SCENARIOS
    ]
    claims = {claim.name: claim for claim in CLAIMS}
    for scenario, best, second, name in _NEEDS:
        judged = [f"[{claims[name].check(table).brief}](claims.md#{name})" for table in ours]
        rows.append(words(scenario, best, second, *judged))
    note = (
        "Ours: the method with the highest mean of the paper's six, clear or not, where all six were run; in the last "
        "five rows, the verdict on the claim. `firma advise` takes all methods of this package into account."
    )
    columns = ("scenario", "the paper's best", "runner-up", "ours, published", "ours, recommended")
    return Table("guide", "Table 14, which method to use", columns, tuple(rows), note)


def _best(scenario: str, table: ResultTable) -> str:
    found = []
    for dataset in DATASETS:
        means = {name: each.mean for name in SIX if (each := table.get((dataset, scenario), name)) is not None}
        if len(means) == len(SIX):
            found.append(f"{dataset} {max(means, key=lambda name: means[name])}")
    return ", ".join(found) or NOTHING.text


def untitled(table: Table) -> str:
    """A table in Markdown whose title is a heading above it, so that others can link to it."""
    return as_markdown(table).split("\n", 2)[2]


def anchor(title: str) -> str:
    """The link to a heading, as the usual Markdown renderers make it: letters, digits and hyphens of the title."""
    kept = "".join(sign for sign in title.lower() if sign.isalnum() or sign in " -_")
    return kept.replace(" ", "-")
