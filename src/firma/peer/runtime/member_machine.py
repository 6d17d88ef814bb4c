"""A member of a ring as one pure machine: `on(event, now)` returns the actions that follow from an event.

Every decision of a member is made here or in the pure parts that this module puts together: whom to await and whom to
give up (`failure_detector`), when to propose a view (`proposer`), what the agreement says (`paxos`), what to admit
(`admission`), what to send next (`firma.mixing`), what to save, and when it is finished. There are no threads, sockets,
disk or clock in it, and no randomness but what is handed in: equal events at equal times give equal actions.

    waiting --view with a seat--> entering --> training --> exchanging <--> scoring --> saving --+
       ^                                          ^                                              |
       |                                          +----------- next round ----------------------+
       +-- the view is over, or being replaced: from any state, once the work in hand is done    |
                                      finished <-- lingering <-- settling <-- after the last round

While it is entering, training, scoring or saving, the thread that trains has work in hand and will report back; nothing
else is asked of it until then.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from firma.encoding import Wire
from firma.errors import BadInput
from firma.mixing.combine import enough
from firma.mixing.kind import exchange, kind_of
from firma.peer.membership import paxos
from firma.peer.membership.failure_detector import FailureDetector, Patience
from firma.peer.membership.proposer import Abandon, Inform, Move, Propose, Proposer, Repeat, Say, Settle
from firma.peer.membership.views import ControlMessage, MemberState, Memory, PaxosState, Rules, Step, View
from firma.peer.runtime.admission import Inbox, exchange_sequence
from firma.peer.runtime.events import (
    Action,
    Announced,
    Answer,
    AnswerControl,
    Arrived,
    Blend,
    CancelSends,
    ControlAnswered,
    ControlArrived,
    Delivered,
    Enter,
    Entered,
    Event,
    Fail,
    Failed,
    Finish,
    HeartbeatAnswered,
    HeartbeatArrived,
    LogEvent,
    Notice,
    PeerLost,
    Progressed,
    Refused,
    Remember,
    Save,
    Saved,
    Score,
    Scored,
    Send,
    SendControl,
    SendHeartbeat,
    Stopping,
    Tick,
    Train,
    Trained,
    Unmoved,
    Unreachable,
)
from firma.peer.wire.heartbeat import ASKING, FINISHED, LEAVING, RUNNING, STALLED, WAITING, Heartbeat, heartbeat
from firma.peer.wire.message import Header
from firma.peer.wire.terms import Tag, Terms
from firma.protocol import Exchange, Exchanges, Message, Mismatch, Participant
from firma.schedule import RoundPlan

Phase = Literal[
    "waiting", "entering", "training", "exchanging", "scoring", "saving", "settling", "lingering", "finished", "failed"
]
_ANSWER = 5.0  # seconds that the others have to answer a member that is started again with all rounds
_FRESH = (
    "state folder is empty, but the ring is already running: a site without its promises must not come back; "
    "pass the right --state, or start over with a new ring file"
)


@dataclass(frozen=True)
class Agreement:
    """What the members have agreed on, as far as their decisions depend on it."""

    names: tuple[str, ...]
    rounds: int
    rules: Rules
    patience: Patience
    plan: Callable[[int, int], RoundPlan]  # for so many members, of round `number` from 0
    terms: Terms


@dataclass(frozen=True)
class Start:
    """What a member starts with: its number, its process, what is on its disk, and how it takes part."""

    me: int
    state: MemberState  # its `rounds` are those of the checkpoint that it was started from
    memory: Memory | None  # None: it has no promises, so it was never in this ring, or its disk was lost
    samples: int
    wire: Wire = "float32"  # how its extractor is encoded
    verify: bool = False  # score neighbours' extractors instead of believing their accuracies


class Member:
    """One member; `on` is the only door. The caller makes sure that no two calls overlap."""

    def __init__(self, agreement: Agreement, start: Start, random: Random, now: float) -> None:
        self._agreement, self._start, self._me = agreement, start, start.me
        self._paxos = PaxosState(start.me, start.state, start.memory or Memory())
        self._detector = FailureDetector(start.me, agreement.names, agreement.patience, now)
        self._proposer = Proposer(self._detector, agreement.rules, self._paxos, random, now)
        self._phase: Phase = "waiting"
        self._busy: float | None = None  # since when it works without waiting for others
        self._done = start.state.rounds  # rounds that this site has behind it
        self._view: View | None = None  # that it works in, or worked in last
        self._view_began = now
        self._had_seat = self._stopping = False
        self._next_heartbeat = now
        # Within a view:
        self._inbox: Inbox | None = None
        self._trained: Trained | None = None  # of the round whose mixing is not done
        self._exchanges: Exchanges | None = None
        self._due: Exchange | None = None  # the exchange that is under way
        self._arrived: dict[int, Message] = {}
        self._scores: dict[int, float] = {}
        self._weights: dict[int, float] = {}
        self._undelivered: set[tuple[int, Tag]] = set()
        self._mismatches: list[Mismatch] = []  # that the round's exchanges have found and nobody was told of

    def on(self, event: Event, now: float) -> list[Action]:
        """What is to be done about an event; `now` is a monotonic clock in seconds."""
        actions = self._handle(event, now)
        if self._undelivered and self._view is not None and not self._current():
            self._undelivered.clear()
            actions.append(CancelSends(self._view.number))
        return actions + self._proceed(now)

    def pause(self, now: float) -> float:
        """Seconds until the next `Tick` is wanted."""
        return min(self._proposer.pause(self._paxos.seated), max(self._next_heartbeat - now, 0.01))

    @property
    def last_heard(self) -> dict[str, float]:
        """When each member was last heard, by name."""
        return {self._agreement.names[member]: when for member, when in self._detector.last_heard.items()}

    @property
    def paxos(self) -> PaxosState:
        """Its side of the agreement on views."""
        return self._paxos

    @property
    def inbox(self) -> Inbox | None:
        """Messages of the view that it has a seat in."""
        return self._inbox

    @property
    def phase(self) -> Phase:
        """What it is doing."""
        return self._phase

    # Events

    def _handle(self, event: Event, now: float) -> list[Action]:  # noqa: PLR0911, PLR0912, one case per event
        match event:
            case Tick():
                return self._tick(now)
            case HeartbeatArrived(sender, received):
                if received is not None:
                    self._detector.heartbeat(sender, received, now)
                return [Answer(self._heartbeat(self._status(now)))]
            case HeartbeatAnswered(sender, received):
                self._detector.heartbeat(sender, received, now)
            case ControlArrived(sender, message):
                return self._control(sender, message, now, called=True)
            case ControlAnswered(sender, message):
                return self._control(sender, message, now, called=False)
            case Announced(sender, header):
                return self._announced(sender, header, now)
            case Progressed(sender):
                self._detector.heard(sender, now)
            case Arrived(sender, header, message):
                if self._inbox is not None:
                    self._inbox.store(sender, header, message)
            case Delivered(to, tag):
                self._undelivered.discard((to, tag))
            case Refused(to, tag, why):
                if (to, tag) in self._undelivered:
                    return self._fail(PeerLost(f"{self._agreement.names[to]} refuses a message ({why})"))
            case Unreachable(member, why):
                self._detector.trouble[member] = why
            case Unmoved(to, since):
                return [Answer(self._detector.silent(to, now, since))]
            case Entered() if self._phase == "entering":
                return self._entered(now)
            case Trained() if self._phase == "training":
                self._trained = event
                return self._continue_round(now)
            case Scored(tag, scores) if self._phase == "scoring":
                return self._scored(tag, dict(scores), now)
            case Saved(rounds) if self._phase == "saving":
                return self._saved(rounds, now)
            case Failed(why):
                return self._fail(BadInput(why))
            case Stopping():
                self._stopping = True
                self._phase = "finished" if self._phase == "finished" else "failed"
                return [SendHeartbeat(self._heartbeat(self._status(now)), last=True)]
        return []

    def _tick(self, now: float) -> list[Action]:
        actions: list[Action] = []
        if self._phase != "failed":
            neighbours = self._inbox.sequence.neighbours if self._inbox is not None else ()
            for move in self._proposer.look(self._paxos, neighbours, self._view_began, self._has_finished, now):
                actions += self._carry_out(move, now)
        if now >= self._next_heartbeat:
            actions.append(self._beat(now))
        return actions

    def _announced(self, sender: int, header: Header, now: float) -> list[Action]:
        self._detector.heard(sender, now)
        if self._inbox is not None:
            return [Answer(self._inbox.admit(sender, header))]
        return [Answer("stale" if header.tag[0] <= self._paxos.view_number else "early")]

    # The agreement on views

    def _control(self, sender: int, message: ControlMessage, now: float, called: bool) -> list[Action]:
        """Take a control message; the sender, if it called, is answered, and everybody else is sent messages."""
        self._detector.heard(sender, now)
        if self._phase == "failed":
            return []
        if self._start.memory is None and message.view is not None and self._paxos.memory == Memory():
            return self._fail(BadInput(_FRESH))
        self._refresh(now)
        actions, out = self._become(paxos.receive(self._agreement.rules, self._paxos, sender, message), now)
        for to, each in out:
            actions.append((AnswerControl if called and to == sender else SendControl)(to, each))
        return actions

    def _carry_out(self, move: Move, now: float) -> list[Action]:
        """Do what the proposer wants."""
        rules = self._agreement.rules
        match move:
            case Propose(why):
                self._refresh(now)
                number = self._paxos.view_number + 1
                actions, out = self._become(paxos.propose(rules, self._paxos), now)
                actions.append(LogEvent("asking", {"for_view": number, "why": why}))
            case Settle():
                actions, out = self._become(paxos.settle(rules, self._paxos), now)
            case Repeat(to):
                actions, out = [], paxos.repeat(self._paxos, to)
            case Inform(to):
                actions, out = [], tuple((member, ControlMessage(self._paxos.memory.view)) for member in to)
            case Abandon():
                self._paxos = paxos.abandon(self._paxos)
                return []
            case Say(text):
                return [Notice(text)]
        return actions + [SendControl(member, message) for member, message in out]

    def _become(self, step: Step, now: float) -> tuple[list[Action], tuple[tuple[int, ControlMessage], ...]]:
        """Take over what Paxos says; what must not be forgotten comes before anything that is sent."""
        (after, out), before = step, self._paxos
        self._paxos = after
        actions: list[Action] = [Remember(after.memory)] if after.memory != before.memory else []
        if after.view_number != before.view_number and after.memory.view is not None:
            actions += self._view_decided(after.memory.view, now)
        return actions, out

    def _view_decided(self, view: View, now: float) -> list[Action]:
        """Take the messages of a view from now on, or none if this process has no seat in it."""
        self._view_began = now
        if not self._paxos.seated:
            self._inbox = None
            text = f"view {view.number} was decided without this site; it asks to be let in again"
            return [Notice(text)] if self._had_seat else []
        self._had_seat = True
        agreement, order = self._agreement, view.order
        elements = agreement.terms.signature.size
        sequence = exchange_sequence(
            view.number, self._me, order, agreement.rounds, elements, lambda number: agreement.plan(len(order), number)
        )
        self._inbox = Inbox(sequence, (view.number, view.start + 1, 0))
        return []

    def _refresh(self, now: float) -> None:
        """What this member says about itself must be true now."""
        self._paxos = replace(self._paxos, own=replace(self._paxos.own, ready=not self._stalled(now)))

    # Heartbeats

    def _heartbeat(self, status: int) -> Heartbeat:
        tag = self._inbox.now if self._inbox is not None else (self._paxos.view_number, self._turn, 0)
        return heartbeat(self._agreement.terms, self._paxos.own.process, tag, status)

    @property
    def _turn(self) -> int:
        """Where a member without a seat is: nowhere, or after the last round if it has all."""
        return self._agreement.rounds + 1 if self._done == self._agreement.rounds else 0

    def _beat(self, now: float) -> Action:
        pause = min(self._agreement.patience.silence / 5, 5.0)
        self._next_heartbeat = now + (pause if self._paxos.seated else min(pause, 0.3))
        return SendHeartbeat(self._heartbeat(self._status(now)))

    def _status(self, now: float) -> int:
        if self._stopping or self._has_finished:
            return FINISHED if self._has_finished else LEAVING
        if self._paxos.seated:
            return STALLED if self._stalled(now) else RUNNING
        view, alive = self._paxos.memory.view, self._detector.alive(now)
        reaches_all = view is None or all(member in alive for member in view.order)
        return ASKING if reaches_all and not self._stalled(now) else WAITING

    @property
    def _has_finished(self) -> bool:
        """Whether it has completed all rounds; it may still be needed, if the last one has to be repeated."""
        return self._phase in ("lingering", "finished")

    def _stalled(self, now: float) -> bool:
        """Whether it has trained, or saved, for so long that it must be assumed to hang."""
        return self._busy is not None and now - self._busy > self._agreement.patience.stalled

    # Rounds

    def _current(self) -> bool:
        """Whether work in the view that it follows may continue: the view is the newest, and not being replaced."""
        number = self._view.number if self._view is not None else 0
        return self._inbox is not None and self._paxos.view_number == number and not self._paxos.frozen

    def _proceed(self, now: float) -> list[Action]:
        """Leave a phase that waits for something, if that has come."""
        actions: list[Action] = []
        before: Phase | None = None
        while before != self._phase:
            before = self._phase
            match before:
                case "waiting":
                    actions += self._await_seat(now)
                case "exchanging":
                    actions += self._await_messages(now)
                case "settling":
                    if not self._current():
                        self._wait()
                    elif not self._undelivered:
                        actions += self._linger(now)
                case "lingering":
                    actions += self._await_others(now)
        return actions

    def _wait(self) -> None:
        """The view is over or being replaced: drop the exchange that was under way; training that is done is kept."""
        self._phase, self._busy = "waiting", None
        self._exchanges, self._due, self._arrived = None, None, {}

    def _await_seat(self, now: float) -> list[Action]:
        """Enter the next view that has a seat for this process; finish or give up if there will be none."""
        view, followed = self._paxos.memory.view, self._view.number if self._view is not None else 0
        if self._paxos.seated and view is not None:
            if view.number <= followed:
                return []
            if self._done != view.start:
                self._trained = None
            self._view, self._phase, self._busy = view, "entering", now
            return [Enter(view)]
        if self._ring_has_finished(now):
            if self._done == self._agreement.rounds:
                return self._finish()
            return self._fail(PeerLost("the ring has finished without this site"))
        if self._done == self._agreement.rounds and not self._may_be_needed(now):
            return self._finish()
        return self._give_up(now)

    def _may_be_needed(self, now: float) -> bool:
        """Whether this site, which has all rounds, should wait: a member that lacks some is there, or may be.

        Each of the others has answered, or could not be reached, or has had `_ANSWER` seconds to answer. A member that
        has all rounds says so by its place in the ring, one round after the last.
        """
        detector, rounds = self._detector, self._agreement.rounds
        others = [n for n in detector.alive(now) if n != self._me]
        if any(detector.heartbeats[n].tag[1] <= rounds for n in others):
            return True
        asked = all(
            n in detector.heartbeats or n in detector.trouble for n in range(len(detector.names)) if n != self._me
        )
        return not asked and now - detector.started <= _ANSWER

    def _ring_has_finished(self, now: float) -> bool:
        """Whether the members at work have all completed all rounds."""
        working, view = self._detector.at_work(self._paxos.view_number, now), self._paxos.memory.view
        return bool(working) and view is not None and set(working) <= set(self._detector.finished(view))

    def _give_up(self, now: float) -> list[Action]:
        """End if the others never came."""
        detector, patience = self._detector, self._agreement.patience
        alive = detector.alive(now)
        enough = self._agreement.rules.quorum if self._paxos.view_number else len(detector.names)
        if self._had_seat or len(alive) >= enough or now - detector.started <= patience.gathering:
            return []
        if self._done == self._agreement.rounds:  # it waited for those that lack some; its own model is complete
            return self._finish()
        missing = [n for n in range(len(detector.names)) if n not in alive]
        why = "; ".join(f"{detector.names[n]}: {detector.trouble.get(n, 'no answer')}" for n in missing)
        names = ", ".join(detector.names[n] for n in missing)
        return self._fail(PeerLost(f"{names} did not appear within {patience.gathering:g} s ({why})"))

    def _entered(self, now: float) -> list[Action]:
        view = self._view
        assert view is not None  # it was told to enter one
        self._done = view.start
        names = [self._agreement.names[member] for member in view.order]
        facts = {"number": view.number, "ring": names, "from_round": view.start + 1}
        actions: list[Action] = [LogEvent("view", facts)]
        if view.number > 1:
            actions.append(Notice(f"view {view.number}: {'-'.join(names)}, from round {view.start + 1}"))
        if self._done < self._agreement.rounds and not enough(self._plan(), len(view.ring)):
            actions.append(
                Notice(f"{len(view.ring)} members are too few for a robust combine; this site mixes nothing")
            )
        return actions + self._next_round(now)

    def _next_round(self, now: float) -> list[Action]:
        """Train for the next round, unless the view is over, or all rounds are done."""
        actions: list[Action] = []
        if self._current() and self._done < self._agreement.rounds:
            for move in self._proposer.between_rounds(self._paxos, now):
                actions += self._carry_out(move, now)
        if not self._current():
            self._wait()
        elif self._done == self._agreement.rounds:
            self._phase = "settling"
        elif self._trained is not None and self._trained.number == self._done:
            actions += self._continue_round(now)
        else:
            self._phase, self._busy = "training", now
            actions.append(Train(self._plan()))
        return actions

    def _plan(self) -> RoundPlan:
        assert self._view is not None  # rounds are those of a view
        return self._agreement.plan(len(self._view.ring), self._done)

    def _continue_round(self, now: float) -> list[Action]:
        """Training is done: begin the round's exchanges."""
        if not self._current():
            self._wait()
            return []
        view, trained, start, plan = self._view, self._trained, self._start, self._plan()
        assert view is not None  # it is current
        assert trained is not None
        score = (lambda sender, _: self._scores[sender]) if self._verifies(plan) else None
        samples = start.samples if trained.samples is None else trained.samples
        part = Participant(
            self._me, view.order, trained.shared, trained.accuracy, samples, start.wire, score, self._mismatches.append
        )  # fmt: skip
        self._exchanges, self._arrived, self._weights = exchange(plan, part), {}, {}
        return self._advance(now)

    def _verifies(self, plan: RoundPlan) -> bool:
        return self._start.verify and plan.gate is not None

    def _advance(self, now: float) -> list[Action]:
        """The round's next exchange with what the last one brought; after the last one, blend and save."""
        view, trained, exchanges = self._view, self._trained, self._exchanges
        assert view is not None  # there is a round
        assert trained is not None
        assert exchanges is not None
        assert self._inbox is not None
        try:
            due = next(exchanges) if self._due is None else exchanges.send(self._arrived)
        except StopIteration as stop:
            plan = self._plan()
            save = Save(trained.number, view, trained.accuracy, plan, self._weights)
            self._phase, self._busy = "saving", now
            self._trained, self._exchanges, self._due, self._arrived = None, None, None, {}
            return [*self._reported(plan), Blend(stop.value, plan), save]
        self._due, self._phase, self._busy = due, "exchanging", None
        self._inbox.now = tag = self._tag(due)
        self._undelivered |= {(member, tag) for member in due.to}
        return [Send(member, tag, due.message) for member in due.to]

    def _reported(self, plan: RoundPlan) -> list[Action]:
        """A line of the log, and where something was left out a notice, for each extractor that members disagree on."""
        names, actions = self._agreement.names, list[Action]()
        for found in self._mismatches:
            origin, between = names[found.origin], [names[found.sender], names[found.receiver]]
            facts = {"round": plan.number + 1, "extractor_of": origin, "between": between, "used": found.used}
            actions.append(LogEvent("mismatch", facts))
            if not found.used:
                text = (
                    f"round {plan.number + 1}: the extractor of {origin} was changed between {' and '.join(between)}, "
                    "one of which lies; it was left out"
                )
                actions.append(Notice(text))
        self._mismatches.clear()
        return actions

    def _tag(self, due: Exchange) -> Tag:
        assert self._view is not None  # exchanges are those of a view
        number, step = due.tag
        return self._view.number, number + 1, step

    def _await_messages(self, now: float) -> list[Action]:
        """Continue when one message from each awaited member is here."""
        if not self._current():
            self._wait()
            return []
        assert self._due is not None  # an exchange is under way
        assert self._inbox is not None
        tag = self._tag(self._due)
        arrived = self._inbox.take(self._due.wait, tag)
        if arrived is None:
            return []
        self._arrived, self._phase, self._busy = arrived, "scoring", now
        chosen = arrived if self._verifies(self._plan()) else {}
        return [Score(tag, {sender: message.state.values for sender, message in chosen.items()})]

    def _scored(self, tag: Tag, scores: dict[int, float], now: float) -> list[Action]:
        if not self._current() or self._due is None or self._tag(self._due) != tag:
            self._wait()
            return []
        plan, self._scores = self._plan(), scores
        actions: list[Action] = []
        for sender, score in scores.items():
            if plan.gate is not None and score < plan.gate.threshold:
                facts = {"member": self._agreement.names[sender], "round": plan.number + 1, "score": score}
                actions.append(LogEvent("gated", facts))
        if tag[2] == 0:
            assert self._view is not None  # it is current
            known = (lambda sender, _: scores[sender]) if self._verifies(plan) else None
            order = self._view.order
            self._weights = kind_of(plan.mixing).pass_weights(plan, order, self._me, self._arrived, known)
        return actions + self._advance(now)

    def _saved(self, rounds: int, now: float) -> list[Action]:
        self._done = rounds
        if self._view is not None:
            self._paxos = paxos.completed(self._paxos, self._view.number, rounds)
        return self._next_round(now)

    # The end

    def _linger(self, now: float) -> list[Action]:
        """Stay until all of the view have finished or are gone: a last round may have to be repeated with this site."""
        assert self._view is not None  # it has done all rounds in one
        assert self._inbox is not None
        self._phase, self._busy = "lingering", None
        self._inbox.now = (self._view.number, self._agreement.rounds + 1, 0)
        return [self._beat(now)]

    def _await_others(self, now: float) -> list[Action]:
        view = self._view
        assert view is not None  # it lingers in one
        if self._paxos.view_number != view.number:
            if self._paxos.seated:
                self._wait()
                return []
            return self._finish()
        needed = set(self._detector.alive(now)) - {self._me, *self._detector.finished(view)}
        return [] if needed & set(view.order) else self._finish()

    def _finish(self) -> list[Action]:
        self._phase = "finished"
        return [Finish()]

    def _fail(self, error: Exception) -> list[Action]:
        """The first error ends the run; from then on this member only sends and answers heartbeats."""
        if self._phase == "failed":
            return []
        self._phase, self._busy = "failed", None
        return [Fail(error)]
