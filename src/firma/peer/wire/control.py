"""Control messages and a member's memory as JSON: on the wire and on disk. Pure.

They hold numbers of members, rounds and ballots, and class proportions where the ring is ordered by them. There is no
place for a parameter. The JSON keys are those of protocol version 2, whatever the fields are called in Python.
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
    said: dict[str, Any] = {"view": message.view and _view(message.view)}
    if message.body is not None:
        said |= {"kind": type(message.body).__name__, "body": _body(message.body)}
    return _HEADER.pack(MAGIC, VERSION, terms.federation, terms.ring) + json.dumps(said).encode()


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
        said = json.loads(raw[_HEADER.size :])
        view = read.view(said["view"]) if said["view"] is not None else None
        message = ControlMessage(view, read.body(said["kind"], said["body"]) if "kind" in said else None)
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


def decode_memory(said: dict[str, Any], members: int, rounds: int) -> Memory:
    """The memory again, or `ValueError` and its kin."""
    read = _Reader(members, rounds, 0)
    view = read.view(said["view"]) if said["view"] is not None else None
    accepted = read.accepted(said["accepted"])
    return Memory(view, read.ballot(said["promised"], low=0), accepted)


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
                "shares": list(state.shares),
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

    def body(self, kind: str, said: dict[str, Any]) -> Body:
        ballot, keys = self.ballot(said["ballot"]), set(said) - {"ballot"}
        if kind == "Promise" and keys == {"word", "accepted"}:
            return Promise(ballot, self.state(said["word"]), self.accepted(said["accepted"]))
        if kind == "Accept" and keys == {"view"}:
            return Accept(ballot, self.view(said["view"]))
        if kind in _ON_BALLOT and not keys:
            return _ON_BALLOT[kind](ballot)
        raise ValueError(kind)

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

    def state(self, said: dict[str, Any]) -> MemberState:
        shares = tuple(float(share) for share in said["shares"])
        wrong = len(shares) != self.classes or not all(0 <= share <= 1 for share in shares)
        if shares and (wrong or not math.isclose(sum(shares), 1, abs_tol=1e-6)):
            raise ValueError("shares")
        if not isinstance(said["ready"], bool):
            raise ValueError("ready")
        process = self.whole(said["process"], 0, (1 << 64) - 1)
        number, rounds = self.whole(said["epoch"], 0, (1 << 32) - 1), self.whole(said["rounds"], 0, self.rounds)
        return MemberState(process, number, rounds, said["ready"], shares)

    @staticmethod
    def whole(said: Any, low: int, high: int) -> int:
        if type(said) is not int or not low <= said <= high:
            raise ValueError("number")
        return said
