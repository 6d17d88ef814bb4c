"""The study as one HTML page that opens from disk: nothing is loaded from anywhere."""

from base64 import b64encode
from collections.abc import Iterable
from html import escape

from firma.report.canvas import as_svg
from firma.report.figures import Picture, all_figures
from firma.report.overview import configuration, coverage, versions
from firma.report.repeat import repeat_table
from firma.report.table import Table, as_html
from firma.report.tables import all_tables
from firma.study.evidence import Evidence, gathered
from firma.study.store import Study

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1400px; margin: 0 auto; padding: 1rem 2rem 4rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; border-bottom: 2px solid #0072B2; }
nav a { margin-right: 1.2rem; } .scroll { overflow-x: auto; margin-top: 1.4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; white-space: nowrap; }
th, td { padding: .22rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top; }
th { background: #f2f6fa; text-align: left; } th.number, td.number { text-align: right; white-space: nowrap; }
td.best { font-weight: 700; } td.holds { color: #00664b; } td.fails { color: #a33b00; } td.undecided { color: #666; }
#claims td { min-width: 8rem; } #cells td:last-child { font-family: monospace; font-size: 12px; white-space: nowrap; }
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
for (const cell of document.querySelectorAll("#claims td")) {
  const verdict = /^(holds|fails|undecided):/.exec(cell.textContent);
  if (verdict) cell.classList.add(verdict[1]);
}
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page(study: Study, paper: Evidence) -> str:
    """Claims, tables, figures, configuration, and the command of every cell."""
    bodies, cells = gathered(study), study.cells
    tables = list(all_tables(paper, bodies))
    parts = {
        "Claims": [table for table in tables if table.name == "claims"],
        "Tables": [table for table in tables if table.name != "claims"],
        "Configuration": [coverage(bodies), versions(cells), configuration(cells)],
        "Cells": [repeat_table(list(cells))],
    }
    drawn = {title: "".join(as_html(table) for table in group) for title, group in parts.items()}
    sections = {
        "Claims": drawn["Claims"], "Tables": drawn["Tables"], "Figures": _figures(all_figures(study, paper)),
        "Configuration": drawn["Configuration"], "Cells": drawn["Cells"],
    }  # fmt: skip
    links = "".join(f'<a href="#{title.lower()}-part">{title}</a>' for title in sections)
    body = "".join(f'<h2 id="{title.lower()}-part">{title}</h2>{text}' for title, text in sections.items())
    summary = f"<p>{len(cells)} cells: {escape(', '.join(bodies) or 'none yet')}. Click a header to sort.</p>"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>FIRMA study</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head><body><h1>FIRMA study</h1>{summary}<nav>{links}</nav>{body}"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def _figures(pictures: Iterable[Picture]) -> str:
    parts = []
    for picture in pictures:
        data = b64encode(as_svg(picture.figure)).decode()
        image = f'<img alt="{escape(picture.caption)}" src="data:image/svg+xml;base64,{data}">'
        parts.append(
            f'<figure id="{escape(picture.name)}">{image}<figcaption>{escape(picture.caption)}</figcaption></figure>'
        )
    return "".join(parts)


def tables_of(study: Study, paper: Evidence) -> list[Table]:
    """Every table of the page, for printing."""
    bodies, cells = gathered(study), study.cells
    more = [coverage(bodies), versions(cells), configuration(cells), repeat_table(list(cells))]
    return [*all_tables(paper, bodies), *more]
