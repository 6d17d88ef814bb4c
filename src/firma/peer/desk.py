"""What this member knows of the others at this moment, shared by the threads that send, receive and wait."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from firma.mixing.order import neighbours
from firma.peer.course import Course
from firma.peer.inbox import Inbox, Verdict
from firma.peer.membership.failure_detector import Signs
from firma.peer.runtime.event_log import Log
from firma.peer.wire.heartbeat import Hello
from firma.peer.wire.terms import Head, Tag
from firma.protocol import Message

_TICK = 0.1  # seconds between looks at what nobody announces


class PeerLost(Exception):
    """The others are not there or refuse: this member cannot go on."""


class Superseded(Exception):
    """The view is over, or is being replaced: what was under way in it is dropped."""


@dataclass
class Desk:
    """Inbox, signs of life and what to tell the operator; every access is under `changed`'s lock."""

    signs: Signs
    log: Log
    changed: threading.Condition = field(default_factory=threading.Condition)
    epoch: int = 0  # of the newest view that is known, with or without this member
    inbox: Inbox | None = None  # of the view in which this member works
    began: float = 0.0
    frozen: bool = False  # the next view is being agreed on
    failure: Exception | None = None  # what the main thread is to end with
    notices: list[str] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """Members' names."""
        return self.signs.names

    @property
    def seen(self) -> dict[int, float]:
        """When each member last showed life, by this machine's monotonic clock."""
        return self.signs.seen

    @property
    def now(self) -> Tag:
        """The exchange that this member is in."""
        with self.changed:
            return self.inbox.now if self.inbox is not None else (self.epoch, 0, 0)

    @property
    def neighbours(self) -> tuple[int, ...]:
        """The members next to this one in the view, if it is in one."""
        with self.changed:
            if self.inbox is None:
                return ()
            course = self.inbox.course
            return tuple(sorted(set(neighbours(course.order)[course.me]) - {course.me}))

    def begin(self, epoch: int, course: Course | None, start: int) -> None:
        """A view is decided: from now on its messages are taken, or none if this member has no seat in it."""
        with self.changed:
            self.epoch, self.began, self.frozen = epoch, time.monotonic(), False
            self.inbox = Inbox(course, (epoch, start + 1, 0)) if course is not None else None
            self.changed.notify_all()

    def heard(self, member: int) -> None:
        """A sign of life."""
        with self.changed:
            self.signs.heard(member)

    def greet(self, member: int, hello: Hello) -> None:
        """Note a hello and wake who waits for it."""
        with self.changed:
            self.signs.greet(member, hello)
            self.changed.notify_all()

    def blame(self, member: int, trouble: str) -> None:
        """Note what went wrong in reaching a member."""
        with self.changed:
            self.signs.trouble[member] = trouble

    def notice(self, text: str) -> None:
        """Something that the operator should see; the main thread shows it."""
        with self.changed:
            self.notices.append(text)
            self.log.event("notice", {"says": text})

    def admit(self, sender: int, head: Head) -> Verdict:
        """Whether a message may be taken now."""
        with self.changed:
            self.signs.heard(sender)
            if self.inbox is not None:
                verdict = self.inbox.admit(sender, head)
            else:
                verdict = "stale" if head.tag[0] <= self.epoch else "early"
        if verdict not in ("take", "early"):
            view, turn, step = head.tag
            kind = "repeated" if verdict == "have" else verdict
            self.log.refused(kind, self.names[sender], f"view {view}, turn {turn}.{step}")
        return verdict

    def store(self, sender: int, head: Head, message: Message) -> None:
        """Keep what was admitted and wake who waits for it."""
        with self.changed:
            if self.inbox is not None:
                self.inbox.store(sender, head, message)
                self.changed.notify_all()

    def current(self, epoch: int) -> bool:
        """Whether work in a view may go on."""
        with self.changed:
            return self.inbox is not None and self.epoch == epoch and not self.frozen

    def check(self, epoch: int) -> None:
        """Raise what ends the work in a view: its end, or this member's own."""
        with self.changed:
            if self.failure is not None:
                raise self.failure
            if not self.current(epoch):
                raise Superseded

    def enter(self, tag: Tag) -> None:
        """This member begins an exchange."""
        with self.changed:
            self.check(tag[0])
            assert self.inbox is not None  # as checked
            self.inbox.now = tag

    def wait(self, senders: tuple[int, ...], tag: Tag, check: Callable[[], None]) -> dict[int, Message]:
        """One message from each sender; `check` is called all the while and may raise."""
        while True:
            with self.changed:
                self.check(tag[0])
                assert self.inbox is not None  # as checked
                arrived = self.inbox.take(senders, tag)
                if arrived is not None:
                    return arrived
                self.changed.wait(_TICK)
            check()
