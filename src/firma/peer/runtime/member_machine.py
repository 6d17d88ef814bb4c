"""A member of a ring as one pure machine: `on(event, now)` returns the actions that follow from an event.

Every decision of a member is made in the parts that this module puts together, each with a small state of its own, in
`machine/`. There are no threads, sockets, disk or clock in them, and no randomness but what is handed in: equal events
at equal times give equal actions.

    waiting --view with a seat--> entering --> training --> exchanging <--> scoring --> saving --+
       ^                                          ^                                              |
       |                                          +----------- next round ----------------------+
       +-- the view is over, or being replaced: from any state, once the work in hand is done    |
                                      finished <-- lingering <-- settling <-- after the last round

    standing.py    where the member stands: its view, phase, rounds and vote; every part reads it
    voting.py      proposes views, answers proposals, takes over what is decided (permission.py, lost_promises.py)
    entering.py    waiting, entering: a seat in the next view, and being brought to where it starts
    rounds.py      training, exchanging, scoring, saving
    ending.py      settling, lingering: whoever may still need this member; too late, and alone
    lines.py       what is not delivered, who is waited for, complained of and left out
    heartbeats.py  what the member says about itself

A member that is behind is catching up before it enters: it waits for the extractor of the round where the view starts.

While it is entering, training, scoring or saving, the thread that trains has work in hand and will report back; nothing
else is asked of it until then.
"""

from random import Random

from firma.errors import BadInput
from firma.peer.membership.failure_detector import FailureDetector
from firma.peer.membership.views import Memory, Receipt, Voter
from firma.peer.runtime.admission import Inbox
from firma.peer.runtime.events import (
    Action,
    Announced,
    Answer,
    Arrived,
    ControlAnswered,
    ControlArrived,
    Delivered,
    Entered,
    Event,
    Failed,
    HeartbeatAnswered,
    HeartbeatArrived,
    Moved,
    ProbeArrived,
    Probed,
    Progressed,
    Refused,
    Saved,
    Scored,
    SendHeartbeat,
    Stopping,
    Tick,
    Trained,
    Unmoved,
    Unreachable,
)
from firma.peer.runtime.machine.ending import Ending
from firma.peer.runtime.machine.entering import Entering
from firma.peer.runtime.machine.heartbeats import Heartbeats
from firma.peer.runtime.machine.lines import Lines
from firma.peer.runtime.machine.rounds import Rounds
from firma.peer.runtime.machine.standing import Agreement, Phase, Standing, Start
from firma.peer.runtime.machine.voting import Voting
from firma.peer.wire.heartbeat import NO_SEAL, Heartbeat
from firma.peer.wire.message import Header

__all__ = ["Agreement", "Member", "Phase", "Start"]


