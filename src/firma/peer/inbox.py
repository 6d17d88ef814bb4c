"""What has arrived and is not yet used: who may say what now, decided before a byte of it is taken."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from firma.peer.course import Course, fits
from firma.peer.wire.terms import Head, Tag
from firma.protocol import Message

Verdict = Literal["take", "have", "early", "stale", "future", "misfit"]


@dataclass
class Inbox:
    """Messages of one view by sender and exchange; `now` is the exchange that this member is in. The caller locks."""

    course: Course
    now: Tag
    counts: Counter[str] = field(default_factory=Counter)
    _held: dict[tuple[int, Tag], tuple[bytes, Message]] = field(default_factory=dict)
    _last: dict[tuple[int, Tag], bytes] = field(default_factory=dict)

    def admit(self, sender: int, head: Head) -> Verdict:
        """What to do with a message: take it, or say why not. Refusals are counted by kind."""
        verdict = self._judge(sender, head)
        if verdict != "take":
            self.counts["repeated" if verdict == "have" else verdict] += 1
        return verdict

    def _judge(self, sender: int, head: Head) -> Verdict:
        if head.tag[0] != self.course.epoch:  # of a view that is over, or of one that this member has yet to hear of
            return "stale" if head.tag[0] < self.course.epoch else "early"
        known = self._held.get((sender, head.tag), (self._last.get((sender, head.tag)),))[0]
        if known is not None:
            return "have" if known == head.digest else "misfit"
        if not self.course.known(head.tag):
            return "future"
        ahead = self.course.index(head.tag) - self.course.index(self.now)
        if ahead < 0:
            return "stale"
        if ahead > self.course.lead(self.now):
            return "future"
        expected = self.course.expected(sender, head.tag)
        return "take" if expected is not None and fits(expected, head) else "misfit"

    def store(self, sender: int, head: Head, message: Message) -> None:
        """Keep a message that was admitted; a second copy that came at the same time changes nothing."""
        if head.tag[0] == self.course.epoch and self.course.index(head.tag) >= self.course.index(self.now):
            self._held.setdefault((sender, head.tag), (head.digest, message))

    def take(self, senders: tuple[int, ...], tag: Tag) -> dict[int, Message] | None:
        """One message from each sender, if all are there; they are then remembered by their digest only."""
        if any((sender, tag) not in self._held for sender in senders):
            return None
        self._last = {(sender, tag): self._held[sender, tag][0] for sender in senders}
        return {sender: self._held.pop((sender, tag))[1] for sender in senders}
