"""A node: one member of one run, put together from its files, its site, its machine and its threads."""

import json
import random
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from firma.atomic_files import write_whole
from firma.data.dataset import Dataset
from firma.data.standardise import Standardiser, warn_of_scales
from firma.encoding import Wire
from firma.errors import BadInput
from firma.flower.description import Scalar
from firma.mixing.combine import check_members
from firma.peer.agreed_model import check_consent
from firma.peer.identity import Identity, validity
from firma.peer.membership.failure_detector import Patience
from firma.peer.membership.proposer import rules_of
from firma.peer.membership.views import MemberState, Seals
from firma.peer.ring_file import Continues, Ring, Sharing, check_continues, read_ring, ring_toml
from firma.peer.runtime import checkpoint
from firma.peer.runtime.audit_log import AuditLog
from firma.peer.runtime.consent import FAREWELL, Consent, RingStopped
from firma.peer.runtime.disk_budget import DiskBudget
from firma.peer.runtime.driver import Driver
from firma.peer.runtime.event_log import EventLog
from firma.peer.runtime.events import Fail
from firma.peer.runtime.evidence import Evidence
from firma.peer.runtime.federation_results import ResultBoard, Summary, check_sharing
from firma.peer.runtime.local_training import (
    Learner,
    LocalSite,
    check_gate,
    class_support,
    load_own,
    noisy_proportions,
    proportions,
    standardised_own,
)
from firma.peer.runtime.member_machine import Agreement, Member, Start
from firma.peer.runtime.participation import Span, spans
from firma.peer.runtime.promises import Promises, keep_published_proportions, published_proportions
from firma.peer.runtime.round_loop import OnNotice, OnRound, RoundLoop, RoundReport
from firma.peer.runtime.site_data import check_column_types, check_inputs, column_notice
from firma.peer.runtime.state_folder import StateLock, claim, holder
from firma.peer.runtime.supervisor import Supervisor
from firma.peer.signing import seals_of
from firma.peer.spoken import spoken
from firma.peer.statement_folder import StatementFolder
from firma.peer.transport.server import Server
from firma.peer.wire.terms import Terms, federation_tag, signature
from firma.schedule import RoundPlan, plan

LOG, RING_COPY, SITE_FACTS = (
    "log.jsonl",
    "ring.toml",
    "site.json",
)  # in the state folder, for whoever uses the trained model


@dataclass(frozen=True)
class Outcome:
    """The end of a run."""

    history: tuple[float | None, ...]  # test accuracy (or main metric) by round; None where this site took no part
    order: tuple[str, ...]
    parameters: Tensor
    sent: int
    seconds: float
    training: float  # seconds of them
    processor: float  # seconds of a core
    training_processor: float  # seconds of them
    refused: dict[str, int]
    checkpoint: Path
    metrics: Mapping[str, float]  # of the task, on this site's test data after the last round
    participation: tuple[Span, ...] = ()  # who took part in which rounds
    stopped_by: tuple[str, ...] = ()  # members that asked to stop the ring, if it ended by that
    results: Summary | None = None  # of the members that share theirs; None: the ring has no summary


@dataclass(frozen=True)
class Setup:
    """Who a member is, where its files are, and what it listens on."""

    ring: Ring
    identity: Identity
    data: str
    state: Path
    listen: str | None = None  # default: the address in the ring file
    resume: bool = False
    device: str = "cpu"
    wire: Wire | None = None  # how this site's extractor is encoded; default: as the ring file says
    verify_gate: bool = False  # score neighbours' extractors here instead of believing their accuracies
    metrics: str | None = None  # HOST:PORT of /metrics
    begin_with: Path | None = None  # the state folder of an earlier ring, whose last round this one starts from
    model: str | None = None  # MODULE:FUNCTION that this site agrees to run, where the ring file names code
    app: str | None = None  # the Flower app that this site agrees to run, where the ring file names one
    node_config: Mapping[str, Scalar] = field(default_factory=dict)  # what the app reads about this site
    disk: DiskBudget = field(default_factory=DiskBudget)  # what the state folder may take
    log_to: TextIO | None = None  # the lines of the log go there too
    share_results: Sharing = "none"  # what this site tells all members about its results


def flower_learner(setup: Setup, me: int) -> Learner:
    """The Flower app of the ring file at this site."""
    from firma.peer.flower_site import check_app, learner

    assert setup.ring.flower is not None  # the caller has asked
    check_app(setup.ring.flower, setup.app)
    if setup.data:
        raise BadInput(f"--data {setup.data!r}: the Flower app of the ring file loads its own data; use --node-config")
    if setup.device != "cpu":
        raise BadInput(f"--device {setup.device}: the Flower app of the ring file chooses its own device")
    if setup.verify_gate:
        raise BadInput("--verify-gate: a Flower app cannot score the extractors of neighbours on its training data")
    return learner(setup.ring, me, setup.node_config)


