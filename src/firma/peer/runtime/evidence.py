"""What other members sent, with their signatures, so that this site can prove it.

`evidence.jsonl` has one line per message that was taken, for the whole run: who sent it, for which exchange, the digest
of its header and the sender's signature. The folder `evidence` holds the last two rounds' messages byte by byte. Only
what a member was expected to send is taken, once per exchange, so nobody can fill the disk; a line has some 300 bytes,
and the messages are kept within a budget. All of it is readable by the owner of the state folder alone.
"""

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from firma.atomic_files import private_opener
from firma.errors import BadInput
from firma.peer.identity import fingerprint
from firma.peer.ring_file import Ring
from firma.peer.runtime.json_lines import appended, lines_of
from firma.peer.wire.message import Assembly, Header, decode_header
from firma.peer.wire.message_signature import SIZE, genuine, public_key
from firma.peer.wire.terms import Signature, Terms, WireError, federation_tag

FILE, FOLDER = "evidence.jsonl", "evidence"
ROUNDS = 2  # whose messages are kept byte by byte
BUDGET = 1 << 30  # bytes of these messages; the oldest go first
_NAME = re.compile(r"v([0-9]+)-round([0-9]+)-step([0-9]+)-(.+)\.message")


class Evidence:
    """Keeps what arrives; `keep` is called by the threads of the server."""

    def __init__(self, state: Path, ring: Ring, me: int, terms: Terms, budget: int = BUDGET) -> None:
        self._folder, self._ring, self._budget, self._lock = state / FOLDER, ring, budget, threading.Lock()
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._file = appended(state / FILE)
        self._write(
            {
                "site": ring.names[me], "federation": ring.federation, "ring": ring.digest.hex(),
                "classes": terms.classes, "elements": terms.signature.size,
                "extractor": [[name, list(shape), start] for name, shape, start in terms.signature.tensors],
                "members": {member.name: member.certificate for member in ring.members},
            }
        )  # fmt: skip
        self._held = {path: path.stat().st_size for path in sorted(self._folder.glob("v*.message"))}

    def keep(self, sender: int, header: Header, raw: bytes, signature: bytes, body: bytes | bytearray) -> None:
        """Record a message that is taken; `OSError` if the disk is full, and then the message is not lost by it."""
        view, turn, step = header.tag
        name = self._ring.names[sender]
        facts = {
            "time": round(time.time(), 3), "from": name, "view": view, "round": turn, "step": step,
            "sha256": header.digest.hex(), "signature": signature.hex(),
        }  # fmt: skip
        with self._lock:
            self._write(facts)
            path = self._folder / f"v{view:06d}-round{turn:06d}-step{step:04d}-{name}.message"
            with open(path, "wb", opener=private_opener) as file:
                file.write(len(raw).to_bytes(4, "little") + raw + signature)
                file.write(body)
            self._held[path] = 4 + len(raw) + len(signature) + len(body)
            self._drop_old()

    def _drop_old(self) -> None:
        """Keep two rounds, and no more than the budget; the newest message stays."""
        newest = sorted({_round(path) for path in self._held})[-ROUNDS:]
        total = sum(self._held.values())
        for path in sorted(self._held, key=_round)[:-1]:
            if _round(path) in newest and total <= self._budget:
                break
            total -= self._held.pop(path)
            with suppress(OSError):
                path.unlink()

    def _write(self, facts: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(facts) + "\n")
        self._file.flush()

    def close(self) -> None:
        """No more lines."""
        with self._lock, suppress(OSError):
            self._file.close()


def _round(path: Path) -> tuple[int, int]:
    """(view, round) of a kept message."""
    found = _NAME.fullmatch(path.name)
    return (int(found[1]), int(found[2])) if found else (0, 0)


@dataclass(frozen=True)
class KeptMessage:
    """A message of the last rounds, as it was sent."""

    sender: str
    view: int
    round: int
    step: int
    norm: float
    accuracy: float | None
    weight: float | None


