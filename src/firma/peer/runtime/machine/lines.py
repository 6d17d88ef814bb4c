"""Lines to other members: what was sent and not acknowledged, who is waited for, complained of and left out. Pure.

`line_monitor` judges this member's own lines, `exclusion` what the complaints of all members lead to; here both meet
the view that is at work, and the operator is told.
"""

from collections.abc import Iterable

from firma.peer.membership.exclusion import Exclusions, Line, lines_of
from firma.peer.membership.line_monitor import LineMonitor
from firma.peer.membership.views import View
from firma.peer.runtime.events import Action, CancelSends, LogEvent, Notice, Probe
from firma.peer.runtime.machine.standing import Standing
from firma.peer.wire.terms import Tag


class Lines:
    """One member's lines; `monitor` hears of everything that moves on them."""

    def __init__(self, standing: Standing, now: float) -> None:
        self.monitor = LineMonitor(standing.detector)
        self.undelivered: set[tuple[int, Tag]] = set()  # what was sent, and to whom
        self._standing = standing
        self._exclusions = Exclusions(standing.me, standing.agreement.patience.silence)
        self._refusals: set[int] = set()  # members whose refusals the operator was told of, in this view
        self._next_probe = now

    # What is sent

    def sent(self, members: Iterable[int], tag: Tag) -> None:
        """A message is on its way to these members."""
        self.undelivered |= {(member, tag) for member in members}

    def delivered(self, to: int, tag: Tag, now: float) -> None:
        """A member has a message, or no longer needs it."""
        self.undelivered.discard((to, tag))
        self.monitor.delivered(to, tag, now)

    def refused(self, to: int, tag: Tag, why: str) -> list[Action]:
        """A refusal is a matter between two: it is told once per view, and only if it lasts a view is proposed."""
        if (to, tag) not in self.undelivered:
            return []
        self.monitor.refused(to, tag, why)
        if to in self._refusals:
            return []
        self._refusals.add(to)
        name = self._standing.agreement.names[to]
        facts = {"member": name, "round": tag[1], "why": why}
        text = f"{name} refuses this site's message of round {tag[1]} ({why}); it is sent again"
        return [LogEvent("refused_by", facts), Notice(text)]

    def cancelled(self) -> list[Action]:
        """Nothing of a view that is over, or being replaced, is delivered any more."""
        view = self._standing.view
        if not self.undelivered or view is None or self._standing.current:
            return []
        self.undelivered.clear()
        return [CancelSends(view.number)]

    @property
    def settled(self) -> bool:
        """Whether everything is delivered, or will never be."""
        return not self.undelivered or self.monitor.hopeless({to for to, _ in self.undelivered})

    # Who is waited for

    def watch(self, missing: tuple[int, ...], now: float) -> list[Action]:
        """Who is waited for, and who must be complained of; `missing` are members whose message has not arrived."""
        standing, monitor = self._standing, self.monitor
        if standing.current and standing.view is not None and standing.phase != "failed":
            monitor.look(standing.view, standing.neighbours, missing, now)
        else:
            monitor.rest(standing.voter.view_number)
        said, awaited = monitor.news(now)
        actions: list[Action] = [Notice(text) for text in said]
        if awaited is not None:
            actions.append(LogEvent("awaiting", {"members": awaited}))
        self.judge(now)
        return actions + self._probes(now)

    def awaited(self, now: float) -> dict[int, float]:
        """Since when this member waits for whom: for messages of the view at work, or else for whoever is missing."""
        standing, detector = self._standing, self._standing.detector
        if standing.current:
            return {member: wait.since for member, wait in self.monitor.waits.items()}
        alive = detector.alive(now)
        missing = [n for n in range(len(detector.names)) if n not in alive]
        return {n: max(detector.last_heard.get(n, detector.started), detector.started) for n in missing}

    def _probes(self, now: float) -> list[Action]:
        """Try the lines that this member, or the other end, complains of: they may work again."""
        if now < self._next_probe:
            return []
        me, silence = self._standing.me, self._standing.agreement.patience.silence
        self._next_probe = now + max(min(silence / 4, 15.0), 0.5)
        return [Probe(n) for line in self.broken(now) if me in line for n in line - {me}]

    # Who is left out

    def judge(self, now: float) -> None:
        """What the complaints of all members mean for those that are in the ring, or want to be."""
        broken, detector, seats = self.broken(now), self._standing.detector, self._standing.seats
        self._exclusions.see(broken, now)
        detector.complaints = self.monitor.raised(self._standing.voter.view_number) | self._misbehaving()
        others = [n for n in range(len(detector.names)) if n not in seats]
        detector.barred = frozenset(n for n in others if self._exclusions.barred(n, broken, seats, now))

    def broken(self, now: float) -> set[Line]:
        """Lines between members that are there, of which one end complains."""
        detector, me = self._standing.detector, self._standing.me
        against = {n: detector.heartbeats[n].complaints for n in detector.alive(now) if n != me}
        return lines_of(against | {me: (*self.monitor.complaints, *self._misbehaving())})

    def _misbehaving(self) -> dict[int, str]:
        """Members that have sent absurd values again and again in this view, in words."""
        detector, since = self._standing.detector, self._standing.view_began
        found = {n: detector.persists(n, since) for n in range(len(detector.names))}
        return {n: why for n, why in found.items() if why}

    def against(self, now: float) -> tuple[int, ...]:
        """Members that this one would leave out of the next view although they are there."""
        own = {*self.monitor.complaints, *self.monitor.soon(), *self._misbehaving()}
        others = self._exclusions.opinion(self.broken(now), self._standing.seats, now) | self._exclusions.held(now)
        return tuple(sorted((own | others) - {self._standing.me}))

    def view_decided(self, before: View | None, view: View, now: float) -> list[Action]:
        """Tell who is no longer in the ring although it is alive."""
        if before is None:
            return []
        broken, alive, names = self.broken(now), self._standing.detector.alive(now), self._standing.agreement.names
        actions = list[Action]()
        for member, others in self._exclusions.view_decided(before, view, broken, alive, now).items():
            name, ends = names[member], [names[other] for other in others]
            facts = {"member": name, "view": view.number, "lines_to": ends}
            text = f"{name} is left out of view {view.number}: nothing arrives in time between it and {', '.join(ends)}"
            actions += [LogEvent("left_out", facts), *([Notice(text)] if member != self._standing.me else [])]
        return actions

    def view_began(self, now: float) -> None:
        """The exchanges of an older view are over."""
        self._refusals.clear()
        self.monitor.view_began(now)

    def blamed(self) -> str:
        """Who complains of this site, in words."""
        beats, names = self._standing.detector.heartbeats, self._standing.agreement.names
        found = [names[n] for n, beat in beats.items() if self._standing.me in beat.complaints]
        if not found:
            return ""
        return f"; nothing arrives in time between it and {', '.join(found)}: run firma doctor here"
