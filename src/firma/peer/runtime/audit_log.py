"""The audit log: everything that left this site, read off the bytes that were sent, and the verdict on it.

It stays within its disk budget (`rotating_lines`). Before the oldest part goes, the verdict on it is added to
`audit.jsonl.summary`: receivers and bytes, names of tensors and numbers, and every breach. So an audit always covers
the whole run; of its oldest part it no longer has each message.
"""

import hashlib
import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from firma.atomic_files import replace_synced
from firma.encoding import size as encoded_size
from firma.errors import BadInput
from firma.peer.ring_file import Ring, Sharing
from firma.peer.runtime.disk_budget import LOG
from firma.peer.runtime.json_lines import lines_of
from firma.peer.runtime.rotating_lines import RotatingLines, parts
from firma.peer.wire.message import decode_header
from firma.peer.wire.statements import decode_statements
from firma.peer.wire.terms import Tag, Terms

_SHARED = ("extractor", "mixed.")  # names of tensors that may leave: the extractor's, and vectors mixed with it
# The only numbers beside the extractor; statements are members' signatures under the ring file.
AGREED = ("accuracy", "weight", "rounds", "proportions", "digests", "statements", "results of others")
RESULTS, SUPPORT, OTHERS = "results", "class support", "results of others"  # RESULTS, SUPPORT: if this site shares them
WORDS = {
    "accuracy": "this site's accuracy on its training data, with its extractor",
    "weight": "its number of training samples, by which an average is weighted",
    "rounds": "which rounds it has done, in the agreement on who takes part",
    "proportions": "the shares of the classes in its training data, by which the ring is ordered",
    "digests": "hashes of extractors, by which members compare what they were sent",
    "statements": "signatures under the ring file, and requests to stop the ring",
    RESULTS: "this site's accuracy (or main metric) on its test data and its number of test samples, to all members",
    SUPPORT: "how many of this site's test samples are of each class, to all members",
    OTHERS: "results that other members signed and share, passed on",
}


