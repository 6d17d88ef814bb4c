"""Control messages and a member's memory as JSON: on the wire and on disk. Pure.

They hold numbers of members, rounds and ballots, signatures, and class proportions where the ring is ordered by them.
There is no place for a parameter. The JSON keys are those of protocol version 3, whatever the fields are called in
Python. Signatures are 64 bytes, in hexadecimal; whether they are genuine is for `membership.agreement` to say.
"""

import json
import math
import struct
from collections.abc import Callable
from typing import Any

from firma.peer.membership.views import (
    SEAL,
    Ballot,
    Body,
    Commit,
    Committed,
    ControlMessage,
    Echo,
    MemberState,
    Memory,
    Prepare,
    Prepared,
    Promise,
    Proof,
    Propose,
    Receipt,
    Refusal,
    Seat,
    Signed,
    View,
)
from firma.peer.wire.terms import MAGIC, VERSION, Terms, WireError, check_version

_HEADER = struct.Struct("<4sH16s32s")
_LARGEST = 1 << 20
_MEMORY = 3  # the form of a memory on disk


def encode_control(terms: Terms, message: ControlMessage) -> bytes:
    """A control message in bytes."""
    plain: dict[str, Any] = {"view": message.view and _view(message.view), "proof": _proof(message.proof)}
    if message.body is not None:
        plain |= {"kind": type(message.body).__name__, "body": _body(message.body)}
    if message.receipt is not None:
        plain["receipt"] = _receipt(message.receipt)
    raw = json.dumps(plain, separators=(",", ":")).encode()
    return _HEADER.pack(MAGIC, VERSION, terms.federation, terms.ring) + raw


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
        if not {"view", "proof"} <= set(plain) <= {"view", "proof", "kind", "body", "receipt"}:
            raise ValueError("keys")
        view = read.view(plain["view"]) if plain["view"] is not None else None
        proof = read.proof(plain["proof"])
        body = read.body(plain["kind"], plain["body"]) if "kind" in plain else None
        receipt = read.receipt(plain["receipt"]) if "receipt" in plain else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise WireError(f"a control message of the wrong form ({type(error).__name__})") from None
    if sender is not None and isinstance(body, Prepare | Propose | Commit) and body.ballot[1] != sender:
        raise WireError("a ballot of somebody else")
    return ControlMessage(view, body, proof, receipt)


def encode_memory(memory: Memory) -> dict[str, Any]:
    """A memory as plain data."""
    echoed = memory.echoed
    return {
        "format": _MEMORY,
        "view": memory.view and _view(memory.view),
        "proof": _proof(memory.proof),
        "promised": list(memory.promised),
        "echoed": None if echoed is None else [list(echoed[0]), echoed[1].hex()],
        "prepared": _prepared(memory.prepared),
        "mute": memory.mute,
    }


def decode_memory(plain: dict[str, Any], members: int, rounds: int) -> Memory:
    """The memory again, or `ValueError` and its kin."""
    if plain.get("format") != _MEMORY:
        raise ValueError("it was written by an earlier version of FIRMA, whose votes are not signed")
    read = _Reader(members, rounds, 0)
    view = read.view(plain["view"]) if plain["view"] is not None else None
    echoed = plain["echoed"]
    signed = None if echoed is None else (read.ballot(echoed[0]), read.raw(echoed[1], 32))
    promised = read.ballot(plain["promised"], low=0)
    mute = read.whole(plain.get("mute", 0), 0, 1 << 62)
    return Memory(view, promised, signed, read.prepared(plain["prepared"]), read.proof(plain["proof"]), mute)


def promises_in(message: ControlMessage) -> int:
    """How many promises a control message holds."""
    match message.body:
        case Promise():
            return 1
        case Propose(_, _, promises):
            return len(promises)
    return 0


def numbers_in(message: ControlMessage) -> list[str]:
    """Which agreed numbers a control message holds, in the words of the audit file."""
    match message.body:
        case Promise() as promise:
            shares = bool(promise.state.shares)
        case Propose() as proposal:
            shares = any(promise.state.shares for _, promise in proposal.promises)
        case _:
            shares = False
    return ["rounds", "proportions"] if shares else ["rounds"]


