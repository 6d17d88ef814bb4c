"""The course of a view: which exchange follows which, and what a member may say in each. Pure: no clock, no sockets."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from firma.mixing.kind import kind_of
from firma.peer.wire.terms import Head, Tag
from firma.protocol import Expected
from firma.schedule import RoundPlan


def fits(expected: Expected, head: Head) -> bool:
    """Whether a head announces what is expected and nothing else."""
    numbers = (head.accuracy is not None, head.weight is not None)
    return (head.start, head.count, *numbers) == (expected.start, expected.count, expected.accuracy, expected.weight)


@dataclass(frozen=True)
class Course:
    """All exchanges of a view as member `me` sees them; `order` is the ring, the members that are in it."""

    epoch: int
    me: int
    order: tuple[int, ...]
    rounds: int
    extractor: int
    plan: Callable[[int], RoundPlan]
    warmup: int  # turns with an all-reduce, which come first

    def known(self, tag: Tag) -> bool:
        """Whether the view has such an exchange at all."""
        _, turn, step = tag
        return 1 <= turn <= self.rounds and step < self._steps(turn)

    def index(self, tag: Tag) -> int:
        """How many exchanges come before this one; after the last round, all."""
        _, turn, step = tag
        warm = min(turn - 1, self.warmup)
        return warm * self._steps(1) + (turn - 1 - warm) * self._steps(self.rounds) + step

    def _steps(self, turn: int) -> int:
        """Exchanges of a turn: one for each pass, or two for each member but one in an all-reduce."""
        plan = self.plan(turn - 1)
        return kind_of(plan.mixing).steps(plan, len(self.order))

    def lead(self, now: Tag) -> int:
        """By how many exchanges an honest neighbour can be ahead; after the last round, by one."""
        return kind_of(self.plan(now[1] - 1).mixing).lead(len(self.order)) if now[1] <= self.rounds else 1

    def expected(self, sender: int, tag: Tag) -> Expected | None:
        """What the sender is to send this member in an exchange, or None: nothing."""
        plan = self.plan(tag[1] - 1)
        return kind_of(plan.mixing).expected(plan, self.order, self.me, sender, tag[2], self.extractor)


def course(
    epoch: int, me: int, order: tuple[int, ...], rounds: int, extractor: int, plan: Callable[[int], RoundPlan]
) -> Course:
    """The course of a view; `plan` is of as many members as the view has."""
    warmup = bisect_left(range(rounds), True, key=lambda number: plan(number).mixing == "ring")
    return Course(epoch, me, order, rounds, extractor, plan, warmup)
