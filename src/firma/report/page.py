"""A sweep as one HTML page that opens from disk: nothing is loaded from anywhere."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from firma.report.drawing import Drawing
from firma.report.table import Table, as_html
from firma.report.tables import Scope, cell_table, configuration, coverage, versions
from firma.sweep.result_table import result_tables
from firma.sweep.store import SweepResults

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1400px; margin: 0 auto; padding: 1rem 2rem 4rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; border-bottom: 2px solid #0072B2; }
nav a { margin-right: 1.2rem; } .scroll { overflow-x: auto; margin-top: 1.4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; white-space: nowrap; }
th, td { padding: .22rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top; }
th { background: #f2f6fa; text-align: left; } th.number, td.number { text-align: right; white-space: nowrap; }
td.best { font-weight: 700; } td.holds { color: #00664b; } td.fails { color: #a33b00; } td.undecided { color: #666; }
td.holds, td.fails, td.undecided { min-width: 8rem; }
#cells td:last-child { font-family: monospace; font-size: 12px; white-space: nowrap; }
th button { all: unset; cursor: pointer; } th button:focus-visible { outline: 2px solid #0072B2; }
th[aria-sort=ascending] button::after { content: " \\25B2"; }
th[aria-sort=descending] button::after { content: " \\25BC"; }
.note { color: #555; font-size: 13px; margin: .3rem 0 0; } figure { margin: 1.5rem 0; } img { max-width: 100%; }
"""
_SCRIPT = """
"use strict";
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => {
  const header = button.parentElement, table = header.closest("table"), column = header.cellIndex;
  const down = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down > 0 ? "ascending" : "descending");
  const worth = row => "value" in row.cells[column].dataset ? Number(row.cells[column].dataset.value) : null;
  const compare = (one, other) => {
    const a = worth(one), b = worth(other);
    if (a !== null && b !== null) return down * (a - b);
    if (a !== null || b !== null) return a === null ? 1 : -1;
    return down * one.cells[column].textContent.localeCompare(other.cells[column].textContent, "en", {numeric: true});
  };
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort(compare));
});
for (const cell of document.querySelectorAll("td.words")) {
  const verdict = /^(Holds|Fails|Undecided):/.exec(cell.textContent);
  if (verdict) cell.classList.add(verdict[1].toLowerCase());
}
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@dataclass(frozen=True)
class Section:
    """A part of the page with a title: tables, or figures, or both."""

    title: str
    tables: Sequence[Table] = ()
    drawings: Sequence[Drawing] = ()


def about_the_runs(results: SweepResults, scope: Scope) -> list[Section]:
    """The sections that every report ends with: what was run, with which settings, and how to repeat each cell."""
    runs = [coverage(result_tables(results), scope), versions(results.cells), configuration(results.cells)]
    return [Section("Configuration", runs), Section("Cells", [cell_table(results.cells)])]


def page(title: str, summary: str, sections: Sequence[Section]) -> str:
    """The sections one after another, under links to each."""
    links = "".join(f'<a href="#{_anchor(each)}">{escape(each.title)}</a>' for each in sections)
    body = "".join(f'<h2 id="{_anchor(each)}">{escape(each.title)}</h2>{_content(each)}' for each in sections)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>{escape(summary)} Click a column header to sort.</p><nav>{links}</nav>{body}"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def _anchor(section: Section) -> str:
    return f"{section.title.lower()}-part"


def _content(section: Section) -> str:
    parts = [as_html(table) for table in section.tables]
    for drawing in section.drawings:
        data, caption = b64encode(drawing.svg).decode(), escape(drawing.caption)
        image = f'<img alt="{caption}" src="data:image/svg+xml;base64,{data}">'
        parts.append(f'<figure id="{escape(drawing.name)}">{image}<figcaption>{caption}</figcaption></figure>')
    return "".join(parts)
