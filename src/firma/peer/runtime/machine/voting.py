"""A member's part in the agreement on views: what it says and hears, and what follows from a decided view. Pure.

`membership.agreement` says what is true, `proposer` when to propose; here they meet what this member is doing.
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from firma.peer.membership import agreement
from firma.peer.membership.proposer import Abandon, Ask, Inform, Move, Proposer, Repeat, Say, Settle
from firma.peer.membership.views import (
    ControlMessage,
    Prepare,
    Promise,
    Propose,
    Receipt,
    Step,
    View,
)
from firma.peer.runtime.admission import Inbox, exchange_sequence
from firma.peer.runtime.events import Action, AnswerControl, Fail, LogEvent, Notice, Remember, SendControl
from firma.peer.runtime.machine.lines import Lines
from firma.peer.runtime.machine.lost_promises import LostPromises
from firma.peer.runtime.machine.permission import Permission
from firma.peer.runtime.machine.standing import Standing
from firma.peer.wire.message import Header

_NOTICED = 5.0  # seconds without progress after which the operator is told of an agreement
Out = tuple[tuple[int, ControlMessage], ...]  # messages with their receivers


class Voting:
    """Everything that changes `standing.voter`."""

    def __init__(self, standing: Standing, lines: Lines, random: Random, now: float) -> None:
        self._standing, self._lines, self._rules = standing, lines, standing.agreement.rules
        self._lost = LostPromises(standing, standing.voter.muted)
        self._permission = Permission(standing, lines, now)
        welcome = self._permission.restraint.welcome
        self._proposer = Proposer(standing.detector, self._rules, standing.voter, random, now, welcome)
        self._told = now  # until when there was progress, when the operator was last told of an agreement

    # Proposals of this member

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return self._proposer.pause(self._standing.voter.seated)

    def look(self, now: float) -> list[Action]:
        """Propose a view if one is needed, and tend a proposal that is under way."""
        standing = self._standing
        self._lost.look(now)
        if standing.phase == "failed":
            return []
        moves = self._proposer.look(
            standing.voter, standing.neighbours, standing.view_began, standing.has_finished, now
        )  # fmt: skip
        return [*self._carry_out(moves, now), *self._long_agreement(now)]

    def _long_agreement(self, now: float) -> list[Action]:
        """Tell once that others agree on a view, and no round goes on meanwhile: their messages may get lost."""
        standing = self._standing
        proposer, since = standing.voter.memory.promised[1], standing.moved
        asked = standing.voter.frozen and proposer not in (-1, standing.me) and standing.had_seat
        if not asked or standing.phase != "waiting" or since == self._told or now - since <= _NOTICED:
            return []
        self._told = since
        name = standing.agreement.names[proposer]
        return [Notice(f"a new view is being agreed on, which {name} proposes; no progress for {now - since:.0f} s")]

    def let_in(self, now: float) -> list[Action]:
        """Between two rounds: propose a view for the sake of members that ask for a seat."""
        return self._carry_out(self._proposer.between_rounds(self._standing.voter, now), now)

    def _carry_out(self, moves: Iterable[Move], now: float) -> list[Action]:
        return [action for move in moves for action in self._move(move, now)]

    def _move(self, move: Move, now: float) -> list[Action]:
        """Do what the proposer wants."""
        standing, rules = self._standing, self._rules
        match move:
            case Ask(why):
                self._refresh(now)
                number = standing.voter.view_number + 1
                actions, out = self._become(agreement.propose(rules, standing.voter), now)
                actions.append(LogEvent("asking", {"for_view": number, "why": why}))
            case Settle():
                actions, out = self._become(agreement.settle(rules, standing.voter), now)
            case Repeat(to):
                actions, out = [], agreement.repeat(standing.voter, to)
            case Inform(to):
                actions, out = [], tuple((member, agreement.informing(standing.voter)) for member in to)
            case Abandon():
                standing.voter = agreement.abandon(standing.voter)
                return []
            case Say(text):
                return [Notice(text)]
        return actions + [SendControl(member, self._reminding(member, message)) for member, message in out]

    # What others say

    def control(self, sender: int, message: ControlMessage, now: float, called: bool) -> list[Action]:
        """Take a control message; the sender, if it called, is answered, and everybody else is sent messages."""
        standing = self._standing
        if standing.phase == "failed":
            return []
        actions = self._lost.notice(message)
        if any(isinstance(action, Fail) for action in actions):
            return actions
        self._refresh(now)
        if message.view is not None and message.view.number > standing.voter.view_number:  # first learn, then listen
            news = replace(message, body=None)
            actions += self._become(agreement.receive(self._rules, standing.voter, sender, news), now)[0]
        match message.body:
            case Prepare() | Propose() as asked if not self._permission.answers(sender, message, asked, now):
                return actions
            case Promise() if not self._permission.wants(sender, now):
                return actions
        more, out = self._become(agreement.receive(self._rules, standing.voter, sender, message), now)
        actions += more
        for to, each in out:
            actions.append((AnswerControl if called and to == sender else SendControl)(to, self._reminding(to, each)))
        return actions

    def _reminding(self, member: int, message: ControlMessage) -> ControlMessage:
        """Everything that is said to a member carries what it signed last: one with an old memory must not vote."""
        receipt = next((each for each in self._standing.voter.receipts if each.member == member), None)
        return replace(message, receipt=receipt)

    def _refresh(self, now: float) -> None:
        """What this member says about itself must be true now."""
        standing = self._standing
        own = replace(standing.voter.own, ready=not standing.hangs(now), against=self._lines.against(now))
        standing.voter = replace(standing.voter, own=own)

    def _become(self, step: Step, now: float) -> tuple[list[Action], Out]:
        """Take over what the agreement says; what must not be forgotten comes before anything that is sent."""
        (after, out), before = step, self._standing.voter
        after = self._lost.learnt(before, after)
        self._permission.promised(before, after, now)
        self._standing.voter = after
        actions: list[Action] = [Remember(after.memory)] if after.memory != before.memory else []
        view = after.memory.view
        if after.view_number != before.view_number and view is not None:
            actions += self._lines.view_decided(before.memory.view, view, now)
            self._permission.restraint.view_decided(before.memory.view, view, now)
            actions += self._view_decided(view, now)
        return actions, out

    def _view_decided(self, view: View, now: float) -> list[Action]:
        """Take the messages of a view from now on, or none if this process has no seat in it."""
        standing = self._standing
        standing.view_began = now
        self._lines.view_began(now)
        if not standing.voter.seated:
            standing.inbox = None
            blamed = self._lines.blamed()
            text = f"view {view.number} was decided without this site; it asks to be let in again{blamed}"
            return [Notice(text)] if standing.had_seat else []
        standing.had_seat = True
        agreed, order = standing.agreement, view.order
        elements = agreed.terms.signature.size
        sequence = exchange_sequence(
            view.number, standing.me, order, agreed.rounds, elements, lambda number: agreed.plan(len(order), number)
        )
        standing.inbox = Inbox(sequence, (view.number, view.start + 1, 0))
        return []

    # Receipts

    def entered(self) -> None:
        """This member is where its view starts, and signs that."""
        self._standing.voter = agreement.entered(self._rules, self._standing.voter)

    def completed(self) -> None:
        """The round in hand is saved: this member signs that."""
        standing = self._standing
        if standing.view is not None:
            standing.voter = agreement.completed(self._rules, standing.voter, standing.followed, standing.done)

    def seal(self, view_number: int, rounds: int) -> bytes:
        """This member's signature that it has saved so many rounds of a view; b"" if that is not its newest."""
        receipt = self._standing.voter.receipt
        return receipt.signature if receipt is not None and receipt.place == (view_number, rounds) else b""

    def signed(self, receipt: Receipt) -> None:
        """Another member has signed what it has saved."""
        self._standing.voter = agreement.hear(self._rules, self._standing.voter, receipt)

    def has_saved(self, sender: int, header: Header) -> bool:
        """Whether a sender has signed that it has the round before; where nobody is taken to lie, it need not."""
        view_number, turn, _ = header.tag
        receipt = Receipt(sender, view_number, turn - 1, header.receipt)
        if not agreement.valid(self._rules, receipt):
            return not self._rules.insiders
        self.signed(receipt)
        return True
