"""The course of a view: which exchange follows which, and what a member may say in each. Pure: no clock, no sockets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

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
    ends: tuple[int, ...]  # ends[t] is the number of exchanges in turns 1 … t

    def known(self, tag: Tag) -> bool:
        """Whether the view has such an exchange at all."""
        _, turn, step = tag
        return 1 <= turn <= self.rounds and step < self.ends[turn] - self.ends[turn - 1]

    def index(self, tag: Tag) -> int:
        """How many exchanges come before this one; after the last round, all."""
        _, turn, step = tag
        return self.ends[turn - 1] + step

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
    steps = [0, *(_steps(plan(number), len(order)) for number in range(rounds))]
    return Course(epoch, me, order, rounds, extractor, plan, tuple(accumulate(steps)))


def piece(order: Sequence[int], me: int, step: int, extractor: int) -> tuple[int, int]:
    """Start and size of what the left neighbour sends in a step of the all-reduce."""
    size = len(order)
    which = (list(order).index(me) - step - 1) % size
    parts = np.array_split(np.arange(extractor), size)  # as torch.tensor_split cuts
    return int(parts[which][0]) if len(parts[which]) else 0, len(parts[which])


def _steps(plan: RoundPlan, members: int) -> int:
    return plan.passes if plan.mixing == "ring" else 2 * (members - 1)
