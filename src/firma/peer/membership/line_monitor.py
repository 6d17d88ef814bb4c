"""Which lines to other members carry messages, and for how long this one waits for whom. Pure: `now` is handed in.

A heartbeat shows that a member is alive, not that its messages arrive. Every exchange has a deadline:

- A message that its sender says it has sent must arrive, and one of this member's must be acknowledged, within
  `patience` (5 s at least), or within `TIMES` times what transfers on that line took so far (mean and deviation, as
  TCP reckons its time-out) if that is longer, up to ten times the patience. Every sixteenth of a message that has moved
  starts the time again: a large message on a slow line may take long, one byte per second may not.
- A member that says that it trains is waited for, within `stalled`, and within 5 times the patience or 20 times the
  rounds so far, whichever is longer.
- A member that says that it waits for others, when nobody is behind it, has twice the time of a message.

Whoever misses its deadline is complained of. A complaint stands until the line works in both directions.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from statistics import median_low
from typing import Literal

from firma.peer.membership.failure_detector import FailureDetector
from firma.peer.membership.views import View
from firma.peer.wire.heartbeat import COMPLETING, EXCHANGING, LEAVING, PREPARING
from firma.peer.wire.terms import Tag

SHORTEST = 5.0  # seconds that a line has at least: a lost connection is tried again every two seconds
LONGEST = 10.0  # times that; nobody gets more by being slower and slower
TIMES = 3.0  # a deadline in terms of the longest that is usual
_PARTS = 16  # a message moves if another such part of it has
TRAINING, ROUNDS = 5.0, 20.0  # deadline of training: times `patience`, times the longest usual round
_NOTICED, _UNUSUAL = 5.0, 3.0  # seconds, and times the usual wait, after which the operator is told
_FEW = 1  # so many exchanges do not say what is usual
_SOON = 0.5  # share of a deadline after which a member is named in an agreement that is under way anyway

Kind = Literal["training", "completing", "sent", "undelivered", "refused", "behind", "silent"]
_LINE = ("sent", "undelivered", "refused")  # kinds that are about the line itself


@dataclass
class Pace:
    """How long something usually takes: mean and mean deviation, smoothed as in RFC 6298."""

    mean: float | None = None
    deviation: float = 0.0

    def measured(self, seconds: float) -> None:
        """One more duration."""
        if self.mean is None:
            self.mean, self.deviation = seconds, seconds / 2
        else:
            self.deviation += (abs(seconds - self.mean) - self.deviation) / 4
            self.mean += (seconds - self.mean) / 8

    @property
    def longest(self) -> float:
        """The longest that is usual, 0 before anything is measured."""
        return 0.0 if self.mean is None else self.mean + 4 * self.deviation


@dataclass
class _Transfer:
    began: float
    moved: float  # when it last moved by a sixteenth
    share: float = 0.0
    refused: str = ""  # why the receiver refused it last

    def advance(self, share: float, now: float) -> None:
        if share >= self.share + 1 / _PARTS:
            self.share, self.moved = share, now


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a member is waited for: since when, how long nothing has moved, and what share of its deadline that is."""

    kind: Kind
    text: str
    since: float
    idle: float  # seconds
    used: float  # 1: the deadline is missed


@dataclass
class Complaint:
    """A line that does not work; it stands until it has worked in both directions after the view was replaced."""

    why: str
    view_number: int
    sends: bool = False  # this member's messages have arrived there since
    receives: bool = False


