"""The failure detector: which member was heard when, and which must be given up. Pure: `now` is handed in.

`now` is this machine's monotonic clock, in seconds; clocks of different machines are never compared.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from firma.peer.membership.views import Seat, View
from firma.peer.wire.heartbeat import ASKING, FINISHED, LEAVING, PROBING, RUNNING, STALLED, WAITING, Heartbeat
from firma.peer.wire.terms import Tag

_MISDEEDS = 3  # after which a member that misbehaves is suspected


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that a member waits before it acts."""

    silence: float  # of a neighbour, before it is given up
    gathering: float  # at a start, for everybody to appear
    stalled: float = 3600.0  # of own training, before it counts as hanging


@dataclass
class FailureDetector:
    """The last heartbeat of each member and when it was last heard."""

    me: int
    names: tuple[str, ...]
    patience: Patience
    started: float
    last_heard: dict[int, float] = field(default_factory=dict)
    heartbeats: dict[int, Heartbeat] = field(default_factory=dict)
    trouble: dict[int, str] = field(default_factory=dict)  # what last went wrong in reaching a member
    complaints: dict[int, str] = field(default_factory=dict)  # this member's own, of the present view, in words
    barred: frozenset[int] = frozenset()  # members that are not let in yet, because their lines do not work
    _arrived: dict[int, float] = field(default_factory=dict)  # when the last heartbeat came
    _placed: dict[int, float] = field(default_factory=dict)  # when a member last said that it is somewhere else
    _misdeeds: dict[int, list[tuple[float, str]]] = field(default_factory=dict)  # when, and what; the last few

    def heard(self, member: int, now: float) -> None:
        """Anything arrived from a member."""
        self.last_heard[member] = now

    def heartbeat(self, member: int, heartbeat: Heartbeat, now: float) -> None:
        """A heartbeat arrived; one that only probes is not of a member at work."""
        if heartbeat.status != PROBING:
            self.heard(member, now)
            self.trouble.pop(member, None)
            before = self.heartbeats.get(member)
            if before is None or _place(before) != _place(heartbeat):
                self._placed[member] = now
            self.heartbeats[member], self._arrived[member] = heartbeat, now

    def placed(self, member: int) -> float:
        """Since when a member has said that it is where it is."""
        return self._placed.get(member, self.started)

    def misbehaved(self, member: int, why: str, now: float) -> None:
        """A member did what no honest one does, such as sending absurd values; if it persists, it is suspected."""
        self._misdeeds[member] = [*self._misdeeds.get(member, []), (now, why)][-_MISDEEDS:]

    def persists(self, member: int, since: float) -> str:
        """What a member has done again and again since then; "" if it has not."""
        found = [why for when, why in self._misdeeds.get(member, []) if when >= since]
        return f"{found[-1]}, {_MISDEEDS} times" if len(found) >= _MISDEEDS else ""

    def alive(self, now: float) -> list[int]:
        """Members that are there, this one included."""
        return [n for n in range(len(self.names)) if n == self.me or (self._here(n) and not self.silent(n, now))]

    def silent(self, member: int, now: float, since: float = float("-inf")) -> bool:
        """Whether a member has been silent for longer than is tolerated, counted from `since` at the earliest."""
        return now - max(self.last_heard.get(member, self.started), since) > self.patience.silence

    def at_work(self, view_number: int, now: float) -> list[int]:
        """Other members that are there and have a seat in a view at least as new as this one."""
        working = (RUNNING, STALLED, FINISHED)
        others = [n for n in self.alive(now) if n != self.me and self.heartbeats[n].status in working]
        return [n for n in others if self.heartbeats[n].tag[0] >= max(view_number, 1)]

    def asking(self, view_number: int, now: float, view: View | None = None) -> list[int]:
        """Members that want a seat, know the present view, do not have one in it, and may have one."""
        last = {n: self.heartbeats[n] for n in self.alive(now) if n != self.me and n not in self.barred}
        seats = view.ring if view is not None else ()
        return [
            n
            for n, heartbeat in last.items()
            if heartbeat.status == ASKING
            and heartbeat.tag[0] == view_number
            and Seat(n, heartbeat.process) not in seats
        ]

    def finished(self, view: View) -> list[int]:
        """Members of the view that have completed all rounds in it."""
        done = {n for n, beat in self.heartbeats.items() if beat.status == FINISHED and beat.tag[0] == view.number}
        return [member for member in view.order if member in done]

    def returned(self, member: int) -> bool:
        """Whether a member is there without a seat, so that the next view can have it."""
        return member in self.heartbeats and self.heartbeats[member].status in (ASKING, WAITING)

    def knows(self, member: int) -> int:
        """Number of the newest view that a member knows."""
        return self.heartbeats[member].tag[0]

    def suspects(self, view: View, neighbours: Iterable[int], since: float, now: float) -> dict[int, str]:
        """Members of a view that began at `since` that must be given up, and why.

        Silence counts for neighbours only: a member does not judge members that it does not need.
        """
        found: dict[int, str] = {}
        for seat in view.ring:
            heartbeat, name = self.heartbeats.get(seat.member), self.names[seat.member]
            if seat.member == self.me:
                continue
            if heartbeat is not None and heartbeat.process != seat.process:
                if self._arrived[seat.member] >= since:
                    found[seat.member] = f"{name} was started again"
            elif heartbeat is not None and heartbeat.status == LEAVING:
                found[seat.member] = f"{name} has stopped"
            elif heartbeat is not None and heartbeat.status == STALLED and heartbeat.tag[0] == view.number:
                found[seat.member] = f"{name} has been training for more than {self.patience.stalled:.0f} s"
            elif seat.member in neighbours and self.silent(seat.member, now, since):
                trouble = self.trouble.get(seat.member, "no answer")
                found[seat.member] = f"{name} has been silent for {self.patience.silence:g} s ({trouble})"
            elif seat.member in self.complaints:
                found[seat.member] = self.complaints[seat.member]
        return found

    def _here(self, member: int) -> bool:
        return member in self.heartbeats and self.heartbeats[member].status != LEAVING


def _place(beat: Heartbeat) -> tuple[int, Tag, int]:
    return beat.process, beat.tag, beat.doing
