"""The end: a member that has all rounds stays while it may be needed; one that comes too late, or is alone, gives up.

A last round may have to be repeated with this site, and a member that is late can still have the last extractor. Pure.
"""

from firma.peer.membership.views import View
from firma.peer.runtime.events import Action, PeerLost
from firma.peer.runtime.machine.heartbeats import Heartbeats
from firma.peer.runtime.machine.lines import Lines
from firma.peer.runtime.machine.standing import Standing
from firma.peer.runtime.machine.voting import Voting

_ANSWER = 5.0  # seconds that the others have to answer a member that is started again with all rounds
_LATE = 2.0  # times the patience: how long a site that has all rounds stays for one that asks, and that one hopes
_PERHAPS_OVER = (
    "; if they have finished the ring without this site, ask one of them: it can start a new ring with --begin-with"
)
_TOO_LATE = (
    "the ring has finished without this site, and nobody stayed to send it the last extractor; a member that has it "
    "can start a new ring with --begin-with"
)


class Ending:
    """How long this member has been at its end."""

    def __init__(self, standing: Standing, lines: Lines, voting: Voting, heartbeats: Heartbeats, now: float) -> None:
        self._standing, self._lines, self._voting, self._heartbeats = standing, lines, voting, heartbeats
        self._all_done: float | None = None  # since when it has all rounds, and none had to be repeated
        self._over: float | None = None  # since when all others have finished, while this member lacks rounds
        self._next_offer = now

    def entered(self, view: View) -> None:
        """A view begins."""
        if view.start < self._standing.agreement.rounds:
            self._all_done = None

    # With a seat, after the last round

    def settle(self, now: float) -> list[Action]:
        """Its rounds are saved, whether or not its last messages arrive; it waits until they have, or never will."""
        if not self._standing.current:
            self._standing.wait()
            return []
        return self._linger(now) if self._lines.settled else []

    def _linger(self, now: float) -> list[Action]:
        """Stay until all of the view have finished or are gone: a last round may have to be repeated with this site."""
        standing = self._standing
        assert standing.inbox is not None  # it is current
        standing.wait("lingering")
        self._all_done = now if self._all_done is None else self._all_done
        standing.inbox.now = (standing.followed, standing.agreement.rounds + 1, 0)
        return [self._heartbeats.beat(now)]

    def await_others(self, now: float) -> list[Action]:
        """It lingers: is anybody left that may need it?"""
        standing, view = self._standing, self._standing.view
        assert view is not None  # it lingers in one
        if standing.voter.view_number != view.number:
            if standing.voter.seated:
                standing.wait()
                return []
            return standing.finish()
        detector, agreed = standing.detector, standing.agreement
        needed = (set(detector.alive(now)) - {standing.me, *detector.finished(view)}) & set(view.order)
        limit = self._lines.monitor.training_limit  # a member that gets nowhere is not waited for any longer
        few = len(needed) <= agreed.rules.insiders  # who never finishes does not keep the others for ever
        late = few and now - standing.moved > agreed.patience.gathering
        stuck = all(now - detector.placed(n) > limit for n in needed)
        if not (late or stuck):
            return []
        return standing.finish() if not self._latecomers(view, now) else self._let_in(now)

    def _latecomers(self, view: View, now: float) -> list[int]:
        """Members that ask for a seat and lack rounds: they can still have the last extractor; nobody waits long."""
        agreed, detector = self._standing.agreement, self._standing.detector
        if self._all_done is None or now - self._all_done > _LATE * agreed.patience.silence:
            return []
        return [n for n in detector.asking(view.number, now, view) if detector.heartbeats[n].tag[1] <= agreed.rounds]

    def _let_in(self, now: float) -> list[Action]:
        """All rounds are done: propose a view that starts after the last one, for the sake of whoever is late."""
        if now < self._next_offer or self._standing.voter.frozen:
            return []
        self._next_offer = now + self._standing.agreement.patience.silence / 4
        return self._voting.let_in(now)

    # Without a seat

    def look(self, now: float) -> None:
        """Whatever it is doing: make a note of it if the others have finished, for soon they are gone."""
        standing = self._standing
        if self._over is None and not standing.voter.seated and not standing.complete and self._ring_has_finished(now):
            self._over = now

    def without_seat(self, now: float) -> list[Action]:
        """Finish if there is nothing left to do, give up if there will be no seat, or else wait for one."""
        standing, agreed = self._standing, self._standing.agreement
        if self._ring_has_finished(now) or self._over is not None:
            if standing.complete:
                return standing.finish()
            self._over = now if self._over is None else self._over
            gone = not standing.detector.at_work(standing.voter.view_number, now)
            if gone or now - self._over > _LATE * agreed.patience.silence:
                return standing.fail(PeerLost(_TOO_LATE))
            return []
        if standing.complete and not self._may_be_needed(now):
            return standing.finish()
        return self._give_up(now)

    def _ring_has_finished(self, now: float) -> bool:
        """Whether the members at work have all completed all rounds."""
        standing, view = self._standing, self._standing.voter.memory.view
        working = standing.detector.at_work(standing.voter.view_number, now)
        several = len(working) > standing.agreement.rules.insiders
        return several and view is not None and set(working) <= set(standing.detector.finished(view))

    def _may_be_needed(self, now: float) -> bool:
        """Whether this site, which has all rounds, should wait: a member that lacks some is there, or may be.

        Each of the others has answered, or could not be reached, or has had `_ANSWER` seconds to answer. A member that
        has all rounds says so by its place in the ring, one round after the last.
        """
        detector, rounds, me = self._standing.detector, self._standing.agreement.rounds, self._standing.me
        others = [n for n in detector.alive(now) if n != me]
        if any(detector.heartbeats[n].tag[1] <= rounds for n in others):
            return True
        asked = all(n in detector.heartbeats or n in detector.trouble for n in range(len(detector.names)) if n != me)
        return not asked and now - detector.started <= _ANSWER

    def _give_up(self, now: float) -> list[Action]:
        """End if the others never came."""
        standing, detector, patience = self._standing, self._standing.detector, self._standing.agreement.patience
        alive = detector.alive(now)
        enough = standing.agreement.rules.quorum if standing.voter.view_number else len(detector.names)
        if standing.had_seat or len(alive) >= enough or now - detector.started <= patience.gathering:
            return []
        if standing.complete:  # it waited for those that lack some; its own model is complete
            return standing.finish()
        missing = [n for n in range(len(detector.names)) if n not in alive]
        why = "; ".join(f"{detector.names[n]}: {detector.trouble.get(n, 'no answer')}" for n in missing)
        names = ", ".join(detector.names[n] for n in missing)
        hint = _PERHAPS_OVER if standing.voter.view_number else ""
        return standing.fail(PeerLost(f"{names} did not appear within {patience.gathering:g} s ({why}){hint}"))
