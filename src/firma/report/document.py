"""docs/reproduction.md, written from results and from nothing else."""

from collections import Counter
from collections.abc import Iterator, Mapping

from firma.report.overview import coverage, versions
from firma.report.part_tables import FULL
from firma.report.table import as_markdown
from firma.report.tables import all_tables
from firma.study.claims import CLAIMS
from firma.study.evidence import PLACES, Evidence, Place, gathered
from firma.study.store import Study
from firma.study.verdicts import Outcome, higher

_WORDS: Mapping[Outcome, str] = {"holds": "hold", "fails": "fail", "undecided": "are not decided"}
_LEAD = """# Reproduction

This page is generated from a folder of results by `firma report RESULTS --markdown docs/reproduction.md`; nobody types
figures into it. A dash is a cell that was not run. Figures are mean ± standard deviation over seeds; in brackets is
what the paper printed. `firma reproduce --out RESULTS` runs the study and goes on where it was interrupted.

Preset `published` sets every switch as the published study had it; preset `paper` has the paper's numbers with sound
switches, of which the first is that a client is tested on the classes that it holds; preset `recommended` has these
switches and numbers that were chosen for every method on validation data (benchmarks/choose_numbers.py).
"""


def document(study: Study, paper: Evidence, pictures: Mapping[str, str] | None = None) -> str:
    """The whole page in Markdown; `pictures` are links to figures, from the page, and what each shows."""
    bodies = gathered(study)
    tables = list(all_tables(paper, bodies))
    by_body = [(name, [t for t in tables if t.name.endswith(f"-{name.replace(' ', '-')}")]) for name in bodies]
    parts = [
        _LEAD,
        "## In short\n",
        *_short(bodies),
        "## What was run\n",
        as_markdown(coverage(bodies)),
        as_markdown(versions(study.cells)),
    ]
    parts += ["## Claims\n", _counted(paper), *(_counted(body) for body in bodies.values())]
    parts += [as_markdown(table) for table in tables if table.name == "claims"]
    for name, group in by_body:
        parts += [f"## Runs: {name}\n", *(as_markdown(table) for table in group)]
    if pictures:
        parts += ["## Figures\n", *(f"![{said}]({link})\n" for link, said in pictures.items())]
    return "\n".join(parts)


def _short(bodies: Mapping[str, Evidence]) -> Iterator[str]:
    """What most readers come for: against each baseline and against training alone, won how often, by how much."""
    for body in bodies.values():
        for other in ("fedavg", "fedrep", "rdfl", "local"):
            gains = {
                place: 100 * (own.mean - theirs.mean)
                for place in PLACES
                if (own := body.get(place, FULL)) and (theirs := body.get(place, other))
            }
            if gains:
                judged = Counter(higher(FULL, other)(body, place) for place in gains)
                sure = f"{judged[True]} clearly above, {judged[False]} clearly below, {judged[None]} too close to call"
                yield f"- {body.name}: `{FULL}` against `{other}`, mean accuracy: {_won_and_lost(gains)}; {sure}."
    yield "\nClear is more than two standard errors; with one seed, more than a point.\n"


def _won_and_lost(gains: Mapping[Place, float]) -> str:
    """How many were won, and the two extremes."""
    ranked = sorted(gains, key=lambda place: gains[place])
    low, high = (f"{gains[place]:+.1f} points ({', '.join(place)})" for place in (ranked[0], ranked[-1]))
    return f"above in {sum(gain > 0 for gain in gains.values())} of {len(gains)}, from {low} to {high}"


def _counted(body: Evidence) -> str:
    """How many claims hold on one body of evidence; computed ones are counted with the paper's tables only."""
    judged = Counter(claim.check(body).outcome for claim in CLAIMS if body.exact or not claim.computed)
    counts = ", ".join(f"{judged[outcome]} {word}" for outcome, word in _WORDS.items())
    where = "On the paper's own tables, and by computation" if body.exact else f"On our runs, {body.name}"
    return f"{where}: {counts}.\n"
