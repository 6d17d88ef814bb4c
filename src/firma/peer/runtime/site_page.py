"""The operator's page of a site: what its state folder tells, and what only the running member knows (silence).

`firma join --page` hands in the running member; `firma watch STATE` has the folder alone. Nothing is ever written.
"""

import datetime
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firma.errors import BadInput
from firma.mixing.kind import partners
from firma.page.server import Cursor
from firma.peer.identity import validity
from firma.peer.ring_file import Ring, read_ring
from firma.peer.runtime import checkpoint
from firma.peer.runtime.audit_log import WORDS, AuditReport, audit
from firma.peer.runtime.federation_results import Summary, changed, read_summary
from firma.peer.runtime.notices import what_to_do
from firma.peer.runtime.participation import Span, sentence, spans
from firma.peer.runtime.rotating_lines import parts
from firma.peer.runtime.state_folder import holder
from firma.peer.runtime.status import Status, status_of
from firma.peer.spoken import spoken
from firma.schedule import plan
from firma.tasks.task import MAIN

if TYPE_CHECKING:
    from firma.peer.runtime.node import Node

_NOTICES = 40  # the last ones that are shown
_POINTS = 1000  # of the curve; more rounds are thinned out
_PULSE = 1.0  # seconds between two looks at silences
_AUDIT = 5.0  # seconds between two readings of the audit file, or 20 times as long as one takes
Event = dict[str, Any]


