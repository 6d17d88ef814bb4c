"""When to propose a view, and which: who is missing, who wants a seat, and whose turn it is. Pure.

A member with a seat proposes when a neighbour is lost, or when an agreement was begun and not ended. Members without a
view propose when everybody is there, or a quorum after `gathering` seconds. The first member that is there proposes at
once, the others later, and all later after every vain proposal, so that no two keep crossing each other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

import numpy as np

from firma.mixing.ring_order import ring_cost, similarity, two_opt
from firma.peer.membership.failure_detector import FailureDetector
from firma.peer.membership.restraint import TURN
from firma.peer.membership.views import MemberState, Rules, Seals, Voter
from firma.peer.ring_file import Ring

_SOONEST = 0.05  # seconds between two looks
_ROUNDING = 1e-9  # by which the cost of an order may differ between machines
_AGAIN = 0.3  # seconds until a member that is there, but has not answered, is asked again


@dataclass(frozen=True, slots=True)
class Ask:
    """Start a proposal for the next view."""

    why: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Wait for no further promises."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """End the proposal that is under way."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Send the present request again to members that have not answered."""

    to: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Inform:
    """Exchange newest views with members that know another one."""

    to: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the operator."""

    text: str


Move = Ask | Settle | Abandon | Repeat | Inform | Say


class Proposer:
    """Decides on each look what to do about the next view; `Member` carries it out."""

    def __init__(
        self, detector: FailureDetector, rules: Rules, state: Voter, random: Random, now: float,
        welcome: Callable[[int, float], bool],
    ) -> None:  # fmt: skip
        self._detector, self._rules, self._random, self._welcome = detector, rules, random, welcome
        self._patience = detector.patience
        self._due: float | None = None  # when this member proposes, if the reason lasts
        self._proposed = self._repeated = self._nudged = now
        self._promised, self._promised_at = state.memory.promised, float("-inf")
        self._view_number, self._tries = state.view_number, 0  # proposals for the view after this one
        self._learnt = float("-inf")  # when it learnt of that view
        self._overdue = 0  # rounds since a member asked for a seat
        self._condition = ""

    def pause(self, seated: bool) -> float:
        """Seconds until the next look."""
        return min(max(self._patience.silence / 20, _SOONEST), 1.0 if seated else 0.1)

    def look(
        self, state: Voter, neighbours: tuple[int, ...], view_began: float, finished: bool, now: float
    ) -> list[Move]:
        """What to do now; `neighbours` are this member's in the view that began at `view_began`.

        A member that has `finished` all rounds answers others, but has no need to propose.
        """
        if state.memory.promised != self._promised:
            self._promised, self._promised_at = state.memory.promised, now
        if state.view_number != self._view_number:
            self._view_number, self._tries, self._learnt = state.view_number, 0, now
        others = [n for n in self._detector.alive(now) if n != state.me]
        behind = tuple(n for n in others if self._detector.knows(n) != state.view_number)
        moves: list[Move] = [Inform(behind)] if behind else []
        if state.ballot is not None:
            return moves + self._tend(state, now)
        why, notices = (None, []) if finished else self._reason(state, neighbours, view_began, now)
        moves += notices
        if why is None:
            self._due = None
        elif self._due is None:
            self._due = now + self._delay(now)
        if self._due is not None and why is not None and now >= self._due:
            moves.append(self._propose(why, now))
        return moves

    def between_rounds(self, state: Voter, now: float) -> list[Move]:
        """Let in members that ask. The first member does so; the next one only if that comes to nothing."""
        wanting = self._detector.asking(state.view_number, now, state.memory.view)
        asking = [n for n in wanting if self._welcome(n, now)]
        self._overdue = self._overdue + 1 if asking else 0
        if self._overdue <= self._rank(now) or state.frozen:
            return []
        self._overdue = 0
        names = ", ".join(self._detector.names[n] for n in asking)
        return [self._propose(f"{names} asked for a seat", now)]

    def _propose(self, why: str, now: float) -> Ask:
        self._proposed = self._repeated = self._nudged = now
        self._due = None
        self._tries += 1
        return Ask(why)

    def _tend(self, state: Voter, now: float) -> list[Move]:
        """A proposal is under way: repeat, settle or abandon it."""
        others = set(self._detector.alive(now)) - {state.me}
        answered = state.answered
        waited, grace = now - self._proposed, self._patience.silence / 2
        moves: list[Move] = []
        if state.value is None and (others <= answered or waited > grace):
            moves.append(Settle())
        if waited > 3 * grace:
            self._due = now + self._delay(now)
            moves.append(Abandon())
        elif now - self._repeated > self._patience.silence / 4:
            self._repeated = self._nudged = now
            moves.append(Repeat(tuple(n for n in range(self._rules.members) if n not in answered | {state.me})))
        elif others - answered and now - self._nudged > min(self._patience.silence / 4, _AGAIN):
            self._nudged = now  # it is there: the connection to it was not up yet, or the message was lost
            moves.append(Repeat(tuple(sorted(others - answered))))
        return moves

    def _reason(
        self, state: Voter, neighbours: tuple[int, ...], view_began: float, now: float
    ) -> tuple[str | None, list[Move]]:
        """Why a new view is needed, if that is for this member to propose and can be had; and what to tell."""
        detector, alive = self._detector, self._detector.alive(now)
        if state.seated:
            return self._reason_with_a_seat(state, neighbours, view_began, now)
        working = len(detector.at_work(state.view_number, now)) > self._rules.insiders  # one alone may be lying
        if working or now - self._learnt < self._patience.silence / 2:  # heartbeats of a new view may not have come yet
            return None, self._say("waiting to be let in")
        missing = [detector.names[n] for n in range(len(detector.names)) if n not in alive]
        if not missing:
            return (None if self._others_turn(state, now) else "everybody is here"), []
        over = now - detector.started > self._patience.gathering
        if over and state.view_number and len(alive) >= self._rules.quorum:
            return f"{', '.join(missing)} did not appear", []
        return None, self._say(f"waiting for {', '.join(missing)}")

    def _reason_with_a_seat(
        self, state: Voter, neighbours: tuple[int, ...], view_began: float, now: float
    ) -> tuple[str | None, list[Move]]:
        detector, view = self._detector, state.memory.view
        assert view is not None  # a member with a seat has a view
        lost = detector.suspects(view, neighbours, view_began, now)
        here = [n for n in detector.alive(now) if n not in lost or detector.returned(n)]
        why = "; ".join(lost.values())
        if lost and len(here) < self._rules.quorum:
            needed = f"{self._rules.quorum} of {self._rules.members} are needed, {len(here)} here"
            return None, self._say(f"paused: {why}; {needed}")
        if self._others_turn(state, now):
            return None, []
        if lost:
            return why, self._say(f"proposing a new view: {why}")
        if state.frozen:
            return "an agreement was begun and not ended", []
        self._condition = ""
        return None, []

    def _others_turn(self, state: Voter, now: float) -> bool:
        """Whether another member is proposing, and has not had the time after which it abandons that."""
        proposer = state.memory.promised[1]
        return proposer not in (-1, state.me) and now - self._promised_at < TURN * self._patience.silence

    def _rank(self, now: float) -> int:
        """This member's place among those that are there."""
        return self._detector.alive(now).index(self._detector.me)

    def _delay(self, now: float) -> float:
        slot = min(self._patience.silence / 8, 2.0)
        return slot * (self._rank(now) + self._tries * self._random.random())

    def _say(self, text: str) -> list[Move]:
        """Report a condition once, when it begins."""
        new, self._condition = text != self._condition, text
        return [Say(text)] if new else []


