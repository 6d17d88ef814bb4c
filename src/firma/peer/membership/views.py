"""Views and the vocabulary of the agreement on them: what members say and sign, and what each must remember. Pure."""

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Ballot = tuple[int, int]  # number, member: no two members ever use the same
NO_BALLOT: Ballot = (0, -1)
SEAL = 64  # bytes of a signature
Signed = tuple[tuple[int, bytes], ...]  # members and their signatures of one statement, by member
_DOMAIN = b"FIRMA agreement on views 3\0"
_STATEMENT = struct.Struct("<32s8sQQi32s")
_SEAT, _VIEW, _STATE = struct.Struct("<IQ"), struct.Struct("<QQII"), struct.Struct("<QQQ?I")


@dataclass(frozen=True, slots=True)
class Seat:
    """A member's process: a member that was started again is another process and no longer in the view."""

    member: int
    process: int


@dataclass(frozen=True, slots=True)
class View:
    """Which members work together, in ring order, and from which round on."""

    number: int  # from 1
    start: int  # rounds that everybody in it has completed, but for those that are behind
    ring: tuple[Seat, ...]
    behind: tuple[int, ...] = ()  # members that must be brought to round `start` before they work, in rising order

    @property
    def order(self) -> tuple[int, ...]:
        """The members' numbers in ring order."""
        return tuple(seat.member for seat in self.ring)

    @property
    def digest(self) -> bytes:
        """(32,) SHA-256 of every field: what members sign."""
        seats = b"".join(_SEAT.pack(seat.member, seat.process) for seat in self.ring)
        behind = struct.pack(f"<{len(self.behind)}I", *self.behind)
        return hashlib.sha256(
            _VIEW.pack(self.number, self.start, len(self.ring), len(self.behind)) + seats + behind
        ).digest()


@dataclass(frozen=True, slots=True)
class MemberState:
    """What a member says about itself when it promises: its process, how far it is, and whether it can work."""

    process: int
    view_number: int = 0  # the last view in which it had a seat and was where that view starts
    rounds: int = 0  # completed in that view
    ready: bool = True
    shares: tuple[float, ...] = ()  # class proportions, where the ring is ordered by them
    against: tuple[int, ...] = ()  # members with whom it cannot work at present, though they are alive; ascending

    @property
    def place(self) -> tuple[int, int]:
        """How far it is: the view first, for a later view may start at an earlier round."""
        return self.view_number, self.rounds


@dataclass(frozen=True, slots=True)
class Receipt:
    """A member's signature under what it has saved: so many rounds, in a view. The others hold it against the member.

    A member that says later that it has less was put back to an old state, or lies.
    """

    member: int
    view_number: int
    rounds: int
    signature: bytes

    @property
    def place(self) -> tuple[int, int]:
        """How far the member was; comparable with `MemberState.place`."""
        return self.view_number, self.rounds


@dataclass(frozen=True, slots=True)
class Prepared:
    """Proof that under a ballot no other view can be committed: a quorum's signatures under this one."""

    ballot: Ballot
    view: View
    echoes: Signed


@dataclass(frozen=True, slots=True)
class Proof:
    """Proof that a view is decided: a quorum's signed commits under one ballot."""

    ballot: Ballot
    commits: Signed


@dataclass(frozen=True, slots=True)
class Prepare:
    """Phase 1, request: who is there? Let no lower ballot pass."""

    ballot: Ballot


@dataclass(frozen=True, slots=True)
class Promise:
    """Phase 1, answer: I am; no lower ballot will pass; this is the last that was prepared, and what others signed."""

    ballot: Ballot
    state: MemberState
    prepared: Prepared | None
    receipts: tuple[Receipt, ...] = ()  # the newest that it holds of each member
    signature: bytes = b""

    @property
    def digest(self) -> bytes:
        """(32,) SHA-256 of what is promised: nobody can leave anything out of another member's promise."""
        state, shares = self.state, self.state.shares
        said = _STATE.pack(state.process, state.view_number, state.rounds, state.ready, len(shares))
        said += struct.pack(f"<{len(shares)}d", *shares)
        said += struct.pack(f"<I{len(state.against)}I", len(state.against), *state.against)
        if self.prepared is not None:
            said += struct.pack("<Qi", *self.prepared.ballot) + self.prepared.view.digest
        held = b"".join(
            struct.pack("<IQQ", r.member, r.view_number, r.rounds) + hashlib.sha256(r.signature).digest()
            for r in self.receipts
        )
        return hashlib.sha256(said + hashlib.sha256(held).digest()).digest()


@dataclass(frozen=True, slots=True)
class Propose:
    """Phase 2, request: let this be the next view, as it follows from these promises."""

    ballot: Ballot
    view: View
    promises: tuple[tuple[int, Promise], ...]


@dataclass(frozen=True, slots=True)
class Echo:
    """Phase 2, answer: it follows from them, and I have signed no other view under this ballot."""

    ballot: Ballot
    signature: bytes


