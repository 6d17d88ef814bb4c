"""Finished runs as the lines that `live.jsonl` would have had, so that one page shows runs of today and of last year."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from firma.live_log import LIVE_FILE, LiveRun, round_facts
from firma.methods import lookup
from firma.results import Result
from firma.run_config import command_line
from firma.sweep.cells import Cell, as_options, key
from firma.sweep.result_folders import read_folder
from firma.sweep.store import StoredCell, has_cells
from firma.tasks.task import TITLES
from firma.tracking import RunFacts


def stored_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Of everything that a results folder holds, except runs that its `live.jsonl` has, too."""
    if (folder / LIVE_FILE).exists() and not has_cells(folder):
        return
    for number, cell in enumerate(read_folder(folder).cells):
        facts = {"id": f"stored-{number}", "name": cell_name(cell), "key": f"{cell.key}.{cell.preset}"}
        options = dict(cell.asked) or {
            "dataset": cell.dataset, "scenario": cell.scenario, "method": cell.result.method, "preset": cell.preset,
            "seed": cell.result.seed,
        }  # fmt: skip
        for event in result_events(cell.result, command_line(options)):
            yield event | facts if event["event"] == "run" else event | {"id": facts["id"]}


def cell_name(cell: StoredCell) -> str:
    """What tells a cell apart from the others of its folder."""
    return "/".join([cell.dataset, cell.scenario, cell.result.method, cell.preset, str(cell.result.seed)])


def result_events(result: Result, command: str) -> Iterator[dict[str, Any]]:
    """A run, its rounds and its end; seconds of single rounds and weights were not kept."""
    config = result.config
    yield {
        "event": "run", "name": "", "key": "", "method": result.method, "seed": result.seed,
        "rounds": int(config["rounds"]), "clients": result.history.shape[1], "main": result.main,
        "title": TITLES[result.main], "settings": RunFacts(result.method, result.seed, config, result.main).settings,
        "command": command, "topology": _topology(result.method), "samples": list(config.get("samples", ())),
        "orders": [[number, list(order)] for number, order in result.orders] or [[1, list(result.order)]],
        "holds": [], "labels": list(config.get("labels", ())), "dropped": list(config.get("dropped", ())),
        "client_names": list(config.get("client_names", ())), "dishonest": list(config.get("dishonest", ())),
    }  # fmt: skip
    took = result.seconds / len(result.history)
    for number, scores in enumerate(result.history.tolist()):
        sent, messages = result.sent_bytes[number], result.messages[number]
        yield {"event": "round", **round_facts(number + 1, scores, sent, messages), "took": took}
    yield {"event": "end", "status": "finished", "seconds": result.seconds}


def write_finished(run: LiveRun, cell: Cell, result: Result) -> None:
    """All lines of a run that another machine made, once it has arrived."""
    facts = {"name": cell.name, "key": f"{key(cell)}.{cell.preset}"}
    for event in result_events(result, command_line(as_options(cell))):
        lines: dict[str, Any] = {name: value for name, value in event.items() if name != "event"}
        run.write(event["event"], lines | facts if event["event"] == "run" else lines)


def _topology(method: str) -> str:
    """By the method's row; methods of the user's own need not be known here."""
    try:
        return str(lookup(method).topology)
    except ValueError:
        return ""


