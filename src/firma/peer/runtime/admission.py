"""The inbox of one view: which exchange follows which, and what may be taken from whom right now. Pure.

Everything is decided on the header, before a byte of the body is taken. An honest neighbour can be a few exchanges
ahead, which `firma.mixing` knows for each kind of mixing; whatever lies further ahead, or behind, is refused.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from firma.mixing.kind import kind_of, partners
from firma.peer.runtime.catching_up import STEP
from firma.peer.wire.message import Header, Verdict
from firma.peer.wire.terms import Tag
from firma.protocol import Expected, Message
from firma.schedule import RoundPlan

Plan = Callable[[int], RoundPlan]  # of round `number`, from 0


@dataclass(frozen=True)
class ExchangeSequence:
    """All exchanges of a view as member `me` sees them; `order` is the ring of the members in it."""

    view_number: int
    me: int
    order: tuple[int, ...]
    rounds: int
    elements: int  # of the extractor
    plan: Plan
    warmup: int  # turns with an all-reduce, which come first

    @cached_property  # it is asked for at every tick
    def neighbours(self) -> tuple[int, ...]:
        """The members that this one sends to or receives from, in the warm-up, if there is one, or after it."""
        found = (partners(self.plan(number), self.order, self.me) for number in (0, self.rounds - 1))
        return tuple(sorted({member for each in found for member in each}))

    def known(self, tag: Tag) -> bool:
        """Whether the view has such an exchange at all."""
        _, turn, step = tag
        return 1 <= turn <= self.rounds and step < self._steps(turn)

    def index(self, tag: Tag) -> int:
        """How many exchanges come before this one; after the last round, all."""
        _, turn, step = tag
        warm = min(turn - 1, self.warmup)
        return warm * self._steps(1) + (turn - 1 - warm) * self._steps(self.rounds) + step

    def lead(self, now: Tag) -> int:
        """By how many exchanges an honest neighbour can be ahead; after the last round, by one."""
        if now[1] > self.rounds:
            return 1
        plan = self.plan(now[1] - 1)
        return kind_of(plan.mixing).lead(plan, len(self.order))

    def expected(self, sender: int, tag: Tag) -> Expected | None:
        """What the sender is to send this member in an exchange; None: nothing."""
        plan = self.plan(tag[1] - 1)
        return kind_of(plan.mixing).expected(plan, self.order, self.me, sender, tag[2], self.elements)

    def _steps(self, turn: int) -> int:
        plan = self.plan(turn - 1)
        return kind_of(plan.mixing).steps(plan, len(self.order))


def exchange_sequence(
    view_number: int, me: int, order: tuple[int, ...], rounds: int, elements: int, plan: Plan
) -> ExchangeSequence:
    """The exchanges of a view; `plan` is for as many members as the view has."""
    usual = plan(rounds - 1).mixing
    warmup = bisect_left(range(rounds), True, key=lambda number: plan(number).mixing == usual)
    return ExchangeSequence(view_number, me, order, rounds, elements, plan, warmup)


@dataclass
class Inbox:
    """Messages that have arrived and are not yet used, by sender and exchange; `now` is this member's exchange."""

    sequence: ExchangeSequence
    now: Tag
    holders: tuple[int, ...] = ()  # members that are to bring this one to the round where the view starts
    held: dict[tuple[int, Tag], tuple[bytes, Message]] = field(default_factory=dict)
    _last: dict[tuple[int, Tag], bytes] = field(default_factory=dict)

    def admit(self, sender: int, header: Header) -> Verdict:  # noqa: PLR0911, one case per verdict
        """What to do with a message: take it, or why not."""
        number = self.sequence.view_number
        if header.tag[0] != number:  # of a view that is over, or of one that this member does not know yet
            return "stale" if header.tag[0] < number else "early"
        known = self.held.get((sender, header.tag), (self._last.get((sender, header.tag)),))[0]
        if known is not None:
            return "have" if known == header.digest else "misfit"
        if header.tag[2] == STEP:
            return self._catching_up(sender, header)
        if not self.sequence.known(header.tag):
            return "future"
        ahead = self.sequence.index(header.tag) - self.sequence.index(self.now)
        if ahead < 0:
            return "stale"
        if ahead > self.sequence.lead(self.now):
            return "future"
        expected = self.sequence.expected(sender, header.tag)
        return "take" if expected is not None and _fits(expected, header) else "misfit"

    def _catching_up(self, sender: int, header: Header) -> Verdict:
        """An extractor for a member that is behind: taken from those that are to send it, until they have."""
        if sender not in self.holders or header.tag[1] != self.now[1]:
            return "stale"
        return "take" if _fits(Expected(0, self.sequence.elements), header) else "misfit"

    def brought(self) -> tuple[tuple[int, Message], ...]:
        """What is to bring this member to where the view starts, by sender, as far as it is here."""
        tag = (self.sequence.view_number, self.now[1], STEP)
        return tuple((sender, self.held[sender, tag][1]) for sender in self.holders if (sender, tag) in self.held)

    def caught_up(self) -> None:
        """No more of them are taken."""
        self.held = {key: held for key, held in self.held.items() if key[1][2] != STEP}
        self.holders = ()

    def store(self, sender: int, header: Header, message: Message) -> None:
        """Store a message that was admitted; a second copy that came at the same time changes nothing."""
        current = header.tag[0] == self.sequence.view_number
        if header.tag[2] == STEP:
            if current and sender in self.holders:
                self.held.setdefault((sender, header.tag), (header.digest, message))
            return
        if current and self.sequence.index(header.tag) >= self.sequence.index(self.now):
            self.held.setdefault((sender, header.tag), (header.digest, message))

    def missing(self, senders: tuple[int, ...], tag: Tag) -> tuple[int, ...]:
        """Those of the senders whose message has not arrived."""
        return tuple(sender for sender in senders if (sender, tag) not in self.held)

    def take(self, senders: tuple[int, ...], tag: Tag) -> dict[int, Message] | None:
        """One message from each sender, if all have arrived; they are then remembered by their digest only."""
        if self.missing(senders, tag):
            return None
        self._last = {(sender, tag): self.held[sender, tag][0] for sender in senders}
        return {sender: self.held.pop((sender, tag))[1] for sender in senders}


def _fits(expected: Expected, header: Header) -> bool:
    """Whether a header announces what is expected and nothing else."""
    numbers = (header.accuracy is not None, header.weight is not None, len(header.digests))
    return (header.start, header.count, *numbers) == (
        expected.start, expected.count, expected.accuracy, expected.weight, expected.digests,
    )  # fmt: skip
