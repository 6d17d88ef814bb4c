"""`firma report`: tables, figures and one HTML page from a results folder."""

from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firma.errors import BadInput

if TYPE_CHECKING:
    from firma.study.evidence import Evidence
    from firma.study.store import Study


def report(
    results: Annotated[Path, typer.Argument(help="A folder that firma reproduce wrote.")],
    out: Annotated[Path | None, typer.Option(help="The page. Default: report.html in the results folder.")] = None,
    show: Annotated[
        str | None,
        typer.Option("--print", metavar="FORMAT", help="Print tables instead: text, csv, markdown or latex."),
    ] = None,
    table: Annotated[str, typer.Option(help="With --print, tables whose name holds this, such as claims.")] = "",
    figures: Annotated[Path | None, typer.Option(help="Write every figure into this folder, as PNG and SVG.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the tables, and with --figures the figures, as one Markdown page.")
    ] = None,
    evidence: Annotated[Path | None, typer.Option(help="Write means over seeds as a small CSV file.")] = None,
) -> None:
    """Make one HTML page of a study: claims, tables that sort, figures, and how to repeat every cell.

    Example: firma report results/study
    """
    from firma.atomic_files import write_whole
    from firma.cli.console import out as console
    from firma.study.evidence import gathered, published, to_csv
    from firma.study.store import read_study

    study, paper = read_study(results), published()
    if show is not None:
        print_tables(study, paper, show, table)
        return
    written: list[Path] = []
    drawn: dict[Path, str] = {}
    if figures is not None:
        from firma.report.canvas import save
        from firma.report.figures import all_figures

        for picture in all_figures(study, paper):
            saved = save(picture.figure, figures, picture.name)
            drawn[saved[0]] = picture.caption
            written += saved
    if markdown is not None:
        from firma.report.document import document

        links = {Path(relpath(path, markdown.parent)).as_posix(): said for path, said in drawn.items()}
        write_whole(markdown, document(study, paper, links))
        written.append(markdown)
    if evidence is not None:
        metrics = ("mean_accuracy", "gini", "worst_client", "bytes_per_round", "rounds_to_half_of_final", "plateau_std")
        write_whole(evidence, to_csv(gathered(study), metrics))
        written.append(evidence)
    if out is not None or not written:
        from firma.report.page import page

        target = out or results / "report.html"
        write_whole(target, page(study, paper))
        written.append(target)
    for path in written:
        console.print(f"Written: {path}", soft_wrap=True, highlight=False)


def print_tables(study: "Study", paper: "Evidence", form: str, part: str) -> None:
    """The tables whose name holds `part`, on stdout."""
    import sys

    from firma.report.page import tables_of
    from firma.report.table import RENDERERS

    if form not in RENDERERS:
        raise BadInput(f"print = {form!r}: choose from {', '.join(RENDERERS)}")
    tables = tables_of(study, paper)
    chosen = [table for table in tables if part in table.name]
    if not chosen:
        raise BadInput(f"table = {part!r}: there are {', '.join(table.name for table in tables)}")
    sys.stdout.write("\n".join(RENDERERS[form](table) for table in chosen))