def _view(view: View) -> dict[str, Any]:
    ring = [{"member": seat.member, "process": seat.process} for seat in view.ring]
    return {"epoch": view.number, "start": view.start, "ring": ring, "behind": list(view.behind)}


def _signed(votes: Signed) -> list[list[Any]]:
    return [[member, signature.hex()] for member, signature in votes]


def _proof(proof: Proof | None) -> list[Any] | None:
    return None if proof is None else [list(proof.ballot), _signed(proof.commits)]


def _prepared(prepared: Prepared | None) -> list[Any] | None:
    return None if prepared is None else [list(prepared.ballot), _view(prepared.view), _signed(prepared.echoes)]


def _promise(promise: Promise) -> dict[str, Any]:
    state = promise.state
    word = {
        "process": state.process, "epoch": state.view_number, "rounds": state.rounds, "ready": state.ready,
        "shares": list(state.shares), "against": list(state.against),
    }  # fmt: skip
    return {
        "ballot": list(promise.ballot), "word": word, "prepared": _prepared(promise.prepared),
        "receipts": [_receipt(each) for each in promise.receipts], "signature": promise.signature.hex(),
    }  # fmt: skip


def _receipt(receipt: Receipt) -> list[Any]:
    return [receipt.member, receipt.view_number, receipt.rounds, receipt.signature.hex()]


def _body(body: Body) -> dict[str, Any]:
    match body:
        case Promise():
            return _promise(body)
        case Propose(ballot, view, promises):
            justification = [[member, _promise(promise)] for member, promise in promises]
            return {"ballot": list(ballot), "view": _view(view), "promises": justification}
        case Echo(ballot, signature) | Committed(ballot, signature):
            return {"ballot": list(ballot), "signature": signature.hex()}
        case Commit(prepared):
            return {"prepared": _prepared(prepared)}
        case Prepare(ballot) | Refusal(ballot):
            return {"ballot": list(ballot)}