@dataclass(frozen=True, slots=True)
class Commit:
    """Phase 3, request: a quorum has signed it; let it be decided."""

    prepared: Prepared

    @property
    def ballot(self) -> Ballot:
        """The ballot under which it was prepared."""
        return self.prepared.ballot


@dataclass(frozen=True, slots=True)
class Committed:
    """Phase 3, answer: I have made a note of that, and pass it on to every later ballot."""

    ballot: Ballot
    signature: bytes


@dataclass(frozen=True, slots=True)
class Refusal:
    """Any answer: I have promised a higher ballot."""

    ballot: Ballot


Body = Prepare | Promise | Propose | Echo | Commit | Committed | Refusal


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """The newest decided view that the sender knows with its proof, and what the sender says about the next one."""

    view: View | None
    body: Body | None = None
    proof: Proof | None = None
    receipt: Receipt | None = None  # the receiver's own, the newest that the sender holds: it may have forgotten


@dataclass(frozen=True, slots=True)
class Memory:
    """What a member must not forget, whatever happens to its process."""

    view: View | None = None
    promised: Ballot = NO_BALLOT
    echoed: tuple[Ballot, bytes] | None = None  # the digest of the view that it last signed, and under which ballot
    prepared: Prepared | None = None
    proof: Proof | None = None  # that the view is decided
    mute: int = 0  # about views up to this number it does not vote: it may have, before its disk was lost


@dataclass(frozen=True, slots=True)
class Voter:
    """One member's side of the agreement; `ballot` is its own proposal, if one is under way."""

    me: int
    own: MemberState
    memory: Memory = Memory()
    receipts: tuple[Receipt, ...] = ()  # the newest of each member, by member
    ballot: Ballot | None = None
    promises: tuple[tuple[int, Promise], ...] = ()
    value: View | None = None  # the view that it has put to the vote
    echoes: Signed = ()
    prepared: Prepared | None = None  # that view, once a quorum has signed it
    commits: Signed = ()
    refusals: tuple[tuple[int, int], ...] = ()  # members that have promised a higher ballot, and its number
    highest: int = 0  # a ballot number that an honest member has promised

    @property
    def view_number(self) -> int:
        """Number of the newest view that it knows; 0 before the first."""
        return self.memory.view.number if self.memory.view is not None else 0

    @property
    def seated(self) -> bool:
        """Whether this process is in that view."""
        return self.memory.view is not None and Seat(self.me, self.own.process) in self.memory.view.ring

    @property
    def muted(self) -> bool:
        """Whether it does not vote about the next view: what it voted before its disk was lost is not known."""
        return self.view_number < self.memory.mute

    @property
    def frozen(self) -> bool:
        """Whether it has promised: others know how far it is, so it completes no round until the next view."""
        return self.memory.promised != NO_BALLOT

    @property
    def answered(self) -> frozenset[int]:
        """Members whose answer to the present request of its own proposal is here."""
        found = self.promises if self.value is None else self.echoes if self.prepared is None else self.commits
        return frozenset(member for member, _ in found)

    @property
    def receipt(self) -> Receipt | None:
        """Its own newest."""
        return next((receipt for receipt in self.receipts if receipt.member == self.me), None)


@dataclass(frozen=True)
class Seals:
    """Signatures of this ring's members: `sign` with this member's key, `verify(member, said, signature)`."""

    ring: bytes  # (32,) digest of the ring file
    sign: Callable[[bytes], bytes]
    verify: Callable[[int, bytes, bytes], bool]


Order = Callable[[Mapping[int, MemberState]], tuple[int, ...]]
SameOrder = Callable[[Mapping[int, MemberState], tuple[int, ...]], bool]
Step = tuple[Voter, tuple[tuple[int, ControlMessage], ...]]  # the new state, and messages with their receivers


@dataclass(frozen=True)
class Rules:
    """How the members of a ring agree on a view.

    There are `members`, of whom up to `insiders` may do anything at all; any two sets of `quorum` share more members
    than that. `order` puts members in a ring by what they say, `same_order` says whether an order is as good as that
    (machines differ in the last bit), and `first` members are needed for the first view.
    """

    members: int
    quorum: int
    seals: Seals
    order: Order
    same_order: SameOrder
    insiders: int = 0
    first: int = 0


def statement(ring: bytes, kind: bytes, number: int, ballot: Ballot, digest: bytes) -> bytes:
    """What a signature covers: the domain, the ring file, the kind of statement, the view's number, ballot, value."""
    return _DOMAIN + _STATEMENT.pack(ring, kind, number, *ballot, digest)


def receipt_statement(ring: bytes, member: int, view_number: int, rounds: int) -> bytes:
    """What a receipt's signature covers."""
    return statement(ring, b"receipt", view_number, (rounds, member), bytes(32))