class Member:
    """One member; `on` is the only door. The caller makes sure that no two calls overlap."""

    def __init__(self, agreement: Agreement, start: Start, random: Random, now: float) -> None:
        voter = Voter(start.me, start.state, start.memory or Memory())
        self._detector = FailureDetector(start.me, agreement.names, agreement.patience, now)
        self._standing = Standing(agreement, start, self._detector, voter, start.state.rounds, now, now)
        self._lines = Lines(self._standing, now)
        self._heartbeats = Heartbeats(self._standing, self._lines, now)
        self._voting = Voting(self._standing, self._lines, random, now)
        self._rounds = Rounds(self._standing, self._lines, self._voting)
        self._ending = Ending(self._standing, self._lines, self._voting, self._heartbeats, now)
        self._entering = Entering(self._standing, self._lines, self._voting, self._rounds, self._ending)

    def on(self, event: Event, now: float) -> list[Action]:
        """What is to be done about an event; `now` is a monotonic clock in seconds."""
        return [*self._handle(event, now), *self._lines.cancelled(), *self._proceed(now)]

    def begin(self, now: float) -> None:
        """It takes part from now on: what the others have time for is counted from here."""
        self._detector.started = self._standing.view_began = self._heartbeats.due = now

    def pause(self, now: float) -> float:
        """Seconds until the next `Tick` is wanted."""
        return min(self._voting.pause, max(self._heartbeats.due - now, 0.01))

    @property
    def agreement(self) -> Agreement:
        """What the members have agreed on."""
        return self._standing.agreement

    @property
    def last_heard(self) -> dict[str, float]:
        """When each member was last heard, by name."""
        return {self._detector.names[member]: when for member, when in self._detector.last_heard.items()}

    def awaited(self, now: float) -> dict[str, float]:
        """For how many seconds it has been waiting for whom, by name."""
        return {self._detector.names[member]: now - since for member, since in self._lines.awaited(now).items()}

    @property
    def voter(self) -> Voter:
        """Its side of the agreement on views."""
        return self._standing.voter

    @property
    def inbox(self) -> Inbox | None:
        """Messages of the view that it has a seat in."""
        return self._standing.inbox

    @property
    def phase(self) -> Phase:
        """What it is doing."""
        return self._standing.phase

    def _handle(self, event: Event, now: float) -> list[Action]:  # noqa: PLR0911, PLR0912, one case per event
        standing, monitor = self._standing, self._lines.monitor
        match event:
            case Tick():
                return self._tick(now)
            case HeartbeatArrived(sender, received):
                if received is not None:
                    self._heard(sender, received, now)
                return [Answer(self._heartbeats.heartbeat(now))]
            case HeartbeatAnswered(sender, received):
                self._heard(sender, received, now)
            case ControlArrived(sender, message) | ControlAnswered(sender, message):
                self._detector.heard(sender, now)
                return self._voting.control(sender, message, now, called=isinstance(event, ControlArrived))
            case Announced(sender, header):
                return self._announced(sender, header, now)
            case Progressed(sender, tag, share):
                self._detector.heard(sender, now)
                if tag is not None:
                    monitor.receiving(sender, tag, share, now)
            case Moved(to, tag, share):
                monitor.sending(to, tag, share, now)
            case ProbeArrived(sender):
                self._detector.heard(sender, now)
                monitor.works(sender, receives=True)
            case Probed(member):
                self._detector.heard(member, now)
                monitor.works(member, sends=True)
            case Arrived(sender, header, message):
                monitor.arrived(sender, header.tag, now)
                if standing.inbox is not None:
                    standing.inbox.store(sender, header, message)
            case Delivered(to, tag):
                self._lines.delivered(to, tag, now)
            case Refused(to, tag, why):
                return self._lines.refused(to, tag, why)
            case Unreachable(member, why):
                self._detector.trouble[member] = why
                monitor.unreachable(member, why)
            case Unmoved(to, since):
                return [Answer(self._detector.silent(to, now, since))]
            case Entered() if standing.phase == "entering":
                return self._entering.entered(now)
            case Trained() if standing.phase == "training":
                return self._rounds.trained(event, now)
            case Scored(tag, scores) if standing.phase == "scoring":
                return self._rounds.scored(tag, dict(scores), now)
            case Saved(rounds) if standing.phase == "saving":
                return self._rounds.saved(rounds, now)
            case Failed(why):
                return standing.fail(BadInput(why))
            case Stopping():
                standing.stopping = True
                standing.phase = "finished" if standing.phase == "finished" else "failed"
                return [SendHeartbeat(self._heartbeats.heartbeat(now), last=True)]
        return []

    def _tick(self, now: float) -> list[Action]:
        before = set(self._lines.monitor.complaints)
        actions = self._lines.watch(self._rounds.missing(), now)
        if set(self._lines.monitor.complaints) != before:
            self._heartbeats.due = now  # the others should know
        self._ending.look(now)
        actions += self._voting.look(now)
        if now >= self._heartbeats.due:
            actions.append(self._heartbeats.beat(now))
        return actions

    def _heard(self, sender: int, received: Heartbeat, now: float) -> None:
        """A heartbeat: a sign of life, and what its sender signs that it has saved."""
        self._detector.heartbeat(sender, received, now)
        if received.seal != NO_SEAL:
            self._voting.signed(Receipt(sender, *received.saved, received.seal))

    def _announced(self, sender: int, header: Header, now: float) -> list[Action]:
        self._detector.heard(sender, now)
        if self.inbox is None:
            return [Answer("stale" if header.tag[0] <= self.voter.view_number else "early")]
        verdict = self.inbox.admit(sender, header)
        if verdict == "take" and not self._voting.has_saved(sender, header):
            verdict = "misfit"
        if verdict == "take":
            self._lines.monitor.announced(sender, header.tag, now)
        return [Answer(verdict)]

    def _proceed(self, now: float) -> list[Action]:
        """Leave a phase that waits for something, if that has come."""
        actions: list[Action] = []
        before: Phase | None = None
        while before != self._standing.phase:
            before = self._standing.phase
            match before:
                case "waiting":
                    actions += self._entering.await_seat(now)
                case "catching up":
                    actions += self._entering.await_extractors(now)
                case "exchanging":
                    actions += self._rounds.await_messages(now)
                case "settling":
                    actions += self._ending.settle(now)
                case "lingering":
                    actions += self._ending.await_others(now)
        return actions