class _Reader:
    """Checks every value for its type and range."""

    def __init__(self, members: int, rounds: int, classes: int) -> None:
        self.members, self.rounds, self.classes = members, rounds, classes
        self._bodies: dict[str, tuple[set[str], Callable[[dict[str, Any]], Body]]] = {
            "Prepare": ({"ballot"}, lambda plain: Prepare(self.ballot(plain["ballot"]))),
            "Promise": ({"ballot", "word", "prepared", "receipts", "signature"}, self.promise),
            "Propose": ({"ballot", "view", "promises"}, self.proposal),
            "Echo": ({"ballot", "signature"}, lambda plain: Echo(*self.vote(plain))),
            "Commit": ({"prepared"}, self.commit),
            "Committed": ({"ballot", "signature"}, lambda plain: Committed(*self.vote(plain))),
            "Refusal": ({"ballot"}, lambda plain: Refusal(self.ballot(plain["ballot"]))),
        }

    def body(self, kind: str, plain: dict[str, Any]) -> Body:
        keys, read = self._bodies[kind]
        if set(plain) != keys:
            raise ValueError(kind)
        return read(plain)

    def ballot(self, plain: Any, low: int = 1) -> Ballot:
        number, member = plain
        return self.whole(number, low, 1 << 62), self.whole(member, low - 1, self.members - 1)

    def vote(self, plain: dict[str, Any]) -> tuple[Ballot, bytes]:
        return self.ballot(plain["ballot"]), self.raw(plain["signature"])

    def promise(self, plain: dict[str, Any]) -> Promise:
        if set(plain) != self._bodies["Promise"][0]:
            raise ValueError("promise")
        receipts = tuple(self.receipt(each) for each in self.few(plain["receipts"]))
        if [receipt.member for receipt in receipts] != sorted({receipt.member for receipt in receipts}):
            raise ValueError("receipts")
        ballot, signature = self.vote(plain)
        return Promise(ballot, self.state(plain["word"]), self.prepared(plain["prepared"]), receipts, signature)

    def receipt(self, plain: Any) -> Receipt:
        member, view_number, rounds, signature = plain
        return Receipt(
            self.whole(member, 0, self.members - 1), self.whole(view_number, 0, (1 << 32) - 1),
            self.whole(rounds, 0, self.rounds), self.raw(signature),
        )  # fmt: skip

    def proposal(self, plain: dict[str, Any]) -> Propose:
        promises = tuple(
            (self.whole(member, 0, self.members - 1), self.promise(each))
            for member, each in self.few(plain["promises"])
        )
        return Propose(self.ballot(plain["ballot"]), self.view(plain["view"]), promises)

    def commit(self, plain: dict[str, Any]) -> Commit:
        prepared = self.prepared(plain["prepared"])
        if prepared is None:
            raise ValueError("prepared")
        return Commit(prepared)

    def prepared(self, plain: Any) -> Prepared | None:
        if plain is None:
            return None
        ballot, view, votes = plain
        return Prepared(self.ballot(ballot), self.view(view), self.signed(votes))

    def proof(self, plain: Any) -> Proof | None:
        if plain is None:
            return None
        ballot, votes = plain
        return Proof(self.ballot(ballot), self.signed(votes))

    def signed(self, plain: Any) -> Signed:
        votes = tuple(
            (self.whole(member, 0, self.members - 1), self.raw(signature)) for member, signature in self.few(plain)
        )
        if [member for member, _ in votes] != sorted({member for member, _ in votes}):
            raise ValueError("votes")
        return votes

    def view(self, plain: dict[str, Any]) -> View:
        ring = tuple(
            Seat(self.whole(seat["member"], 0, self.members - 1), self.whole(seat["process"], 0, (1 << 64) - 1))
            for seat in self.few(plain["ring"])
        )
        members = {seat.member for seat in ring}
        if len(members) != len(ring) or len(ring) <= self.members // 2:
            raise ValueError("ring")
        behind = tuple(self.whole(member, 0, self.members - 1) for member in self.few(plain["behind"]))
        if list(behind) != sorted(set(behind)) or not set(behind) < members:
            raise ValueError("behind")
        number, start = self.whole(plain["epoch"], 1, (1 << 32) - 1), self.whole(plain["start"], 0, self.rounds)
        return View(number, start, ring, behind)

    def state(self, plain: dict[str, Any]) -> MemberState:
        shares = tuple(float(share) for share in self.few(plain["shares"], self.classes))
        wrong = len(shares) != self.classes or not all(0 <= share <= 1 for share in shares)
        if shares and (wrong or not math.isclose(sum(shares), 1, abs_tol=1e-6)):
            raise ValueError("shares")
        if not isinstance(plain["ready"], bool):
            raise ValueError("ready")
        process = self.whole(plain["process"], 0, (1 << 64) - 1)
        number, rounds = self.whole(plain["epoch"], 0, (1 << 32) - 1), self.whole(plain["rounds"], 0, self.rounds)
        against = tuple(self.whole(member, 0, self.members - 1) for member in self.few(plain["against"]))
        if list(against) != sorted(set(against)):
            raise ValueError("against")
        return MemberState(process, number, rounds, plain["ready"], shares, against)

    def few(self, plain: Any, most: int | None = None) -> list[Any]:
        """A list with at most one entry per member (or `most`)."""
        if not isinstance(plain, list) or len(plain) > (self.members if most is None else most):
            raise ValueError("list")
        return plain

    @staticmethod
    def raw(plain: Any, length: int = SEAL) -> bytes:
        if not isinstance(plain, str) or len(plain) != 2 * length or plain != plain.lower():
            raise ValueError("bytes")
        found = bytes.fromhex(plain)
        if len(found) != length:
            raise ValueError("bytes")
        return found

    @staticmethod
    def whole(plain: Any, low: int, high: int) -> int:
        if type(plain) is not int or not low <= plain <= high:
            raise ValueError("number")
        return plain
