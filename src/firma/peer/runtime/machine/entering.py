"""Entering a view: be where it starts, if need be with extractors that others bring, and bring them to others. Pure."""

from firma.mixing.combine import enough
from firma.peer.membership.views import View
from firma.peer.runtime import catching_up
from firma.peer.runtime.events import Action, Enter, LogEvent, Notice, SendExtractor
from firma.peer.runtime.machine.ending import Ending
from firma.peer.runtime.machine.lines import Lines
from firma.peer.runtime.machine.rounds import Rounds
from firma.peer.runtime.machine.standing import Standing
from firma.peer.runtime.machine.voting import Voting


class Entering:
    """From waiting for a seat to the first round of a view; what it needs to know is in the standing."""

    def __init__(self, standing: Standing, lines: Lines, voting: Voting, rounds: Rounds, ending: Ending) -> None:
        self._standing, self._lines, self._voting, self._rounds = standing, lines, voting, rounds
        self._ending = ending

    def await_seat(self, now: float) -> list[Action]:
        """Enter the next view that has a seat for this process; finish or give up if there will be none."""
        standing, view = self._standing, self._standing.voter.memory.view
        if view is None or not standing.voter.seated:
            return self._ending.without_seat(now)
        if view.number <= standing.followed:
            return []
        self._rounds.view_chosen(view.start)
        standing.view = view
        holders = catching_up.holders(view, standing.me, standing.agreement.rules.insiders)
        if not holders or standing.inbox is None:
            standing.work("entering", now)
            return [Enter(view)]
        standing.wait("catching up")
        standing.inbox.holders = holders
        names = " and ".join(standing.agreement.names[member] for member in holders)
        return [Notice(f"this site is behind; {names} bring it to round {view.start}")]

    def await_extractors(self, now: float) -> list[Action]:
        """Behind: enter the view with what the others bring."""
        standing, view, inbox = self._standing, self._standing.view, self._standing.inbox
        if not standing.current or view is None or inbox is None:
            standing.wait()
            return []
        brought, awaited = inbox.brought(), len(inbox.holders)
        insiders, silence = standing.agreement.rules.insiders, standing.agreement.patience.silence
        if not catching_up.enough(len(brought), awaited, insiders, now - standing.view_began, silence):
            return []
        inbox.caught_up()
        standing.work("entering", now)
        names = [standing.agreement.names[sender] for sender, _ in brought]
        facts = {"view": view.number, "rounds": view.start, "from": names}
        extractors = tuple((sender, message.state.values) for sender, message in brought)
        return [LogEvent("caught_up", facts), Enter(view, extractors)]

    def entered(self, now: float) -> list[Action]:
        """The site is where the view starts: sign that, tell the operator, bring others there, and begin to train."""
        standing, view = self._standing, self._standing.view
        assert view is not None  # it was told to enter one
        standing.done, standing.moved = view.start, now
        self._ending.entered(view)
        self._voting.entered()
        actions = [*self._told(view), *self._bring_others(view)]
        if view.number > 1:
            names = "-".join(standing.agreement.names[member] for member in view.order)
            where = "after the last round" if standing.complete else f"from round {view.start + 1}"
            actions.append(Notice(f"view {view.number}: {names}, {where}"))
        if not standing.complete and not enough(standing.plan, len(view.ring)):
            text = f"{len(view.ring)} members are too few for a robust combine; this site mixes nothing"
            actions.append(Notice(text))
        return actions + self._rounds.entered(now)

    def _told(self, view: View) -> list[Action]:
        names = self._standing.agreement.names
        ring, behind = [names[member] for member in view.order], [names[member] for member in view.behind]
        facts = {"number": view.number, "ring": ring, "from_round": view.start + 1, "behind": behind}
        return [LogEvent("view", facts)]

    def _bring_others(self, view: View) -> list[Action]:
        """This member is where the view starts: send its extractor to those behind that are to have it from here."""
        tag, seal = (view.number, view.start + 1, catching_up.STEP), self._voting.seal(view.number, view.start)
        me, insiders = self._standing.me, self._standing.agreement.rules.insiders
        behind = [n for n in view.behind if me in catching_up.holders(view, n, insiders)]
        self._lines.sent(behind, tag)
        return [SendExtractor(member, tag, seal) for member in behind]