def rules_of(ring: Ring, seals: Seals) -> Rules:
    """How the members of a ring agree on a view: the same promises always give the same view."""

    def order(states: Mapping[int, MemberState]) -> tuple[int, ...]:
        return agreed_order(ring, states)

    def same_order(states: Mapping[int, MemberState], other: tuple[int, ...]) -> bool:
        return as_good_an_order(ring, states, other)

    members = len(ring.members)
    return Rules(members, ring.needed, seals, order, same_order, ring.insiders, first=members)


def agreed_order(ring: Ring, states: Mapping[int, MemberState]) -> tuple[int, ...]:
    """The members in the given order, or by 2-opt of their class proportions, computed for each view."""
    members = tuple(sorted(states))
    if not _is_computed(ring, states):
        return members
    shares = np.array([states[member].shares for member in members])
    return tuple(members[place] for place in two_opt(similarity(shares, ring.hyper.ring_cost)))


def as_good_an_order(ring: Ring, states: Mapping[int, MemberState], other: tuple[int, ...]) -> bool:
    """Whether an order is the agreed one, or as good: another machine may round another way, and 2-opt branch there."""
    members, own = tuple(sorted(states)), agreed_order(ring, states)
    if other == own or not _is_computed(ring, states):
        return other == own
    alike = similarity(np.array([states[member].shares for member in members]), ring.hyper.ring_cost)
    costs = [ring_cost(alike, [members.index(member) for member in order]) for order in (own, other)]
    return costs[1] <= costs[0] + _ROUNDING


def _is_computed(ring: Ring, states: Mapping[int, MemberState]) -> bool:
    return ring.row.order != "given" and ring.proportions != "none" and all(state.shares for state in states.values())
