"""The event log: one JSON object per line, flushed at once; old lines go when the disk budget is used up.

Every line has `time` (seconds since 1970), `level` (info, warning or error) and `event`. A new part (`rotating_lines`)
begins with the last `started` and `view` lines once more (`"again": true`).
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from firma.peer.runtime.disk_budget import LOG
from firma.peer.runtime.rotating_lines import RotatingLines

_SHOWN = 20  # lines per kind of refusal and sender; counting continues
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

    def __init__(self, path: Path | None, budget: int = LOG, also: TextIO | None = None) -> None:
        self._last: dict[str, str] = {}  # lines to carry over
        self._file = RotatingLines(path, budget, self._last.values) if path is not None else None
        self._also = also  # every line goes there too
        self._lock = threading.Lock()
        self.refusals: Counter[str] = Counter()

    def event(self, name: str, facts: Mapping[str, Any]) -> None:
        """One line."""
        stamp = {"time": round(time.time(), 3), "level": _level(name, facts), "event": name}
        line = json.dumps(stamp | dict(facts), allow_nan=False)
        with self._lock:
            if self._file is not None and not self._file.closed:
                if name in _CARRIED:
                    self._last[name] = json.dumps(stamp | dict(facts) | {"again": True}, allow_nan=False)
                with suppress(OSError):  # a full disk is reported when a round is saved, not by the log
                    self._file.write(line)
            if self._also is not None:
                with suppress(OSError, ValueError):  # nobody reads it any more
                    self._also.write(line + "\n")
                    self._also.flush()

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
                self._file.close()


def _level(name: str, facts: Mapping[str, Any]) -> str:
    if name == "notice":
        return "warning" if str(facts.get("says", "")).startswith(_WARNINGS) else "info"
    return LEVELS.get(name, "info")