def terms_of(ring: Ring, site: LocalSite) -> Terms:
    """What every message must agree with."""
    return Terms(federation_tag(ring.federation), ring.digest, signature(site.sent), ring.task.shares)


def random_process() -> int:
    """A number for this process; a member that is started again has another one."""
    return secrets.randbits(63)


def agreement_of(ring: Ring, terms: Terms, seals: Seals) -> Agreement:
    """What a member's decisions depend on, read off the ring file."""
    row, hyper = ring.row, ring.hyper

    @lru_cache(maxsize=1024)
    def planned(members: int, number: int) -> RoundPlan:
        return plan(row, hyper, members, ring.rounds, number, ring.seed)

    patience = Patience(ring.patience, ring.gathering, ring.stalled)
    return Agreement(ring.names, ring.rounds, rules_of(ring, seals), patience, planned, terms)


class Node:
    """One member of one run; `run` does it all."""

    def __init__(self, setup: Setup, on_round: OnRound, on_notice: OnNotice = lambda text: None) -> None:
        self._lock: StateLock | None = None
        try:
            self._build(setup, on_round, on_notice)
        except BaseException:
            self._release()
            raise

    def _claim(self, on_notice: OnNotice) -> None:
        """Before anything in the state folder is read: no other process may use it, and nobody else may read it."""
        if self._lock is None:
            self._lock, changed = claim(self.setup.state)
            if changed:
                on_notice(changed)

    def _check_certificates(self, on_notice: OnNotice) -> None:
        """Refuse to start with a certificate that nobody will accept; warn of others' and of those that expire soon."""
        for number, member in enumerate(self.ring.members):
            found = validity(member.certificate.encode())
            trouble = found.trouble()
            if trouble and number == self.me:
                raise BadInput(f"this site's certificate {trouble}")
            if trouble or found.warning():
                whose = "this site's certificate" if number == self.me else f"the certificate of {member.name}"
                on_notice(f"warning: {whose} {trouble or found.warning()}")

    def _check_choices(self) -> None:
        """Refuse what this site asks for beyond what the members agreed on."""
        setup, ring = self.setup, self.ring
        if setup.verify_gate:
            check_gate(ring)
        check_sharing(ring, setup.share_results)
        check_members(ring.row, ring.hyper, len(ring.members), ring.rounds, setup.wire or ring.wire)
        check_consent(ring.task, setup.model)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def _build(self, setup: Setup, on_round: OnRound, on_notice: OnNotice) -> None:
        ring = setup.ring
        self.setup, self.ring, self.me = setup, ring, ring.place(setup.identity)
        told: list[str] = []

        def notice(text: str) -> None:
            told.append(text)
            on_notice(text)

        self._statements = self._accepted()
        self._check_certificates(notice)
        if setup.state.exists():  # else it is created after the data are found to be right
            self._claim(notice)
        self._check_choices()
        stored, fitted = self._read_data(notice)
        self.site = LocalSite(ring, self.me, self._own, torch.device(setup.device))
        self.terms = terms_of(ring, self.site)
        self._claim(notice)
        held = checkpoint.latest(setup.state)
        if held and not setup.resume:
            where = str(setup.state)
            raise BadInput(
                f"state folder {where!r} already holds {held} rounds; pass --resume to continue, "
                "or choose another folder"
            )
        if not checkpoint.any_in(setup.state):
            self._begin(notice)
        promises = Promises(setup.state, ring)
        memory = promises.read()  # whether they are whole and of this ring, before anything is written
        try:
            write_whole(setup.state / RING_COPY, ring_toml(ring), private=True)
            write_whole(setup.state / SITE_FACTS, json.dumps(stored, indent=1) + "\n", private=True)
            if fitted is not None:  # new data must be scaled in the same way to use the model
                write_whole(setup.state / "standardiser.json", fitted.as_json() + "\n", private=True)
            self.log = EventLog(setup.state / LOG, setup.disk.log, setup.log_to)
            self.audit_log = AuditLog(
                setup.state / "audit.jsonl", ring, self.me, self.terms, setup.disk.log, setup.share_results
            )
            self.evidence = Evidence(setup.state, ring, self.me, self.terms)
            state, saved = self._past()
            self._check_disk(saved.rounds, notice)
            for text in told:
                self.log.event("notice", {"says": text})
        except OSError as error:
            raise BadInput(f"state folder {str(setup.state)!r}: cannot write there ({error.strerror})") from None
        samples, wire = self.site.samples, setup.wire or ring.wire
        start = Start(self.me, state, memory, samples, wire, setup.verify_gate)
        self.member = Member(
            agreement_of(ring, self.terms, seals_of(ring, setup.identity)), start, random.Random(), time.monotonic()
        )
        self.driver = Driver(
            self.member, ring, self.me, self.terms, setup.identity, promises, self.audit_log, self.log, self.evidence,
            waiting=True,
        )  # fmt: skip
        shares = setup.share_results
        self.results = (
            None if ring.summary == "none" else ResultBoard(ring, self.me, setup.identity, shares, setup.state)
        )
        self.consent = Consent(
            ring, self.me, self._statements, self.driver.exchange_statements, self._stop_by_agreement, self._notice,
            lambda asked: self.log.event("asked to stop", {"by": list(asked), "needed": ring.needed}), self.results,
            lambda member, why: self.log.refused("statements", ring.names[member], why),
        )  # fmt: skip
        self.server = Server(ring, self.terms, self.driver, self._answer_statements)
        self._loop = RoundLoop(
            ring, self.terms, self.site, setup.state, saved, self.driver, self.audit_log, self.log, on_round, on_notice,
            setup.disk, self._share,
        )  # fmt: skip
        self._stop, self._on_notice, self._supervisor = threading.Event(), on_notice, Supervisor()
        self._from = {"rounds": saved.rounds, "view": saved.epoch}  # where it starts, for the log
        self.site.prepare(plan(ring.row, ring.hyper, 1, ring.rounds, ring.rounds - 1))

    def _accepted(self) -> StatementFolder:
        """What members have stated, this site's consent among it."""
        found = StatementFolder(self.ring, self.setup.identity)
        if self.ring.names[self.me] in found.lacking("accept"):
            raise BadInput(
                f"this site has not accepted the ring file (digest in words: {spoken(self.ring.digest)}); read it and "
                "sign it with firma accept"
            )
        return found

    def _begin(self, on_notice: OnNotice) -> None:
        """Put a site without a state of its own where an earlier ring left it, if there was one."""
        if self.ring.continues is not None:
            self._take_over(self.ring.continues, on_notice)
        elif self.setup.begin_with is not None:
            checkpoint.begin(self.site, self.setup.begin_with)

    def _take_over(self, continues: Continues, on_notice: OnNotice) -> None:
        """Begin where the ring that this one continues has left this site."""
        old = self.setup.begin_with
        if old is None:
            raise BadInput(
                f"the ring file continues an earlier ring after round {continues.round}; pass --begin-with and the "
                "state folder of that ring"
            )
        if not (old / RING_COPY).exists():
            raise BadInput(f"--begin-with {str(old)!r}: no {RING_COPY} there; pass the --state of the earlier ring")
        if process := holder(old):
            raise BadInput(f"--begin-with {str(old)!r} is in use by process {process}; end that ring first")
        earlier = read_ring(old / RING_COPY)
        check_continues(self.ring, earlier)
        keep_published_proportions(old, self.setup.state)
        state, done = self.setup.state, continues.round
        taken = checkpoint.take_over(self.site, old, earlier.digest, state, self.ring.digest, done)
        if taken != done:
            on_notice(f"warning: this site has no round {done} of the earlier ring; it continues from round {taken}")

    def _check_disk(self, rounds: int, on_notice: OnNotice) -> None:
        """Say that the budget keeps fewer rounds than the ring may go back."""
        members = len(self.ring.members)
        kept = self.setup.disk.kept(self.setup.state / f"round-{rounds:06d}", members)
        if kept < members + 2:
            on_notice(
                f"warning: the disk budget keeps {kept} rounds, and the ring may go back {members + 2}; if it goes "
                "back further than this site has, this site continues from the oldest round that it kept"
            )

    def _read_data(self, on_notice: OnNotice) -> tuple[dict[str, Any] | None, Standardiser | None]:
        """This site's data, checked: how they are stored, and how they were standardised; None if an app has them."""
        setup, ring = self.setup, self.ring
        if ring.flower is not None:
            self._own: Dataset | Learner = flower_learner(setup, self.me)
            return None, None
        own = load_own(setup.data, ring.task)
        check_inputs(own, setup.data)
        check_column_types(own, setup.data, ring.task)
        unchecked = column_notice(own, ring.task)
        if unchecked:
            on_notice(f"warning: {unchecked}")
        # As the data are stored: what new data must look like to use the model.
        stored = {
            "site": ring.names[self.me], "dtype": str(own.x_train.dtype), "scale": own.scale,
            "columns": list(own.columns),
        }  # fmt: skip
        if not ring.standardise:
            warn_of_scales(own, "firma ring-file --set standardise=per-client for a new ring file")
            self._own = own
            return stored, None
        self._own, fitted = standardised_own(own)
        return stored, fitted

    def _past(self) -> tuple[MemberState, checkpoint.Saved]:
        """What this site says about itself, and where it was; its first state is saved as round 0."""
        state, digest, ring = self.setup.state, self.ring.digest, self.ring
        shares: tuple[float, ...] = ()
        if isinstance(self._own, Dataset) and ring.row.order != "given" and ring.proportions != "none":
            noisy = ring.proportions == "noisy"
            edges = ring.task.edges
            drawn = noisy_proportions(self._own, ring.epsilon, edges) if noisy else proportions(self._own, edges)
            shares = published_proportions(state, drawn)
        number, saved = checkpoint.reopen(state, self.site, digest)
        return MemberState(random_process(), number, saved.rounds, shares=shares), saved

    def run(self) -> Outcome:
        """Train to the end; `PeerLost` and `BadInput` leave whole checkpoints behind."""
        began, processor, trained = time.perf_counter(), time.process_time(), self.site.processor
        listen, loop = self.setup.listen or self.ring.members[self.me].address, self._loop
        try:
            listening = self.server.open(self.setup.identity, listen)
        except BaseException:
            self._release()
            raise
        clock = threading.Thread(target=self.driver.run_clock, args=(self._stop, self._each_tick), daemon=True)
        consent = threading.Thread(target=self.consent.run, args=(self._stop,), daemon=True)
        stopped_by: tuple[str, ...] = ()
        facts = {"site": self.ring.names[self.me], "listen": listen, "ring": self.ring.digest.hex()}
        self.log.event("started", facts | self._from)
        self._supervisor.ready()
        consent.start()
        try:
            self.consent.await_all(self._supervisor.alive)
            self.driver.begin()
            clock.start()
            loop.run()
        except RingStopped:
            stopped_by = self.consent.asked()
            loop.metrics = loop.metrics or self.site.measure()
            self._bid_farewell()
        except Exception as error:
            self.log.event("failed", {"why": str(error) or type(error).__name__})
            raise
        finally:
            self._close(listening, clock, consent)
        return Outcome(
            tuple(loop.history), tuple(self.ring.names[n] for n in loop.order), self.site.tested,
            self.audit_log.sent, time.perf_counter() - began, loop.training, time.process_time() - processor,
            self.site.processor - trained, self.log.total(),
            self.setup.state / f"round-{len(loop.history):06d}", loop.metrics, spans(loop.parts, self.ring.names),
            stopped_by, None if self.results is None else self.results.summary(),
        )  # fmt: skip

    def _share(self, report: RoundReport) -> None:
        """Tell the members this round's result, if this site has opted in."""
        if self.results is not None and isinstance(self._own, Dataset):
            samples, support = len(self._own.y_test), class_support(self._own)
            self.results.post(report.view, report.number, report.accuracy, samples, support)

    def _answer_statements(self, sender: int, raw: bytes) -> bytes:
        """A member's statements for this site's, which are recorded."""
        answer = self.consent.answer(sender, raw)
        try:
            self.audit_log.record_statements(sender, answer)
        except (OSError, ValueError):  # the disk is full, or the file is closed: what is not recorded is not sent
            return b""
        return answer

    def _notice(self, text: str) -> None:
        """Tell the operator, from any thread."""
        self.log.event("notice", {"says": text})
        self._on_notice(text)

    def _stop_by_agreement(self) -> None:
        """A quorum has asked: end after the work in hand."""
        self.driver.work.put(Fail(RingStopped()))

    def _bid_farewell(self) -> None:
        """Make sure that the members that are there know why this one ends."""
        asked, rounds = ", ".join(self.consent.asked()), len(self._loop.history)
        self._notice(f"the ring is stopped after round {rounds} of {self.ring.rounds}, as {asked} asked")
        self.log.event("stopped by agreement", {"by": list(self.consent.asked()), "rounds": rounds})
        end = time.monotonic() + FAREWELL
        while not self.consent.all_know() and time.monotonic() < end:
            time.sleep(0.05)

    def _each_tick(self) -> None:
        self.server.cancel_unmoved(self.ring.patience)
        since = self._loop.working_since
        if since is None or time.monotonic() - since < self.ring.stalled:  # else it hangs: the watchdog may end it
            self._supervisor.alive()

    def _close(self, listening: Any, clock: threading.Thread, consent: threading.Thread) -> None:
        self._supervisor.stopping()
        self._stop.set()
        self.consent.close()
        for thread in (clock, consent):
            if thread.ident is not None:  # it was started
                thread.join()
        self.driver.close()
        listening.stop(0.2).wait()
        self.site.close()
        self.log.event("stopped", {"refused": self.log.total(), "handshakes_failed": self.server.handshakes_failed})
        self.log.close()
        self.audit_log.close()
        self.evidence.close()
        self._release()
