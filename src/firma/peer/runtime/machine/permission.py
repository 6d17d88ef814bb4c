"""Which proposals of other members this one answers, where some may lie: who promises completes no round. Pure.

A proposal is contested if this member sees no reason for it; `restraint` says how many contested ones it answers.
"""

from firma.peer.membership.restraint import TURN, Restraint
from firma.peer.membership.views import NO_BALLOT, Ballot, ControlMessage, Prepare, Propose, View, Voter
from firma.peer.runtime.machine.lines import Lines
from firma.peer.runtime.machine.standing import Standing


class Permission:
    """What this member remembers about proposals: when it last promised, and what that cost it."""

    def __init__(self, standing: Standing, lines: Lines, now: float) -> None:
        agreement = standing.agreement
        self.restraint = Restraint(agreement.patience.silence, agreement.rules.insiders)
        self._standing, self._lines = standing, lines
        self._promised_at, self._stood_still = now, True  # when it last promised, and whether it had nothing to lose
        self._contested: Ballot | None = None  # the last contested ballot that it has answered

    def promised(self, before: Voter, after: Voter, now: float) -> None:
        """Called before this member takes over what it has promised."""
        if after.memory.promised not in (before.memory.promised, NO_BALLOT):
            self._promised_at = now
            if not before.frozen:
                self._stood_still = self._standing.stands_still(now)

    def answers(self, sender: int, message: ControlMessage, asked: Prepare | Propose, now: float) -> bool:
        """Whether a proposal is answered: it has a reason that this member sees, or its proposer has kept still.

        It is contested if this member is at work and misses nobody, if it comes in the middle of another's turn, if
        it replaces an own one of its proposer, or if it leaves out a member that is heard and not suspected.
        """
        voter, agreement = self._standing.voter, self._standing.agreement
        promised, number = voter.memory.promised, message.view.number if message.view is not None else 0
        if not agreement.rules.insiders or number != voter.view_number or asked.ballot < promised:
            return True
        contested = isinstance(asked, Propose) and self._leaves_out(asked, now)
        if asked.ballot > promised:
            turn = now - self._promised_at < TURN * agreement.patience.silence
            if voter.frozen:
                contested = contested or turn or promised[1] == sender
                if not turn and promised[1] not in (sender, self._standing.me):
                    self.restraint.charge(promised[1], now)
            else:
                contested = contested or not self._sees_a_reason(now)
        if not contested or asked.ballot == self._contested:
            return True
        if not self.restraint.permits(sender, now):
            return False
        self._contested = asked.ballot
        return True

    def _sees_a_reason(self, now: float) -> bool:
        """Whether a new view is wanted, or costs nothing because no round is under way."""
        view, detector = self._standing.voter.memory.view, self._standing.detector
        if view is None or self._standing.stands_still(now):
            return True
        asking = detector.asking(self._standing.voter.view_number, now, view)
        broken = any(line <= set(view.order) for line in self._lines.broken(now))
        return (
            broken or bool(self._suspects(view, now)) or any(self.restraint.welcome(member, now) for member in asking)
        )

    def _suspects(self, view: View, now: float) -> dict[int, str]:
        standing = self._standing
        return standing.detector.suspects(view, standing.neighbours, standing.view_began, now)

    def _leaves_out(self, proposal: Propose, now: float) -> bool:
        """Whether a proposed view leaves out a member for no reason that this one sees, while rounds went on."""
        view, promises = self._standing.voter.memory.view, dict(proposal.promises)
        forced = any(promise.prepared is not None for promise in promises.values())
        if view is None or forced or self._stood_still:
            return False
        unready = {member for member, promise in promises.items() if not promise.state.ready}
        broken = {member for line in self._lines.broken(now) for member in line}  # somebody complains of it, or it does
        gone = set(view.order) - set(proposal.view.order) - unready - broken - set(self._suspects(view, now))
        return bool(gone & set(self._standing.detector.alive(now)))

    def wants(self, sender: int, now: float) -> bool:
        """Whether a member that loses its seat again and again is let in now; it is, if there is no quorum without."""
        others = [member for member in self._standing.detector.alive(now) if member != sender]
        return self.restraint.welcome(sender, now) or len(others) < self._standing.agreement.rules.quorum
