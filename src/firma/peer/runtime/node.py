"""A member at work: what it holds, the threads that serve its rounds, and how it starts and stops."""

import threading
import time
from typing import Any

import torch

from firma.errors import BadInput
from firma.peer.council import Council
from firma.peer.course import course
from firma.peer.desk import Desk
from firma.peer.membership.failure_detector import Patience, Signs
from firma.peer.membership.views import View, Word
from firma.peer.pulse import Pulse, random_process, terms_of
from firma.peer.runtime import checkpoint
from firma.peer.runtime.audit_log import Ledger
from firma.peer.runtime.event_log import Log
from firma.peer.runtime.local_training import LocalSite, load_own, noisy_proportions, proportions
from firma.peer.runtime.promises import Promises, told_once
from firma.peer.runtime.report import OnNotice, OnRound, Outcome, Setup
from firma.peer.runtime.verify import check_gate
from firma.peer.transport.client import Links
from firma.peer.transport.server import Reception, serve
from firma.peer.waiting import Waiting
from firma.peer.warden import Warden
from firma.peer.wire.heartbeat import FINISHED, LEAVING
from firma.peer.wire.terms import WireError
from firma.peer.work import Work
from firma.schedule import RoundPlan, plan


class Node:
    """One member of one run; `run` does it all."""

    def __init__(self, setup: Setup, on_round: OnRound, on_notice: OnNotice = lambda text: None) -> None:
        ring = setup.ring
        self.setup, self.ring, self.me = setup, ring, ring.place(setup.identity)
        if setup.verify_gate:
            check_gate(ring)
        self.own = load_own(setup.data, ring.task)
        self.site = LocalSite(ring, self.me, self.own, torch.device(setup.device))
        self.terms = terms_of(ring, self.site)
        self._process = random_process()
        self._stop = threading.Event()
        self._unfinished = True
        held = checkpoint.latest(setup.state)
        if held and not setup.resume:
            raise BadInput(f"state = {str(setup.state)!r}: it holds {held} rounds; go on with --resume or name another")
        if setup.begin_with is not None and not checkpoint.any_in(setup.state):
            checkpoint.begin(self.site, setup.begin_with)
        promises = Promises(setup.state, ring)
        promises.read()  # whether they are whole and of this ring, before anything is written
        self.log, self.ledger = self._files()
        try:
            word, saved = self._past()
        except OSError as error:
            raise BadInput(f"state = {str(setup.state)!r}: cannot write there ({error.strerror})") from None
        signs = Signs(self.me, ring.names, Patience(ring.patience, ring.gathering))
        self.desk = Desk(signs, self.log)
        self.council = Council(ring, self.terms, self.desk, promises, word, self.ledger.note, self._on_view)
        self.warden = Warden(self.council, self.desk)
        self.pulse = Pulse(ring, self.terms, self._process, self.desk, self.council, self.warden)
        self.council.ready = lambda: not self.pulse.stalled
        self._on_round, self._on_notice, self._saved = on_round, on_notice, saved
        self.reception: Reception | None = None
        self.site.prepare(plan(ring.row, ring.hyper, 1, ring.rounds, ring.rounds - 1))

    def _files(self) -> tuple[Log, Ledger]:
        state = self.setup.state
        try:
            state.mkdir(parents=True, exist_ok=True)
            return Log(state / "log.jsonl"), Ledger(state / "audit.jsonl", self.ring, self.me, self.terms)
        except OSError as error:
            raise BadInput(f"state = {str(state)!r}: cannot write there ({error.strerror})") from None

    def _past(self) -> tuple[Word, checkpoint.Saved]:
        """What this site has to say of itself, and where it was; the first state of all is saved as round 0."""
        state, digest = self.setup.state, self.ring.digest
        shares: tuple[float, ...] = ()
        if self.ring.row.order != "given" and self.ring.proportions != "none":
            noisy = self.ring.proportions == "noisy"
            drawn = noisy_proportions(self.own, self.ring.epsilon) if noisy else proportions(self.own)
            shares = told_once(state, drawn)
        epoch, rounds = checkpoint.tidy(state)
        if not checkpoint.any_in(state):
            checkpoint.write(state, self.site, digest, 0, (), [], 1)
        saved = checkpoint.read(state, rounds, digest)
        checkpoint.restore(self.site, saved)
        return Word(self._process, epoch, rounds, shares=shares), saved

    def _on_view(self, view: View, seated: bool) -> None:
        """A view is decided: take its messages, if this process is in it."""
        order = tuple(seat.member for seat in view.ring)

        def today(number: int) -> RoundPlan:
            return plan(self.site.row, self.site.hyper, len(order), self.ring.rounds, number)

        path = course(view.epoch, self.me, order, self.ring.rounds, self.terms.signature.size, today)
        self.desk.begin(view.epoch, path if seated else None, view.start)
        if not seated and self.warden.seated_once:
            self.desk.notice(f"view {view.epoch} was decided without this site; it asks to be let in again")

    def run(self) -> Outcome:
        """Train to the end; `PeerLost` and `BadInput` leave whole checkpoints behind."""
        began, processor, trained = time.perf_counter(), time.process_time(), self.site.processor
        reception = Reception(self.ring, self.terms, self.log, self.pulse.hello, self.desk, self.council)
        self.reception = reception
        listen = self.setup.listen or self.ring.members[self.me].address
        server = serve(reception, self.setup.identity, listen)
        links = Links(self.setup.identity, self.ring, self.me, self.terms, self.desk, self.ledger.record)
        self.council.send = lambda member, raw: links.note(member, raw, self.council.answered)
        waiting = Waiting(
            self.ring.rounds, self.desk, self.council, self.warden, self._on_notice, lambda: self.pulse.once(links)
        )
        work = Work(
            self.ring, self.me, self.site, len(self.own.y_train), self.setup.state, self.desk, self.council, waiting,
            links, self.ledger, self._on_round, list(self._saved.history), self._saved.order,
            self.setup.wire or self.ring.wire, self.setup.verify_gate,
        )  # fmt: skip
        self.pulse.busy = lambda: work.busy
        threads = [
            threading.Thread(target=self.pulse.beat, args=(links, reception, self._stop), daemon=True),
            threading.Thread(target=self.warden.watch, args=(self._stop,), daemon=True),
        ]
        for thread in threads:
            thread.start()
        self.log.event("started", {"site": self.ring.names[self.me], "listen": listen, "ring": self.ring.digest.hex()})
        try:
            work.run()
            self._unfinished = False
        except WireError as error:
            raise BadInput(str(error)) from None
        except OSError as error:  # such as a full disk under the audit file: what cannot be recorded is not sent
            where = str(self.setup.state)
            raise BadInput(f"state = {where!r}: cannot write ({error.strerror}); the saved rounds are whole") from None
        finally:
            self._close(server, threads, links, reception)
        return Outcome(
            tuple(work.history), tuple(self.ring.names[n] for n in work.order), self.site.parameters, self.ledger.sent,
            time.perf_counter() - began, work.training, time.process_time() - processor, self.site.processor - trained,
            self.log.total(),
            self.setup.state / f"round-{len(work.history):06d}",
        )  # fmt: skip

    def _close(self, server: Any, threads: list[threading.Thread], links: Links, reception: Reception) -> None:
        self._stop.set()
        for thread in threads:
            thread.join()
        self.pulse.last(links, LEAVING if self._unfinished else FINISHED)
        links.close()
        server.stop(0.2).wait()
        self.site.close()
        facts = {"refused": self.log.total(), "handshakes_failed": reception.turned_away}
        self.log.event("stopped", facts)
        self.log.close()
        self.ledger.close()
