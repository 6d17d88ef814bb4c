"""The rounds of a view: train, exchange messages pass by pass, score what arrives, blend and save. Pure.

What is sent next is for the generators in `firma.mixing` to say; a round whose view is replaced is begun again in the
next one, with the training that is already done.
"""

from firma.mixing.kind import exchange, kind_of
from firma.peer.runtime.bounds import Excess, excess, largest, norm
from firma.peer.runtime.events import Action, Blend, LogEvent, Notice, Save, Score, Send, Train, Trained
from firma.peer.runtime.machine.lines import Lines
from firma.peer.runtime.machine.standing import Standing
from firma.peer.runtime.machine.voting import Voting
from firma.peer.wire.terms import Tag
from firma.protocol import Exchange, Exchanges, Message, Mismatch, Participant
from firma.schedule import RoundPlan


class Rounds:
    """The round in hand: its training, and the exchange that is under way."""

    def __init__(self, standing: Standing, lines: Lines, voting: Voting) -> None:
        self._standing, self._lines, self._voting = standing, lines, voting
        self._trained: Trained | None = None  # of the round whose mixing is not done
        self._exchanges: Exchanges | None = None
        self._due: Exchange | None = None  # the exchange that is under way
        self._arrived: dict[int, Message] = {}
        self._scores: dict[int, float] = {}
        self._weights: dict[int, float] = {}
        self._mismatches: list[Mismatch] = []  # that the round's exchanges have found and nobody was told of
        self._mixed: float | None = None  # norm of the extractor after the last round's mixing
        self._absurd: list[tuple[int, Excess]] = []  # what was not used in this exchange, by sender
        self._denounced: set[int] = set()  # members that the operator was told of in this view

    # Beginning and end

    def view_chosen(self, start: int) -> None:
        """The next view starts at this round: training for another one is of no use."""
        if self._standing.done != start:
            self._trained = None

    def entered(self, now: float) -> list[Action]:
        """The site is where its view starts."""
        self._mixed = None
        self._denounced.clear()
        return self.next(now)

    def next(self, now: float) -> list[Action]:
        """Train for the next round, unless the view is over, or all rounds are done."""
        standing = self._standing
        actions: list[Action] = []
        if standing.current and not standing.complete:
            self._lines.judge(now)
            actions += self._voting.let_in(now)
        if not standing.current:
            self._drop()
        elif standing.complete:
            standing.phase = "settling"
        elif self._trained is not None and self._trained.number == standing.done:
            actions += self._exchange(now)
        else:
            standing.work("training", now)
            actions.append(Train(standing.plan))
        return actions

    def saved(self, rounds: int, now: float) -> list[Action]:
        """A round is on disk."""
        self._standing.done, self._standing.moved = rounds, now
        self._lines.monitor.round_ended(now)
        self._voting.completed()
        return self.next(now)

    def _drop(self) -> None:
        """The view is over or being replaced: drop the exchange that was under way; training that is done is kept."""
        self._standing.wait()
        self._exchanges, self._due, self._arrived = None, None, {}

    # Exchanges

    def trained(self, trained: Trained, now: float) -> list[Action]:
        """Training is done."""
        self._trained, self._standing.moved = trained, now
        return self._exchange(now)

    def _exchange(self, now: float) -> list[Action]:
        """Begin the round's exchanges."""
        standing = self._standing
        if not standing.current:
            self._drop()
            return []
        view, trained, start, plan = standing.view, self._trained, standing.start, standing.plan
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
            start.me, view.order, trained.shared, trained.accuracy, samples, start.wire, score, self._mismatches.append,
            admit=admit,
        )  # fmt: skip
        self._exchanges, self._arrived, self._weights = exchange(plan, part), {}, {}
        return self._advance(now)

    def _advance(self, now: float) -> list[Action]:
        """The round's next exchange with what the last one brought; after the last one, blend and save."""
        standing, trained, exchanges = self._standing, self._trained, self._exchanges
        assert standing.view is not None  # there is a round
        assert standing.inbox is not None
        assert trained is not None
        assert exchanges is not None
        try:
            due = next(exchanges) if self._due is None else exchanges.send(self._arrived)
        except StopIteration as stop:
            plan, refused = standing.plan, self._not_used(now)
            save = Save(trained.number, standing.view, trained.accuracy, plan, self._weights)
            standing.work("saving", now)
            self._trained, self._exchanges, self._due, self._arrived = None, None, None, {}
            self._mixed = norm(stop.value)
            return [*refused, *self._reported(plan), Blend(stop.value, plan), save]
        refused = self._not_used(now)
        self._due = due
        standing.wait("exchanging")
        standing.inbox.now = tag = self._tag(due)
        self._lines.sent(due.to, tag)
        self._lines.monitor.exchange_began(tag, due.to, now)
        seal = self._voting.seal(tag[0], tag[1] - 1)
        return [*refused, *(Send(member, tag, due.message, seal) for member in due.to)]

    def _tag(self, due: Exchange) -> Tag:
        number, step = due.tag
        return self._standing.followed, number + 1, step

    def missing(self) -> tuple[int, ...]:
        """Members whose message of the exchange that is under way has not arrived."""
        inbox = self._standing.inbox
        if self._standing.phase != "exchanging" or self._due is None or inbox is None:
            return ()
        return inbox.missing(self._due.wait, self._tag(self._due))

    def await_messages(self, now: float) -> list[Action]:
        """Continue when one message from each awaited member is here."""
        standing = self._standing
        if not standing.current:
            self._drop()
            return []
        assert self._due is not None  # an exchange is under way
        assert standing.inbox is not None
        tag = self._tag(self._due)
        arrived = standing.inbox.take(self._due.wait, tag)
        if arrived is None:
            return []
        self._lines.monitor.exchange_ended(now)
        self._arrived, standing.moved = arrived, now
        standing.work("scoring", now)
        chosen = arrived if self._verifies(standing.plan) else {}
        return [Score(tag, {sender: message.state.values for sender, message in chosen.items()})]

    def scored(self, tag: Tag, scores: dict[int, float], now: float) -> list[Action]:
        """The extractors of the exchange are scored, or need not be."""
        standing = self._standing
        if not standing.current or self._due is None or self._tag(self._due) != tag:
            self._drop()
            return []
        plan, self._scores = standing.plan, scores
        actions: list[Action] = []
        for sender, score in scores.items():
            if plan.gate is not None and score < plan.gate.threshold:
                facts = {"member": standing.agreement.names[sender], "round": plan.number + 1, "score": score}
                actions.append(LogEvent("gated", facts))
        if tag[2] == 0:
            assert standing.view is not None  # it is current
            known = (lambda sender, _: scores[sender]) if self._verifies(plan) else None
            order = standing.view.order
            self._weights = kind_of(plan.mixing).pass_weights(plan, order, standing.me, self._arrived, known)
        return actions + self._advance(now)

    def _verifies(self, plan: RoundPlan) -> bool:
        return self._standing.start.verify and plan.gate is not None

    # What others sent and is not used

    def _not_used(self, now: float) -> list[Action]:
        """Tell who sent what cannot be of honest training; it was treated as missing, its weight is this member's."""
        actions: list[Action] = []
        for member, found in self._absurd:
            name, turn = self._standing.agreement.names[member], self._standing.done + 1
            if member in self._weights:
                self._weights[self._standing.me] += self._weights.pop(member)
            facts = {"member": name, "round": turn, "why": found.why, "certain": found.certain}
            actions.append(LogEvent("absurd", facts))
            if found.certain:
                self._standing.detector.misbehaved(member, f"{name} sent {found.why}", now)
            if member not in self._denounced:
                self._denounced.add(member)
                actions.append(Notice(f"round {turn}: {name} sent {found.why}; it is not used, nor is any like it"))
        self._absurd.clear()
        return actions

    def _reported(self, plan: RoundPlan) -> list[Action]:
        """A line of the log, and where something was left out a notice, for each extractor that members disagree on."""
        names, actions = self._standing.agreement.names, list[Action]()
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
