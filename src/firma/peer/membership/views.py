"""What members say to each other about who is in the ring, and what each must remember of it. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Ballot = tuple[int, int]  # number, member: no two members ever use the same
NO_BALLOT: Ballot = (0, -1)


@dataclass(frozen=True, slots=True)
class Seat:
    """A member's process: started again it is another one, and no longer in the view."""

    member: int
    process: int


@dataclass(frozen=True, slots=True)
class View:
    """Who works together, in ring order, from which round on."""

    epoch: int  # from 1
    start: int  # rounds that everybody in it has behind it
    ring: tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class Word:
    """What a member says of itself when asked: its process, where it is, and whether it can work."""

    process: int
    epoch: int = 0  # the last view in which it had a seat
    rounds: int = 0  # completed in it
    ready: bool = True
    shares: tuple[float, ...] = ()  # class proportions, where the ring is ordered by them


@dataclass(frozen=True, slots=True)
class Prepare:
    """Who is there? Let no lower ballot pass."""

    ballot: Ballot


@dataclass(frozen=True, slots=True)
class Promise:
    """I am; no lower ballot will pass; this is what I accepted before."""

    ballot: Ballot
    word: Word
    accepted: tuple[Ballot, View] | None


@dataclass(frozen=True, slots=True)
class Accept:
    """Let this be the next view."""

    ballot: Ballot
    view: View


@dataclass(frozen=True, slots=True)
class Accepted:
    """I accept."""

    ballot: Ballot


@dataclass(frozen=True, slots=True)
class Refusal:
    """I have promised a higher ballot."""

    ballot: Ballot


Body = Prepare | Promise | Accept | Accepted | Refusal


@dataclass(frozen=True, slots=True)
class Note:
    """A control message: the newest decided view that the sender knows, and what it says about the next."""

    view: View | None
    body: Body | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What a member must not forget, whatever happens to its process."""

    view: View | None = None
    promised: Ballot = NO_BALLOT
    accepted: tuple[Ballot, View] | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """One member's side of the agreement; `ballot` is its own attempt, if one is under way."""

    me: int
    word: Word
    memory: Memory = Memory()
    ballot: Ballot | None = None
    promises: tuple[tuple[int, Promise], ...] = ()
    value: View | None = None
    consents: frozenset[int] = frozenset()
    highest: int = 0  # the highest ballot number that was heard of

    @property
    def epoch(self) -> int:
        """Number of the newest view it knows; 0 before the first."""
        return self.memory.view.epoch if self.memory.view is not None else 0

    @property
    def seated(self) -> bool:
        """Whether this process is in that view."""
        return self.memory.view is not None and Seat(self.me, self.word.process) in self.memory.view.ring

    @property
    def frozen(self) -> bool:
        """Whether it has told somebody how far it is: it completes no round until the next view is decided."""
        return self.memory.promised != NO_BALLOT


Compose = Callable[[int, Mapping[int, Word]], tuple[int, tuple[int, ...]] | None]
Step = tuple[Member, tuple[tuple[int, Note], ...]]  # what it has become, and notes with their receivers


@dataclass(frozen=True)
class Rules:
    """How many members there are, how many must consent, and how words make a start and a ring (None: not yet)."""

    members: int
    quorum: int
    compose: Compose
