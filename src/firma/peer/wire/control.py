"""Control messages and a member's memory as JSON: on the wire and on disk. Pure.

Notes hold numbers of members, rounds and ballots, and class proportions where the ring is ordered by them. There is
no place for a parameter.
"""

import json
import math
import struct
from dataclasses import asdict, fields
from typing import Any

from firma.peer.membership.views import (
    Accept,
    Accepted,
    Ballot,
    Body,
    Memory,
    Note,
    Prepare,
    Promise,
    Refusal,
    Seat,
    View,
    Word,
)
from firma.peer.wire.terms import MAGIC, VERSION, Terms, WireError, version

_HEADER = struct.Struct("<4sH16s32s")
_LARGEST = 1 << 20
_BODIES: dict[str, type[Body]] = {kind.__name__: kind for kind in (Prepare, Promise, Accept, Accepted, Refusal)}


def encode_note(terms: Terms, note: Note) -> bytes:
    """A note in bytes."""
    said: dict[str, Any] = {"view": note.view and asdict(note.view)}
    if note.body is not None:
        said |= {"kind": type(note.body).__name__, "body": asdict(note.body)}
    return _HEADER.pack(MAGIC, VERSION, terms.federation, terms.ring) + json.dumps(said).encode()


def decode_note(terms: Terms, raw: bytes, members: int, rounds: int) -> Note:
    """A note that agrees with the terms and names members and rounds of this ring only, or `WireError`."""
    version(raw)
    if not _HEADER.size < len(raw) <= _LARGEST:
        raise WireError("a note of the wrong size")
    _, _, federation, ring = _HEADER.unpack_from(raw)
    if (federation, ring) != (terms.federation, terms.ring):
        raise WireError("the note is of another federation or another ring file")
    read = _Reader(members, rounds, terms.classes)
    try:
        said = json.loads(raw[_HEADER.size :])
        view = read.view(said["view"]) if said["view"] is not None else None
        return Note(view, read.body(said["kind"], said["body"]) if "kind" in said else None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise WireError(f"a note of the wrong form ({type(error).__name__})") from None


def memory_json(memory: Memory) -> dict[str, Any]:
    """A memory as plain data."""
    return asdict(memory)


def read_memory(said: dict[str, Any], members: int, rounds: int) -> Memory:
    """The memory again, or `ValueError` and its kin."""
    read = _Reader(members, rounds, 0)
    view = read.view(said["view"]) if said["view"] is not None else None
    accepted = read.accepted(said["accepted"])
    return Memory(view, read.ballot(said["promised"], low=0), accepted)


def numbers_in(note: Note) -> list[str]:
    """What a note tells, in the words of the audit file."""
    told = isinstance(note.body, Promise) and note.body.word.shares
    return ["rounds", "proportions"] if told else ["rounds"]


class _Reader:
    """Checks every value for its kind and range."""

    def __init__(self, members: int, rounds: int, classes: int) -> None:
        self.members, self.rounds, self.classes = members, rounds, classes

    def body(self, kind: str, said: dict[str, Any]) -> Body:
        ballot = self.ballot(said["ballot"])
        if set(said) != {field.name for field in fields(_BODIES[kind])}:
            raise ValueError(kind)
        if kind == "Promise":
            return Promise(ballot, self.word(said["word"]), self.accepted(said["accepted"]))
        if kind == "Accept":
            return Accept(ballot, self.view(said["view"]))
        return Prepare(ballot) if kind == "Prepare" else Accepted(ballot) if kind == "Accepted" else Refusal(ballot)

    def ballot(self, said: Any, low: int = 1) -> Ballot:
        number, member = said
        return self.whole(number, low, 1 << 62), self.whole(member, low - 1, self.members - 1)

    def accepted(self, said: Any) -> tuple[Ballot, View] | None:
        if said is None:
            return None
        ballot, view = said
        return self.ballot(ballot), self.view(view)

    def view(self, said: dict[str, Any]) -> View:
        ring = tuple(
            Seat(self.whole(seat["member"], 0, self.members - 1), self.whole(seat["process"], 0, (1 << 64) - 1))
            for seat in said["ring"]
        )
        if len({seat.member for seat in ring}) != len(ring) or len(ring) <= self.members // 2:
            raise ValueError("ring")
        return View(self.whole(said["epoch"], 1, (1 << 32) - 1), self.whole(said["start"], 0, self.rounds), ring)

    def word(self, said: dict[str, Any]) -> Word:
        shares = tuple(float(share) for share in said["shares"])
        wrong = len(shares) != self.classes or not all(0 <= share <= 1 for share in shares)
        if shares and (wrong or not math.isclose(sum(shares), 1, abs_tol=1e-6)):
            raise ValueError("shares")
        if not isinstance(said["ready"], bool):
            raise ValueError("ready")
        process = self.whole(said["process"], 0, (1 << 64) - 1)
        epoch, rounds = self.whole(said["epoch"], 0, (1 << 32) - 1), self.whole(said["rounds"], 0, self.rounds)
        return Word(process, epoch, rounds, said["ready"], shares)

    @staticmethod
    def whole(said: Any, low: int, high: int) -> int:
        if type(said) is not int or not low <= said <= high:
            raise ValueError("number")
        return said
