"""The event log: one JSON object per line, flushed at once; old lines go when the disk budget is used up.

Every line has `time` (seconds since 1970), `level` (info, warning or error) and `event`. When log.jsonl has grown to a
quarter of the budget it becomes log.jsonl.1, the one before that log.jsonl.2, and log.jsonl.3 is the oldest. A new part
begins with the last `started` and `view` lines once more (`"again": true`).
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from firma.peer.runtime.json_lines import appended

DEFAULT_BUDGET = 64_000_000  # bytes, of all parts together
_SHOWN = 20  # lines per kind of refusal and sender; counting continues
_PARTS = 4
LEVELS = {
    "refused": "warning",
    "gated": "warning",
    "stalled": "warning",
    "failed": "error",
    "awaiting": "warning",
    "refused_by": "warning",
}  # all others: info
_CARRIED = ("started", "view")  # lines that the next part begins with, so that each part tells who is in the ring
_WARNINGS = ("warning", "paused", "proposing a new view", "waiting for")  # notices that begin like this


class EventLog:
    """Appends events to a file (None: nowhere); a flood of refusals is counted, not written out."""

    def __init__(self, path: Path | None, budget: int = DEFAULT_BUDGET) -> None:
        self._path, self._most = path, budget // _PARTS
        self._file = appended(path) if path is not None else None
        self._lock = threading.Lock()
        self._last: dict[str, str] = {}  # lines to carry over
        self.refusals: Counter[str] = Counter()

    def event(self, name: str, facts: Mapping[str, Any]) -> None:
        """One line."""
        with self._lock:
            if self._file is not None and not self._file.closed:
                stamp = {"time": round(time.time(), 3), "level": _level(name, facts), "event": name}
                line = json.dumps(stamp | dict(facts), allow_nan=False)
                if name in _CARRIED:
                    self._last[name] = json.dumps(stamp | dict(facts) | {"again": True}, allow_nan=False)
                with suppress(OSError):  # a full disk is reported when a round is saved, not by the log
                    self._file.write(line + "\n")
                    self._file.flush()
                    if self._file.tell() > self._most:
                        self._rotate()

    def _rotate(self) -> None:
        """Begin a new part; the oldest one goes."""
        assert self._path is not None  # there is a file
        assert self._file is not None
        self._file.close()
        try:
            for number in range(_PARTS - 2, -1, -1):
                with suppress(FileNotFoundError):
                    part(self._path, number).replace(part(self._path, number + 1))
        finally:
            self._file = appended(self._path)
        self._file.writelines(line + "\n" for line in self._last.values())
        self._file.flush()

    def refused(self, kind: str, sender: str, why: str) -> None:
        """Count a refusal; the first ones are written."""
        with self._lock:
            self.refusals[kind] += 1
            self.refusals[f"{kind} from {sender}"] += 1
            shown = self.refusals[f"{kind} from {sender}"] <= _SHOWN
        if shown:
            self.event("refused", {"kind": kind, "sender": sender, "why": why})

    def total(self) -> dict[str, int]:
        """Refusals by kind."""
        with self._lock:
            return {kind: count for kind, count in self.refusals.items() if " from " not in kind}

    def close(self) -> None:
        """No more lines."""
        with self._lock:
            if self._file is not None:
                with suppress(OSError):
                    self._file.close()


def part(path: Path, number: int) -> Path:
    """The log, or its part of that number, 1 for the newest that is full."""
    return path.with_name(f"{path.name}.{number}") if number else path


def parts(path: Path) -> list[Path]:
    """All parts of a log that exist, oldest first."""
    found = [part(path, number) for number in range(_PARTS - 1, -1, -1)]
    return [each for each in found if each.exists()]


def _level(name: str, facts: Mapping[str, Any]) -> str:
    if name == "notice":
        return "warning" if str(facts.get("says", "")).startswith(_WARNINGS) else "info"
    return LEVELS.get(name, "info")
