"""The round loop: the main thread's work for a member, one piece after the other.

It trains, encodes and sends, scores, blends, tests, saves and tells the operator, as the member asks through the
driver, and reports back. Everything else of a member runs beside it on other threads.
"""

import math
import queue
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from firma.encoding import Bytes
from firma.errors import BadInput
from firma.peer.membership.views import View
from firma.peer.ring_file import Ring
from firma.peer.runtime import checkpoint
from firma.peer.runtime.audit_log import AuditLog
from firma.peer.runtime.catching_up import caught_up
from firma.peer.runtime.disk_budget import DiskBudget
from firma.peer.runtime.driver import Driver
from firma.peer.runtime.event_log import EventLog
from firma.peer.runtime.events import (
    Blend,
    Enter,
    Entered,
    Fail,
    Failed,
    Finish,
    Notice,
    Save,
    Saved,
    Score,
    Scored,
    Send,
    SendExtractor,
    Train,
    Trained,
    Work,
)
from firma.peer.runtime.local_training import LocalSite
from firma.peer.wire.message import encode
from firma.peer.wire.terms import Terms, WireError
from firma.protocol import ExtractorState, Message
from firma.tasks.diagnosis import diverged

_LOOK = 0.5  # seconds


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What an operator sees after a round."""

    number: int  # from 1
    rounds: int
    ring: tuple[str, ...]
    weights: dict[str, float]  # of this site and its neighbours in one pass
    accuracy: float  # on this site's test data; the task's main metric where that is another
    sent: int  # bytes
    seconds: float
    training: float  # seconds of them
    mixing: float = 0.0  # seconds of them spent exchanging and blending
    metrics: Mapping[str, float] = field(default_factory=dict)  # all of the task, on this site's test data
    main: str = "accuracy"  # the name of the main metric
    view: int = 0  # number of the view in which it was done


OnRound = Callable[[RoundReport], None]
OnNotice = Callable[[str], None]


@dataclass
class _Stopwatch:
    """When the round in hand began, what was sent before it, and how long its parts took."""

    number: int = -1
    began: float = 0.0
    sent_before: int = 0
    training: float = 0.0
    mixed: float = 0.0  # seconds from the beginning until the mixture was taken over


def plain_metrics(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Metrics for JSON, None in place of NaN and infinity."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


class RoundLoop:
    """Carries out a member's work at one site."""

    def __init__(
        self, ring: Ring, terms: Terms, site: LocalSite, state: Path, saved: checkpoint.Saved, driver: Driver,
        audit_log: AuditLog, log: EventLog, on_round: OnRound, on_notice: OnNotice, disk: DiskBudget,
        on_saved: OnRound = lambda report: None,
    ) -> None:  # fmt: skip
        self.history, self.order = list(saved.history), saved.order
        self.parts = list(saved.parts)  # members of each round
        self.training = 0.0  # seconds in all
        self.metrics: Mapping[str, float] = {}  # of the last round
        self._diverged = False
        self._ring, self._terms, self._site, self._state = ring, terms, site, state
        self._driver, self._audit_log, self._log = driver, audit_log, log
        self._on_round, self._on_notice, self._disk = on_round, on_notice, disk
        self._on_saved = on_saved  # called before the others are told that the round is done
        self._watch = _Stopwatch()
        self._encoded: tuple[Message, bytes, Bytes] | None = None  # the last message, which often goes to two members
        self.working_since: float | None = None  # on a monotonic clock; None while it waits

    def run(self) -> None:
        """Until the member has finished; raises what it fails with."""
        while self.step(self._next_work()):
            self.working_since = None

    def step(self, work: Work) -> bool:
        """Carry out one piece of work; False if it was the last one."""
        if isinstance(work, Finish):
            self.metrics = self.metrics or self._site.measure()  # a finished run that was started again
            return False
        if isinstance(work, Fail):
            raise work.error
        try:
            self._carry_out(work)
        except (BadInput, WireError) as error:
            self._driver.on(Failed(str(error)))
        except OSError as error:  # such as a full disk under the audit file: what cannot be recorded is not sent
            where = str(self._state)
            why = f"state folder {where!r}: cannot write ({error.strerror}); the saved rounds are whole"
            self._driver.on(Failed(why))
        return True

    def _next_work(self) -> Work:
        """Wait for work, and look up now and then: a signal that reached another thread does not wake this one."""
        while True:
            with suppress(queue.Empty):
                work = self._driver.work.get(timeout=_LOOK)
                self.working_since = time.monotonic()
                return work

    def _carry_out(self, work: Notice | Enter | Train | Send | SendExtractor | Score | Blend | Save) -> None:
        match work:
            case Notice(text):
                self._on_notice(text)
            case Enter():
                self.enter(work)
                self._driver.on(Entered())
            case Train():
                self._driver.on(self.train(work))
            case Send():
                self.send(work)
            case SendExtractor(to, tag, receipt):
                saved = checkpoint.read(self._state, tag[1] - 1, self._ring.digest)  # it may have trained since
                self.send(Send(to, tag, Message(ExtractorState(self._site.extractor_in(saved.tensors))), receipt))
            case Score():
                self._driver.on(self.score(work))
            case Blend(extractor, plan):
                self._site.blend(extractor, plan)
                self._watch.mixed = time.perf_counter() - self._watch.began
            case Save():
                report = self.save(work)
                self._driver.on(Saved(len(self.history)))
                self._on_round(report)

    def enter(self, work: Enter) -> None:
        """Be where the view starts: go back to that round, or come in with the others' extractor and the own head."""
        view = work.view
        self.order, start, self._watch = view.order, view.start, _Stopwatch()
        if len(self.history) != start:
            saved = checkpoint.read(self._state, checkpoint.nearest(self._state, start), self._ring.digest)
            checkpoint.restore(self._site, saved)
            self.history = (list(saved.history) + [None] * start)[:start]
            self.parts = (list(saved.parts) + [None] * start)[:start]
            if work.extractors:
                self._site.adopt(caught_up(self._site.shared, [values for _, values in work.extractors]))
            if saved.rounds != start:
                self._write(view)
        checkpoint.mark(self._state, start, view.number)

    def train(self, work: Train) -> Trained:
        """This round's local training."""
        self._begin(work.plan.number)
        accuracy = self._site.train(work.plan)
        self._watch.training = time.perf_counter() - self._watch.began
        return Trained(work.plan.number, self._site.shared, accuracy, self._site.samples)

    def send(self, work: Send) -> None:
        """Encode a message, record it and have it delivered."""
        self._begin(work.tag[1] - 1)
        if self._encoded is None or self._encoded[0] is not work.message:
            self._encoded = (work.message, *encode(self._terms, work.tag, work.message, work.receipt))
        _, header, body = self._encoded
        self._driver.send(work.to, work.tag, header, body)

    def score(self, work: Score) -> Scored:
        """Accuracy of neighbours' extractors under this site's head."""
        return Scored(work.tag, {sender: self._site.score(values) for sender, values in work.extractors.items()})

    def save(self, work: Save) -> RoundReport:
        """Test and save a round, and log it."""
        watch, names = self._watch, self._ring.names
        self.metrics, main = self._site.test(work.plan), self._site.task.main
        tested = self.metrics[main]
        self.history.append(tested if math.isfinite(tested) else None)
        self.parts.append(work.view.order)
        self._warn(work.number)
        self._write(work.view)
        self.training += watch.training
        weights = {names[member]: round(weight, 6) for member, weight in work.weights.items()}
        sent, seconds = self._audit_log.sent - watch.sent_before, time.perf_counter() - watch.began
        report = RoundReport(
            work.number + 1, self._ring.rounds, tuple(names[n] for n in self.order), weights, tested, sent, seconds,
            watch.training, watch.mixed - watch.training, self.metrics, main, work.view.number,
        )  # fmt: skip
        others = {name: value for name, value in plain_metrics(self.metrics).items() if name != main}
        facts = {
            "number": report.number, "view": work.view.number, main: self.history[-1], "metrics": others,
            "training_accuracy": work.training_accuracy, "bytes": sent, "seconds": round(seconds, 4),
            "training": round(report.training, 4), "mixing": round(report.mixing, 4), "weights": weights,
        }  # fmt: skip
        self._log.event("round", facts)
        self._on_saved(report)
        return report

    def _warn(self, number: int) -> None:
        """Tell the operator once that training has diverged."""
        losses = {"loss": np.array([self.metrics["loss"]])} if "loss" in self.metrics else {}  # an app may report none
        found = diverged(number, losses, self._ring.hyper.rate)
        if self._ring.flower is not None:
            found = found.partition(";")[0]  # what to try is in the app's own settings
        if found and not self._diverged:
            self._diverged = True
            text = found.replace("of client 0 ", "at this site ")
            self._log.event("notice", {"says": f"warning: {text}"})
            self._on_notice(text)

    def _begin(self, number: int) -> None:
        """A round begins with its training, or, if that was done in an earlier view, with its first message."""
        if self._watch.number != number:
            self._watch = _Stopwatch(number, time.perf_counter(), self._audit_log.sent)

    def _write(self, view: View) -> None:
        newest = max(self._state.glob("round-[0-9]*"), default=self._state / "none")  # all are of about the same size
        keep = self._disk.kept(newest, len(self._ring.members))
        checkpoint.write(
            self._state, self._site, self._ring.digest, view.number, self.order, self.history, keep, self.parts
        )  # fmt: skip
