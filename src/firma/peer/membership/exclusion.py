"""Whom to leave out if two members cannot work together, and when to let them in again. Pure: `now` is handed in.

A member that is alive may still deliver nothing, or take nothing: then its neighbours complain of it, and it may
complain of them. Nobody else can see which end of a broken line is to blame, and a member may lie. The rules:

- The member with the most broken lines is left out; one that complains of everybody is that member itself.
- Of two that complain of each other only, the others leave out the one that was in more such quarrels before, or was
  not left out the last time, so that nobody can have the same honest member left out again and again.
- Whoever was left out stays out for `HOLD` times the patience, twice as long every time, and until the line works.
  If it never does, the two ends take turns.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from firma.peer.membership.views import View

HOLD = 4.0  # times `patience.silence`: how long a member stays out the first time
_TURNS = 4.0  # times as long, until it is the turn of the other end
_DOUBLINGS = 8
_MEMORY = 200.0  # times `patience.silence`: after that a quarrel is forgotten

Line = frozenset[int]  # the two members at its ends


def left_out(against: Mapping[int, Collection[int]], needed: int) -> tuple[int, ...]:
    """Members to leave out so that of those that remain, at least `needed`, nobody is against another.

    `against[m]` are the members with whom m cannot work. A greedy vertex cover: the member with the most broken lines
    goes first; of equals, the one of whom more complain; of those, the last one in the ring file.
    """
    members, found = set(against), []
    lines = lines_of(against)
    while lines and len(members) > needed:
        broken = Counter(member for line in lines for member in line)
        accused = Counter(other for member in members for other in against[member])
        worst = max((broken[member], accused[member], member) for member in members)[2]
        found.append(worst)
        members.remove(worst)
        lines = {line for line in lines if worst not in line}
    return tuple(sorted(found))


def lines_of(against: Mapping[int, Collection[int]]) -> set[Line]:
    """The lines between these members of which at least one end complains."""
    pairs = ((one, other) for one, others in against.items() for other in others)
    return {frozenset(pair) for pair in pairs if pair[0] != pair[1] and pair[1] in against}


@dataclass
class _Quarrel:
    began: float
    seen: float
    last_out: int | None = None  # the end that was left out for it last


@dataclass(frozen=True, slots=True)
class _Absence:
    since: float
    times: int  # that it was left out for a broken line


@dataclass
class Exclusions:
    """What one member remembers about broken lines in the ring, its own and those that others complain of."""

    me: int
    silence: float  # patience, in seconds
    _quarrels: dict[Line, _Quarrel] = field(default_factory=dict)
    _absences: dict[int, _Absence] = field(default_factory=dict)

    def see(self, lines: Iterable[Line], now: float) -> None:
        """These lines are complained of at present."""
        for line in lines:
            self._quarrels.setdefault(line, _Quarrel(now, now)).seen = now
        kept = {line: each for line, each in self._quarrels.items() if now - each.seen <= _MEMORY * self.silence}
        self._quarrels = kept

    def view_decided(
        self, before: View, view: View, lines: set[Line], alive: Collection[int], now: float
    ) -> dict[int, list[int]]:
        """Who was left out although it is alive, and the other ends of its lines that are complained of."""
        seats, found = {seat.member for seat in view.ring}, dict[int, list[int]]()
        for member in before.order:
            broken = [line for line in lines if member in line]
            if member in seats or member not in alive or not broken:
                continue
            times = self._absences[member].times + 1 if member in self._absences else 1
            if times > 1 and now - self._until(member) > _MEMORY * self.silence:
                times = 1  # that was long ago
            self._absences[member] = _Absence(now, times)
            for line in broken:
                self._quarrels.setdefault(line, _Quarrel(now, now)).last_out = member
            found[member] = sorted(other for line in broken for other in line - {member})
        return found

    def held(self, now: float) -> set[int]:
        """Members that were left out for a broken line, and not yet for long enough."""
        return {member for member in self._absences if now < self._until(member)}

    def barred(self, member: int, lines: set[Line], seats: Collection[int], now: float) -> bool:
        """Whether a member that asks is not let in yet: it stays out for a time, and until its lines work.

        If they never do, it comes in when it is the turn of the other end to be left out, and of one other end only.
        """
        broken = [line for line in lines if member in line and line - {member} <= set(seats)]
        absence = self._absences.get(member)
        if absence is not None and now < self._until(member):
            return True
        if len(broken) != 1:
            return bool(broken)
        if absence is not None:
            return now < absence.since + _TURNS * (self._until(member) - absence.since)
        began = self._quarrels[broken[0]].began if broken[0] in self._quarrels else now
        return now < began + _TURNS * HOLD * self.silence  # it was out for another reason

    def opinion(self, lines: set[Line], seats: Collection[int], now: float) -> set[int]:
        """Of two other members that quarrel and could both be in the ring, the one that this member would leave out."""
        found = set[int]()
        for line in lines:
            one, other = sorted(line)
            if self.me in line or any(self._waits(member, lines, seats, now) for member in line):
                continue
            last = self._quarrels[line].last_out if line in self._quarrels else None
            quarrels = self._partners(one), self._partners(other)
            inside = line & set(seats)
            if len(inside) == 1:  # the other one has been out for long enough: now it is the turn of this one
                found |= inside
            elif quarrels[0] != quarrels[1]:
                found.add(one if quarrels[0] > quarrels[1] else other)
            elif last is not None:
                found.add(one if last == other else other)
        return found

    def _waits(self, member: int, lines: set[Line], seats: Collection[int], now: float) -> bool:
        return member not in seats and self.barred(member, lines, seats, now)

    def _partners(self, member: int) -> int:
        return sum(member in line for line in self._quarrels)

    def _until(self, member: int) -> float:
        absence = self._absences[member]
        return absence.since + HOLD * self.silence * 2.0 ** min(absence.times - 1, _DOUBLINGS)
