"""When to ask for a new view: who is missing, who wants in, whose turn it is to ask. Clocks of this machine only."""

import random
import threading
import time

from firma.peer.council import Council
from firma.peer.desk import Desk
from firma.peer.wire.heartbeat import ASKING, WAITING

_SOONEST = 0.05  # seconds between looks


class Warden:
    """Watches the signs of life and drives the council; `tick` is called again and again by a thread of its own."""

    def __init__(self, council: Council, desk: Desk) -> None:
        self.council, self.desk, self.signs = council, desk, desk.signs
        self.patience = desk.signs.patience
        self.finished = False  # with all rounds: it answers, but has no need to ask
        self.seated_once = False
        self._due: float | None = None  # when this member asks, if the reason lasts
        self._asked = self._said = time.monotonic()
        self._promised, self._promised_at = council.member.memory.promised, float("-inf")
        self._epoch, self._tries = council.member.epoch, 0  # attempts at the view after this one
        self._overdue = 0  # rounds since somebody asked to be let in
        self._state = ""
        self._dice = random.Random()  # not the federation's seed: members must not wait alike

    @property
    def pause(self) -> float:
        """Seconds between two looks."""
        return min(max(self.patience.silence / 20, _SOONEST), 1.0 if self.council.member.seated else 0.1)

    def watch(self, stop: threading.Event) -> None:
        """Until the run ends."""
        while not stop.wait(self.pause):
            self.tick()

    def tick(self) -> None:
        """One look."""
        with self.desk.changed:
            now, member = time.monotonic(), self.council.member
            if self.desk.failure is not None:
                return
            self.seated_once |= member.seated
            if member.memory.promised != self._promised:
                self._promised, self._promised_at = member.memory.promised, now
            if member.epoch != self._epoch:
                self._epoch, self._tries = member.epoch, 0
            self._catch_up()
            if member.ballot is not None:
                self._tend(now)
                return
            why = self._reason(now)
            if why is None:
                self._due = None
            elif self._due is None:
                self._due = now + self._delay()
            if self._due is not None and why is not None and now >= self._due:
                self._ask(why)

    def boundary(self) -> None:
        """Between two rounds: let in who asks. The first member does so, the next one only if that comes to nothing."""
        with self.desk.changed:
            member = self.council.member
            asking = self.signs.asking(member.epoch)
            self._overdue = self._overdue + 1 if asking else 0
            if self._overdue > self._rank() and not member.frozen:
                self._overdue = 0
                self._ask(", ".join(self.signs.names[n] for n in asking) + " wants in")

    def _ask(self, why: str) -> None:
        self.desk.log.event("asking", {"for_view": self.council.member.epoch + 1, "why": why})
        self._asked = self._said = time.monotonic()
        self._due = None
        self._tries += 1
        self.council.propose()

    def _catch_up(self) -> None:
        """Exchange views with whoever knows an older or a newer one."""
        epoch = self.council.member.epoch
        self.council.tell([n for n in self.signs.alive() if n != self.signs.me and self._knows(n) != epoch])

    def _knows(self, member: int) -> int:
        return self.signs.hellos[member].tag[0]

    def _tend(self, now: float) -> None:
        """An attempt is under way: repeat, settle or give up."""
        member, alive = self.council.member, set(self.signs.alive()) - {self.signs.me}
        answered = {n for n, _ in member.promises} if member.value is None else set(member.consents)
        waited, grace = now - self._asked, self.patience.silence / 2
        if member.value is None and (alive <= answered or waited > grace):
            self.council.settle()
        if waited > 3 * grace:
            self.council.give_up()
            self._due = now + self._delay()
        elif now - self._said > self.patience.silence / 4:
            self._said = now
            self.council.again([n for n in range(self.council.rules.members) if n not in answered | {member.me}])

    def _reason(self, now: float) -> str | None:
        """Why a new view is needed, if it is this member's business and can be had."""
        member, alive = self.council.member, self.signs.alive()
        if self.finished:
            return None
        if member.seated:
            return self._of_the_ring(now, alive)
        if self.signs.at_work(member.epoch):
            self._say("waiting to be let in")
            return None
        missing = [self.signs.names[n] for n in range(len(self.signs.names)) if n not in alive]
        if not missing:
            return None if self._others_turn(now) else "everybody is here"
        over = now - self.signs.started > self.patience.gathering
        if over and member.epoch and len(alive) >= self.council.rules.quorum:
            return f"{', '.join(missing)} did not come"
        self._say(f"waiting for {', '.join(missing)}")
        return None

    def _of_the_ring(self, now: float, alive: list[int]) -> str | None:
        member, view = self.council.member, self.council.member.memory.view
        assert view is not None  # who has a seat has a view
        lost = self.signs.suspects(view, self.desk.neighbours, self.desk.began)
        here = [n for n in alive if n not in lost or self._returned(n)]
        if lost and len(here) < self.council.rules.quorum:
            needed = f"{self.council.rules.quorum} of {self.council.rules.members} are needed, {len(here)} here"
            self._say(f"paused: {'; '.join(lost.values())}; {needed}")
            return None
        if self._others_turn(now):
            return None
        if lost:
            self._say(f"going on without: {'; '.join(lost.values())}")
            return "; ".join(lost.values())
        if member.frozen:
            return "an agreement was begun and not ended"
        self._say("")
        return None

    def _others_turn(self, now: float) -> bool:
        """Whether somebody else is asking, and has not had the time after which it gives up."""
        promised = self.council.member.memory.promised
        return promised[1] not in (-1, self.signs.me) and now - self._promised_at < 1.5 * self.patience.silence

    def _returned(self, member: int) -> bool:
        """Lost from the view but here again, without a seat."""
        return self.signs.hellos[member].status in (ASKING, WAITING)

    def _rank(self) -> int:
        """This member's place among those who are there."""
        return self.signs.alive().index(self.signs.me)

    def _delay(self) -> float:
        """The first asks at once, others later, all later after every vain attempt: no two keep crossing each other."""
        slot = min(self.patience.silence / 8, 2.0)
        return slot * (self._rank() + self._tries * self._dice.random())

    def _say(self, text: str) -> None:
        if text and text != self._state:
            self.desk.notice(text)
        self._state = text
