"""`firma methods`: what there is to choose from, in groups; one method in full; the design table."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firma.cli import completion
from firma.method_descriptions import ABOUT, group, private_parts
from firma.method_lookup import lookup
from firma.methods import (
    COLUMNS,
    LEADING_METHODS,
    METHODS,
    PAPER_NUMBERS,
    RECOMMENDED_NUMBERS,
    Method,
    columns,
    properties,
)

if TYPE_CHECKING:
    from rich.table import Table

_WIDTH = 80  # of the design table, which is cut into parts of that width
_GROUPS = ("With a server", "Without a server", "Without communication")


def markdown_table() -> str:
    """The design table of the leading methods, with the columns in which they differ; the README holds it."""
    rows = [METHODS[name] for name in LEADING_METHODS]
    varying = [name for name in COLUMNS if len({getattr(row, name) for row in rows}) > 1]
    lines = ["| method | " + " | ".join(varying) + " |", "|" + "---|" * (len(varying) + 1)]
    lines += [f"| `{row.name}` | " + " | ".join(str(getattr(row, name)) for name in varying) + " |" for row in rows]
    return "\n".join(lines)


def markdown_list() -> str:
    """All other methods in groups; the README holds it, too."""
    lines: list[str] = []
    for (server, shares), others in _grouped(row for row in METHODS.values() if row.name not in LEADING_METHODS):
        lines += ["", f"{', '.join(filter(None, (server, shares)))}:", ""]
        lines += [f"- `{row.name}`: {ABOUT[row.name].does} ({_short(row)})" for row in others]
    return "\n".join(lines).strip()


def methods(
    name: Annotated[
        list[str] | None,
        typer.Argument(
            help="A method, or one with changed columns, to show in full.", autocompletion=completion.method_names
        ),
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="Show the design table: every column of every method.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print what the README shows, as Markdown.")] = False,
) -> None:
    """List the methods; or show some in full, with columns, hyperparameters and reference.

    Example: firma methods fedprox
    """
    from firma.cli.console import print_json

    rows = [lookup(each) for each in name] if name else list(METHODS.values())
    if as_markdown:
        print(f"{markdown_table()}\n\n{markdown_list()}")
    elif json:
        print_json({"methods": [_document(row) for row in rows]})
    elif table:
        _show_table(rows)
    elif name:
        for row in rows:
            _show(row)
    else:
        _list(rows)


def _document(row: Method) -> dict[str, Any]:
    about = ABOUT.get(row.base)
    server, shares = group(row)
    return {
        "name": row.name, **columns(row), "properties": properties(row), "numbers": dict(PAPER_NUMBERS[row.base]),
        "recommended_numbers": dict(RECOMMENDED_NUMBERS[row.base]), "group": [server, shares],
        "private_parts": private_parts(row),
        **({} if about is None else
           {"description": about.does, "equation": about.equation, "reference": about.reference}),
    }  # fmt: skip


def _grouped(rows: Iterable[Method]) -> list[tuple[tuple[str, str], list[Method]]]:
    """Rows under their two headings, in the order of the headings and of the table."""
    found: dict[tuple[str, str], list[Method]] = {}
    for row in rows:
        found.setdefault(group(row), []).append(row)
    return sorted(found.items(), key=lambda each: _GROUPS.index(each[0][0]))


def _short(row: Method) -> str:
    """The reference without its title."""
    return ABOUT[row.name].reference.partition(":")[0].replace(" (", ", ").rstrip(")")


def _list(rows: Sequence[Method]) -> None:
    from firma.cli.console import out

    last = ""
    for (server, shares), members in _grouped(rows):
        if server != last:
            out.print(f"\n[bold]{server}[/bold]" if last else f"[bold]{server}[/bold]")
        last = server
        if shares:
            out.print(f"  {shares}", style="dim", highlight=False)
        for row in members:
            out.print(f"    {row.name:<18}{ABOUT[row.name].does}", highlight=False, markup=False, soft_wrap=True)
    out.print(
        "\nfirma methods NAME shows one in full, firma methods --table the design table.\n"
        'Columns can be changed: --method "fibfl++:order=given" is fibfl++ without the\n2-opt ring order.',
        highlight=False, markup=False,
    )  # fmt: skip


def _show(row: Method) -> None:
    """One method in full."""
    from rich.table import Table

    from firma.cli.console import out, print_table
    from firma.settings import hyper_for

    about, changed = ABOUT.get(row.base), row.name != row.base
    table = Table(title=row.name, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    if about is not None:
        table.add_row("what it does" if not changed else f"{row.base}", about.does)
        table.add_row("equation", about.equation)
        table.add_row("reference", about.reference)
    table.add_row("group", ", ".join(filter(None, group(row))))
    table.add_row("stays private", private_parts(row) or "nothing")
    table.add_section()
    for column, value in columns(row).items():
        was = getattr(METHODS[row.base], column)
        table.add_row(column, value if value == was else f"{value} ({row.base}: {was})")
    table.add_section()
    for preset in ("recommended", "paper"):
        used, default = hyper_for(row, preset, {}).model_dump(), hyper_for("", preset, {}).model_dump()
        own = {**PAPER_NUMBERS[row.base], **RECOMMENDED_NUMBERS[row.base]}
        shown = [f"{key} {_plain(used[key])}" for key in own] + [
            f"{key} {used[key]}" for key in used if key not in own and used[key] != default[key]
        ]
        table.add_row(f"preset {preset}", ", ".join(shown))
    print_table(table)
    out.print("More: docs/methods.md", highlight=False)


def _plain(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _show_table(rows: Sequence[Method]) -> None:
    """The design table, methods down; columns that do not fit beside each other go below."""
    from firma.cli.console import print_table

    names = max(len("method"), *(len(row.name) for row in rows))
    part: list[str] = []
    width = names + 2  # and a margin
    for column in [*COLUMNS, ""]:
        needed = 2 + max([len(column), *(len(columns(row)[column]) for row in rows if column)])
        if part and (not column or width + needed > _WIDTH):
            print_table(_part(rows, part))
            part, width = [], names + 2
        part.append(column)
        width += needed


def _part(rows: Sequence[Method], part: Sequence[str]) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table("method", *part, box=SIMPLE_HEAD, padding=(0, 1, 0, 0), collapse_padding=True)
    for row in rows:
        table.add_row(row.name, *(columns(row)[column] for column in part))
    return table
