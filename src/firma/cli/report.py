"""`firma report`: tables, figures and one HTML page from a results folder."""

from collections.abc import Iterator
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firma.cli.options import Json
from firma.errors import BadInput, unknown

if TYPE_CHECKING:
    from firma.report.drawing import Drawing, Picture
    from firma.report.table import Table
    from firma.report.tables import Scope
    from firma.sweep.store import SweepResults


def report(
    results: Annotated[Path, typer.Argument(help="Results folder of firma reproduce.")],
    out: Annotated[Path | None, typer.Option(help="Write only the HTML page, to this file.")] = None,
    show: Annotated[
        str | None,
        typer.Option(
            "--print", metavar="FORMAT", help="Print tables and write no files: text, csv, markdown or latex."
        ),
    ] = None,
    table: Annotated[
        str, typer.Option(help="With --print: only tables whose name contains this text, such as claims.")
    ] = "",
    figures: Annotated[Path | None, typer.Option(help="Write only the figures, to this folder.")] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            help="Write only the comparison with the paper, to this Markdown file, and its figures to figures/ there."
        ),
    ] = None,
    evidence: Annotated[
        Path | None, typer.Option(help="Write only mean and standard deviation over seeds, to this CSV file.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a report of a study: one HTML page with sortable tables, and all figures as PNG and SVG.

    Without options, report.html and the folder figures/ are written into the results folder. The page contains
    claims, tables, figures and the command that repeats each cell, and requires no other file.

    Example: firma report results/study
    """
    from firma.atomic_files import check_writable, write_whole
    from firma.cli.console import out as console
    from firma.cli.console import print_json
    from firma.sweep.store import read_results

    if json and show is not None:
        raise BadInput("--json cannot be combined with --print; --print csv prints tables for programs")
    found = read_results(results)
    if show is not None:
        print_tables(found, show, table)
        return
    if (out, figures, markdown, evidence) == (None, None, None, None):
        out, figures = results / "report.html", results / "figures"
    for option, path in (("out", out), ("markdown", markdown), ("evidence", evidence)):
        if path is not None:
            check_writable(path.parent, option)
    written: list[Path] = []
    drawings: list[Drawing] = []
    if figures is not None:
        check_writable(figures, "figures")
    if figures is not None or out is not None:
        drawings, written = _draw(found, figures)
    if markdown is not None:
        written += _write_document(found, markdown)
    if evidence is not None:
        from firma.paper.published import SHIPPED_METRICS
        from firma.sweep.statistics import result_tables, to_csv

        write_whole(evidence, to_csv(result_tables(found), SHIPPED_METRICS))
        written.append(evidence)
    if out is not None:
        write_whole(out, report_page(found, drawings))
        written.append(out)
    if json:
        print_json({"results": str(results), "written": [str(path) for path in written]})
        return
    for path in written:
        console.print(f"Written: {path}", soft_wrap=True, highlight=False)


def print_tables(results: "SweepResults", form: str, part: str) -> None:
    """The tables whose name contains `part`, on stdout."""
    import sys

    from firma.report.page import about_the_runs
    from firma.report.table import RENDERERS

    if form not in RENDERERS:
        raise unknown("--print: format", form, RENDERERS)
    scope = _scope(results)
    last = [table for section in about_the_runs(results, scope) for table in section.tables]
    tables = [*_tables(results, scope), *last]
    chosen = [table for table in tables if part in table.name]
    if not chosen:
        names = ", ".join(table.name for table in tables)
        raise BadInput(f"--table {part!r}: no table name contains this text; choose from {names}")
    sys.stdout.write("\n".join(RENDERERS[form](table) for table in chosen))


def _scope(results: "SweepResults") -> "Scope":
    """The paper's grid where results are part of it, else what was run."""
    from firma.paper.report import concerns, paper_scope
    from firma.report.tables import scope_of
    from firma.sweep.statistics import result_tables

    return paper_scope() if concerns(results) else scope_of(result_tables(results))


def _tables(results: "SweepResults", scope: "Scope") -> "Iterator[Table]":
    from firma.paper.report import concerns, paper_tables
    from firma.report.tables import sweep_tables
    from firma.sweep.statistics import result_tables

    return (paper_tables if concerns(results) else sweep_tables)(result_tables(results), scope)


def _figures(results: "SweepResults", scope: "Scope") -> "Iterator[Picture]":
    from firma.paper.report import concerns, paper_figures
    from firma.report.figures import sweep_figures

    return (paper_figures if concerns(results) else sweep_figures)(results, scope)


def report_page(results: "SweepResults", drawings: "list[Drawing]") -> str:
    """The HTML page; each figure is drawn once, for the page and for its files."""
    from firma.report.page import Section, about_the_runs, page
    from firma.sweep.statistics import result_tables

    scope = _scope(results)
    tables = list(_tables(results, scope))
    claims = [table for table in tables if table.name == "claims"]
    sections = [
        *([Section("Claims", claims)] if claims else []),
        Section("Tables", [table for table in tables if table not in claims]),
        Section("Figures", drawings=drawings),
        *about_the_runs(results, scope),
    ]
    runs = ", ".join(result_tables(results)) or "none yet"
    return page("FIRMA study", f"{len(results.cells)} cells: {runs}.", sections)


def _draw(results: "SweepResults", folder: Path | None) -> "tuple[list[Drawing], list[Path]]":
    """All figures as SVG, and the files of them if there is a folder."""
    from firma.report.drawing import drawn, save_png

    drawings, written = [], []
    for picture in _figures(results, _scope(results)):
        drawings.append(drawn(picture))
        if folder is not None:
            written += [save_png(picture, folder), folder / f"{picture.name}.svg"]
            written[-1].write_bytes(drawings[-1].svg)
    return drawings, written


def _write_document(results: "SweepResults", path: Path) -> list[Path]:
    """The Markdown page and the few figures that it shows."""
    from firma.atomic_files import write_whole
    from firma.paper.report import DOCUMENT_FIGURES, document, paper_figures, paper_scope
    from firma.report.drawing import save_png

    scope, drawn = paper_scope(), {}
    for picture in paper_figures(results, scope):
        if picture.name in DOCUMENT_FIGURES:
            drawn[save_png(picture, path.parent / "figures")] = picture.caption
    links = {Path(relpath(file, path.parent)).as_posix(): caption for file, caption in drawn.items()}
    write_whole(path, document(results, scope, links))
    return [*drawn, path]
