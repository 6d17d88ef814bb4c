"""Signs of life: who was heard when, by this machine's own monotonic clock, and who must be given up for lost."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from firma.peer.membership.views import View
from firma.peer.wire.heartbeat import ASKING, FINISHED, LEAVING, PROBING, RUNNING, STALLED, Hello


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds of silence that are borne, and seconds in which everybody must have appeared."""

    silence: float
    gathering: float


@dataclass
class Signs:
    """The last hello of each member and when it last showed life. The caller holds a lock."""

    me: int
    names: tuple[str, ...]
    patience: Patience
    started: float = field(default_factory=time.monotonic)
    seen: dict[int, float] = field(default_factory=dict)
    hellos: dict[int, Hello] = field(default_factory=dict)
    greeted: dict[int, float] = field(default_factory=dict)  # when the last hello came
    trouble: dict[int, str] = field(default_factory=dict)  # what last went wrong in reaching a member

    def heard(self, member: int) -> None:
        """A sign of life."""
        self.seen[member] = time.monotonic()

    def greet(self, member: int, hello: Hello) -> None:
        """Note a hello; who only probes is no member at work."""
        if hello.status != PROBING:
            self.heard(member)
            self.trouble.pop(member, None)
            self.hellos[member], self.greeted[member] = hello, self.seen[member]

    def alive(self) -> list[int]:
        """Members that are there, this one among them."""
        now = time.monotonic()
        return [n for n in range(len(self.names)) if n == self.me or (self._here(n) and self.silent(n, now) == 0)]

    def silent(self, member: int, now: float, since: float = 0.0) -> float:
        """Seconds of silence if they are more than is borne, else 0; counted from `since` at the earliest."""
        silence = now - max(self.seen.get(member, self.started), since)
        return silence if silence > self.patience.silence else 0.0

    def at_work(self, epoch: int) -> list[int]:
        """Others who are there and have a seat in a view at least as new as this."""
        working = (RUNNING, STALLED, FINISHED)
        others = [n for n in self.alive() if n != self.me and self.hellos[n].status in working]
        return [n for n in others if self.hellos[n].tag[0] >= max(epoch, 1)]

    def asking(self, epoch: int) -> list[int]:
        """Members that want a seat and know the present view."""
        said = {n: self.hellos[n] for n in self.alive() if n != self.me}
        return [n for n, hello in said.items() if hello.status == ASKING and hello.tag[0] == epoch]

    def finished(self, view: View) -> list[int]:
        """Members of the view that are done with it."""
        done = {n for n, h in self.hellos.items() if h.status == FINISHED and h.tag[0] == view.epoch}
        return [seat.member for seat in view.ring if seat.member in done]

    def suspects(self, view: View, beside: Iterable[int], since: float) -> dict[int, str]:
        """Who of a view that began at `since` must be given up, and why.

        Silence counts for neighbours only: whom this member does not need, it does not judge.
        """
        now, found = time.monotonic(), {}
        for seat in view.ring:
            hello, name = self.hellos.get(seat.member), self.names[seat.member]
            if seat.member == self.me:
                continue
            if hello is not None and hello.process != seat.process:
                if self.greeted[seat.member] >= since:
                    found[seat.member] = f"{name} was started again"
            elif hello is not None and hello.status == LEAVING:
                found[seat.member] = f"{name} has stopped"
            elif hello is not None and hello.status == STALLED and hello.tag[0] == view.epoch:
                found[seat.member] = f"{name} hangs in its training"
            elif seat.member in beside and self.silent(seat.member, now, since):
                trouble = self.trouble.get(seat.member, "no answer")
                found[seat.member] = f"{name} has been silent for {self.patience.silence:g} s ({trouble})"
        return found

    def _here(self, member: int) -> bool:
        return member in self.hellos and self.hellos[member].status != LEAVING
