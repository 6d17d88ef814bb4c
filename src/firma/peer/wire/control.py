"""Control messages and a member's memory as JSON: on the wire and on disk. Pure.

They hold numbers of members, rounds and ballots, and class proportions where the ring is ordered by them. There is no
place for a parameter. The JSON keys are those of protocol version 3, whatever the fields are called in Python.
"""

import json
import math
import struct
from typing import Any

from firma.peer.membership.views import (
    Accept,
    Accepted,
    Ballot,
    Body,
    ControlMessage,
    MemberState,
    Memory,
    Prepare,
    Promise,
    Refusal,
    Seat,
    View,
)
from firma.peer.wire.terms import MAGIC, VERSION, Terms, WireError, check_version

_HEADER = struct.Struct("<4sH16s32s")
_LARGEST = 1 << 20
_ON_BALLOT: dict[str, type[Prepare | Accepted | Refusal]] = {
    kind.__name__: kind for kind in (Prepare, Accepted, Refusal)
}


def encode_control(terms: Terms, message: ControlMessage) -> bytes:
    """A control message in bytes."""
    plain: dict[str, Any] = {"view": message.view and _view(message.view)}
    if message.body is not None:
        plain |= {"kind": type(message.body).__name__, "body": _body(message.body)}
    return _HEADER.pack(MAGIC, VERSION, terms.federation, terms.ring) + json.dumps(plain).encode()


def decode_control(terms: Terms, raw: bytes, members: int, rounds: int, sender: int | None = None) -> ControlMessage:
    """A control message that agrees with the terms and names members and rounds of this ring only, or `WireError`.

    With `sender`, a ballot must be the sender's own where the message is a request.
    """
    check_version(raw)
    if not _HEADER.size < len(raw) <= _LARGEST:
        raise WireError("a control message of the wrong size")
    _, _, federation, ring = _HEADER.unpack_from(raw)
    if (federation, ring) != (terms.federation, terms.ring):
        raise WireError("the control message is of another federation or another ring file")
    read = _Reader(members, rounds, terms.classes)
    try:
        plain = json.loads(raw[_HEADER.size :])
        view = read.view(plain["view"]) if plain["view"] is not None else None
        message = ControlMessage(view, read.body(plain["kind"], plain["body"]) if "kind" in plain else None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise WireError(f"a control message of the wrong form ({type(error).__name__})") from None
    body = message.body
    if sender is not None and isinstance(body, Prepare | Accept) and body.ballot[1] != sender:
        raise WireError("a ballot of somebody else")
    return message


def encode_memory(memory: Memory) -> dict[str, Any]:
    """A memory as plain data."""
    return {
        "view": memory.view and _view(memory.view),
        "promised": list(memory.promised),
        "accepted": _accepted(memory.accepted),
    }


def decode_memory(plain: dict[str, Any], members: int, rounds: int) -> Memory:
    """The memory again, or `ValueError` and its kin."""
    read = _Reader(members, rounds, 0)
    view = read.view(plain["view"]) if plain["view"] is not None else None
    accepted = read.accepted(plain["accepted"])
    return Memory(view, read.ballot(plain["promised"], low=0), accepted)


def numbers_in(message: ControlMessage) -> list[str]:
    """Which agreed numbers a control message holds, in the words of the audit file."""
    shares = isinstance(message.body, Promise) and message.body.state.shares
    return ["rounds", "proportions"] if shares else ["rounds"]


def _view(view: View) -> dict[str, Any]:
    ring = [{"member": seat.member, "process": seat.process} for seat in view.ring]
    return {"epoch": view.number, "start": view.start, "ring": ring}


def _accepted(accepted: tuple[Ballot, View] | None) -> list[Any] | None:
    return None if accepted is None else [list(accepted[0]), _view(accepted[1])]


def _body(body: Body) -> dict[str, Any]:
    match body:
        case Promise(ballot, state, accepted):
            word = {
                "process": state.process, "epoch": state.view_number, "rounds": state.rounds, "ready": state.ready,
                "shares": list(state.shares), "against": list(state.against),
            }  # fmt: skip
            return {"ballot": list(ballot), "word": word, "accepted": _accepted(accepted)}
        case Accept(ballot, view):
            return {"ballot": list(ballot), "view": _view(view)}
        case Prepare(ballot) | Accepted(ballot) | Refusal(ballot):
            return {"ballot": list(ballot)}


class _Reader:
    """Checks every value for its type and range."""

    def __init__(self, members: int, rounds: int, classes: int) -> None:
        self.members, self.rounds, self.classes = members, rounds, classes

    def body(self, kind: str, plain: dict[str, Any]) -> Body:
        ballot, keys = self.ballot(plain["ballot"]), set(plain) - {"ballot"}
        if kind == "Promise" and keys == {"word", "accepted"}:
            return Promise(ballot, self.state(plain["word"]), self.accepted(plain["accepted"]))
        if kind == "Accept" and keys == {"view"}:
            return Accept(ballot, self.view(plain["view"]))
        if kind in _ON_BALLOT and not keys:
            return _ON_BALLOT[kind](ballot)
        raise ValueError(kind)

    def ballot(self, plain: Any, low: int = 1) -> Ballot:
        number, member = plain
        return self.whole(number, low, 1 << 62), self.whole(member, low - 1, self.members - 1)

    def accepted(self, plain: Any) -> tuple[Ballot, View] | None:
        if plain is None:
            return None
        ballot, view = plain
        return self.ballot(ballot), self.view(view)

    def view(self, plain: dict[str, Any]) -> View:
        ring = tuple(
            Seat(self.whole(seat["member"], 0, self.members - 1), self.whole(seat["process"], 0, (1 << 64) - 1))
            for seat in plain["ring"]
        )
        if len({seat.member for seat in ring}) != len(ring) or len(ring) <= self.members // 2:
            raise ValueError("ring")
        return View(self.whole(plain["epoch"], 1, (1 << 32) - 1), self.whole(plain["start"], 0, self.rounds), ring)

    def state(self, plain: dict[str, Any]) -> MemberState:
        shares = tuple(float(share) for share in plain["shares"])
        wrong = len(shares) != self.classes or not all(0 <= share <= 1 for share in shares)
        if shares and (wrong or not math.isclose(sum(shares), 1, abs_tol=1e-6)):
            raise ValueError("shares")
        if not isinstance(plain["ready"], bool):
            raise ValueError("ready")
        process = self.whole(plain["process"], 0, (1 << 64) - 1)
        number, rounds = self.whole(plain["epoch"], 0, (1 << 32) - 1), self.whole(plain["rounds"], 0, self.rounds)
        against = tuple(self.whole(member, 0, self.members - 1) for member in plain["against"])
        if list(against) != sorted(set(against)):
            raise ValueError("against")
        return MemberState(process, number, rounds, plain["ready"], shares, against)

    @staticmethod
    def whole(plain: Any, low: int, high: int) -> int:
        if type(plain) is not int or not low <= plain <= high:
            raise ValueError("number")
        return plain