class AuditLog:
    """Appends a line for every message before it leaves."""

    def __init__(
        self, path: Path, ring: Ring, me: int, terms: Terms, budget: int = LOG, shares: Sharing = "none"
    ) -> None:  # fmt: skip
        self._ring, self._me, self._terms, self._lock = ring, me, terms, threading.Lock()
        tensors = {name: list(shape) for name, shape, _ in terms.signature.tensors}
        head = {
            "site": ring.names[me], "federation": ring.federation, "classes": terms.classes,
            "members": len(ring.members), "extractor": tensors, "shares": shares,
        }  # fmt: skip

        def named() -> dict[str, Any]:  # no two parts are the same bytes, whatever was sent
            return head | {"part": secrets.token_hex(8)}

        self._file = RotatingLines(path, budget, lambda: (json.dumps(named()),), lambda old: _summarise(path, old))
        self._line(named())
        self.sent = 0
        self._sent_to: Counter[str] = Counter()

    def record_message(self, member: int, tag: Tag, header: bytes, size: int) -> None:
        """Record one message to a member: its header is decoded again, so that the line says what the bytes say."""
        decoded = decode_header(self._terms, header)
        numbers = [
            name for name, value in (("accuracy", decoded.accuracy), ("weight", decoded.weight)) if value is not None
        ]
        numbers += ["digests"] if decoded.digests else []
        tensors = [{"name": c.name, "shape": c.shape, "start": c.start, "count": c.count} for c, _ in decoded.cuts]
        self._line(
            {
                "time": round(time.time(), 3), "turn": tag[1], "step": tag[2], "to": self._ring.names[member],
                "tensors": tensors, "numbers": numbers, "wire": decoded.wire, "bytes": len(header) + size,
            }
        )  # fmt: skip
        with self._lock:
            self.sent += len(header) + size
            self._sent_to[self._ring.names[member]] += len(header) + size

    def totals(self) -> dict[str, int]:
        """Bytes sent so far, by member."""
        with self._lock:
            return dict(self._sent_to)

    def record_control(self, member: int, numbers: list[str], size: int, promises: int = 0) -> None:
        """Record one control message to a member: the agreed kinds of numbers in it, and how many promises."""
        self._line(
            {
                "time": round(time.time(), 3), "turn": 0, "step": 0, "to": self._ring.names[member],
                "tensors": [], "numbers": numbers, "promises": promises, "bytes": size,
            }
        )  # fmt: skip
        with self._lock:
            self.sent += size
            self._sent_to[self._ring.names[member]] += size

    def record_statements(self, member: int, raw: bytes) -> None:
        """Record statements to a member, decoded again: whether they hold results, and whose."""
        shared = [each.result for each in decode_statements(raw, self._ring).results]
        told = {
            RESULTS: any(each.member == self._me for each in shared),
            SUPPORT: any(each.member == self._me and each.support for each in shared),
            OTHERS: any(each.member != self._me for each in shared),
        }
        self.record_control(member, ["statements", *(name for name, there in told.items() if there)], len(raw))

    def _line(self, facts: Mapping[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(facts))

    def close(self) -> None:
        """No more lines. A line that could not be written was reported then."""
        with self._lock:
            self._file.close()


@dataclass(frozen=True)
class AuditReport:
    """What an audit file holds: totals, every breach of what was agreed, and lines that a crash cut off."""

    site: str
    messages: int
    size: int
    receivers: Mapping[str, int]
    tensors: tuple[str, ...]
    numbers: tuple[str, ...]
    breaches: tuple[str, ...]
    unfinished: tuple[str, ...] = ()


def audit(path: Path) -> AuditReport:
    """Read an audit file and its older parts; anything but the extractor, vectors mixed with it, and agreed numbers is
    a breach.

    A line that was cut off by a crash or a full disk is reported, and is no breach: a message leaves only after all of
    its line is written. Any other line that cannot be read is a breach.
    """
    try:
        found = parts(path) or [path]
        summary = _summary(path)
        if summary is not None and found[0] != path and _sha256(found[0]) == summary["last"]:
            del found[0]  # it was summarised, and a crash left it there
        reports = [_audit_part(each, "" if each == path else f" of {each.name}") for each in found]
        if summary is not None:
            reports.insert(0, AuditReport(**{key: _plain(value) for key, value in summary["report"].items()}))
        return _joined(reports)
    except OSError as error:
        raise BadInput(f"audit file {str(path)!r}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        raise BadInput(
            f"{str(path)!r} is not an audit file, or is damaged; pass the audit.jsonl of a state folder"
        ) from None


def _audit_part(path: Path, where: str) -> AuditReport:
    lines = list(lines_of(path))
    values = [line.value for line in lines if line.value is not None]
    header = next(value for value in values if "extractor" in value)
    allowed: dict[str, list[int]] = header["extractor"]
    classes: int = header["classes"]
    members: int = header.get("members", 0)
    sent, shares = [], str(header.get("shares", "none"))
    shared: list[str] = []  # what this site had chosen to share when the line was written
    for value in values:
        if "to" in value:
            sent.append(value)
            shared.append(shares)
        elif "extractor" in value:  # it was started again, perhaps with another choice
            shares = str(value.get("shares", "none"))
    receivers: dict[str, int] = {}
    for line in sent:
        receivers[line["to"]] = receivers.get(line["to"], 0) + line["bytes"]
    breaches = [
        breach
        for line, choice in zip(sent, shared, strict=True)
        for breach in _breaches(line, allowed, classes, members, choice)
    ]
    tensors = {tensor["name"] for line in sent for tensor in line["tensors"]}
    numbers = {number for line in sent for number in line["numbers"]}
    site, size = header["site"], sum(line["bytes"] for line in sent)
    damaged = [line for line in lines if line.value is None]
    breaches += [f"line {line.number}{where} is damaged: nobody can say what it recorded" for line in damaged
                 if not line.cut_off]  # fmt: skip
    unfinished = [f"line {line.number}{where} was cut off after {line.size} bytes" for line in damaged if line.cut_off]
    return AuditReport(
        site, len(sent), size, receivers, tuple(sorted(tensors)), tuple(sorted(numbers)), tuple(breaches),
        tuple(unfinished),
    )  # fmt: skip


def _joined(reports: Sequence[AuditReport]) -> AuditReport:
    receivers: Counter[str] = Counter()
    for each in reports:
        receivers.update(each.receivers)
    return AuditReport(
        reports[-1].site, sum(each.messages for each in reports), sum(each.size for each in reports), dict(receivers),
        tuple(sorted({name for each in reports for name in each.tensors})),
        tuple(sorted({name for each in reports for name in each.numbers})),
        tuple(breach for each in reports for breach in each.breaches),
        tuple(line for each in reports for line in each.unfinished),
    )  # fmt: skip


def _summarise(path: Path, oldest: Path) -> None:
    """Add the verdict on the oldest part to the summary, once, whenever the process is killed."""
    summary, digest = _summary(path), _sha256(oldest)
    if summary is not None and summary["last"] == digest:
        return
    before = [AuditReport(**{key: _plain(value) for key, value in summary["report"].items()})] if summary else []
    try:
        report = _joined([*before, _audit_part(oldest, " of a part that is gone")])
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        report = _joined([*before, AuditReport("", 0, 0, {}, (), (), ("a part that is gone was damaged",))])
    stored = {"last": digest, "report": asdict(report)}
    replace_synced(path.with_name(f"{path.name}.summary"), json.dumps(stored).encode(), private=True)


def _summary(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.with_name(f"{path.name}.summary").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _breaches(
    line: Mapping[str, Any], allowed: Mapping[str, list[int]], classes: int, members: int, shares: str
) -> list[str]:  # fmt: skip
    found = []
    agreed = {"none": AGREED, "accuracy": (*AGREED, RESULTS), "classes": (*AGREED, RESULTS, SUPPORT)}[shares]
    content = 0
    for tensor in line["tensors"]:
        content += encoded_size(line.get("wire", "float32"), tensor["count"])
        if allowed.get(tensor["name"]) != tensor["shape"] or not tensor["name"].startswith(_SHARED):
            found.append(f"turn {line['turn']}: {tensor['name']} went to {line['to']}")
    found += [f"turn {line['turn']}: {name} went to {line['to']}" for name in line["numbers"] if name not in agreed]
    promises = min(max(int(line.get("promises", 0)), 0), members)
    most = content + 512 * (1 + len(line["tensors"]))
    most += 24 * classes * max(promises, 1) * ("proportions" in line["numbers"])
    # Two views name their members, in digits, with a signature of each; a promise holds one more and receipts of all.
    most += (576 * members + promises * (512 + 512 * members)) * ("rounds" in line["numbers"])
    most += 32 * members * ("digests" in line["numbers"])
    most += 400 * members * ("statements" in line["numbers"])
    most += (320 + 12 * classes) * members * bool({RESULTS, OTHERS} & set(line["numbers"]))
    if line["bytes"] > most:
        found.append(f"turn {line['turn']}: {line['bytes']} bytes went to {line['to']}, more than its tensors hold")
    return found