@dataclass
class LineMonitor:
    """One member's lines, and its complaints, by member."""

    detector: FailureDetector
    complaints: dict[int, Complaint] = field(default_factory=dict)
    waits: dict[int, Wait] = field(default_factory=dict)
    _exchange: tuple[Tag, float] | None = None  # that is under way, and since when
    _claims: dict[int, float] = field(default_factory=dict)  # since when a member says that it has sent its message
    _incoming: dict[tuple[int, Tag], _Transfer] = field(default_factory=dict)
    _outgoing: dict[tuple[int, Tag], _Transfer] = field(default_factory=dict)
    _errors: dict[int, str] = field(default_factory=dict)  # of the last call that failed
    _paces: dict[int, Pace] = field(default_factory=dict)  # of transfers, by member
    _exchanges: dict[bool, deque[float]] = field(  # seconds of the last few; True: of rounds' first ones
        default_factory=lambda: {first: deque(maxlen=3) for first in (True, False)}
    )
    _rounds: Pace = field(default_factory=Pace)
    _round_began: float | None = None
    _told: dict[int, tuple[Kind, float]] = field(default_factory=dict)

    # What happens

    def view_began(self, now: float) -> None:
        """The exchanges of an older view are over."""
        self._exchange, self._round_began = None, now
        self._claims.clear()
        self._incoming.clear()
        self._outgoing.clear()

    def exchange_began(self, tag: Tag, to: Iterable[int], now: float) -> None:
        """Messages are sent to these members, and awaited."""
        self._exchange = (tag, now)
        self._claims.clear()
        for member in to:
            self._outgoing[member, tag] = _Transfer(now, now)

    def exchange_ended(self, now: float) -> None:
        """All messages are here."""
        if self._exchange is not None:
            tag, began = self._exchange
            self._exchanges[tag[2] == 0].append(now - began)
        self._exchange = None

    def round_ended(self, now: float) -> None:
        """A round is saved."""
        if self._round_began is not None:
            self._rounds.measured(now - self._round_began)
        self._round_began = now

    def announced(self, sender: int, tag: Tag, now: float) -> None:
        """A message is arriving; a second try does not start its time again."""
        self._incoming.setdefault((sender, tag), _Transfer(now, now))

    def receiving(self, sender: int, tag: Tag, share: float, now: float) -> None:
        """A share of a message has arrived."""
        if (sender, tag) in self._incoming:
            self._incoming[sender, tag].advance(share, now)

    def arrived(self, sender: int, tag: Tag, now: float) -> None:
        """A message is here, whole."""
        transfer = self._incoming.pop((sender, tag), None)
        if transfer is not None:
            self._pace(sender).measured(now - transfer.began)
        self.works(sender, receives=True)

    def sending(self, to: int, tag: Tag, share: float, now: float) -> None:
        """A share of a message has left."""
        if (to, tag) in self._outgoing:
            self._outgoing[to, tag].advance(share, now)

    def refused(self, to: int, tag: Tag, why: str) -> None:
        """A member refuses a message."""
        if (to, tag) in self._outgoing:
            self._outgoing[to, tag].refused = why

    def delivered(self, to: int, tag: Tag, now: float) -> None:
        """A message is acknowledged."""
        transfer = self._outgoing.pop((to, tag), None)
        if transfer is not None:
            self._pace(to).measured(now - transfer.began)
        self._errors.pop(to, None)
        self.works(to, sends=True)

    def unreachable(self, member: int, why: str) -> None:
        """A call to a member failed."""
        self._errors[member] = why

    def works(self, member: int, sends: bool = False, receives: bool = False) -> None:
        """Something as large as a message got through to a member, or from it."""
        complaint = self.complaints.get(member)
        if complaint is not None:
            complaint.sends, complaint.receives = complaint.sends or sends, complaint.receives or receives

    # What follows

    def look(self, view: View, neighbours: Collection[int], missing: Collection[int], now: float) -> None:
        """Judge the lines of a view that is at work; `missing` are members whose message has not arrived."""
        found: dict[int, Wait] = {}
        for member in neighbours:
            reasons = [
                *self._deliveries(member, now),
                *([self._message(member, view, now)] if member in missing else []),
            ]
            worst = max(reasons, key=lambda wait: (wait.used, now - wait.since), default=None)
            if worst is not None:
                found[member] = worst
        self.waits = found
        for member, wait in found.items():
            known = self.complaints.get(member)
            if wait.used >= 1 and self._answers(member, view, now) and (not known or known.view_number != view.number):
                self.complaints[member] = Complaint(self._grievance(member, wait), view.number)
        for member, complaint in list(self.complaints.items()):
            late = member in found and found[member].used >= 1
            if complaint.view_number == view.number and not late:
                del self.complaints[member]
        self.settle(view.number)

    def rest(self, view_number: int) -> None:
        """Nothing is exchanged at present; complaints of older views end when the line has worked both ways."""
        self.waits = {}
        self.settle(view_number)

    def settle(self, view_number: int) -> None:
        """Withdraw complaints of older views whose line works in both directions."""
        for member, each in list(self.complaints.items()):
            if each.view_number < view_number and each.sends and each.receives:
                del self.complaints[member]

    def raised(self, view_number: int) -> dict[int, str]:
        """Complaints of this view, in words."""
        return {member: each.why for member, each in self.complaints.items() if each.view_number == view_number}

    def soon(self) -> set[int]:
        """Members with which a line has not worked for half of the deadline: complaints that are about to be."""
        return {member for member, wait in self.waits.items() if wait.kind in _LINE and wait.used >= _SOON}

    def limit(self, member: int) -> float:
        """Seconds within which a message to or from a member must move."""
        usual = self._paces[member].longest if member in self._paces else 0.0
        if not usual:
            usual = max((pace.longest for pace in self._paces.values()), default=0.0)
        shortest = max(SHORTEST, self.detector.patience.silence)
        return min(max(shortest, TIMES * usual), LONGEST * shortest)

    def hopeless(self, members: Collection[int]) -> bool:
        """Whether all of these have missed their deadlines by as much again."""
        return all(member in self.waits and self.waits[member].used >= 2 for member in members)

    @property
    def training_limit(self) -> float:
        """Seconds after which a member that says it trains must be assumed not to."""
        patience = self.detector.patience
        if self._rounds.mean is None:
            return patience.stalled
        return min(patience.stalled, max(TRAINING * patience.silence, ROUNDS * self._rounds.longest))

    # What the operator is told

    def news(self, now: float) -> tuple[list[str], dict[str, dict[str, str | float]] | None]:
        """What to say, and, if that has changed, who is waited for, for how long and why."""
        names, said = self.detector.names, list[str]()
        for member, wait in self.waits.items():
            told = self._told.get(member)
            if told is None and wait.idle <= self._unusual(member, wait.kind):
                continue
            if told is None or told[0] != wait.kind:
                since = wait.since if told is None else told[1]
                self._told[member] = (wait.kind, since)
                said.append(f"waiting for {names[member]} for {now - since:.0f} s: {wait.text}")
        for member in [member for member in self._told if member not in self.waits]:
            _, since = self._told.pop(member)
            said.append(f"the wait for {names[member]} is over after {now - since:.0f} s")
        if not said:
            return [], None
        return said, {
            names[member]: {"seconds": round(now - since, 1), "why": self.waits[member].text}
            for member, (_, since) in self._told.items()
        }

    def _unusual(self, member: int, kind: Kind) -> float:
        """Seconds after which a wait is worth a word: others may always train longer, but a line has its pace."""
        if kind in _LINE:
            usual = self._paces[member].mean if member in self._paces else None
        else:
            last = self._exchanges[self._exchange is None or self._exchange[0][2] == 0]
            usual = median_low(last) if len(last) > _FEW else None  # one long wait makes none usual
        return max(_NOTICED, _UNUSUAL * (usual or 0.0))

    def _grievance(self, member: int, wait: Wait) -> str:
        """A missed deadline in words; of long training a member may say the same of itself, as `stalled`."""
        name = self.detector.names[member]
        if wait.kind == "training":
            return f"{name} has been training for more than {self.training_limit:.0f} s"
        return f"{name}: {wait.text}"

    def _pace(self, member: int) -> Pace:
        return self._paces.setdefault(member, Pace())

    def _answers(self, member: int, view: View, now: float) -> bool:
        """Whether the process that has the seat is alive: a lost one is the failure detector's affair."""
        seat = next((seat for seat in view.ring if seat.member == member), None)
        beat = self.detector.heartbeats.get(member)
        if seat is None or beat is None or beat.process != seat.process or beat.status == LEAVING:
            return False
        return now - self.detector.last_heard[member] <= self.detector.patience.silence / 2

    def _deliveries(self, member: int, now: float) -> list[Wait]:
        """What has not been delivered to a member."""
        found = []
        for (to, tag), each in self._outgoing.items():
            if to == member:
                idle, limit = now - each.moved, self.limit(member)
                if each.refused:
                    text = f"it refuses this site's message of round {tag[1]} ({each.refused})"
                    found.append(Wait("refused", text, each.began, idle, idle / limit))
                else:
                    error = f" ({self._errors[member]})" if member in self._errors else ""
                    text = f"it does not acknowledge this site's message of round {tag[1]}{error}"
                    found.append(Wait("undelivered", text, each.began, idle, idle / limit))
        return found

    def _message(self, member: int, view: View, now: float) -> Wait:  # noqa: PLR0911, one case per reason
        """Why the message of a member is not here."""
        assert self._exchange is not None  # a message is missing
        (tag, began), detector = self._exchange, self.detector
        beat, limit = detector.heartbeats.get(member), self.limit(member)
        heard = detector.last_heard.get(member, began)
        if beat is None or now - heard > detector.patience.silence / 2:
            return Wait("silent", f"it has not been heard for {now - heard:.0f} s", began, now - began, 0.0)
        placed = now - max(detector.placed(member), began)  # seconds that it has been where it is
        if beat.tag > tag or (beat.tag == tag and beat.doing != PREPARING):
            transfer, claimed = self._incoming.get((member, tag)), self._claims.setdefault(member, now)
            idle = now - (claimed if transfer is None else max(claimed, transfer.moved))
            text = f"it says that it has sent its message of round {tag[1]}, which has not arrived"
            return Wait("sent", text, began, idle, idle / limit)
        if beat.tag[0] != tag[0]:
            text = f"it does not follow view {tag[0]} yet"
            return Wait("behind", text, began, placed, placed / (2 * limit))
        if beat.doing == PREPARING:
            text = f"it is still training for round {beat.tag[1]}"
            return Wait("training", text, began, now - began, placed / self.training_limit)
        if beat.doing == COMPLETING:
            text = f"it is still completing round {beat.tag[1]}"
            return Wait("completing", text, began, now - began, placed / self.training_limit)
        text = f"it waits for others itself, in round {beat.tag[1]}"
        if not self._rearmost(member, view):  # whoever is behind it is judged by its own neighbours
            return Wait("behind", text, began, now - began, 0.0)
        return Wait("behind", text, began, now - began, placed / ((4 if beat.complaints else 2) * limit))

    def _rearmost(self, member: int, view: View) -> bool:
        """Whether all others have sent everything that a member can be waiting for."""
        beats = self.detector.heartbeats
        others = [beats.get(n) for n in view.order if n not in (member, self.detector.me)]
        place = beats[member].tag
        return all(n is not None and (n.tag > place or (n.tag, n.doing) == (place, EXCHANGING)) for n in others)
