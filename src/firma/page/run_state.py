"""What a page of runs shows: `live.jsonl` as it grows, and results that were there before.

The stream holds little of each run (mean, worst, bytes and seconds of its rounds); what only the chosen run needs
(settings, classes, weights, scores of every client) is asked for by name.
"""

import json
import os
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firma.live_log import LIVE_FILE, is_written
from firma.page.server import Cursor
from firma.settings import Hyper, Split

_BRIEF = ("method", "seed", "rounds", "clients", "main", "title", "engine")
_BASE = (
    "method", "dataset", "scenario", "preset", "clients", "rounds", "model.name", "participation", "drift", "attack",
    "attackers", "wire", "backend", "bandwidth", "order",
)  # fmt: skip
_PLAIN = ("method", "dataset", "scenario")  # in a label their values speak for themselves
_SETTINGS = (*Hyper.model_fields, *Split.model_fields)
_WEIGHTS = ("round", "mixing", "passes", "participants", "gate", "links", "shares")
Facts = Mapping[str, Any]
Stored = Callable[[], Iterable[Facts]]


@dataclass
class _Run:
    """A run so far; `rows` are round, mean, worst, bytes, seconds, and those of training, mixing and testing."""

    facts: Facts
    stored: bool
    rows: list[list[float | None]] = field(default_factory=list)
    scores: "array[float]" = field(default_factory=lambda: array("f"))  # (rounds, clients), NaN: unknown
    metrics: dict[str, float | None] = field(default_factory=dict)
    weights: Facts = field(default_factory=dict)
    end: Facts | None = None
    version: int = 0
    label: str = ""  # what tells it apart from runs that differ by more than their seed

    def __post_init__(self) -> None:
        settings = {"method": self.facts["method"], **self.facts.get("settings", {})}
        self.base = tuple(str(settings.get(name, "")) for name in _BASE)
        self.rest = tuple(str(settings.get(name, "")) for name in _SETTINGS)

    def brief(self) -> dict[str, Any]:
        found = {name: self.facts[name] for name in _BRIEF if name in self.facts}
        more = dict(zip(_BASE[1:3], self.base[1:3], strict=True))
        return found | more | {"stored": self.stored, "label": self.label, "group": str(hash((self.base, self.rest)))}


def labels(runs: Iterable[_Run]) -> list[str]:
    """A name for each run: its method, and whatever differs among all runs; settings only where the rest is the same.

    The settings of two methods always differ, and their names say so.
    """
    runs = list(runs)
    varies = [k for k in range(len(_BASE)) if len({run.base[k] for run in runs}) > 1]
    alike: dict[tuple[str, ...], list[_Run]] = {}
    for run in runs:
        alike.setdefault(run.base, []).append(run)
    inner = {
        base: [k for k in range(len(_SETTINGS)) if len({run.rest[k] for run in same}) > 1]
        for base, same in alike.items()
    }
    found = []
    for run in runs:
        words = [run.base[0]]
        words += [run.base[k] if _BASE[k] in _PLAIN else f"{_BASE[k]}={run.base[k]}" for k in varies if k]
        words += [f"{_SETTINGS[k]}={run.rest[k]}" for k in inner[run.base]]
        found.append(" ".join(words))
    return found


