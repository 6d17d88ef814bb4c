"""Views and the vocabulary of the agreement on them: what members say, and what each must remember. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Ballot = tuple[int, int]  # number, member: no two members ever use the same
NO_BALLOT: Ballot = (0, -1)


@dataclass(frozen=True, slots=True)
class Seat:
    """A member's process: a member that was started again is another process and no longer in the view."""

    member: int
    process: int


@dataclass(frozen=True, slots=True)
class View:
    """Which members work together, in ring order, and from which round on."""

    number: int  # from 1
    start: int  # rounds that everybody in it has completed
    ring: tuple[Seat, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The members' numbers in ring order."""
        return tuple(seat.member for seat in self.ring)


@dataclass(frozen=True, slots=True)
class MemberState:
    """What a member says about itself when it promises: its process, how far it is, and whether it can work."""

    process: int
    view_number: int = 0  # the last view in which it had a seat
    rounds: int = 0  # completed in that view
    ready: bool = True
    shares: tuple[float, ...] = ()  # class proportions, where the ring is ordered by them
    against: tuple[int, ...] = ()  # members with whom it cannot work at present, though they are alive; ascending


@dataclass(frozen=True, slots=True)
class Prepare:
    """Phase 1, request: who is there? Let no lower ballot pass."""

    ballot: Ballot


@dataclass(frozen=True, slots=True)
class Promise:
    """Phase 1, answer: I am; no lower ballot will pass; this is what I accepted before."""

    ballot: Ballot
    state: MemberState
    accepted: tuple[Ballot, View] | None


@dataclass(frozen=True, slots=True)
class Accept:
    """Phase 2, request: let this be the next view."""

    ballot: Ballot
    view: View


@dataclass(frozen=True, slots=True)
class Accepted:
    """Phase 2, answer: I accept."""

    ballot: Ballot


@dataclass(frozen=True, slots=True)
class Refusal:
    """Either answer: I have promised a higher ballot."""

    ballot: Ballot


Body = Prepare | Promise | Accept | Accepted | Refusal


@dataclass(frozen=True, slots=True)
class ControlMessage:
    """The newest decided view that the sender knows, and what the sender says about the next one."""

    view: View | None
    body: Body | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What a member must not forget, whatever happens to its process."""

    view: View | None = None
    promised: Ballot = NO_BALLOT
    accepted: tuple[Ballot, View] | None = None


@dataclass(frozen=True, slots=True)
class PaxosState:
    """One member's side of the agreement; `ballot` is its own proposal, if one is under way."""

    me: int
    own: MemberState
    memory: Memory = Memory()
    ballot: Ballot | None = None
    promises: tuple[tuple[int, Promise], ...] = ()
    value: View | None = None  # the view that it has put to the vote
    consents: frozenset[int] = frozenset()
    highest: int = 0  # the highest ballot number that it knows of

    @property
    def view_number(self) -> int:
        """Number of the newest view that it knows; 0 before the first."""
        return self.memory.view.number if self.memory.view is not None else 0

    @property
    def seated(self) -> bool:
        """Whether this process is in that view."""
        return self.memory.view is not None and Seat(self.me, self.own.process) in self.memory.view.ring

    @property
    def frozen(self) -> bool:
        """Whether it has promised: others know how far it is, so it completes no round until the next view."""
        return self.memory.promised != NO_BALLOT


Compose = Callable[[int, Mapping[int, MemberState]], tuple[int, tuple[int, ...]] | None]
Step = tuple[PaxosState, tuple[tuple[int, ControlMessage], ...]]  # the new state, and messages with their receivers


@dataclass(frozen=True)
class Rules:
    """How many members there are, how many must consent, and how states make a start and a ring (None: not yet)."""

    members: int
    quorum: int
    compose: Compose
