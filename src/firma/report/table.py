"""One model of a table, and its four renderings: text, CSV, Markdown, LaTeX."""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from unicodedata import combining, east_asian_width

MISSING = "—"


@dataclass(frozen=True, slots=True)
class Entry:
    """What is shown, the value to sort by, whether it is the best of its column, and the numbers behind it."""

    text: str
    value: float | None = None
    best: bool = False
    deviation: float | None = None
    printed: float | None = None  # in the reference


@dataclass(frozen=True)
class Table:
    """A title, a header and rows of entries; `--table` selects it by `name`, `reference` is what it is compared to."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    note: str = ""
    reference: str = ""


NOTHING = Entry(MISSING)


def words(*texts: str) -> tuple[Entry, ...]:
    """Entries that are words."""
    return tuple(Entry(text) for text in texts)


def number(value: float | None, form: str) -> Entry:
    """A number, or a dash if it was not run."""
    return NOTHING if value is None else Entry(form.format(value), value)


def as_text(table: Table, width: int = 160) -> str:
    """Columns of fixed width for a terminal; a star marks the best of a column. Tables of long words are stacked."""
    body = [[entry.text + ("*" if entry.best else "") for entry in row] for row in table.rows]
    lines = [list(table.columns), *body]
    widths = [max(_width(line[column]) for line in lines) for column in range(len(table.columns))]
    left = [_is_words(table, column) for column in range(len(table.columns))]
    note = [table.note] if table.note else []
    if sum(widths) + 2 * len(widths) > width and all(left):
        stacked = [_stacked(table.columns, line) for line in body]
        return "\n".join([table.title, *stacked, *note]) + "\n"
    drawn = ["  ".join(_padded(*cell) for cell in zip(line, widths, left, strict=True)).rstrip() for line in lines]
    rule = "  ".join("─" * each for each in widths)
    return "\n".join([table.title, drawn[0], rule, *drawn[1:], *note]) + "\n"


def _stacked(columns: Sequence[str], line: Sequence[str]) -> str:
    rest = [f"    {name}: {text}" for name, text in zip(columns[1:], line[1:], strict=True)]
    return "\n".join([f"  {line[0]}", *rest])


def as_csv(table: Table) -> str:
    """Numbers as they are, not as they are shown: value, deviation and reference in columns of their own."""
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    header, columns = [], []
    for index, name in enumerate(table.columns):
        entries = [row[index] for row in table.rows]
        header.append(name)
        columns.append([_cell(entry) for entry in entries])
        reference = table.reference or "reference"
        for part, found in (("deviation", [e.deviation for e in entries]), (reference, [e.printed for e in entries])):
            if any(value is not None for value in found):
                header.append(f"{name} {part}")
                columns.append([_plain(value) for value in found])
    writer.writerow(header)
    writer.writerows(zip(*columns, strict=True))
    return buffer.getvalue()


def as_markdown(table: Table) -> str:
    """A pipe table under its title; the best of a column is bold."""

    def cell(entry: Entry) -> str:
        text = entry.text.replace("|", "\\|")
        return f"**{text}**" if entry.best else text

    rule = ["---" if _is_words(table, column) else "---:" for column in range(len(table.columns))]
    lines = [list(table.columns), rule, *([cell(entry) for entry in row] for row in table.rows)]
    drawn = ["| " + " | ".join(line) + " |" for line in lines]
    note = ["", table.note] if table.note else []
    return "\n".join([f"**{table.title}**", "", *drawn, *note]) + "\n"


def as_latex(table: Table) -> str:
    """A table environment with booktabs rules."""

    def cell(entry: Entry) -> str:
        text = _latex(entry.text)
        return rf"\textbf{{{text}}}" if entry.best else text

    align = "".join("l" if _is_words(table, column) else "r" for column in range(len(table.columns)))
    lines = [" & ".join(_latex(column) for column in table.columns) + r" \\", r"\midrule"]
    lines += [" & ".join(cell(entry) for entry in row) + r" \\" for row in table.rows]
    start = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(table.title)}}}", rf"\label{{tab:{table.name}}}"]
    body = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", *lines, r"\bottomrule", r"\end{tabular}"]
    note = [rf"\par {_latex(table.note)}"] if table.note else []
    return "\n".join([*start, *body, *note, r"\end{table}"]) + "\n"


RENDERERS: Mapping[str, Callable[[Table], str]] = {
    "text": as_text,
    "csv": as_csv,
    "markdown": as_markdown,
    "latex": as_latex,
}


def mark_best(
    entries: Sequence[Entry], highest: bool = True, values: Sequence[float | None] | None = None
) -> list[Entry]:
    """The same entries with the best ones marked, by other values if given; ties included, and nothing alone."""
    by = [entry.value for entry in entries] if values is None else values
    known = [value for value in by if value is not None]
    if len(known) < 2:
        return list(entries)
    best = max(known) if highest else min(known)
    return [replace(entry, best=value == best) for entry, value in zip(entries, by, strict=True)]


def _cell(entry: Entry) -> str:
    return _plain(entry.value) if entry.value is not None else "" if entry.text.startswith(MISSING) else entry.text


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _is_words(table: Table, column: int) -> bool:
    return all(row[column].value is None for row in table.rows)


def _width(text: str) -> int:
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def _padded(text: str, width: int, left: bool) -> str:
    space = " " * (width - _width(text))
    return text + space if left else space + text


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "Δ": r"$\Delta$", "σ": r"$\sigma$",
    "ρ": r"$\rho$", "γ": r"$\gamma$", "π": r"$\pi$", "⌈": r"$\lceil$", "⌉": r"$\rceil$", "—": "---", "−": "$-$",
    "·": r"$\cdot$", "≤": r"$\le$", "≥": r"$\ge$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_TEX.get(sign, sign) for sign in text)
