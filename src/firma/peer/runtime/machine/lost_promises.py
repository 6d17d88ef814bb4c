"""A site whose promises are lost: it must not vote about anything that it may have voted about before. Pure.

It does not know which views those are. So it learns the newest view of the others, and is mute about the next two.
"""

from dataclasses import dataclass

from firma.errors import BadInput
from firma.peer.membership import agreement
from firma.peer.membership.views import ControlMessage, Memory, Voter
from firma.peer.runtime.events import Action, Notice
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


@dataclass
class LostPromises:
    """Whether this site's promises are lost, and it may not have heard the newest view."""

    standing: Standing
    lost: bool

    def notice(self, message: ControlMessage) -> list[Action]:
        """A control message has come: does it show that this site has forgotten what it promised?"""
        standing, rules, view = self.standing, self.standing.agreement.rules, message.view
        fresh = standing.start.memory is None and standing.voter.memory == Memory()
        if not fresh or view is None or not agreement.decided(rules, view, message.proof):
            return []
        if rules.quorum == rules.members:
            return standing.fail(BadInput(_FRESH))
        self.lost = True
        return [Notice(_LOST)]

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
