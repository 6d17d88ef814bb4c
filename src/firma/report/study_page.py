"""The report of any study: what is on its page, from the runs and from nothing else."""

from collections.abc import Sequence
from dataclasses import replace

from firma.report.board import SWITCH, Board, board_of
from firma.report.groups import Study, compared
from firma.report.page import Report
from firma.report.study_tables import comparisons, comparisons_by_case, failed, settings
from firma.report.table import Table
from firma.report.tables import versions
from firma.sweep.store import Failure


def study_report(study: Study, failures: Sequence[Failure], against: str | None = None, chosen: bool = False) -> Report:
    """A study with its comparisons and settings; `chosen`: the option to compare was named by the user."""
    board = board_of(study, chosen)
    last = [("", failed(failures))] if failures else []
    cells = [cell for group in study.groups for cell in group.cells]
    last += [("", settings(study)), ("", versions(cells))]
    found = comparison_tables(board, against, chosen)
    return Report("FIRMA report", board, comparisons=found, last=last, failed=len(failures))


def comparison_tables(board: Board, against: str | None, chosen: bool) -> list[tuple[str, Table]]:
    """A against B within each preset that the reader can switch to: over all cases, then case by case."""
    tables = []
    for place, name in enumerate(board.switch):
        wanted = set(board.variants_of(place))
        groups = [group for (k, _, variant), group in board.groups.items() if k == place and variant in wanted]
        own = [option for option in board.study.own if option != SWITCH or not name]
        part = replace(board.study, groups=groups, own=own)
        names = {each.removeprefix(f"{part.lines}=") for each in part.variants()}
        if name and against is not None and against not in names:
            continue  # it was not run with this preset
        found = compared(part, against, chosen)
        if found.overall:
            tables.append((name, comparisons(part, found)))
        if len(found.by_case) > len(found.overall):
            tables.append((name, comparisons_by_case(part, found)))
    return tables
