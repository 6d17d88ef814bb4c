"""What this member knows of the others at this moment, shared by the threads that send, receive and wait."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from firma.peer.course import Course
from firma.peer.hello import LEAVING, PROBING, Hello
from firma.peer.inbox import Inbox, Payload, Verdict
from firma.peer.log import Log
from firma.peer.terms import Head, Tag


class PeerLost(Exception):
    """A neighbour is gone or refuses: the run cannot go on without it."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds of silence that are borne, and seconds in which everybody must have appeared."""

    silence: float
    gathering: float


@dataclass
class Desk:
    """Inbox, signs of life and partings; every access is under `changed`'s lock."""

    names: tuple[str, ...]
    inbox: Inbox
    patience: Patience
    log: Log
    changed: threading.Condition = field(default_factory=threading.Condition)
    started: float = field(default_factory=time.monotonic)
    seen: dict[int, float] = field(default_factory=dict)
    processes: dict[int, bytes] = field(default_factory=dict)
    gone: dict[int, str] = field(default_factory=dict)  # who said goodbye or came back as another process, and why
    trouble: dict[int, str] = field(default_factory=dict)  # what last went wrong in reaching a member

    def heard(self, member: int) -> None:
        """A sign of life."""
        with self.changed:
            self.seen[member] = time.monotonic()

    def greet(self, member: int, hello: Hello) -> None:
        """Note a hello; a member that says goodbye, or is another process than before, is gone."""
        with self.changed:
            self.seen[member] = time.monotonic()
            self.trouble.pop(member, None)
            if hello.status == PROBING:
                return
            if hello.status == LEAVING:
                about = self.names[hello.about] if 0 <= hello.about < len(self.names) else ""
                lost = f", for {about} was lost" if about and about != self.names[member] else ""
                self._part(member, f"{self.names[member]} has stopped{lost}")
            elif self.inbox.now[0] == 0:
                self.gone.pop(member, None)  # a member that was stopped may come back while all gather
                self.processes[member] = hello.process
            elif self.processes.setdefault(member, hello.process) != hello.process:
                self._part(member, f"{self.names[member]} was started again while the ring was at work")

    def _part(self, member: int, why: str) -> None:
        if member not in self.gone:
            self.log.event("gone", {"member": self.names[member], "why": why})
        self.gone[member] = why
        self.changed.notify_all()

    def admit(self, sender: int, head: Head) -> Verdict:
        """Whether a message may be taken now."""
        with self.changed:
            self.seen[sender] = time.monotonic()
            verdict = self.inbox.admit(sender, head)
        if verdict not in ("take", "early"):
            turn, step = head.tag
            self.log.refused("repeated" if verdict == "have" else verdict, self.names[sender], f"turn {turn}.{step}")
        return verdict

    def store(self, sender: int, head: Head, payload: Payload) -> None:
        """Keep what was admitted and wake who waits for it."""
        with self.changed:
            self.inbox.store(sender, head, payload)
            self.changed.notify_all()

    def enter(self, tag: Tag) -> None:
        """This member begins an exchange."""
        with self.changed:
            self.inbox.now = tag

    def agreed(self, order: tuple[int, ...], turn: int) -> None:
        """The order and the first turn are known: from now on messages of the rounds are taken."""
        with self.changed:
            self.inbox.course = replace(self.inbox.course, order=order)
            self.inbox.now = (turn, 0)

    @property
    def course(self) -> Course:
        """The course as agreed so far."""
        return self.inbox.course

    def wait(self, senders: tuple[int, ...], tag: Tag, check: Callable[[], None]) -> dict[int, Payload]:
        """One message from each sender; `PeerLost` if one of them is gone. `check` may raise on its own account."""
        began = time.monotonic()
        while True:
            with self.changed:
                arrived = self.inbox.take(senders, tag)
                if arrived is not None:
                    return arrived
                self.changed.wait(min(0.25, self.patience.silence / 8))
                missing = self.inbox.missing(senders, tag)
            check()
            for member in missing:
                self.lost(member, tag, began)

    def lost(self, member: int, tag: Tag, progress: float) -> None:
        """Raise `PeerLost` if a member that is needed now has gone or been silent for too long."""
        with self.changed:
            why, trouble = self.gone.get(member), self.trouble.get(member, "no answer")
            seen = max(self.seen.get(member, self.started), progress)
        name, now = self.names[member], time.monotonic()
        if tag[0] == 0:
            if now - self.started > self.patience.gathering:
                raise PeerLost(f"{name} did not appear within {self.patience.gathering:g} s ({trouble})")
        elif why is not None:
            raise PeerLost(why)
        elif now - seen > self.patience.silence:
            raise PeerLost(f"{name} has been silent for {self.patience.silence:g} s ({trouble})")
