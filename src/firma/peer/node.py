"""A member at work: gather, agree, then rounds of training and mixing, each saved before the next begins."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from firma.errors import BadInput
from firma.mixing import beside, ring_row
from firma.peer import checkpoint
from firma.peer.agree import agreed_order, first_round, gather
from firma.peer.course import course
from firma.peer.desk import Desk, Patience, PeerLost
from firma.peer.hello import LEAVING, RUNNING, Hello
from firma.peer.inbox import Inbox
from firma.peer.ledger import Ledger
from firma.peer.links import Links
from firma.peer.log import Log
from firma.peer.reception import Reception, serve
from firma.peer.report import OnRound, Outcome, RoundReport, Setup
from firma.peer.ringfile import Ring
from firma.peer.signature import signature
from firma.peer.site import LocalSite, load_own, noisy_proportions, proportions
from firma.peer.terms import Agreement, Terms, WireError, federation_tag
from firma.peer.verify import Verifier, check_gate
from firma.protocol import Exchange, Message, Peer, Score, accuracies, peer_round
from firma.schedule import RoundPlan, plan


def terms_of(ring: Ring, site: LocalSite) -> Terms:
    """What every message must agree with."""
    return Terms(federation_tag(ring.federation), ring.digest, signature(site.layout), len(ring.task.labels))


def row_of(
    me: int, order: tuple[int, ...], today: RoundPlan, arrived: dict[int, Message], names: tuple[str, ...],
    score: Score | None = None,
) -> dict[str, float]:  # fmt: skip
    """What a member and its neighbours weigh in one pass, by name; empty in a warm-up, where all count by size."""
    if today.mixing != "ring":
        return {}
    left, right = beside(order)[me]
    found = accuracies(arrived, score)
    row = ring_row(today.pair, today.retention, today.gate, found[left], found[right])
    weights = dict.fromkeys((names[n] for n in (me, left, right)), 0.0)
    for member, weight in ((me, row.own), (left, row.left), (right, row.right)):
        weights[names[member]] += weight
    return {name: round(weight, 6) for name, weight in weights.items()}


class Node:
    """One member of one run; `run` does it all."""

    def __init__(self, setup: Setup, on_round: OnRound) -> None:
        ring = setup.ring
        self.setup, self.ring, self.me, self._on_round = setup, ring, ring.place(setup.identity), on_round
        if setup.verify_gate:
            check_gate(ring)
        self.own = load_own(setup.data, ring.task)
        self.site = LocalSite(ring, self.me, self.own, torch.device(setup.device))
        self.terms = terms_of(ring, self.site)
        self._held = checkpoint.latest(setup.state)
        if self._held and not setup.resume:
            raise BadInput(
                f"state = {str(setup.state)!r}: it holds {self._held} rounds; go on with --resume or name another"
            )
        if self._held:
            checkpoint.read(setup.state, self._held, ring.digest)
        self.log, self.ledger = self._files(setup.state)
        path = course(self.me, len(ring.members), ring.rounds, self.terms.signature.size, self._plan)
        self.desk = Desk(ring.names, Inbox(path), Patience(ring.patience, ring.gathering), self.log)
        self._process = os.urandom(8)
        self._stop = threading.Event()
        self._row: dict[str, float] = {}
        self._unfinished = True
        self.reception: Reception | None = None

    def _files(self, state: Path) -> tuple[Log, Ledger]:
        try:
            state.mkdir(parents=True, exist_ok=True)
            return Log(state / "log.jsonl"), Ledger(state / "audit.jsonl", self.ring, self.me, self.terms)
        except OSError as error:
            raise BadInput(f"state = {str(state)!r}: cannot write there ({error.strerror})") from None

    def _plan(self, number: int) -> RoundPlan:
        return plan(self.ring.row, self.ring.hyper, len(self.ring.members), self.ring.rounds, number)

    def hello(self) -> Hello:
        """This member's sign of life."""
        terms = self.terms
        return Hello(
            terms.federation, terms.ring, terms.signature.digest, self._process, self.desk.inbox.now, time.time(),
            RUNNING,
        )  # fmt: skip

    def run(self) -> Outcome:
        """Train to the end; `PeerLost` and `BadInput` leave whole checkpoints behind."""
        reception = self.reception = Reception(self.ring, self.terms, self.log, self.hello, self.desk)
        listen = self.setup.listen or self.ring.members[self.me].address
        server = serve(reception, self.setup.identity, listen)
        links = Links(self.setup.identity, self.ring, self.me, self.terms, self.desk, self.ledger.record)
        beats = threading.Thread(target=self._beat, args=(links, reception), daemon=True)
        beats.start()
        self.log.event("started", {"site": self.ring.names[self.me], "listen": listen, "ring": self.ring.digest.hex()})
        lost = self.me
        try:
            self.site.prepare(self._plan(self.ring.rounds - 1))
            return self._rounds(links)
        except WireError as error:
            raise BadInput(str(error)) from None
        except OSError as error:  # such as a full disk under the audit file: what cannot be recorded is not sent
            where = str(self.setup.state)
            raise BadInput(f"state = {where!r}: cannot write ({error.strerror}); the saved rounds are whole") from None
        except PeerLost as error:
            lost = next((n for n, name in enumerate(self.ring.names) if str(error).startswith(f"{name} ")), self.me)
            raise
        finally:
            self._close(server, links, beats, lost, reception)

    def _close(self, server: Any, links: Links, beats: threading.Thread, lost: int, reception: Reception) -> None:
        self._stop.set()
        beats.join()
        if self._unfinished:
            others = tuple(n for n in self._beside() if n != lost)
            links.beat(others, replace(self.hello(), status=LEAVING, about=lost), 1.0)
        links.close()
        server.stop(0.2).wait()
        self.site.close()
        facts = {"refused": self.log.total(), "handshakes_failed": reception.turned_away}
        self.log.event("stopped", facts)
        self.log.close()
        self.ledger.close()

    def _rounds(self, links: Links) -> Outcome:
        began = time.perf_counter()
        start, order = self._agree(links)
        history: list[float] = []
        if start:
            saved = checkpoint.read(self.setup.state, start, self.ring.digest)
            checkpoint.restore(self.site, saved)
            history, order = list(saved.history), saved.order
        self.desk.agreed(order, start + 1)
        self.log.event("agreed", {"order": [self.ring.names[n] for n in order], "from_round": start + 1})
        kept, trained = self.setup.state, 0.0
        for number in range(start, self.ring.rounds):
            kept, report = self._round(links, number, order, history)
            trained += report.training
        self._unfinished = False
        names = tuple(self.ring.names[n] for n in order)
        seconds = time.perf_counter() - began
        return Outcome(
            tuple(history), names, self.site.parameters, self.ledger.sent, seconds, trained, self.log.total(), kept
        )

    def _agree(self, links: Links) -> tuple[int, tuple[int, ...]]:
        shares: tuple[float, ...] = ()
        if self.ring.row.order != "given" and self.ring.proportions != "none":
            noisy = self.ring.proportions == "noisy"
            shares = noisy_proportions(self.own, self.ring.epsilon) if noisy else proportions(self.own)
        words = gather(self.me, len(self.ring.members), Agreement(self._held, shares))
        said = next(words)
        while True:
            to, sender, word, step = said
            heard = links.exchange((to,), (sender,), word, (0, step))[sender]
            assert isinstance(heard, Agreement)  # the inbox holds nothing else in turn 0
            try:
                said = words.send(heard)
            except StopIteration as stop:
                return first_round(stop.value, self.me, self.ring.names), agreed_order(self.ring, stop.value)

    def _round(
        self, links: Links, number: int, order: tuple[int, ...], history: list[float]
    ) -> tuple[Path, RoundReport]:
        began, before, today = time.perf_counter(), self.ledger.sent, self._plan(number)
        accuracy = self.site.train(today)
        trained = time.perf_counter() - began
        score = Verifier(self.site, today, self.log) if self.setup.verify_gate and today.gate is not None else None
        wire = self.setup.wire or self.ring.wire
        peer = peer_round(self.me, order, today, self.site.shared, accuracy, len(self.own.y_train), wire, score)
        self.site.blend(self._drive(peer, links, order, today, score))
        mixed = time.perf_counter() - began
        history.append(self.site.test())
        keep = len(self.ring.members) + 1
        kept = checkpoint.write(self.setup.state, self.site, self.ring.digest, order, history, keep)
        names = tuple(self.ring.names[n] for n in order)
        report = RoundReport(
            number + 1, self.ring.rounds, names, self._row, history[-1], self.ledger.sent - before,
            time.perf_counter() - began, trained, mixed - trained,
        )  # fmt: skip
        self.log.event(
            "round",
            {
                "number": number + 1, "accuracy": history[-1], "training_accuracy": accuracy, "bytes": report.sent,
                "seconds": round(report.seconds, 4), "training": round(trained, 4),
                "mixing": round(mixed - trained, 4), "weights": self._row,
            },
        )  # fmt: skip
        self._on_round(report)
        return kept, report

    def _drive(self, peer: Peer, links: Links, order: tuple[int, ...], today: RoundPlan, score: Score | None) -> Tensor:
        """Run the protocol's generator over the links."""
        arrived: dict[int, Message] | None = None
        while True:
            try:
                exchange: Exchange = next(peer) if arrived is None else peer.send(arrived)
            except StopIteration as stop:
                result: Tensor = stop.value
                return result
            tag = (exchange.tag[0] + 1, exchange.tag[1])
            heard = links.exchange(exchange.to, exchange.wait, exchange.message, tag)
            arrived = {sender: said for sender, said in heard.items() if isinstance(said, Message)}
            if exchange.tag[1] == 0:
                self._row = row_of(self.me, order, today, arrived, self.ring.names, score)

    def _beside(self) -> tuple[int, ...]:
        order = self.desk.course.order or tuple(range(len(self.ring.members)))
        return tuple(sorted(set(beside(order)[self.me]) - {self.me}))

    def _beat(self, links: Links, reception: Reception) -> None:
        """Signs of life to the neighbours, and an end to messages that have stopped moving."""
        pause = min(self.ring.patience / 5, 5.0)
        while not self._stop.wait(pause):
            links.beat(self._beside(), self.hello(), timeout=pause)
            reception.sweep(self.ring.patience)
