"""The event log: one JSON object per line, flushed at once."""

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_SHOWN = 20  # lines per kind of refusal and sender; counting continues


class EventLog:
    """Appends events to a file (None: nowhere); a flood of refusals is counted, not written out."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("a", encoding="utf-8") if path is not None else None
        self._lock = threading.Lock()
        self.refusals: Counter[str] = Counter()

    def event(self, name: str, facts: Mapping[str, Any]) -> None:
        """One line."""
        with self._lock:
            if self._file is not None and not self._file.closed:
                line = json.dumps({"time": round(time.time(), 3), "event": name} | dict(facts), allow_nan=False)
                with suppress(OSError):  # a full disk is reported when a round is saved, not by the log
                    self._file.write(line + "\n")
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
