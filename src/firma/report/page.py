"""A study as one HTML page that opens from disk: nothing is loaded from anywhere, and no text can become a script.

The overview stands in the page and can be read without a script. Everything else is drawn by `static/report.js` from
`page_data`, with the charts of the live pages, when it is looked at. The content-security policy names the hashes of
the page's own scripts and style, so that nothing else runs.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from importlib.resources import files

from firma.page.assets import static
from firma.report.answers import answer, asked, listed
from firma.report.board import Board, Reference, bounds, marks, marks_in_words
from firma.report.measures import Measure, level
from firma.report.page_data import as_script, page_data, table_data
from firma.report.table import MISSING, Table
from firma.report.tables import slug

_SCRIPTS = ("charts.js", "common.js")
_SIGNS = {"best": "★ ", "close": "≈ ", "": ""}
_MOST_LINKS = 6  # to single data sets


@dataclass(frozen=True)
class Finding:
    """What one set of results says: its preset or another source, a verdict in one word, and a sentence."""

    source: str
    verdict: str
    sentence: str


@dataclass(frozen=True)
class Statement:
    """Something that is judged: what it says, how it is checked, and what is found."""

    text: str
    note: str
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Part:
    """A section that is added to a report; tables belong to a preset, or to none."""

    title: str
    paragraphs: Sequence[str] = ()
    statements: Sequence[Statement] = ()
    more: Sequence[Statement] = ()  # shown on demand
    tables: Sequence[tuple[str, Table]] = ()


@dataclass(frozen=True)
class Report:
    """What a page shows: a study, and what is added to it.

    `reference` is a value that somebody else reported, `source` says who. `comparisons` and `last` are the tables of
    the sections "Comparisons" and "How it was run". `findings` are more sentences of the answer, by preset.
    """

    title: str
    board: Board | None
    question: str = ""
    parts: Sequence[Part] = ()
    comparisons: Sequence[tuple[str, Table]] = ()
    last: Sequence[tuple[str, Table]] = ()
    findings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    failed: int = 0
    reference: Reference | None = None
    source: str = ""


def page(report: Report) -> str:
    """The whole page."""
    board, tables = report.board, _Tables()
    sections = [("overview", "Overview", _overview(report))]
    if board is not None:
        names = board.datasets
        sections += [(f"data-{k}", name, _dataset(name, k)) for k, name in enumerate(names)]
    if report.comparisons:
        sections.append(("comparisons", "Comparisons", _heading("Comparisons") + tables.fold(report.comparisons, True)))
    sections += [(slug(part.title.lower()), part.title, _part(part, tables)) for part in report.parts]
    if board is not None:
        sections.append(("runs", "Runs", _RUNS))
    if report.last:
        sections.append(("how", "How it was run", _heading("How it was run") + tables.fold(report.last)))
    data = {} if board is None else page_data(board, report.reference, report.source)
    data |= {"tables": tables.as_data(), "findings": {name: list(each) for name, each in report.findings.items()}}
    body = (
        f"<header><h1>{escape(report.title)}</h1><p class=lead>{escape(_question(report))}</p></header>"
        f"<div class=sticky>{_links(sections)}{'' if board is None else _controls(board)}</div><main>"
        + "".join(f'<section id="{escape(name)}" aria-label="{escape(title)}">{text}</section>'
                  for name, title, text in sections)
        + "</main><noscript><p class=quiet>Other presets and metrics, curves and single runs are drawn by the page's "
        "own script, which is switched off.</p></noscript>"
        "<footer><p>Written by <code>firma report</code>. The page needs no other file and loads nothing.</p></footer>"
    )  # fmt: skip
    return _document(report.title, body, as_script(data))


def _document(title: str, body: str, data: str) -> str:
    style = static("style.css").decode() + _own("report.css")
    script = "".join(static(name).decode() for name in _SCRIPTS) + _own("report.js")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types"
    )
    text = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f'<style>{style}</style></head><body><a class=skip href="#overview">Skip to the overview</a>{body}'
        f'<script type="application/json" id="data">{data}</script><script>{script}</script></body></html>\n'
    )
    return text.encode(errors="replace").decode()  # names of files may hold what is not text


def _own(name: str) -> str:
    return (files("firma.report") / "static" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _question(report: Report) -> str:
    if report.question or report.board is None:
        return report.question
    return asked(report.board)


def _links(sections: Sequence[tuple[str, str, str]]) -> str:
    """Links to the sections; many data sets have one link together."""
    shown = list(sections)
    data = [each for each in shown if each[0].startswith("data-")]
    if len(data) > _MOST_LINKS:
        shown = [each for each in shown if each not in data[1:]]
        shown[shown.index(data[0])] = (data[0][0], "Data sets", "")
    links = "".join(f'<a href="#{escape(name)}">{escape(title)}</a>' for name, title, _ in shown)
    return f'<nav aria-label="Sections">{links}</nav>'


def _controls(board: Board) -> str:
    """Switches and filters, each where there is something to choose; without a script they are hidden."""
    fields = []
    if len(board.switch) > 1:
        fields.append(_select("switch", "Preset", list(enumerate(board.switch))))
    fields.append(_select("measure", "Metric", [(k, each.heading) for k, each in enumerate(board.measures)]))
    for option in board.options[:4]:
        values = list(dict.fromkeys(place.values[option] for place in board.places if option in place.values))
        title = {"dataset": "Data set", "scenario": "Scenario"}.get(option, option)
        fields.append(_select("", title, [("", "all"), *((value, value) for value in values)], option))
    if len(board.variants) > 1:
        name = escape(board.study.lines.capitalize())
        fields.append(f'<label>{name} <input id="variant" type="search" placeholder="name" autocomplete="off"></label>')
    if board.aside:
        fields.append(f'<label><input type="checkbox" id="aside"> {len(board.aside)} changed, too</label>')
    if len(board.variants) > 1 or board.options:
        fields.append('<button type="button" id="reset">Show all</button>')
    return (
        '<details id="controls" class="scripted" open><summary id="chosen">Choose</summary>'
        f'<div class="bar">{"".join(fields)}</div></details>'
    )


def _select(name: str, title: str, values: Sequence[tuple[object, str]], option: str = "") -> str:
    about = f'id="{name}"' if name else f'class="filter" data-option="{escape(option)}"'
    choices = "".join(f'<option value="{escape(str(value))}">{escape(text)}</option>' for value, text in values)
    return f"<label>{escape(title)} <select {about}>{choices}</select></label>"


def _heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def _overview(report: Report) -> str:
    board = report.board
    findings = _sentences([text for name in list(report.findings)[:1] for text in report.findings[name]], "findings")
    if board is None:
        return f"{_heading('The answer')}{findings}"
    answers = _sentences(answer(board, 0, board.measures[0]), "answer")
    title = "Who wins where" if _several(board) else "Where it was tried"
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in _facts(report, board))
    return (
        f'<div class="first"><div><h2>The answer <small id="about">{escape(_about(board))}</small></h2>'
        f'{findings}{answers}<h3>What was run</h3><dl class="facts">{facts}</dl></div>'
        f'<div>{_heading(title)}<div class="scroll tall" tabindex="0" role="region" '
        f'aria-label="{title}"><table id="wins" class="heat">{wins(board, 0, board.measures[0])}</table></div>'
        f'<p class="quiet" id="key">{_key(board, 0, board.measures[0])}</p></div></div>'
    )


def _several(board: Board) -> bool:
    """Whether there is anything to compare."""
    return len(board.variants) > 1


def _about(board: Board) -> str:
    preset = f"{board.switch[0]}, " if len(board.switch) > 1 else ""
    return f"{preset}{board.measures[0].heading}"


def _sentences(texts: Sequence[str], name: str) -> str:
    return f'<ul id="{name}" class="answer">{"".join(f"<li>{escape(text)}</li>" for text in texts)}</ul>'


def _facts(report: Report, board: Board) -> Iterator[tuple[str, str]]:
    """What was run, in words."""
    cells = [cell for group in board.groups.values() for cell in group.cells]
    failed = f", and {report.failed} that failed" if report.failed else ""
    repeated = f"; {board.study.repeats} repeated ones are left out" if board.study.repeats else ""
    yield "runs", f"{len(cells):,}{failed}{repeated}"
    yield "data sets", listed(board.datasets)
    for option in board.options:
        if option != "dataset":
            yield option, listed(list(dict.fromkeys(place.values.get(option, "") for place in board.places)), 12)
    if "scenario" not in board.options:
        yield "scenario", listed([group.value("scenario") for group in board.groups.values()])
    main = [name for k, name in enumerate(board.variants) if k not in board.aside]
    more = f"; {len(board.aside)} changed ones" if board.aside else ""
    yield "methods" if board.study.lines == "method" else board.study.lines, listed(main, 12) + more
    counts = sorted({len(group.cells) for group in board.groups.values()})
    yield "seeds", str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]} of each kind of run"
    if len(board.switch) > 1:
        yield "presets", listed(board.switch)
    for name, sizes in (
        ("rounds", {cell.result.history.shape[0] for cell in cells}),
        ("clients", {cell.result.history.shape[1] for cell in cells}),
    ):
        yield name, listed(sorted(sizes))
    absent = []
    for k, name in enumerate(board.switch):
        pairs = len(board.places_of(k)) * len(board.variants_of(k))
        if missing := len(board.missing(k)):
            absent.append(f"{missing} of {pairs}" + (f" ({name})" if name else ""))
    yield "not run", f"{listed(absent)} pairs of a place and a {board.study.lines}" if absent else "nothing is missing"


def wins(board: Board, switch: int, measure: Measure) -> str:
    """Places down, variants across; the colour is the distance to the best of the row, signs say the same in print."""
    variants, steps = board.variants_of(switch), bounds(board, switch, measure)
    count: dict[int, int] = {}
    body, dataset = [], None
    for place in board.places_of(switch):
        found, marked = board.statistics(switch, place, measure), marks(board, switch, place, measure)
        values = [each.mean for each in found.values()]
        best = None if not values else min(values) if measure.lower else max(values)
        if board.places[place].dataset != dataset:
            dataset = board.places[place].dataset
            body.append(
                f'<tr class="group"><th scope="rowgroup" colspan="{len(variants) + 1}">{escape(dataset)}</th></tr>'
            )
        row = []
        for variant in variants:
            if variant not in found or best is None:
                row.append(f'<td class="number none">{MISSING}</td>')
                continue
            mark = marked.get(variant, "")
            text = f"{found[variant].mean * measure.scale:.{measure.digits}f}"
            if not marked:
                row.append(f'<td class="number">{text}</td>')
                continue
            count[variant] = count.get(variant, 0) + (mark == "best")
            near = level(abs(round(found[variant].mean * measure.scale, measure.digits)
                             - round(best * measure.scale, measure.digits)), steps)  # fmt: skip
            row.append(f'<td class="number n{near}{" best" if mark == "best" else ""}">{_SIGNS[mark]}{text}</td>')
        body.append(f'<tr><th scope="row">{escape(board.places[place].label)}</th>{"".join(row)}</tr>')
    head = "".join(f'<th scope="col" class="number">{escape(board.variants[each])}</th>' for each in variants)
    total = "".join(f'<td class="number">{count.get(each, 0)}</td>' for each in variants)
    best_in = f'<tr class="total"><th scope="row">★ best in</th>{total}</tr>' if _several(board) else ""
    preset = f", {board.switch[switch]}" if len(board.switch) > 1 else ""
    return (
        f'<caption>{escape(measure.heading + preset)}</caption><thead><tr><th scope="col">place</th>{head}</tr>'
        f"{best_in}</thead><tbody>{''.join(body)}</tbody>"
    )


def _key(board: Board, switch: int, measure: Measure) -> str:
    """What signs and colours mean, in words."""
    if not _several(board):
        return ""
    steps = bounds(board, switch, measure)
    unit = " points" if measure.unit == "%" else ""
    shown = [(k, f"at most {bound:g}") for k, bound in enumerate(steps)]
    shown += [(len(steps), f"more than {steps[-1]:g}{unit}")] if steps else []
    swatches = ", ".join(f'<span class="nowrap"><i class="swatch n{k}"></i>{text}</span>' for k, text in shown)
    return f"{marks_in_words(measure)}; {MISSING} not run." + (f" Distance to the best: {swatches}." if steps else "")


def _dataset(name: str, place: int) -> str:
    """An empty section that the script fills."""
    return (
        f'{_heading(name)}<div class="scripted dataset" data-place="{place}"><p class="said"></p>'
        '<div class="scroll wide"><table class="heat"></table></div><p class="quiet under"></p>'
        '<h3 class="title"></h3><ul class="legend" aria-label="Press to show or hide a line"></ul>'
        '<div class="charts"></div></div>'
    )


_RUNS = (
    "<h2>Runs</h2><div class=scripted><p class=quiet>Each kind of run, as chosen above. Open one for its curves, its "
    "clients and the command that repeats it.</p><div class=bar><label>Search <input id=search type=search "
    'placeholder="any words" autocomplete=off></label><output id="count"></output></div><div id="cells"></div>'
    '<button type="button" id="more" hidden>Show more</button></div>'
)


def _part(part: Part, tables: "_Tables") -> str:
    text = _heading(part.title) + "".join(f"<p>{escape(each)}</p>" for each in part.paragraphs)
    if part.statements:
        verdicts = list(dict.fromkeys(one.verdict for each in (*part.statements, *part.more) for one in each.findings))
        choices = [("", "all"), *((each, each) for each in sorted(verdicts))]
        text += (
            f'<div class="bar scripted">{_select("verdict", "Verdict", choices)}<label>Search '
            '<input id="claim" type="search" autocomplete="off"></label><output id="judged"></output></div>'
        )
        text += "".join(map(_statement, part.statements))
    if part.more:
        title = f"{len(part.more)} more {part.title.lower()}"
        text += f"<details class=fold><summary>{escape(title)}</summary>{''.join(map(_statement, part.more))}</details>"
    return text + tables.fold(part.tables)


def _statement(each: Statement) -> str:
    """One line that opens: the verdict for the chosen preset, and behind it all others."""

    def shown(finding: Finding) -> str:
        text = f"<b>{escape(finding.source)}</b> {escape(finding.sentence)}"
        return f'<li class="{escape(finding.verdict)}">{text}</li>'

    def short(finding: Finding) -> str:
        return (
            f'<span class="verdict {escape(finding.verdict)}" data-source="{escape(finding.source)}" '
            f'data-verdict="{escape(finding.verdict)}">{escape(finding.sentence)}</span>'
        )

    note = f'<p class="quiet">{escape(each.note)}</p>'
    return (
        f'<details class="statement"><summary><span class="text">{escape(each.text)}</span>'
        f"{''.join(short(one) for one in each.findings)}</summary>"
        f"<ul>{''.join(shown(one) for one in each.findings)}</ul>{note}</details>"
    )


class _Tables:
    """Tables that the script draws when they are opened; the page names them by their number."""

    def __init__(self) -> None:
        self._tables: list[Table] = []

    def fold(self, tables: Sequence[tuple[str, Table]], first: bool = False) -> str:
        """A line for each table, which opens it; `first` of each preset is open from the start."""
        lines, seen = [], set()
        for source, table in tables:
            shown = " open" if first and source not in seen else ""
            seen.add(source)
            about = f' data-source="{escape(source)}"' if source else ""
            lines.append(
                f'<details class="fold scripted table" data-table="{len(self._tables)}"{about}{shown} '
                f'id="{escape(slug("table", table.name))}"><summary>{escape(table.title)}</summary></details>'
            )
            self._tables.append(table)
        return "".join(lines)

    def as_data(self) -> list[object]:
        """All of them, for the script."""
        return [table_data(table) for table in self._tables]
