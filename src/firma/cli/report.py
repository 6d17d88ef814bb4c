"""`firma report`: tables, figures, comparisons and one HTML page from results folders."""

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firma.cli.options import Json
from firma.errors import BadInput, unknown

if TYPE_CHECKING:
    from firma.comparison import ComparisonTable
    from firma.report.drawing import Pictures
    from firma.report.groups import Study
    from firma.report.table import Table
    from firma.sweep.store import SweepResults


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER...", help="Results of firma sweep, firma run --out or firma reproduce; several are joined."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Write only the HTML page, to this file.")] = None,
    show: Annotated[
        str | None,
        typer.Option(
            "--print", metavar="FORMAT", help="Print tables and write no files: text, csv, markdown or latex."
        ),
    ] = None,
    table: Annotated[
        str, typer.Option(help="With --print: only tables whose name contains this text, such as comparisons.")
    ] = "",
    by: Annotated[
        str | None,
        typer.Option(metavar="OPTION", help="The option whose values are compared. Default: method, if it varies."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="VALUE", help="Compare with this value only, such as fedavg. Default: all pairs."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="The metric to compare, such as worst_client. Default: the first of a result.")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Write only the figures, to this folder.")] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            help="Write only the tables, to this Markdown file; of firma reproduce, the comparison with the paper, the "
            "pages that it links to in reproduction/ there, and its figures in figures/."
        ),
    ] = None,
    evidence: Annotated[
        Path | None, typer.Option(help="Write only mean and standard deviation over seeds, to this CSV file.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a report of runs: one HTML page to browse, and all figures as PNG and SVG.

    Without options, report.html and the folder figures/ are written into the results folder, and what is better than
    what is printed: the difference with its confidence interval, a paired test over seeds, and wins, losses and ties.
    The page says who wins where, then shows each data set with its curves, comparisons, and every run with its clients
    and the command that repeats it; it requires no other file. Results of firma reproduce are compared with the paper.

    Example: firma report results/grid --against fedavg --metric worst_client
    """
    from firma.cli.console import print_json
    from firma.sweep.result_folders import read_folders

    found = read_folders(results)
    chosen = _Chosen(by, against, metric)
    of_paper = _of_paper(results, found) and not json
    if of_paper and chosen != _Chosen():
        raise BadInput("--by, --against and --metric: not for results of firma reproduce, except with --json")
    if json:
        print_json(_document(found, chosen))
        return
    if show is not None:
        tables = _paper_tables(found) if of_paper else _study_tables(found, chosen)
        print_tables(tables, show, table)
        return
    if (out, figures, markdown, evidence) == (None, None, None, None):
        if len(results) > 1:
            raise BadInput("several folders: --out names the HTML page to write, such as --out report.html")
        out, figures = results[0] / "report.html", results[0] / "figures"
        if not of_paper:
            _print_comparisons(found, chosen)
    _write(found, chosen, of_paper, _Targets(out, figures, markdown, evidence))


@dataclass(frozen=True)
class _Chosen:
    """What to compare: the option, the value to compare with, and the metric."""

    by: str | None = None
    against: str | None = None
    metric: str | None = None


@dataclass(frozen=True)
class _Targets:
    """The files and folders to write; None is not written."""

    out: Path | None
    figures: Path | None
    markdown: Path | None
    evidence: Path | None


def _of_paper(folders: Sequence[Path], results: "SweepResults") -> bool:
    """Whether these are results of `firma reproduce`: of the paper's data sets, and of no grid of the user's own."""
    from firma.paper.report import concerns
    from firma.sweep.store import GRID_FILE, has_cells

    own = any(not has_cells(folder) or (folder / GRID_FILE).exists() for folder in folders)
    return not own and concerns(results)


def _study(results: "SweepResults", chosen: _Chosen) -> "tuple[Study, ComparisonTable]":
    from firma.report.groups import compared, study_of

    study = study_of(results.cells, chosen.metric, chosen.by)
    return study, compared(study, chosen.against, always=chosen.by is not None)


def _document(results: "SweepResults", chosen: _Chosen) -> dict[str, Any]:
    from firma.report.study_tables import as_document

    return as_document(*_study(results, chosen), results.failures)


def _print_comparisons(results: "SweepResults", chosen: _Chosen) -> None:
    """What is better than what, on stdout."""
    import sys

    from firma.report.study_tables import comparisons
    from firma.report.table import as_text

    study, found = _study(results, chosen)
    if found.overall:
        sys.stdout.write(as_text(comparisons(study, found)) + "\n")
    elif study.lines in study.axes and (chosen.by or study.lines == "method"):
        sys.stdout.write(f"No two runs share everything but the {study.lines}: nothing can be compared.\n\n")


def _study_tables(results: "SweepResults", chosen: _Chosen) -> "list[Table]":
    from firma.report.study_tables import last_tables, study_tables

    study, found = _study(results, chosen)
    return [*study_tables(study, found, results.failures), *last_tables(study)]


def _paper_tables(results: "SweepResults") -> "list[Table]":
    from firma.paper.after_warmup import claim_tables
    from firma.paper.report import paper_scope, paper_tables
    from firma.report.tables import about_the_runs, cell_table

    scope = paper_scope()
    return [*paper_tables(claim_tables(results), scope), *about_the_runs(results, scope), cell_table(results.cells)]


def print_tables(tables: "Sequence[Table]", form: str, part: str) -> None:
    """The tables whose name contains `part`, on stdout."""
    import sys

    from firma.report.table import RENDERERS

    if form not in RENDERERS:
        raise unknown("--print: format", form, RENDERERS)
    chosen = [table for table in tables if part in table.name]
    if not chosen:
        names = ", ".join(table.name for table in tables)
        raise BadInput(f"--table {part!r}: no table name contains this text; choose from {names}")
    sys.stdout.write("\n".join(RENDERERS[form](table) for table in chosen))


def _write(results: "SweepResults", chosen: _Chosen, of_paper: bool, targets: _Targets) -> None:
    """Write the files that were asked for, and say which."""
    from firma.atomic_files import check_writable, write_whole
    from firma.cli.console import out as console

    for option, path in (("out", targets.out), ("markdown", targets.markdown), ("evidence", targets.evidence)):
        if path is not None:
            check_writable(path.parent, option)
    written: list[Path] = []
    if targets.figures is not None:
        check_writable(targets.figures, "figures")
        written = _draw(_paper_figures(results) if of_paper else _study_figures(results, chosen), targets.figures)
    if targets.markdown is not None:
        written += _write_document(results, chosen, of_paper, targets.markdown)
    if targets.evidence is not None:
        write_whole(targets.evidence, _evidence(results, chosen, of_paper))
        written.append(targets.evidence)
    if targets.out is not None:
        write_whole(targets.out, _page(results, chosen, of_paper))
        written.append(targets.out)
    for path in written:
        console.print(f"Written: {path}", soft_wrap=True, highlight=False)


def _paper_figures(results: "SweepResults") -> "Pictures":
    from firma.paper.report import paper_figures, paper_scope

    return paper_figures(results, paper_scope())


def _study_figures(results: "SweepResults", chosen: _Chosen) -> "Pictures":
    from firma.report.study_figures import study_figures

    return study_figures(_study(results, chosen)[0])


def _evidence(results: "SweepResults", chosen: _Chosen, of_paper: bool) -> str:
    from firma.paper.published import SHIPPED_METRICS
    from firma.report.study_tables import results as result_rows
    from firma.report.table import as_csv
    from firma.sweep.result_table import result_tables, to_csv

    if of_paper:
        return to_csv(result_tables(results), SHIPPED_METRICS)
    return as_csv(result_rows(_study(results, chosen)[0]))


def _page(results: "SweepResults", chosen: _Chosen, of_paper: bool) -> str:
    """The HTML page."""
    from firma.report.page import page

    if of_paper:
        from firma.paper.page import paper_report

        return page(paper_report(results))
    from firma.report.groups import study_of
    from firma.report.study_page import study_report

    study = study_of(results.cells, chosen.metric, chosen.by)
    return page(study_report(study, results.failures, chosen.against, chosen.by is not None))


def _draw(pictures: "Pictures", folder: Path) -> list[Path]:
    """Every figure as PNG and as SVG."""
    from firma.report.drawing import as_svg, save_png

    written = []
    for picture in pictures:
        written += [save_png(picture, folder), folder / f"{picture.name}.svg"]
        written[-1].write_bytes(as_svg(picture))
    return written


def _write_document(results: "SweepResults", chosen: _Chosen, of_paper: bool, path: Path) -> list[Path]:
    """The Markdown page; of the paper's study, the pages beside it and the few figures that they show."""
    from firma.atomic_files import write_whole
    from firma.paper.correspondences import DOCUMENT_FIGURES
    from firma.paper.report import paper_figures, paper_scope
    from firma.paper.reproduction import documents
    from firma.report.drawing import save_png
    from firma.report.table import as_markdown

    if not of_paper:
        write_whole(path, "\n".join(as_markdown(table) for table in _study_tables(results, chosen)))
        return [path]
    scope, drawn = paper_scope(), {}
    for picture in paper_figures(results, scope):
        if picture.name in DOCUMENT_FIGURES:
            drawn[save_png(picture, path.parent / "figures")] = picture.caption
    links = {Path(relpath(file, path.parent)).as_posix(): caption for file, caption in drawn.items()}
    written = []
    for name, text in documents(results, scope, links).items():
        written.append(path.parent / name if "/" in name else path)
        written[-1].parent.mkdir(exist_ok=True)
        write_whole(written[-1], text)
    return [*drawn, *written]
