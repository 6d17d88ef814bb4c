"""`firma methods`: the design table and the properties that follow from it."""

from typing import Annotated

import typer

from firma.methods import COLUMNS, DEFAULT_METHOD, METHODS, PAPER_NUMBERS, columns, properties


def markdown() -> str:
    """The design table as Markdown; the README holds it."""
    lines = ["| method | " + " | ".join(COLUMNS) + " |", "|" + "---|" * (len(COLUMNS) + 1)]
    lines += [
        f"| `{row.name}` | " + " | ".join(str(getattr(row, column)) for column in COLUMNS) + " |"
        for row in METHODS.values()
    ]
    return "\n".join(lines)


def methods(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the design table as Markdown.")] = False,
) -> None:
    """Show the design table, one row per method, and the properties by which the paper compares methods."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from firma.cli.console import out, print_json, print_table

    if as_markdown:
        print(markdown())
        return
    if json:
        rows = [
            {"name": name, **columns(row), "properties": properties(row), "numbers": dict(PAPER_NUMBERS[name])}
            for name, row in METHODS.items()
        ]
        print_json({"methods": rows})
        return
    table = Table("column", *METHODS, title="Design table", box=SIMPLE_HEAD, padding=0)
    for column in COLUMNS:
        table.add_row(column, *(str(getattr(row, column)) for row in METHODS.values()))
    print_table(table)
    checks = Table("property", *METHODS, title="Properties", box=SIMPLE_HEAD, padding=0)
    for name in properties(METHODS[DEFAULT_METHOD]):
        checks.add_row(name, *("yes" if properties(row)[name] else "·" for row in METHODS.values()))
    print_table(checks)
    out.print(
        'Columns can be changed: --method "fibfl++:order=given" is fibfl++ without the 2-opt ring order.',
        markup=False,
    )
