"""What has arrived and is not yet used: who may say what now, decided before a byte of it is taken."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from firma.peer.course import Course
from firma.peer.terms import Agreement, Head, Tag
from firma.protocol import Message

Verdict = Literal["take", "have", "early", "stale", "future", "misfit"]
Payload = Message | Agreement


@dataclass
class Inbox:
    """Messages by sender and exchange; `now` is the exchange that this member is in. The caller holds a lock."""

    course: Course
    now: Tag = (0, 0)
    counts: Counter[str] = field(default_factory=Counter)
    _held: dict[tuple[int, Tag], tuple[bytes, Payload]] = field(default_factory=dict)
    _last: dict[tuple[int, Tag], bytes] = field(default_factory=dict)

    def admit(self, sender: int, head: Head) -> Verdict:
        """What to do with a message: take it, or say why not. Refusals are counted by kind."""
        verdict = self._judge(sender, head)
        if verdict != "take":
            self.counts["repeated" if verdict == "have" else verdict] += 1
        return verdict

    def _judge(self, sender: int, head: Head) -> Verdict:
        known = self._held.get((sender, head.tag), (self._last.get((sender, head.tag)),))[0]
        if known is not None:
            return "have" if known == head.digest else "misfit"
        if not self.course.known(head.tag):
            return "future"
        ahead = self.course.index(head.tag) - self.course.index(self.now)
        if ahead < 0:
            return "stale"
        if self.course.order is None and head.tag[0] > 0:
            return "early"  # the order is being agreed on: the sender has it already and will ask again
        if ahead > self.course.lead(self.now):
            return "future"
        expected = self.course.expected(sender, head.tag)
        return "take" if expected is not None and expected.fits(head) else "misfit"

    def store(self, sender: int, head: Head, payload: Payload) -> None:
        """Keep a message that was admitted; a second copy that came at the same time changes nothing."""
        if self.course.index(head.tag) >= self.course.index(self.now):
            self._held.setdefault((sender, head.tag), (head.digest, payload))

    def take(self, senders: tuple[int, ...], tag: Tag) -> dict[int, Payload] | None:
        """One message from each sender, if all are there; they are then remembered by their digest only."""
        if any((sender, tag) not in self._held for sender in senders):
            return None
        self._last = {(sender, tag): self._held[sender, tag][0] for sender in senders}
        return {sender: self._held.pop((sender, tag))[1] for sender in senders}

    def missing(self, senders: tuple[int, ...], tag: Tag) -> list[int]:
        """Who has not sent yet."""
        return [sender for sender in senders if (sender, tag) not in self._held]
