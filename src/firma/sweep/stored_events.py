"""Finished runs as the lines that `live.jsonl` would have had, so that one page shows old and new runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from firma.live_log import LIVE_FILE, LivePlace, LiveRun, live_run, round_facts
from firma.method_lookup import lookup
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


def live_place(folder: Path, cell: Cell) -> LivePlace:
    """Where the progress of a cell goes, and what it is called there."""
    return LivePlace(folder, cell.name, f"{key(cell)}.{cell.preset}", command_line(as_options(cell)))


def tell_finished(folder: Path, cell: Cell, result: Result) -> None:
    """All lines of a run that another machine made, once it has arrived, if anything is told in this folder."""
    if not (folder / LIVE_FILE).exists():
        return
    place = live_place(folder, cell)
    with live_run(place) as run:
        for event in result_events(result, place.command):
            facts = {name: value for name, value in event.items() if name != "event"}
            named = {"name": place.name, "key": place.key} if event["event"] == "run" else {}
            run.write(event["event"], facts | named)


def tell_failed(folder: Path, cell: Cell, error: str) -> None:
    """That a cell has no result: before its first round, on another machine, or because it diverged."""
    if not (folder / LIVE_FILE).exists():
        return
    place, run = live_place(folder, cell), LiveRun(LivePlace(folder))
    settings = {"dataset": cell.dataset, "scenario": cell.scenario}
    run.write("failed", {
        "name": place.name, "key": place.key, "method": cell.method, "seed": cell.seed, "rounds": cell.rounds,
        "clients": cell.clients, "settings": settings, "command": place.command, "error": error[:2000],
    })  # fmt: skip
    run.close()


def _topology(method: str) -> str:
    """By the method's row; methods of the user's own need not be known here."""
    try:
        return str(lookup(method).topology)
    except ValueError:
        return ""
