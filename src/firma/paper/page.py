"""What the paper adds to the page of its study: its question, its printed values, its claims and its own tables."""

from collections.abc import Mapping

from firma.methods import METHODS
from firma.paper.after_warmup import claim_tables
from firma.paper.claims import CLAIMS, Claim
from firma.paper.claims_page import counted_claims
from firma.paper.grid import DATASETS, FULL
from firma.paper.judging import RULES
from firma.paper.published import published
from firma.paper.report import paper_scope, special_tables
from firma.paper.reproduction import HEADLINES, against_rivals
from firma.report.board import board_of
from firma.report.groups import Group, study_of
from firma.report.page import Finding, Part, Report, Statement
from firma.report.study_page import comparison_tables
from firma.report.tables import about_the_runs
from firma.run_facts import Facts
from firma.sweep.cells import label
from firma.sweep.result_table import ResultTable
from firma.sweep.store import StoredCell, SweepResults

_PAPER = published()
_ORDER = ("recommended", "published", "paper")
_QUESTION = (
    "The paper says that FibFL++, a ring without a server, beats FedAvg wherever clients hold few classes and is the "
    "most accurate method in most cases. Is it so? Presets: recommended (clients are tested on what they hold, numbers "
    "chosen on validation data), published (as the study was published), paper (its numbers, tested as recommended)."
)


def paper_report(results: SweepResults) -> Report:
    """The report of the study with the paper's parts; results may be those of rings alone."""
    found = claim_tables(results)
    tables = {name: found[name] for name in [*_ORDER, *found] if name in found}
    parts = [_claims(tables), _own_tables(tables)]
    last = [("", table) for table in about_the_runs(results, paper_scope())]
    findings = {name: _findings(table) for name, table in tables.items()}
    title = "The FIRMA paper's study, run again"
    if not results.cells:
        return Report(title, None, _QUESTION, parts, (), last, findings)
    # Runs whose numbers are not those of their preset have a name of their own, as in all other tables of the study.
    study = study_of(results.cells, named_by=_label)
    board = board_of(study, condition=True, aside=lambda name: name not in METHODS)
    against = comparison_tables(board, FULL, True)
    return Report(
        title, board, _QUESTION, parts, against, last, findings, len(results.failures), _printed, _PAPER.source
    )


def _label(cell: StoredCell) -> Facts:
    return {"preset": str(label(cell.result.config, cell.result.method))}


def _printed(group: Group, metric: str) -> float | None:
    """What the paper printed of a group."""
    case = (str(group.value("dataset")), str(group.value("scenario")))
    found = _PAPER.get(case, str(group.value("method")), metric) if case[0] in DATASETS else None
    return None if found is None else found.mean


def _findings(table: ResultTable) -> list[str]:
    """How many claims hold, and how the paper's method does against its first rival."""
    counts = counted_claims(table).partition(": ")[2]
    return [
        f"Of the paper's claims about results, on these runs {counts}",
        *(each.removeprefix("- ").replace("`", "") for each in list(against_rivals(table))[:1]),
    ]


def _claims(tables: Mapping[str, ResultTable]) -> Part:
    """All claims, the main ones first; each with what every set of results says."""
    first = {claim.name: claim for claim in CLAIMS}
    main = [first[name] for name in HEADLINES]
    others = [claim for claim in CLAIMS if claim.name not in HEADLINES]
    counted = [counted_claims(table).removeprefix("- ") for table in (_PAPER, *tables.values())]
    note = f"{RULES} Counted are the paper's claims, without our questions and second readings."
    return Part(
        "Claims", [" ".join(counted), note], [_statement(claim, tables) for claim in main],
        [_statement(claim, tables) for claim in others],
    )  # fmt: skip


def _statement(claim: Claim, tables: Mapping[str, ResultTable]) -> Statement:
    findings = []
    for name, table in {**tables, "the paper's tables": _PAPER}.items():
        judged = claim.check(_PAPER if claim.computed else table)
        findings.append(Finding(name, judged.verdict, judged.sentence))
    if claim.computed:  # it needs no runs
        findings = [Finding("computed", findings[-1].verdict, findings[-1].sentence)]
    return Statement(claim.asked, f"{claim.where}: {claim.name}. {claim.how}", findings)


def _own_tables(tables: Mapping[str, ResultTable]) -> Part:
    """The tables of the paper that the reader cannot get by switching the metric."""
    scope = paper_scope()
    found = [(name, each) for name, table in tables.items() for each in special_tables(table, scope)]
    return Part("The paper's tables", ["In brackets: printed in the paper."], tables=found)
