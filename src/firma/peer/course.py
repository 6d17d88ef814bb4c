"""The course of a view: which exchange follows which, and what a member may say in each. Pure: no clock, no sockets."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from firma.mixing import beside
from firma.peer.terms import Head, Tag
from firma.schedule import RoundPlan


@dataclass(frozen=True, slots=True)
class Expected:
    """What one member is to send in one exchange."""

    start: int = 0
    count: int = 0
    accuracy: bool = False
    weight: bool = False

    def fits(self, head: Head) -> bool:
        """Whether a head announces this and nothing else."""
        numbers = (head.accuracy is not None, head.weight is not None)
        return (head.start, head.count, *numbers) == (self.start, self.count, self.accuracy, self.weight)


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
        return plan.passes if plan.mixing == "ring" else 2 * (len(self.order) - 1)

    def lead(self, now: Tag) -> int:
        """By how many exchanges an honest neighbour can be ahead.

        Two-way, nobody starts the exchange after the next before this site has sent its part of the next. One-way
        (all-reduce: messages go to the right only), the chain of who waits for whom comes back after N-1 links.
        """
        one_way = now[1] <= self.rounds and self.plan(now[1] - 1).mixing == "all-reduce"
        return max(1, len(self.order) - 1) if one_way else 1

    def expected(self, sender: int, tag: Tag) -> Expected | None:
        """What the sender is to send this member in an exchange, or None: nothing."""
        plan = self.plan(tag[1] - 1)
        left, right = beside(self.order)[self.me]
        if plan.mixing == "ring":
            told = plan.gate is not None and tag[2] == 0
            return Expected(0, self.extractor, accuracy=told) if sender in (left, right) else None
        if sender != left:
            return None
        start, count = piece(self.order, self.me, tag[2], self.extractor)
        return Expected(start, count, weight=True)


def course(
    epoch: int, me: int, order: tuple[int, ...], rounds: int, extractor: int, plan: Callable[[int], RoundPlan]
) -> Course:
    """The course of a view; `plan` is of as many members as the view has."""
    warmup = bisect_left(range(rounds), True, key=lambda number: plan(number).mixing == "ring")
    return Course(epoch, me, order, rounds, extractor, plan, warmup)


def piece(order: Sequence[int], me: int, step: int, extractor: int) -> tuple[int, int]:
    """Start and size of what the left neighbour sends in a step of the all-reduce."""
    size = len(order)
    which = (list(order).index(me) - step - 1) % size
    parts = np.array_split(np.arange(extractor), size)  # as torch.tensor_split cuts
    return int(parts[which][0]) if len(parts[which]) else 0, len(parts[which])