@dataclass(frozen=True)
class EvidenceReport:
    """What a file of evidence proves: messages by sender, which of them are signed, and what the last ones say."""

    site: str
    messages: Mapping[str, int]
    rounds: Mapping[str, tuple[int, int]]  # first and last round of each sender's messages
    fingerprints: Mapping[str, str]  # of the certificates by which signatures were verified
    forged: tuple[str, ...]  # lines and messages that are not what their sender signed
    kept: tuple[KeptMessage, ...]
    unfinished: tuple[str, ...] = ()


def examined(path: Path) -> EvidenceReport:
    """Read a file of evidence and the messages beside it, and verify every signature and every hash."""
    try:
        lines = list(lines_of(path))
        values = [line.value for line in lines if line.value is not None]
        head = next(value for value in values if "members" in value)
        ring, certificates = bytes.fromhex(head["ring"]), dict(head["members"])
        keys = {name: public_key(pem) for name, pem in certificates.items()}
        tensors = tuple((str(name), tuple(map(int, shape)), int(start)) for name, shape, start in head["extractor"])
        signature = Signature(tensors, int(head["elements"]))
        terms = Terms(federation_tag(head["federation"]), ring, signature, int(head["classes"]))
        messages: Counter[str] = Counter()
        rounds: dict[str, tuple[int, int]] = {}
        forged = []
        for line in lines:
            value = line.value
            if value is None or "from" not in value:
                continue
            name, turn = str(value["from"]), int(value["round"])
            messages[name] += 1
            rounds[name] = (min(turn, rounds.get(name, (turn, turn))[0]), max(turn, rounds.get(name, (0, 0))[1]))
            tag, digest = (int(value["view"]), turn, int(value["step"])), bytes.fromhex(value["sha256"])
            if not genuine(keys[name], ring, tag, digest, bytes.fromhex(value["signature"])):
                forged.append(f"line {line.number}: not signed by {name}")
        site = str(head["site"])
    except OSError as error:
        raise BadInput(f"evidence {str(path)!r}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, BadInput):
        raise BadInput(
            f"{str(path)!r} is not a file of evidence, or is damaged; pass the {FILE} of a state folder"
        ) from None
    kept = []
    for each in sorted((path.parent / FOLDER).glob("v*.message")):
        try:
            kept.append(_read_message(each, terms, keys))
        except (OSError, ValueError, KeyError) as error:
            forged.append(f"{each.name}: {error}")
    damaged = [line for line in lines if line.value is None]
    forged += [f"line {line.number} is damaged" for line in damaged if not line.cut_off]
    unfinished = [f"line {line.number} was cut off after {line.size} bytes" for line in damaged if line.cut_off]
    shown = {name: fingerprint(pem.encode()) for name, pem in certificates.items()}
    return EvidenceReport(site, dict(messages), rounds, shown, tuple(forged), tuple(kept), tuple(unfinished))


def _read_message(path: Path, terms: Terms, keys: Mapping[str, ec.EllipticCurvePublicKey]) -> KeptMessage:
    """A kept message, if its sender signed it and every hash is right; else `ValueError`."""
    raw, found = path.read_bytes(), _NAME.fullmatch(path.name)
    size = 4 + int.from_bytes(raw[:4], "little")
    header, signature, body = raw[4:size], raw[size : size + SIZE], raw[size + SIZE :]
    decoded = decode_header(terms, header)
    if found is None or decoded.tag != (int(found[1]), int(found[2]), int(found[3])):
        raise WireError("its name is not of this message")
    if not genuine(keys[found[4]], terms.ring, decoded.tag, decoded.digest, signature):
        raise WireError(f"not signed by {found[4]}")
    assembly = Assembly(decoded)
    if body:
        assembly.feed(body)
    values = assembly.finish().state.values
    view, turn, step = decoded.tag
    norm = float(values.double().norm())
    return KeptMessage(found[4], view, turn, step, norm, decoded.accuracy, decoded.weight)
