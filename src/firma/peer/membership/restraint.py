"""Restraint: how often a member may stop the others' rounds without a reason, and come back after it was lost. Pure.

Whoever promises completes no round until the next view, so a member that proposes one view after another would stop
everybody. A proposal for which a member sees no reason itself is *contested*. The first one of each proposer is
answered at once; after it the proposer must wait twice as long each time, and its contested proposals are ignored
until then. The same holds for a member that loses its seat again and again: it gets a new one at once the first times,
then after twice as long each time. Where nobody is taken to lie (`insiders = 0`), there is no restraint.
"""

from dataclasses import dataclass, field

from firma.peer.membership.views import View

TURN = 1.5  # times the patience: what a proposer has for its proposal before another one may take over
LONGEST = 32  # times the patience: how long a wait can become
_FREE = 2  # seats that a member may lose before it has to wait


@dataclass
class Restraint:
    """What this member remembers about proposals and lost seats of the others; each process starts afresh."""

    patience: float  # seconds
    insiders: int
    _proposals: dict[int, int] = field(default_factory=dict)  # contested, by proposer
    _from: dict[int, float] = field(default_factory=dict)  # when the next contested one is answered
    _lost: dict[int, int] = field(default_factory=dict)  # seats, by member
    _back: dict[int, float] = field(default_factory=dict)  # when the member gets one again

    def permits(self, proposer: int, now: float) -> bool:
        """Whether a contested proposal is answered; if so, the next one has to wait longer."""
        if self.insiders and now < self._from.get(proposer, now):
            return False
        self.charge(proposer, now)
        return True

    def charge(self, proposer: int, now: float) -> None:
        """A proposal was contested, or has come to nothing."""
        count = self._proposals[proposer] = self._proposals.get(proposer, 0) + 1
        self._from[proposer] = now + self.patience * min(2**count, LONGEST)

    def view_decided(self, before: View | None, after: View, now: float) -> None:
        """Count the seats that were lost: by being left out, or by being another process."""
        for seat in before.ring if before is not None else ():
            if seat not in after.ring:
                count = self._lost[seat.member] = self._lost.get(seat.member, 0) + 1
                wait = 0 if count <= _FREE else min(2 ** (count - _FREE - 1), LONGEST)
                self._back[seat.member] = now + self.patience * wait

    def welcome(self, member: int, now: float) -> bool:
        """Whether a member may have a seat again."""
        return not self.insiders or now >= self._back.get(member, now)