class LogTail:
    """The event log, reduced to what a page shows; only new lines are read, unless the log has been rotated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clear()

    def _clear(self) -> None:
        self._inode, self._at, self._rest = -1, 0, b""
        self.started: Event = {}
        self.views: list[Event] = []
        self.rounds: dict[int, Event] = {}
        self.notices: deque[Event] = deque(maxlen=_NOTICES)
        self.recent: deque[Event] = deque(maxlen=50)
        self.refused: Counter[str] = Counter()  # by kind, and by sender
        self.lines = 0

    def read(self) -> None:
        """Take in what was added."""
        try:
            inode = self._path.stat().st_ino
        except OSError:
            return
        if self._inode not in (-1, inode):
            self._clear()
        if self._inode == -1:
            for older in parts(self._path)[:-1]:
                with suppress(OSError):
                    self._take(older.read_bytes())
            self._rest, self._inode = b"", inode
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(self._at)
            fresh = file.read()
            self._at += len(fresh)
            self._take(fresh)

    def _take(self, raw: bytes) -> None:
        *lines, self._rest = (self._rest + raw).split(b"\n")
        for line in lines:
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                self._note(json.loads(line))

    def _note(self, event: Event) -> None:
        self.lines += 1
        match event["event"]:
            case "started":
                self.started = event
            case "view":
                if not self.views or self.views[-1]["number"] != event["number"]:
                    self.views.append(event)
                for number in [number for number in self.rounds if number >= int(event["from_round"])]:
                    if not event.get("again"):
                        del self.rounds[number]
            case "round":
                self.rounds[int(event["number"])] = event
            case "notice":
                self.notices.append(event)
            case "refused":
                self.refused[str(event["kind"])] += 1
                self.refused[f"from {event['sender']}"] += 1
        self.recent.append(event)

    @property
    def events(self) -> list[Event]:
        """What `status_of` needs."""
        last = [self.rounds[number] for number in sorted(self.rounds)[-10:]]
        return [*([self.started] if self.started else []), *self.views[-1:], *last, *self.recent]


class SitePage:
    """See `firma.page.server.Source`; several readers may ask at once."""

    page = "site.html"

    def __init__(self, folder: Path, node: "Node | None" = None) -> None:
        self._folder, self._node, self._lock = folder, node, threading.Lock()
        self._log = LogTail(folder / "log.jsonl")
        self._ring: Ring | None = None
        self._audit: AuditReport | str = "nothing was sent yet"
        self._audit_size, self._audit_due = -1, 0.0
        self._results: Summary | None = None
        self._results_at = (-1, -1)  # time and size of the file that they were read from
        self._document: dict[str, Any] = {}
        self._at = float("-inf")

    def attach(self, node: "Node") -> None:
        """The member is running from now on."""
        with self._lock:
            self._node = node

    def changes(self, cursor: Cursor) -> list[Mapping[str, Any]]:
        """The whole document when something in it has changed; every second the time and the silences."""
        with self._lock:
            now = time.monotonic()
            if now - self._at >= _PULSE:
                self._document, self._at = self._read(), now
            found: list[Mapping[str, Any]] = []
            if cursor.seen.get("document") != self._document:
                cursor.seen["document"] = self._document
                found.append({"site": self._document})
            if now - cursor.seen.get("pulse", float("-inf")) >= _PULSE:
                cursor.seen["pulse"] = now
                silence = {} if self._node is None else self._node.driver.silence()
                rounded = {name: round(value, 1) for name, value in silence.items()}
                found.append({"now": round(time.time(), 1), "silence": rounded})
            return found

    def data(self, name: str, query: Mapping[str, str]) -> tuple[str, bytes] | None:
        """The statement as a file to keep."""
        del query
        if name != "statement.txt":
            return None
        with self._lock:
            text = "\n".join(self._document.get("statement", ())) + "\n"
        return "text/plain; charset=utf-8", text.encode()

    def _read(self) -> dict[str, Any]:
        """Everything that the folder tells now; the caller holds the lock."""
        ring = self._agreed()
        if ring is None:
            return {"waiting": f"{self._folder}: the member has not written its ring file yet"}
        self._log.read()
        status = status_of(ring, self._log.events, holder(self._folder))
        self._read_audit(status.finished or not status.process)
        took_part = spans(checkpoint.participation(self._folder), ring.names)
        return {
            "federation": ring.federation, "site": status.site, "process": status.process, "round": status.round,
            "rounds": ring.rounds, "left": status.left, "metric": status.metric, "value": status.value,
            "condition": status.condition, "ended": status.ended, "finished": status.finished,
            "live": self._node is not None, "patience": ring.patience, "quorum": ring.needed,
            "method": ring.method, "view": self._view(), "members": self._members(ring, status),
            "last": float(self._log.recent[-1]["time"]) if self._log.recent else None,
            "curve": self._curve(ring), "refused": self._refused(), "digest": spoken(ring.digest),
            "audit": self._audited(), "notices": self._notices(), "folder": str(self._folder),
            "metrics": self._last_round().get("metrics", {}),
            "results": self._shared(ring), "statement": self._statement(ring, status, took_part),
        }  # fmt: skip

    def _agreed(self) -> Ring | None:
        if self._ring is None:
            with suppress(BadInput, OSError):
                self._ring = read_ring(self._folder / "ring.toml")
        return self._ring

    def _shared(self, ring: Ring) -> dict[str, Any] | None:
        """The table of members' results; None if they agreed on none."""
        at = changed(self._folder)
        if at != self._results_at or self._results is None:
            self._results, self._results_at = read_summary(self._folder, ring), at
        return None if self._results is None else self._results.as_json() | {"line": self._results.line()}

    def _last_round(self) -> Event:
        return self._log.rounds[max(self._log.rounds)] if self._log.rounds else {}

    def _view(self) -> dict[str, Any] | None:
        if not self._log.views:
            return None
        last = self._log.views[-1]
        return {
            "number": last["number"],
            "members": last["ring"],
            "from_round": last["from_round"],
            "time": last["time"],
        }

    def _members(self, ring: Ring, status: Status) -> list[dict[str, Any]]:
        now, weights = datetime.datetime.now(datetime.UTC), self._last_round().get("weights", {})
        near = self._neighbours(ring, status)
        received = self._audit.receivers if isinstance(self._audit, AuditReport) else {}
        found = []
        for member in ring.members:
            valid = validity(member.certificate.encode())
            since = self._seated_since(member.name)
            found.append({
                "name": member.name, "address": member.address, "me": member.name == status.site,
                "in": member.name in status.members, "neighbour": member.name in near,
                "since_round": since and since["from_round"], "since": since and since["time"],
                "weight": weights.get(member.name), "sent": received.get(member.name, 0),
                "refused": self._refused_from(member.name), "days": (valid.last - now).days,
                "certificate": valid.trouble(now) or valid.warning(now),
            })  # fmt: skip
        return found

    def _neighbours(self, ring: Ring, status: Status) -> set[str]:
        """Whom this site waits for in a round."""
        names = ring.names
        if status.site not in status.members or len(status.members) < 2:
            return set()
        number = min(status.round, ring.rounds - 1)
        planned = plan(ring.row, ring.hyper, len(status.members), ring.rounds, number, ring.seed)
        order = [names.index(name) for name in status.members]
        return {names[member] for member in partners(planned, order, names.index(status.site))}

    def _seated_since(self, name: str) -> Event | None:
        """The view since which a member has been in without a break; None if it is not in."""
        found: Event | None = None
        for view in reversed(self._log.views):
            if name not in view["ring"]:
                return found
            found = view
        return found

    def _refused(self) -> dict[str, int]:
        if self._node is not None:
            return self._node.log.total()
        return {kind: count for kind, count in self._log.refused.items() if not kind.startswith("from ")}

    def _refused_from(self, name: str) -> int:
        if self._node is not None:
            with suppress(RuntimeError):  # a kind was added while they were counted
                kinds = list(self._node.log.refusals.items())
                return sum(count for kind, count in kinds if kind.endswith(f" from {name}"))
        return self._log.refused[f"from {name}"]

    def _curve(self, ring: Ring) -> list[list[float | None]]:
        """Round, metric, training accuracy, bytes, seconds, of them training, mixing."""
        main, numbers = MAIN[ring.task.kind], sorted(self._log.rounds)
        step = max(1, -(-len(numbers) // _POINTS))
        kept = [*numbers[:-1:step], *numbers[-1:]]
        names = (main, "training_accuracy", "bytes", "seconds", "training", "mixing")
        return [[number, *(self._log.rounds[number].get(name) for name in names)] for number in kept]

    def _notices(self) -> list[dict[str, Any]]:
        """The last ones, newest first, each with what to do; a wait that is over asks for nothing any more."""
        went_on = float(self._last_round().get("time", 0.0))
        found = []
        for each in reversed(self._log.notices):
            says, level = str(each.get("says", "")), each.get("level", "info")
            over = says.startswith("waiting for") and float(each["time"]) < went_on
            todo = "Nothing: that is over, rounds went on." if over else what_to_do(says)
            found.append({"time": each["time"], "says": says, "level": "info" if over else level, "todo": todo})
        return found

    def _read_audit(self, last: bool) -> None:
        """Judge the audit file again if it has grown; seldom, for it may be long, but always after the last round."""
        path, began = self._folder / "audit.jsonl", time.monotonic()
        try:
            size = path.stat().st_size
        except OSError:
            return
        if size == self._audit_size or (began < self._audit_due and not last):
            return
        try:
            self._audit = audit(path)
        except BadInput as error:
            self._audit = str(error)
        self._audit_size = size
        self._audit_due = began + max(_AUDIT, 20 * (time.monotonic() - began))

    def _audited(self) -> dict[str, Any]:
        found = self._audit
        if isinstance(found, str):
            return {"passed": None, "verdict": found, "breaches": [], "unfinished": []}
        vectors = ", vectors mixed with it" if any(name.startswith("mixed.") for name in found.tensors) else ""
        passed = f"passed: the extractor{vectors} and agreed numbers left, nothing else"
        return {
            "passed": not found.breaches, "verdict": "FAILED: see what left" if found.breaches else passed,
            "messages": found.messages, "bytes": found.size, "tensors": list(found.tensors),
            "numbers": list(found.numbers), "words": {each: WORDS.get(each, "") for each in found.numbers},
            "breaches": list(found.breaches[:50]),
            "unfinished": list(found.unfinished[:50]),
        }  # fmt: skip

    def _statement(self, ring: Ring, status: Status, took_part: tuple[Span, ...]) -> list[str]:
        """Rounds done with whom, who was missing when, what this site contributed."""
        rounds = [self._log.rounds[number] for number in sorted(self._log.rounds)]
        training = sum(float(each.get("training", 0.0)) for each in rounds)
        seconds = sum(float(each.get("seconds", 0.0)) for each in rounds)
        said = "finished" if status.finished else "so far"
        lines = [
            f"Statement of {status.site} in federation {ring.federation} ({said})",
            f"Method {ring.method}; ring digest: {spoken(ring.digest)}",
            f"Rounds done: {status.round} of {ring.rounds}. Took part: {sentence(took_part, ring.names)}.",
        ]
        for name in ring.names:
            gone = [span for span in took_part if span.members is not None and name not in span.members]
            if gone:
                when = ", ".join(f"{s.first}" if s.first == s.last else f"{s.first}-{s.last}" for s in gone)
                lines.append(f"Missing: {name} in rounds {when}.")
        if not any(line.startswith("Missing") for line in lines) and took_part:
            lines.append("Missing: nobody in the rounds that this site took part in.")
        if status.value is not None:
            lines.append(f"{status.metric[0].upper()}{status.metric[1:]} on this site's test data: {status.value:.4f}.")
        lines.append(f"This site trained for {training:,.1f} s in rounds that took {seconds:,.1f} s.")
        if isinstance(self._audit, AuditReport):
            found = self._audit
            to = ", ".join(f"{size:,} bytes to {name}" for name, size in found.receivers.items()) or "nothing"
            verdict = "FAILED" if found.breaches else "passed"
            lines.append(f"It sent {found.messages:,} messages: {to}.")
            tensors, numbers = (", ".join(names) or "none" for names in (found.tensors, found.numbers))
            lines.append(f"Audit {verdict}: tensors {tensors}; numbers {numbers}.")
        if self._results is not None:
            lines += [f"Results of the federation: {self._results.line()}.", *self._results.lines()]
        return lines