class RunState:
    """The runs of one folder; several readers may ask at once.

    `stored` gives the events of runs that were finished before, once.
    """

    page = "run.html"

    def __init__(self, folder: Path, stored: Stored = lambda: ()) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._base = list(stored())
        self._inode, self._at, self._rest = -1, 0, b""
        self._version = self._generation = self._labelled = 0
        self._runs: dict[str, _Run] = {}
        self._session: Facts = {}
        self._written: bool | None = False
        self._restart()

    def changes(self, cursor: Cursor) -> list[Mapping[str, Any]]:
        """See `server.Source`: one message with the session and what is new of each run."""
        with self._lock:
            self._read()
            self._relabel()
            seen = cursor.seen
            first = seen.get("generation") != self._generation
            if first:
                seen.clear()
                seen.update(generation=self._generation, version=-1, sent={})
            session = {**self._session, "folder": str(self._folder), "written": self._written}
            if not first and seen["version"] == self._version and seen["session"] == session:
                return []
            runs = [
                self._update(name, run, seen["sent"]) for name, run in self._runs.items()
                if run.version > seen["version"]
            ]  # fmt: skip
            seen.update(version=self._version, session=session)
            return [{"reset": first, "session": session, "runs": runs}]

    def data(self, name: str, query: Mapping[str, str]) -> tuple[str, bytes] | None:
        """See `server.Source`: details, weights or scores of one run."""
        with self._lock:
            if query.get("run", "") not in self._runs:  # this server may have been started a moment ago
                self._read()
            run = self._runs.get(query.get("run", ""))
            if run is None:
                return None
            if name == "details":
                return "application/json", json.dumps(run.facts).encode()
            if name == "weights":
                return "application/json", json.dumps({**run.weights, "metrics": run.metrics}).encode()
            if name == "scores":
                start = query.get("from", "0")
                first = int(start) if start.isdigit() and len(start) < 10 else 0
                part = run.scores[first * int(run.facts["clients"]) :]
                if sys.byteorder == "big":  # browsers read the other order
                    part.byteswap()
                return "application/octet-stream", part.tobytes()
        return None

    def _update(self, name: str, run: _Run, sent: dict[str, int]) -> dict[str, Any]:
        start = sent.get(name)
        sent[name] = len(run.rows)
        told: dict[str, Any] = {"id": name, "from": start or 0, "rows": run.rows[start or 0 :], "end": run.end}
        return told if start is not None else told | {"facts": run.brief()}

    def _relabel(self) -> None:
        """Name the runs again if there are new ones; if that renames any, readers are told everything again."""
        if self._labelled == len(self._runs):
            return
        self._labelled = len(self._runs)
        for run, label in zip(self._runs.values(), labels(self._runs.values()), strict=True):
            self._generation += run.label not in ("", label)
            run.label = label

    def _restart(self) -> None:
        """Forget what the file said: it is another one now."""
        self._runs, self._session, self._at, self._rest = {}, {}, 0, b""
        self._generation += 1
        self._version += 1
        self._labelled = 0
        for each in self._base:
            self._apply(each, stored=True)

    def _read(self) -> None:
        """Take in the lines that were added; the caller holds the lock."""
        self._written = is_written(self._folder)
        try:
            with (self._folder / LIVE_FILE).open("rb") as file:
                facts = os.fstat(file.fileno())
                if facts.st_ino != self._inode or facts.st_size < self._at:
                    if self._inode != -1:
                        self._restart()
                    self._inode = facts.st_ino
                file.seek(self._at)
                fresh = file.read()
        except OSError:
            return
        self._at += len(fresh)
        *lines, self._rest = (self._rest + fresh).split(b"\n")
        for line in lines:
            with suppress(ValueError, KeyError, TypeError, RecursionError):  # a line that was cut off by a crash
                self._apply(json.loads(line), stored=False)

    def _apply(self, line: Facts, stored: bool) -> None:
        self._version += 1
        match line["event"]:
            case "session":
                self._session = {name: line[name] for name in ("title", "command", "runs", "process") if name in line}
            case "run":
                if not stored and line.get("key"):  # it is run again
                    same = [name for name, run in self._runs.items() if run.stored and run.facts["key"] == line["key"]]
                    for name in same:
                        del self._runs[name]
                        self._labelled = -1
                        self._generation += 1
                self._runs[line["id"]] = _Run(line, stored, version=self._version)
            case "round":
                run = self._runs[line["id"]]
                seconds, clients = line.get("seconds", {}), int(run.facts["clients"])
                parts = [seconds.get(part) for part in ("training", "mixing", "testing")]
                row = [line["round"], line["mean"], line["worst"], line["bytes"], line.get("took"), *parts]
                scores = [float("nan") if each is None else each for each in line.get("scores", [None] * clients)]
                if len(scores) == clients:
                    run.rows.append(row)
                    run.scores.extend(scores)
                run.metrics = line.get("metrics", {})
                if "mixing" in line:
                    run.weights = {name: line[name] for name in _WEIGHTS if name in line}
                run.version = self._version
            case "failed":  # a run of a sweep; it may never have begun
                begun = [run for run in self._runs.values() if run.facts.get("key") == line["key"] and not run.stored]
                run = begun[-1] if begun else self._runs.setdefault(line["id"], _Run(line, stored))
                run.end, run.version = {"status": "failed", "error": line["error"]}, self._version
            case "end":
                run = self._runs[line["id"]]
                run.end = {name: line[name] for name in ("status", "error", "seconds") if name in line}
                run.version = self._version
