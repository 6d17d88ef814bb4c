"""docs/reproduction/claims.md: every claim with its verdicts, by part of the paper; and how many of them hold."""

from collections import Counter
from collections.abc import Iterator, Mapping
from textwrap import fill

from firma.paper.claims import CLAIMS, PARTS, Claim
from firma.paper.judging import ClaimJudgement, ClaimVerdict
from firma.paper.published import published
from firma.sweep.result_table import ResultTable

WIDTH = 120
_TOLD: Mapping[ClaimVerdict, str] = {"holds": "hold", "fails": "fail", "undecided": "are undecided"}
# The labels of our runs, in the order in which pages show them, and in words.
RUNS: Mapping[str, str] = {
    "published": "Its recipe, run by us (`published`)",
    "recommended": "Sound tests, tuned hyperparameters (`recommended`)",
    "paper": "Sound tests, the paper's hyperparameters (`paper`)",
}
_LEAD = """The place is the section, equation, table or remark of the paper. What was not run counts neither way.

- **Clear** is a difference whose 95 % interval, paired by seed, is on one side of zero. With one or two seeds a
  convention decides: an accuracy or a Gini coefficient must differ by more than 0.01, a number of rounds by more than
  one, a plateau σ by more than a factor of two. All else is too close to call. Bounds are judged in the same way.
- **Of many comparisons** some are clear by chance. A claim fails only by cases that survive Holm's correction over all
  comparisons of the claim that have an interval; cases with one or two seeds count by the convention.
- **The paper's tables** are taken as printed, one run each.
- **Does not apply**: the claim is about a switch of the published study that the preset changes.
- **Another reading** of a claim and **our questions** are marked, and not counted.
"""


def in_order(tables: Mapping[str, ResultTable]) -> dict[str, ResultTable]:
    """Result tables in the order of `RUNS`, others after them."""
    return {name: tables[name] for name in [*RUNS, *tables] if name in tables}


def run_name(name: str) -> str:
    """The label of runs in words."""
    return RUNS.get(name, f"Our runs, {name}")


def claims_page(tables: Mapping[str, ResultTable]) -> str:
    """The page in Markdown; each claim is a heading that others link to."""
    shown = in_order(tables)
    text = ["# Claims\n", _LEAD, *(_wrapped(counted_claims(table)) for table in (published(), *shown.values()))]
    for title, claims in PARTS.items():
        text.append(f"\n## {title}")
        for claim in claims:
            text += [f"\n### {claim.name}\n", _wrapped(f"**{claim.asked}** ({claim.where}).", ""), ""]
            text += list(_verdicts(claim, shown))
            text.append(_wrapped(f"- Checked: {claim.how}"))
    return "\n".join(text) + "\n"


def _verdicts(claim: Claim, tables: Mapping[str, ResultTable]) -> Iterator[str]:
    own = claim.check(published())
    if claim.computed:
        yield _wrapped(f"- By computation: {_bold(own)}")
        return
    yield _wrapped(f"- The paper's own tables: {_bold(own)}")
    for name, table in tables.items():
        yield _wrapped(f"- {run_name(name)}: {_bold(claim.check(table))}")


def _bold(judged: ClaimJudgement) -> str:
    verdict, colon, rest = judged.sentence.partition(":")
    return f"**{verdict}**{colon}{rest}"


def _wrapped(text: str, indent: str = "  ") -> str:
    return fill(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def count(table: ResultTable) -> Counter[ClaimVerdict]:
    """Verdicts on the paper's claims, without second readings and questions of ours; computed ones with its tables."""
    asked = [claim for claim in CLAIMS if claim.origin == "paper" and (table.exact or not claim.computed)]
    return Counter(claim.check(table).verdict for claim in asked)


def counted_claims(table: ResultTable) -> str:
    """How many of the paper's claims hold on one table, as a line of a list."""
    judged = count(table)
    counts = ", ".join(f"{judged[verdict]} {text}" for verdict, text in _TOLD.items())
    apart = f"; {judged['does not apply']} do not apply" if judged["does not apply"] else ""
    where = "On the paper's own tables, and by computation" if table.exact else f"On our runs, {table.name}"
    said = f" {table.source}" if table.source and not table.exact else ""
    return f"- {where}: {counts}{apart}.{said}"
