"""A site whose promises are lost, or old: it must not vote about what it may have voted about before. Pure.

They are lost with its disk, and old if somebody has put back an earlier copy of its state folder; the others show it
what it has signed since. It does not know what it has voted about. So it learns the newest view of the others, and is
mute about the next two.
"""

from dataclasses import dataclass, field

from firma.errors import BadInput
from firma.peer.membership import agreement
from firma.peer.membership.views import ControlMessage, Memory, Voter
from firma.peer.runtime.events import Action, Notice, Remember
from firma.peer.runtime.machine.standing import Standing

_FRESH = (
    "state folder is empty, but the ring is already running, and it cannot agree on anything without this site's vote: "
    "a site without its promises must not vote; pass the right --state, or start over with a new ring file"
)
_LOST = (
    "state folder is empty, but the ring is already running: if this is not the right --state, stop and pass it; else "
    "this site's promises are lost, so it does not vote until two views were decided without it, and then goes on "
    "with the others' extractor and a new head"
)
_OLD = (
    "the state folder is older than what this site has signed: it was put back to an earlier copy, or a checkpoint was "
    "removed. If this is not the right --state, stop and pass it; else "
)
_MUTE = "this site does not vote until two views were decided without it, and then goes on with the others' extractor"
_NEEDED = "it goes on from the others' round; its vote is needed for everything, so nothing can be decided against it"


@dataclass
class LostPromises:
    """Whether this site's promises are lost or old, and it may not have heard the newest view."""

    standing: Standing
    lost: bool
    _told: bool = field(default=False)  # that they are old: once per process

    def notice(self, message: ControlMessage) -> list[Action]:
        """A control message has come: does it show that this site has forgotten what it promised?"""
        standing, rules, view = self.standing, self.standing.agreement.rules, message.view
        fresh = standing.start.memory is None and standing.voter.memory == Memory()
        if not fresh:
            return self._compare(message)
        if view is None or not agreement.decided(rules, view, message.proof):
            return []
        if rules.quorum == rules.members:
            return standing.fail(BadInput(_FRESH))
        self.lost = self._told = True
        return [Notice(_LOST)]

    def _compare(self, message: ControlMessage) -> list[Action]:
        """Does it show that this site has signed more than it remembers?

        Where all members are needed, each of the others has voted for whatever is decided and remembers it, so one
        that forgets does no harm; without its vote the ring could not go on.
        """
        standing, rules = self.standing, self.standing.agreement.rules
        if self._told or not agreement.outdated(rules, standing.voter, message):
            return []
        self._told = True
        if rules.quorum == rules.members:
            return [Notice(_OLD + _NEEDED)]
        self.lost, standing.voter = True, agreement.without_past(standing.voter)
        return [Remember(standing.voter.memory), Notice(_OLD + _MUTE)]

    def learnt(self, before: Voter, after: Voter) -> Voter:
        """As long as its promises are lost, it is mute about the views after every new one."""
        return agreement.without_past(after) if self.lost and after.view_number != before.view_number else after

    def look(self, now: float) -> None:
        """It knows as new a view as so many others that one of them knew the last that it can have voted about.

        The last view that it can have known was committed by a quorum, which knew the one before; of any n - q + f + 1
        others at least one honest one was among them.
        """
        if not self.lost:
            return
        standing, rules, known = self.standing, self.standing.agreement.rules, self.standing.voter.view_number
        detector = standing.detector
        others = [n for n in detector.alive(now) if n != standing.me and detector.knows(n) <= known]
        if known > 0 and len(others) > rules.members - rules.quorum + rules.insiders:
            self.lost = False
