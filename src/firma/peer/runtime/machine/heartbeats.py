"""Heartbeats: what a member says about itself, where it is, and how often. Pure."""

from dataclasses import replace

from firma.peer.runtime.events import Action, SendHeartbeat
from firma.peer.runtime.machine.lines import Lines
from firma.peer.runtime.machine.standing import Standing
from firma.peer.wire.heartbeat import (
    ASKING,
    COMPLETING,
    EXCHANGING,
    FINISHED,
    LEAVING,
    PREPARING,
    RUNNING,
    STALLED,
    WAITING,
    Heartbeat,
    heartbeat,
)
from firma.peer.wire.terms import Tag

_LONGEST = 5.0  # seconds between two
_SHORTEST = 0.3  # while this member has no seat


class Heartbeats:
    """When the next one is due, and what it says."""

    def __init__(self, standing: Standing, lines: Lines, now: float) -> None:
        self.due = now
        self._standing, self._lines = standing, lines

    def beat(self, now: float) -> Action:
        """Send one to everybody now."""
        pause = min(self._standing.agreement.patience.silence / 5, _LONGEST)
        self.due = now + (pause if self._standing.voter.seated else min(pause, _SHORTEST))
        return SendHeartbeat(self.heartbeat(now))

    def heartbeat(self, now: float) -> Heartbeat:
        """What this member says now."""
        standing, (tag, doing) = self._standing, self._place
        complaints = tuple(sorted(self._lines.monitor.complaints))
        terms, process = standing.agreement.terms, standing.voter.own.process
        beat = heartbeat(terms, process, tag, self._status(now), doing=doing, complaints=complaints)
        receipt = standing.voter.receipt
        return beat if receipt is None else replace(beat, saved=receipt.place, seal=receipt.signature)

    @property
    def _place(self) -> tuple[Tag, int]:
        """The exchange that this member is in, or trains for, and what it does about it."""
        standing, inbox = self._standing, self._standing.inbox
        if inbox is None:  # without a seat it is nowhere, or after the last round if it has all
            return (standing.voter.view_number, standing.agreement.rounds + 1 if standing.complete else 0, 0), PREPARING
        if standing.view is None or standing.view.number != inbox.sequence.view_number:
            return inbox.now, PREPARING  # it still works for an older view
        match standing.phase:
            case "exchanging" | "settling":
                return inbox.now, EXCHANGING
            case "scoring" | "saving" | "lingering" | "finished":
                return inbox.now, COMPLETING
            case "training":
                return (standing.view.number, standing.done + 1, 0), PREPARING
        return inbox.now, PREPARING

    def _status(self, now: float) -> int:
        standing = self._standing
        if standing.stopping or standing.has_finished:
            return FINISHED if standing.has_finished else LEAVING
        hangs = standing.hangs(now)
        if standing.voter.seated:
            return STALLED if hangs else RUNNING
        view, alive = standing.voter.memory.view, standing.detector.alive(now)
        reaches_all = view is None or all(member in alive for member in view.order)
        return ASKING if reaches_all and not hangs else WAITING
