"""What the script of a report draws from: every number once, rounded to what is shown, as compact JSON.

    groups   [preset, place, variant, command, settings, [[mean, deviation, mark] or 0 per metric], references]
    runs     [group, seed, seconds, clients, rounds, versions, scores]

Scores are ten-thousandths. They are those of all clients after every round; where that would be too many, the mean and
the worst client of each round that is kept (`kept`, by the number of rounds).
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np

from firma.report.answers import answer, answer_for
from firma.report.board import Board, Mark, Reference, bounds, marks, marks_in_words
from firma.report.groups import Group
from firma.report.study_tables import command
from firma.report.table import Entry, Table
from firma.run_facts import recorded_split
from firma.settings import Hyper, Split
from firma.tasks.task import TITLES

_MOST_SCORES = 150_000  # of single clients: about 700 kB
_MOST_POINTS = 60_000  # of curves, all runs together
_FEWEST = 20  # rounds of a run
_MARKS: dict[Mark, int] = {"": 0, "close": 1, "best": 2}
_SETTINGS = (*Hyper.model_fields, *Split.model_fields)


def page_data(board: Board, reference: Reference | None, source: str) -> dict[str, Any]:
    """Everything, as plain data."""
    main = board.study.groups[0].results[0].main
    order = sorted(board.groups)
    kinds: dict[tuple[str, ...], int] = {}
    versions: dict[str, int] = {}
    marked = {
        (k, place, each.name): marks(board, k, place, each)
        for k, _ in enumerate(board.switch)
        for place in board.places_of(k)
        for each in board.measures
    }
    groups = [_group(board, key, kinds, reference, marked) for key in order]
    whole = sum(cell.result.history.size for cell in _cells(board)) <= _MOST_SCORES
    kept: dict[str, list[int]] = {}
    most = max(_FEWEST, _MOST_POINTS // max(1, len(_cells(board))))
    runs = []
    for number, key in enumerate(order):
        for cell in board.groups[key].cells:
            result, stated = cell.result, cell.result.config.get("versions", {})
            rounds, clients = result.history.shape
            at = np.arange(rounds) if whole else np.unique(np.linspace(0, rounds - 1, min(rounds, most)).astype(int))
            if len(at) < rounds:
                kept[str(rounds)] = (at + 1).tolist()
            history = result.history[at]
            scores = history if whole else np.stack([history.mean(axis=1), history.min(axis=1)], axis=1)
            words = "; ".join([*(f"{name} {value}" for name, value in stated.items()), result.backend or "unknown"])
            place = versions.setdefault(words, len(versions))
            seconds = round(result.seconds, 1)
            runs.append([number, result.seed, seconds, clients, rounds, place, _ten_thousandths(scores)])
    return {
        "main": TITLES.get(main, main),
        "percent": board.measures[0].unit == "%",
        "lines": board.study.lines,
        "switch": list(board.switch),
        "datasets": board.datasets,
        "measures": [
            {"name": each.name, "title": each.title, "heading": each.heading, "digits": each.digits,
             "lower": each.lower, "marks": marks_in_words(each)}
            for each in board.measures
        ],
        "bounds": [[bounds(board, k, each) for each in board.measures] for k, _ in enumerate(board.switch)],
        "variants": list(board.variants),
        "aside": sorted(board.aside),
        "places": [[place.dataset, place.label, dict(place.values)] for place in board.places],
        "answers": [[answer(board, k, each) for each in board.measures] for k, _ in enumerate(board.switch)],
        "said": [
            [[answer_for(board, k, each, dataset) for dataset in board.datasets] for each in board.measures]
            for k, _ in enumerate(board.switch)
        ],
        "reference": f"In brackets: {source}." if reference is not None else "",
        "groups": groups,
        "settingNames": list(_SETTINGS),
        "settings": [list(kind) for kind in kinds],
        "versions": list(versions),
        "whole": whole,
        "kept": kept,
        "runs": runs,
    }  # fmt: skip


def as_script(data: dict[str, Any]) -> str:
    """JSON that can stand inside a script element, whatever names it holds."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _cells(board: Board) -> list[Any]:
    return [cell for group in board.groups.values() for cell in group.cells]


def _group(
    board: Board, key: tuple[int, int, int], kinds: dict[tuple[str, ...], int], reference: Reference | None,
    marked: Mapping[tuple[int, int, str], Mapping[int, Mark]],
) -> list[Any]:  # fmt: skip
    switch, place, variant = key
    group, values = board.groups[key], board.values[key]
    config = group.results[0].config
    recorded = {**config.get("hyper", {}), **recorded_split(config)}
    kind = kinds.setdefault(tuple(str(recorded.get(name, "—")) for name in _SETTINGS), len(kinds))
    shown: list[Any] = []
    for measure in board.measures:
        found = values.get(measure.name)
        if found is None or not isfinite(found.mean):
            shown.append(0)
            continue
        mark = marked[switch, place, measure.name].get(variant, "")
        shown.append([measure.rounded(found.mean), measure.rounded(found.deviation), _MARKS[mark]])
    row = [switch, place, variant, _command(group), kind, shown]
    if reference is not None:
        row.append([measure.rounded(reference(group, measure.name)) for measure in board.measures])
    return row


def _command(group: Group) -> list[str]:
    """What stands before and after the seed in the command of every run; if that differs, every command."""
    commands = [command(cell) for cell in group.cells]
    first = group.results[0].seed
    before, found, after = commands[0].rpartition(f"--seed {first}")
    same = [f"{before}--seed {result.seed}{after}" for result in group.results]
    return [f"{before}--seed ", after] if found and same == commands else ["", "", *commands]


def _ten_thousandths(scores: "np.ndarray[Any, np.dtype[np.float64]]") -> list[int | None]:
    return [round(1e4 * value) if isfinite(value) else None for value in scores.ravel().tolist()]


def table_data(table: Table) -> dict[str, Any]:
    """A table as JSON: words are texts, numbers [text, value] or, if it is the best, [text, value, 1]."""

    def cell(entry: Entry) -> Any:
        if entry.value is None or not isfinite(entry.value):
            return entry.text
        return [entry.text, float(f"{entry.value:.6g}"), *([1] if entry.best else [])]

    rows = [[cell(entry) for entry in row] for row in table.rows]
    return {"title": table.title, "columns": list(table.columns), "rows": rows, "note": table.note}
