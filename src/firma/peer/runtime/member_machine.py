"""A member of a ring as one pure machine: `on(event, now)` returns the actions that follow from an event.

Every decision of a member is made here or in the pure parts that this module puts together: whom to await and whom to
give up (`failure_detector`), when to propose a view (`proposer`), what the agreement says (`agreement`), what to admit
(`admission`), what to send next (`firma.mixing`), what to save, and when it is finished. There are no threads, sockets,
disk or clock in it, and no randomness but what is handed in: equal events at equal times give equal actions.

    waiting --view with a seat--> entering --> training --> exchanging <--> scoring --> saving --+
       ^                                          ^                                              |
       |                                          +----------- next round ----------------------+
       +-- the view is over, or being replaced: from any state, once the work in hand is done    |
                                      finished <-- lingering <-- settling <-- after the last round

A member that is behind is catching up before it enters: it waits for the extractor of the round where the view starts.

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
from firma.peer.membership import agreement as voting
from firma.peer.membership.exclusion import Exclusions, Line, lines_of
from firma.peer.membership.failure_detector import FailureDetector, Patience
from firma.peer.membership.line_monitor import LineMonitor
from firma.peer.membership.proposer import Abandon, Ask, Inform, Move, Proposer, Repeat, Say, Settle
from firma.peer.membership.restraint import TURN, Restraint
from firma.peer.membership.views import (
    NO_BALLOT,
    Ballot,
    ControlMessage,
    MemberState,
    Memory,
    Prepare,
    Promise,
    Propose,
    Receipt,
    Rules,
    Step,
    View,
    Voter,
)
from firma.peer.runtime import catching_up
from firma.peer.runtime.admission import Inbox, exchange_sequence
from firma.peer.runtime.bounds import Excess, excess, largest, norm
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
    Moved,
    Notice,
    PeerLost,
    Probe,
    ProbeArrived,
    Probed,
    Progressed,
    Refused,
    Remember,
    Save,
    Saved,
    Score,
    Scored,
    Send,
    SendControl,
    SendExtractor,
    SendHeartbeat,
    Stopping,
    Tick,
    Train,
    Trained,
    Unmoved,
    Unreachable,
)
from firma.peer.wire.heartbeat import (
    ASKING,
    COMPLETING,
    EXCHANGING,
    FINISHED,
    LEAVING,
    NO_SEAL,
    PREPARING,
    RUNNING,
    STALLED,
    WAITING,
    Heartbeat,
    heartbeat,
)
from firma.peer.wire.message import Header
from firma.peer.wire.terms import Tag, Terms
from firma.protocol import Exchange, Exchanges, Message, Mismatch, Participant
from firma.schedule import RoundPlan

Phase = Literal[
    "waiting",
    "catching up",
    "entering",
    "training",
    "exchanging",
    "scoring",
    "saving",
    "settling",
    "lingering",
    "finished",
    "failed",
]
_ANSWER = 5.0  # seconds that the others have to answer a member that is started again with all rounds
_LATE = 2.0  # times the patience: how long a site that has all rounds stays for one that asks, and that one hopes
_TOO_LATE = (
    "the ring has finished without this site, and nobody stayed to send it the last extractor; a member that has it "
    "can start a new ring with --begin-with"
)
_FRESH = (
    "state folder is empty, but the ring is already running, and it cannot agree on anything without this site's vote: "
    "a site without its promises must not vote; pass the right --state, or start over with a new ring file"
)
_LOST = (
    "state folder is empty, but the ring is already running: if this is not the right --state, stop and pass it; else "
    "this site's promises are lost, so it does not vote until two views were decided without it, and then goes on "
    "with the others' extractor and a new head"
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
        self._paxos = Voter(start.me, start.state, start.memory or Memory())
        self._detector = FailureDetector(start.me, agreement.names, agreement.patience, now)
        self._restraint = Restraint(agreement.patience.silence, agreement.rules.insiders)
        self._proposer = Proposer(self._detector, agreement.rules, self._paxos, random, now, self._restraint.welcome)
        self._lines = LineMonitor(self._detector)
        self._exclusions = Exclusions(start.me, agreement.patience.silence)
        self._refusals: set[int] = set()  # members whose refusals the operator was told of, in this view
        self._next_probe = now
        self._phase: Phase = "waiting"
        self._busy: float | None = None  # since when it works without waiting for others
        self._done = start.state.rounds  # rounds that this site has behind it
        self._view: View | None = None  # that it works in, or worked in last
        self._view_began = now
        self._had_seat = self._stopping = False
        self._next_heartbeat = self._next_offer = now
        self._all_done: float | None = None  # since when it has all rounds, and none had to be repeated
        self._over: float | None = None  # since when all others have finished, while this member lacks rounds
        self._without_past = self._paxos.muted  # its promises are lost, and it may not have heard the newest view
        self._moved = now  # when an exchange, a round or its training was last done
        self._promised_at, self._stood_still = now, True  # when it last promised, and whether it had nothing to lose
        self._contested: Ballot | None = None  # the last contested ballot that it has answered
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
        self._mixed: float | None = None  # norm of the extractor after the last round's mixing
        self._absurd: list[tuple[int, Excess]] = []  # what was not used in this exchange, by sender
        self._denounced: set[int] = set()  # members that the operator was told of in this view

    def on(self, event: Event, now: float) -> list[Action]:
        """What is to be done about an event; `now` is a monotonic clock in seconds."""
        actions = self._handle(event, now)
        if self._undelivered and self._view is not None and not self._current():
            self._undelivered.clear()
            actions.append(CancelSends(self._view.number))
        return actions + self._proceed(now)

    def begin(self, now: float) -> None:
        """It takes part from now on: what the others have time for is counted from here."""
        self._detector.started = self._view_began = self._next_heartbeat = now

    def pause(self, now: float) -> float:
        """Seconds until the next `Tick` is wanted."""
        return min(self._proposer.pause(self._paxos.seated), max(self._next_heartbeat - now, 0.01))

    @property
    def last_heard(self) -> dict[str, float]:
        """When each member was last heard, by name."""
        return {self._agreement.names[member]: when for member, when in self._detector.last_heard.items()}

    @property
    def paxos(self) -> Voter:
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
                    self._heard(sender, received, now)
                return [Answer(self._heartbeat(self._status(now)))]
            case HeartbeatAnswered(sender, received):
                self._heard(sender, received, now)
            case ControlArrived(sender, message):
                return self._control(sender, message, now, called=True)
            case ControlAnswered(sender, message):
                return self._control(sender, message, now, called=False)
            case Announced(sender, header):
                return self._announced(sender, header, now)
            case Progressed(sender, tag, share):
                self._detector.heard(sender, now)
                if tag is not None:
                    self._lines.receiving(sender, tag, share, now)
            case Moved(to, tag, share):
                self._lines.sending(to, tag, share, now)
            case ProbeArrived(sender):
                self._detector.heard(sender, now)
                self._lines.works(sender, receives=True)
            case Probed(member):
                self._detector.heard(member, now)
                self._lines.works(member, sends=True)
            case Arrived(sender, header, message):
                self._lines.arrived(sender, header.tag, now)
                if self._inbox is not None:
                    self._inbox.store(sender, header, message)
            case Delivered(to, tag):
                self._undelivered.discard((to, tag))
                self._lines.delivered(to, tag, now)
            case Refused(to, tag, why):
                return self._refused(to, tag, why)
            case Unreachable(member, why):
                self._detector.trouble[member] = why
                self._lines.unreachable(member, why)
            case Unmoved(to, since):
                return [Answer(self._detector.silent(to, now, since))]
            case Entered() if self._phase == "entering":
                return self._entered(now)
            case Trained() if self._phase == "training":
                self._trained, self._moved = event, now
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
        actions = self._watch_lines(now)
        if self._without_past and self._knows_the_newest_view(now):
            self._without_past = False
        if self._phase != "failed":
            neighbours = self._inbox.sequence.neighbours if self._inbox is not None else ()
            for move in self._proposer.look(self._paxos, neighbours, self._view_began, self._has_finished, now):
                actions += self._carry_out(move, now)
        if now >= self._next_heartbeat:
            actions.append(self._beat(now))
        return actions

    def _announced(self, sender: int, header: Header, now: float) -> list[Action]:
        self._detector.heard(sender, now)
        if self._inbox is None:
            return [Answer("stale" if header.tag[0] <= self._paxos.view_number else "early")]
        verdict = self._inbox.admit(sender, header)
        if verdict == "take" and not self._has_saved(sender, header):
            verdict = "misfit"
        if verdict == "take":
            self._lines.announced(sender, header.tag, now)
        return [Answer(verdict)]

    def _has_saved(self, sender: int, header: Header) -> bool:
        """Whether the sender has signed that it has the round before; where nobody is taken to lie, it need not."""
        view_number, turn, _ = header.tag
        receipt = Receipt(sender, view_number, turn - 1, header.receipt)
        if not voting.valid(self._agreement.rules, receipt):
            return not self._agreement.rules.insiders
        self._paxos = voting.hear(self._agreement.rules, self._paxos, receipt)
        return True

    def _heard(self, sender: int, received: Heartbeat, now: float) -> None:
        """A heartbeat: a sign of life, and what its sender signs that it has saved."""
        self._detector.heartbeat(sender, received, now)
        if received.seal != NO_SEAL:
            receipt = Receipt(sender, *received.saved, received.seal)
            self._paxos = voting.hear(self._agreement.rules, self._paxos, receipt)

    def _knows_the_newest_view(self, now: float) -> bool:
        """Whether it knows as new a view as so many others that one of them knew the last that it can have voted about.

        The last view that it can have known was committed by a quorum, which knew the one before; of any n - q + f + 1
        others at least one honest one was among them.
        """
        rules, known = self._agreement.rules, self._paxos.view_number
        others = [n for n in self._detector.alive(now) if n != self._me and self._detector.knows(n) <= known]
        return known > 0 and len(others) > rules.members - rules.quorum + rules.insiders

    # Lines to other members

    def _refused(self, to: int, tag: Tag, why: str) -> list[Action]:
        """A refusal is a matter between two: it is told once per view, and only if it lasts a view is proposed."""
        if (to, tag) not in self._undelivered:
            return []
        self._lines.refused(to, tag, why)
        if to in self._refusals:
            return []
        self._refusals.add(to)
        name = self._agreement.names[to]
        facts = {"member": name, "round": tag[1], "why": why}
        text = f"{name} refuses this site's message of round {tag[1]} ({why}); it is sent again"
        return [LogEvent("refused_by", facts), Notice(text)]

    def _watch_lines(self, now: float) -> list[Action]:
        """Who is waited for, and who must be complained of; tell the operator, and the others by a heartbeat."""
        lines, number = self._lines, self._paxos.view_number
        before = set(lines.complaints)
        if self._current() and self._view is not None and self._phase != "failed":
            assert self._inbox is not None  # it is current
            missing: tuple[int, ...] = ()
            if self._phase == "exchanging" and self._due is not None:
                missing = self._inbox.missing(self._due.wait, self._tag(self._due))
            lines.look(self._view, self._inbox.sequence.neighbours, missing, now)
        else:
            lines.rest(number)
        if set(lines.complaints) != before:
            self._next_heartbeat = now  # the others should know
        said, awaited = lines.news(now)
        actions: list[Action] = [Notice(text) for text in said]
        if awaited is not None:
            actions.append(LogEvent("awaiting", {"members": awaited}))
        self._judge(now)
        return actions + self._probes(now)

    def _judge(self, now: float) -> None:
        """What the complaints of all members mean for those that are in the ring, or want to be."""
        broken, view = self._broken_lines(now), self._paxos.memory.view
        self._exclusions.see(broken, now)
        self._detector.complaints = self._lines.raised(self._paxos.view_number) | self._misbehaving()
        seats = view.order if view is not None else ()
        others = [n for n in range(len(self._detector.names)) if n not in seats]
        self._detector.barred = frozenset(n for n in others if self._exclusions.barred(n, broken, seats, now))

    def _broken_lines(self, now: float) -> set[Line]:
        """Lines between members that are there, of which one end complains."""
        beats = self._detector.heartbeats
        against = {n: beats[n].complaints for n in self._detector.alive(now) if n != self._me}
        return lines_of(against | {self._me: (*self._lines.complaints, *self._misbehaving())})

    def _misbehaving(self) -> dict[int, str]:
        """Members that have sent absurd values again and again in this view, in words."""
        found = {n: self._detector.persists(n, self._view_began) for n in range(len(self._agreement.names))}
        return {n: why for n, why in found.items() if why}

    def _against(self, now: float) -> tuple[int, ...]:
        """Members that this one would leave out of the next view although they are there."""
        broken, view = self._broken_lines(now), self._paxos.memory.view
        seats = view.order if view is not None else ()
        own = {*self._lines.complaints, *self._lines.soon(), *self._misbehaving()}
        others = self._exclusions.opinion(broken, seats, now) | self._exclusions.held(now)
        return tuple(sorted((own | others) - {self._me}))

    def _left_out(self, before: View, view: View, now: float) -> list[Action]:
        """Tell who is no longer in the ring although it is alive."""
        broken, alive, names = self._broken_lines(now), self._detector.alive(now), self._agreement.names
        actions = list[Action]()
        for member, others in self._exclusions.view_decided(before, view, broken, alive, now).items():
            name, ends = names[member], [names[other] for other in others]
            facts = {"member": name, "view": view.number, "lines_to": ends}
            text = f"{name} is left out of view {view.number}: messages between it and {', '.join(ends)} do not arrive"
            actions += [LogEvent("left_out", facts), *([Notice(text)] if member != self._me else [])]
        return actions

    def _blamed(self) -> str:
        """Who complains of this site, in words."""
        beats, names = self._detector.heartbeats, self._agreement.names
        found = [names[n] for n, beat in beats.items() if self._me in beat.complaints]
        if not found:
            return ""
        return f"; messages between it and {', '.join(found)} do not arrive: run firma doctor here"

    def _probes(self, now: float) -> list[Action]:
        """Try the lines that this member, or the other end, complains of: they may work again."""
        if now < self._next_probe:
            return []
        self._next_probe = now + max(min(self._agreement.patience.silence / 4, 15.0), 0.5)
        return [Probe(n) for line in self._broken_lines(now) if self._me in line for n in line - {self._me}]

    # The agreement on views

    def _control(self, sender: int, message: ControlMessage, now: float, called: bool) -> list[Action]:
        """Take a control message; the sender, if it called, is answered, and everybody else is sent messages."""
        self._detector.heard(sender, now)
        if self._phase == "failed":
            return []
        lost: list[Action] = []
        fresh, view = self._start.memory is None and self._paxos.memory == Memory(), message.view
        if fresh and view is not None and voting.decided(self._agreement.rules, view, message.proof):
            if self._agreement.rules.quorum == self._agreement.rules.members:
                return self._fail(BadInput(_FRESH))
            self._without_past, lost = True, [Notice(_LOST)]
        self._refresh(now)
        actions = list(lost)
        if message.view is not None and message.view.number > self._paxos.view_number:  # first learn, then listen
            news = replace(message, body=None)
            learnt, _ = self._become(voting.receive(self._agreement.rules, self._paxos, sender, news), now)
            actions += learnt
        if isinstance(message.body, Prepare | Propose) and not self._permits(sender, message, message.body, now):
            return actions
        if isinstance(message.body, Promise) and not self._wants(sender, now):
            return actions
        more, out = self._become(voting.receive(self._agreement.rules, self._paxos, sender, message), now)
        actions += more
        for to, each in out:
            actions.append((AnswerControl if called and to == sender else SendControl)(to, each))
        return actions

    def _permits(self, sender: int, message: ControlMessage, asked: Prepare | Propose, now: float) -> bool:
        """Whether a proposal is answered: it has a reason that this member sees, or its proposer has kept still.

        It is contested if this member is at work and misses nobody, if it comes in the middle of another's turn, if
        it replaces an own one of its proposer, or if it leaves out a member that is heard and not suspected.
        """
        promised, number = self._paxos.memory.promised, message.view.number if message.view is not None else 0
        if not self._agreement.rules.insiders or number != self._paxos.view_number or asked.ballot < promised:
            return True
        contested = isinstance(asked, Propose) and self._leaves_out(asked, now)
        if asked.ballot > promised:
            turn = now - self._promised_at < TURN * self._agreement.patience.silence
            if self._paxos.frozen:
                contested = contested or turn or promised[1] == sender
                if not turn and promised[1] not in (sender, self._me):
                    self._restraint.charge(promised[1], now)
            else:
                contested = contested or not self._sees_a_reason(now)
        if not contested or asked.ballot == self._contested:
            return True
        if not self._restraint.permits(sender, now):
            return False
        self._contested = asked.ballot
        return True

    def _sees_a_reason(self, now: float) -> bool:
        """Whether a new view is wanted, or costs nothing because no round is under way."""
        view, patience = self._paxos.memory.view, self._agreement.patience
        waiting = self._phase in ("exchanging", "settling") and now - self._moved > patience.silence
        if view is None or not self._current() or self._has_finished or waiting:
            return True
        asking = self._detector.asking(self._paxos.view_number, now, view)
        broken = any(line <= set(view.order) for line in self._broken_lines(now))
        return (
            broken or bool(self._suspects(view, now)) or any(self._restraint.welcome(member, now) for member in asking)
        )

    def _suspects(self, view: View, now: float) -> dict[int, str]:
        neighbours = self._inbox.sequence.neighbours if self._inbox is not None else ()
        return self._detector.suspects(view, neighbours, self._view_began, now)

    def _leaves_out(self, proposal: Propose, now: float) -> bool:
        """Whether a proposed view leaves out a member for no reason that this one sees, while rounds went on."""
        view, promises = self._paxos.memory.view, dict(proposal.promises)
        forced = any(promise.prepared is not None for promise in promises.values())
        if view is None or forced or self._stood_still:
            return False
        unready = {member for member, promise in promises.items() if not promise.state.ready}
        broken = {member for line in self._broken_lines(now) for member in line}  # somebody complains of it, or it does
        gone = set(view.order) - set(proposal.view.order) - unready - broken - set(self._suspects(view, now))
        return bool(gone & set(self._detector.alive(now)))

    def _wants(self, sender: int, now: float) -> bool:
        """Whether a member that loses its seat again and again is let in now; it is, if there is no quorum without."""
        others = [member for member in self._detector.alive(now) if member != sender]
        return self._restraint.welcome(sender, now) or len(others) < self._agreement.rules.quorum

    def _carry_out(self, move: Move, now: float) -> list[Action]:
        """Do what the proposer wants."""
        rules = self._agreement.rules
        match move:
            case Ask(why):
                self._refresh(now)
                number = self._paxos.view_number + 1
                actions, out = self._become(voting.propose(rules, self._paxos), now)
                actions.append(LogEvent("asking", {"for_view": number, "why": why}))
            case Settle():
                actions, out = self._become(voting.settle(rules, self._paxos), now)
            case Repeat(to):
                actions, out = [], voting.repeat(self._paxos, to)
            case Inform(to):
                actions, out = [], tuple((member, voting.informing(self._paxos)) for member in to)
            case Abandon():
                self._paxos = voting.abandon(self._paxos)
                return []
            case Say(text):
                return [Notice(text)]
        return actions + [SendControl(member, message) for member, message in out]

    def _become(self, step: Step, now: float) -> tuple[list[Action], tuple[tuple[int, ControlMessage], ...]]:
        """Take over what the agreement says; what must not be forgotten comes before anything that is sent."""
        (after, out), before = step, self._paxos
        if self._without_past and after.view_number != before.view_number:
            after = voting.without_past(after)
        if after.memory.promised not in (before.memory.promised, NO_BALLOT):
            self._promised_at = now
            if not before.frozen:
                waiting = self._phase in ("exchanging", "settling")
                still = waiting and now - self._moved > self._agreement.patience.silence
                self._stood_still = still or not self._current() or self._has_finished
        self._paxos = after
        actions: list[Action] = [Remember(after.memory)] if after.memory != before.memory else []
        if after.view_number != before.view_number and after.memory.view is not None:
            if before.memory.view is not None:
                actions += self._left_out(before.memory.view, after.memory.view, now)
            self._restraint.view_decided(before.memory.view, after.memory.view, now)
            actions += self._view_decided(after.memory.view, now)
        return actions, out

    def _view_decided(self, view: View, now: float) -> list[Action]:
        """Take the messages of a view from now on, or none if this process has no seat in it."""
        self._view_began = now
        self._refusals.clear()
        self._lines.view_began(now)
        if not self._paxos.seated:
            self._inbox = None
            text = f"view {view.number} was decided without this site; it asks to be let in again{self._blamed()}"
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
        own = replace(self._paxos.own, ready=not self._stalled(now), against=self._against(now))
        self._paxos = replace(self._paxos, own=own)

    # Heartbeats

    def _heartbeat(self, status: int) -> Heartbeat:
        (tag, doing), complaints = self._place, tuple(sorted(self._lines.complaints))
        terms, process = self._agreement.terms, self._paxos.own.process
        beat = heartbeat(terms, process, tag, status, doing=doing, complaints=complaints)
        receipt = self._paxos.receipt
        return beat if receipt is None else replace(beat, saved=receipt.place, seal=receipt.signature)

    @property
    def _place(self) -> tuple[Tag, int]:
        """The exchange that this member is in, or trains for, and what it does about it."""
        if self._inbox is None:
            return (self._paxos.view_number, self._turn, 0), PREPARING
        if self._view is None or self._view.number != self._inbox.sequence.view_number:
            return self._inbox.now, PREPARING  # it still works for an older view
        match self._phase:
            case "exchanging" | "settling":
                return self._inbox.now, EXCHANGING
            case "scoring" | "saving" | "lingering" | "finished":
                return self._inbox.now, COMPLETING
            case "training":
                return (self._view.number, self._done + 1, 0), PREPARING
        return self._inbox.now, PREPARING

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
                case "catching up":
                    actions += self._await_extractors(now)
                case "exchanging":
                    actions += self._await_messages(now)
                case "settling":
                    if not self._current():
                        self._wait()
                    elif not self._undelivered or self._lines.hopeless({to for to, _ in self._undelivered}):
                        actions += self._linger(now)  # its rounds are saved, whether or not the last message arrives
                case "lingering":
                    actions += self._await_others(now)
        return actions

    def _wait(self) -> None:
        """The view is over or being replaced: drop the exchange that was under way; training that is done is kept."""
        self._phase, self._busy = "waiting", None
        self._exchanges, self._due, self._arrived = None, None, {}

    def _await_seat(self, now: float) -> list[Action]:  # noqa: PLR0911, one case per outcome
        """Enter the next view that has a seat for this process; finish or give up if there will be none."""
        view, followed = self._paxos.memory.view, self._view.number if self._view is not None else 0
        if self._paxos.seated and view is not None:
            if view.number <= followed:
                return []
            if self._done != view.start:
                self._trained = None
            self._view, self._phase, self._busy = view, "entering", now
            holders = catching_up.holders(view, self._me, self._agreement.rules.insiders)
            if not holders or self._inbox is None:
                return [Enter(view)]
            self._phase, self._busy, self._inbox.holders = "catching up", None, holders
            names = " and ".join(self._agreement.names[member] for member in holders)
            return [Notice(f"this site is behind; {names} bring it to round {view.start}")]
        if self._ring_has_finished(now) or self._over is not None:
            if self._done == self._agreement.rounds:
                return self._finish()
            self._over = now if self._over is None else self._over
            gone = not self._detector.at_work(self._paxos.view_number, now)
            if gone or now - self._over > _LATE * self._agreement.patience.silence:
                return self._fail(PeerLost(_TOO_LATE))
            return []
        if self._done == self._agreement.rounds and not self._may_be_needed(now):
            return self._finish()
        return self._give_up(now)

    def _await_extractors(self, now: float) -> list[Action]:
        """Behind: enter the view with what the others bring."""
        if not self._current() or self._view is None:
            self._wait()
            return []
        assert self._inbox is not None  # it is current
        brought, awaited = self._inbox.brought(), len(self._inbox.holders)
        insiders, silence = self._agreement.rules.insiders, self._agreement.patience.silence
        if not catching_up.enough(len(brought), awaited, insiders, now - self._view_began, silence):
            return []
        self._inbox.caught_up()
        self._phase, self._busy = "entering", now
        names = [self._agreement.names[sender] for sender, _ in brought]
        facts = {"view": self._view.number, "rounds": self._view.start, "from": names}
        extractors = tuple((sender, message.state.values) for sender, message in brought)
        return [LogEvent("caught_up", facts), Enter(self._view, extractors)]

    def _bring_others(self) -> list[Action]:
        """This member is where the view starts: send its extractor to those behind that are to have it from here."""
        view, receipt = self._view, self._paxos.receipt
        assert view is not None  # it has entered one
        tag = (view.number, view.start + 1, catching_up.STEP)
        seal = receipt.signature if receipt is not None and receipt.place == (view.number, view.start) else b""
        insiders = self._agreement.rules.insiders
        behind = [n for n in view.behind if self._me in catching_up.holders(view, n, insiders)]
        self._undelivered |= {(member, tag) for member in behind}
        return [SendExtractor(member, tag, seal) for member in behind]

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
        several = len(working) > self._agreement.rules.insiders
        return several and view is not None and set(working) <= set(self._detector.finished(view))

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
        self._done, self._moved, self._mixed = view.start, now, None
        if view.start < self._agreement.rounds:
            self._all_done = None
        self._denounced.clear()
        self._paxos = voting.entered(self._agreement.rules, self._paxos)
        names = [self._agreement.names[member] for member in view.order]
        behind = [self._agreement.names[member] for member in view.behind]
        facts = {"number": view.number, "ring": names, "from_round": view.start + 1, "behind": behind}
        actions: list[Action] = [LogEvent("view", facts), *self._bring_others()]
        if view.number > 1:
            where = f"from round {view.start + 1}" if view.start < self._agreement.rounds else "after the last round"
            actions.append(Notice(f"view {view.number}: {'-'.join(names)}, {where}"))
        if self._done < self._agreement.rounds and not enough(self._plan(), len(view.ring)):
            actions.append(
                Notice(f"{len(view.ring)} members are too few for a robust combine; this site mixes nothing")
            )
        return actions + self._next_round(now)

    def _next_round(self, now: float) -> list[Action]:
        """Train for the next round, unless the view is over, or all rounds are done."""
        actions: list[Action] = []
        if self._current() and self._done < self._agreement.rounds:
            self._judge(now)
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
        limit, summed = largest(trained.shared, self._mixed), plan.mixing == "all-reduce"

        def admit(sender: int, message: Message) -> bool:
            found = excess(message, limit, len(view.order), summed)
            if found is not None:
                self._absurd.append((sender, found))
            return found is None

        part = Participant(
            self._me, view.order, trained.shared, trained.accuracy, samples, start.wire, score, self._mismatches.append,
            admit=admit,
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
            plan, refused = self._plan(), self._refused_as_absurd(now)
            save = Save(trained.number, view, trained.accuracy, plan, self._weights)
            self._phase, self._busy = "saving", now
            self._trained, self._exchanges, self._due, self._arrived = None, None, None, {}
            self._mixed = norm(stop.value)
            return [*refused, *self._reported(plan), Blend(stop.value, plan), save]
        refused = self._refused_as_absurd(now)
        self._due, self._phase, self._busy = due, "exchanging", None
        self._inbox.now = tag = self._tag(due)
        self._undelivered |= {(member, tag) for member in due.to}
        self._lines.exchange_began(tag, due.to, now)
        receipt = self._paxos.receipt
        seal = receipt.signature if receipt is not None and receipt.place == (tag[0], tag[1] - 1) else b""
        return [*refused, *(Send(member, tag, due.message, seal) for member in due.to)]

    def _refused_as_absurd(self, now: float) -> list[Action]:
        """Tell who sent what cannot be of honest training; it was treated as missing, its weight is this member's."""
        actions: list[Action] = []
        for member, found in self._absurd:
            name, turn = self._agreement.names[member], self._done + 1
            if member in self._weights:
                self._weights[self._me] += self._weights.pop(member)
            facts = {"member": name, "round": turn, "why": found.why, "certain": found.certain}
            actions.append(LogEvent("absurd", facts))
            if found.certain:
                self._detector.misbehaved(member, f"{name} sent {found.why}", now)
            if member not in self._denounced:
                self._denounced.add(member)
                actions.append(Notice(f"round {turn}: {name} sent {found.why}; it is not used, nor is any like it"))
        self._absurd.clear()
        return actions

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
        self._lines.exchange_ended(now)
        self._arrived, self._phase, self._busy, self._moved = arrived, "scoring", now, now
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
        self._done, self._moved = rounds, now
        self._lines.round_ended(now)
        if self._view is not None:
            self._paxos = voting.completed(self._agreement.rules, self._paxos, self._view.number, rounds)
        return self._next_round(now)

    # The end

    def _linger(self, now: float) -> list[Action]:
        """Stay until all of the view have finished or are gone: a last round may have to be repeated with this site."""
        assert self._view is not None  # it has done all rounds in one
        assert self._inbox is not None
        self._phase, self._busy = "lingering", None
        self._all_done = now if self._all_done is None else self._all_done
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
        needed = (set(self._detector.alive(now)) - {self._me, *self._detector.finished(view)}) & set(view.order)
        limit = self._lines.training_limit  # a member that gets nowhere is not waited for any longer
        few = len(needed) <= self._agreement.rules.insiders  # who never finishes does not keep the others for ever
        late = few and now - self._moved > self._agreement.patience.gathering
        stuck = all(now - self._detector.placed(n) > limit for n in needed)
        if not (late or stuck):
            return []
        return self._finish() if not self._latecomers(view, now) else self._let_in(now)

    def _latecomers(self, view: View, now: float) -> list[int]:
        """Members that ask for a seat and lack rounds: they can still have the last extractor; nobody waits long."""
        rounds, beats = self._agreement.rounds, self._detector.heartbeats
        if self._all_done is None or now - self._all_done > _LATE * self._agreement.patience.silence:
            return []
        return [n for n in self._detector.asking(view.number, now, view) if beats[n].tag[1] <= rounds]

    def _let_in(self, now: float) -> list[Action]:
        """All rounds are done: propose a view that starts after the last one, for the sake of whoever is late."""
        if now < self._next_offer or self._paxos.frozen:
            return []
        self._next_offer = now + self._agreement.patience.silence / 4
        return [action for move in self._proposer.between_rounds(self._paxos, now)
                for action in self._carry_out(move, now)]  # fmt: skip

    def _finish(self) -> list[Action]:
        self._phase = "finished"
        return [Finish()]

    def _fail(self, error: Exception) -> list[Action]:
        """The first error ends the run; from then on this member only sends and answers heartbeats."""
        if self._phase == "failed":
            return []
        self._phase, self._busy = "failed", None
        return [Fail(error)]
