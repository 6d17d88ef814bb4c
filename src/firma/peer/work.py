"""A member's rounds: follow the view that was decided until it ends or all rounds are done, each round saved."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from firma.encoding import Wire
from firma.mixing.kind import exchange, kind_of
from firma.peer.council import Council
from firma.peer.desk import Desk, Superseded
from firma.peer.membership.views import View
from firma.peer.ring_file import Ring
from firma.peer.runtime import checkpoint
from firma.peer.runtime.audit_log import Ledger
from firma.peer.runtime.local_training import LocalSite
from firma.peer.runtime.report import OnRound, RoundReport
from firma.peer.runtime.verify import Verifier
from firma.peer.transport.client import Links
from firma.peer.waiting import Waiting
from firma.protocol import Exchange, Exchanges, Message, Participant, Score
from firma.schedule import RoundPlan, plan


def row_of(
    me: int, order: tuple[int, ...], today: RoundPlan, arrived: dict[int, Message], names: tuple[str, ...],
    score: Score | None = None,
) -> dict[str, float]:  # fmt: skip
    """What a member and its neighbours weigh in one pass, by name; empty in a warm-up, where all count by size."""
    weights = kind_of(today.mixing).pass_weights(today, order, me, arrived, score)
    return {names[member]: round(weight, 6) for member, weight in weights.items()}


@dataclass
class Work:
    """What the main thread does; everything else of a member serves it."""

    ring: Ring
    me: int
    site: LocalSite
    samples: int
    state: Path
    desk: Desk
    council: Council
    waiting: Waiting
    links: Links
    ledger: Ledger
    on_round: OnRound
    history: list[float | None]
    order: tuple[int, ...]  # of the last view
    wire: Wire = "float32"  # how this site's extractor is written
    verify: bool = False  # score neighbours' extractors instead of believing their accuracies
    training: float = 0.0  # seconds in all
    busy: float | None = None  # since when it trains or saves; None while it waits for others
    _epoch: int = 0
    _trained: tuple[int, float] | None = None  # the round whose training is done and whose mixing is not, its accuracy
    _row: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.links.idle = self.waiting.show

    def run(self) -> None:
        """To the last round, through as many views as it takes."""
        while True:
            self.busy = None
            view = self.waiting.seat(self._epoch, len(self.history))
            if view is None:
                return
            try:
                self._follow(view)
                self.busy = None
                self.waiting.linger(view)
                return
            except Superseded:
                continue

    def _follow(self, view: View) -> None:
        self._epoch, self.order, self.busy = view.epoch, tuple(seat.member for seat in view.ring), time.monotonic()
        self._enter(view)
        names = [self.ring.names[n] for n in self.order]
        self.desk.log.event("view", {"number": view.epoch, "ring": names, "from_round": view.start + 1})
        if view.epoch > 1:
            self.desk.notice(f"view {view.epoch}: {'-'.join(names)}, from round {view.start + 1}")
        for number in range(view.start, self.ring.rounds):
            self.waiting.show()
            self.waiting.warden.boundary()
            self.desk.check(view.epoch)
            self._round(view.epoch, number)
        self.links.settle(view.epoch)

    def _enter(self, view: View) -> None:
        """Be where the view begins: go back to that round, or come in with what this site last had."""
        start = view.start
        if len(self.history) != start:
            self._trained = None
            saved = checkpoint.read(self.state, checkpoint.nearest(self.state, start), self.ring.digest)
            checkpoint.restore(self.site, saved)
            self.history = (list(saved.history) + [None] * start)[:start]
            if saved.rounds != start:
                self._save(view.epoch)
        checkpoint.mark(self.state, start, view.epoch)

    def _save(self, epoch: int) -> None:
        keep = len(self.ring.members) + 2
        checkpoint.write(self.state, self.site, self.ring.digest, epoch, self.order, self.history, keep)

    def _round(self, epoch: int, number: int) -> None:
        began, before = time.perf_counter(), self.ledger.sent
        today = plan(self.site.row, self.site.hyper, len(self.order), self.ring.rounds, number)
        accuracy = self._train(today)
        trained = time.perf_counter() - began
        score = Verifier(self.site, today, self.desk.log) if self.verify and today.gate is not None else None
        part = Participant(self.me, self.order, self.site.shared, accuracy, self.samples, self.wire, score)
        peer = exchange(today, part)
        mixture = self._drive(peer, epoch, today, score)
        self._trained = None
        self.site.blend(mixture)
        mixed = time.perf_counter() - began
        tested = self.site.test()
        self.history.append(tested)
        self._save(epoch)
        self.council.completed(epoch, number + 1)
        self.training += trained
        report = RoundReport(
            number + 1, self.ring.rounds, tuple(self.ring.names[n] for n in self.order), self._row, tested,
            self.ledger.sent - before, time.perf_counter() - began, trained, mixed - trained,
        )  # fmt: skip
        facts = {
            "number": number + 1, "view": epoch, "accuracy": tested, "training_accuracy": accuracy,
            "bytes": report.sent, "seconds": round(report.seconds, 4), "training": round(trained, 4),
            "mixing": round(mixed - trained, 4), "weights": self._row,
        }  # fmt: skip
        self.desk.log.event("round", facts)
        self.on_round(report)

    def _train(self, today: RoundPlan) -> float:
        """This round's training, unless it was done before the view changed: then the site is as it left it."""
        if self._trained is None or self._trained[0] != today.number:
            self.busy = time.monotonic()
            self._trained = (today.number, self.site.train(today))
        return self._trained[1]

    def _drive(self, peer: Exchanges, epoch: int, today: RoundPlan, score: Score | None) -> Tensor:
        """Run the protocol's generator over the links."""
        arrived: dict[int, Message] | None = None
        while True:
            try:
                due: Exchange = next(peer) if arrived is None else peer.send(arrived)
            except StopIteration as stop:
                result: Tensor = stop.value
                return result
            number, step = due.tag
            self.busy = None
            arrived = self.links.exchange(due.to, due.wait, due.message, (epoch, number + 1, step))
            self.busy = time.monotonic()
            if step == 0:
                self._row = row_of(self.me, self.order, today, arrived, self.ring.names, score)
