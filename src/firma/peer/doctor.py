"""Probes before a run: each passes, or says what to do."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch

from firma.data.dataset import Dataset
from firma.errors import BadInput
from firma.peer.agreed_model import check_consent
from firma.peer.identity import Identity, Passphrase, load_identity, validity
from firma.peer.membership.views import ControlMessage
from firma.peer.ring_file import Ring
from firma.peer.runtime.consent import Consent
from firma.peer.runtime.local_training import LocalSite
from firma.peer.runtime.node import random_process, terms_of
from firma.peer.runtime.site_data import data_findings
from firma.peer.spoken import differing
from firma.peer.statement_folder import StatementFolder
from firma.peer.transport.client import Connection, connect, exchange_statements, printable, probe_of, reason, try_probe
from firma.peer.transport.server import NOT_REACHED, REACHED, Server
from firma.peer.wire.heartbeat import PROBING, Heartbeat, decode_heartbeat, heartbeat
from firma.peer.wire.message import Header, Verdict
from firma.peer.wire.terms import Tag, Terms, WireError
from firma.protocol import Message

_CALL_BACK = 10.0  # seconds for a member to call back and say whether it got through
_SKEW = 300.0  # seconds by which clocks may differ before it is reported; nothing in a run depends on them


@dataclass(frozen=True, slots=True)
class _Probed:
    """A receiver that answers heartbeats and probes and takes nothing else; `callers` are members that called."""

    own: Callable[[], Heartbeat]
    probe: Callable[[int], str]
    callers: set[int] = field(default_factory=set)

    def heartbeat(self, sender: int, heartbeat: Heartbeat | None) -> Heartbeat:
        """Tell who is here."""
        del heartbeat
        self.callers.add(sender)
        return self.own()

    def probed(self, sender: int) -> None:
        """A member reaches this one."""
        self.callers.add(sender)

    def call_back(self, sender: int) -> str:
        """Whether a call from here reaches that member."""
        return self.probe(sender)

    def control(self, sender: int, message: ControlMessage) -> bytes:
        """This site is not training yet."""
        del sender, message
        return b""

    def announced(self, sender: int, header: Header) -> Verdict:
        """This site is not training yet."""
        del sender, header
        return "early"

    def progressed(self, sender: int, tag: Tag, share: float) -> None:
        """Nothing is taken."""

    def keep(self, sender: int, header: Header, raw: bytes, signature: bytes, body: bytearray) -> None:
        """Nothing is taken."""

    def arrived(self, sender: int, header: Header, message: Message) -> None:
        """Nothing is taken."""

    def turned_down(self, kind: str, sender: str, why: str) -> None:
        """A doctor counts nothing."""

    def cut_short(self, connection: str) -> None:
        """A doctor counts nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: whether it passed, about what, and what was found or is to be done."""

    passed: bool
    about: str
    says: str


def probe(
    ring: Ring, folder: Path, listen: str | None, wait: float, model: str | None = None, app: str | None = None,
    passphrase: Passphrase | None = None, data: str = "",
) -> Iterator[Finding]:  # fmt: skip
    """All probes; heartbeats of other doctors are answered meanwhile, so that members can run it at the same time."""
    try:
        identity = load_identity(folder, passphrase)
        me = ring.place(identity)
    except BadInput as error:
        yield Finding(False, "identity", str(error))
        return
    yield Finding(True, "identity", f"this site is {ring.names[me]}; its key matches the ring file")
    statements = StatementFolder(ring, identity)
    consent = _consent(ring, me, identity, statements)
    yield _own_acceptance(statements, ring.names[me])
    yield from (_validity(ring, number) for number in range(len(ring.members)))
    try:
        terms = terms_of(ring, _blank(ring, me, model, app))
    except BadInput as error:
        yield Finding(False, "model" if ring.flower is None else "Flower app", str(error))
        return
    yield Finding(True, "model" if ring.flower is None else "Flower app", _built(ring))
    if data:
        yield from _data(ring, data)
    process = random_process()

    def probing() -> Heartbeat:
        return heartbeat(terms, process, (0, 0, 0), PROBING, time.time())

    def call_back(member: int) -> str:
        line = connect(identity, ring, member)
        try:
            return try_probe(line, terms)
        finally:
            line.channel.close()

    address = listen or ring.members[me].address
    server: Any = None
    receiver = _Probed(probing, call_back)
    try:
        server = Server(ring, terms, receiver, consent.answer).open(identity, address)
        yield Finding(True, "port", f"{address} is free and this site can listen there")
    except BadInput as error:
        yield Finding(False, "port", f"{error}; expected if firma join is running here")
    try:
        deadline = time.monotonic() + wait
        for number in range(len(ring.members)):
            yield _ask(ring, identity, number, me, terms, probing(), deadline, receiver.callers)
        if server is not None:
            time.sleep(max(0.0, min(deadline - time.monotonic(), 2.0)))  # others may still be asking
        yield from _acceptances(ring, me, consent, statements)
    finally:
        if server is not None:
            server.stop(0.2).wait()


def _validity(ring: Ring, number: int) -> Finding:
    member = ring.members[number]
    found, about = validity(member.certificate.encode()), f"certificate of {member.name}"
    trouble = found.trouble()
    if trouble:
        return Finding(False, about, trouble)
    return Finding(True, about, found.warning() or f"valid until {found.last:%Y-%m-%d}")


def _consent(ring: Ring, me: int, identity: Identity, statements: StatementFolder) -> Consent:
    """The exchange of statements, each over a connection of its own."""

    def exchange(member: int, raw: bytes, timeout: float) -> bytes:
        line = connect(identity, ring, member)
        try:
            return exchange_statements(line, raw, timeout)
        finally:
            line.channel.close()

    return Consent(ring, me, statements, exchange, lambda: None, lambda text: None)


def _own_acceptance(statements: StatementFolder, name: str) -> Finding:
    if name in statements.by("accept"):
        return Finding(True, "acceptance", "this site has accepted this ring file")
    return Finding(False, "acceptance", "this site has not accepted this ring file: read and sign it with firma accept")


def _acceptances(ring: Ring, me: int, consent: Consent, statements: StatementFolder) -> Iterator[Finding]:
    """Which of the others have accepted, as far as is known after all that are there were asked.

    One exchange between two sites is enough for both, and each asks while its own server still answers.
    """
    for number in range(len(ring.members)):
        if number != me:
            consent.tell_member(number)
    there = statements.by("accept")
    for number, name in enumerate(ring.names):
        if number != me and name in there:
            yield Finding(True, f"acceptance of {name}", "it has accepted this ring file")
        elif number != me:
            yield Finding(
                False, f"acceptance of {name}", "not known to have accepted this ring file: firma accept there"
            )


def _data(ring: Ring, data: str) -> Iterator[Finding]:
    """What this site would train on."""
    if ring.flower is not None:
        yield Finding(False, "data", f"--data {data!r}: the Flower app of the ring file loads its own data")
        return
    for about, passed, says in data_findings(data, ring):
        yield Finding(passed, about, says)


def _ask(
    ring: Ring, identity: Identity, number: int, me: int, terms: Terms, sent: Heartbeat, deadline: float,
    callers: set[int],
) -> Finding:  # fmt: skip
    """Ask a member until it answers or time is up; this site asks itself to see that its address leads here.

    A member that answers is then asked to call back: members must reach each other in both directions.
    """
    member, own = ring.members[number], number == me
    about = "my own address" if own else member.name
    line = connect(identity, ring, number)
    trouble = "no answer"
    try:
        while True:
            try:
                answer = line.heartbeat(sent.encode(), timeout=3.0)
                found = _compare(about, decode_heartbeat(answer), terms)
                return found if own or not found.passed else _both_ways(found, line, ring.members[me].address, terms)
            except WireError as error:
                return Finding(False, about, str(error))
            except grpc.RpcError as error:
                trouble = reason(error)
            if time.monotonic() > deadline:
                if number in callers and not own:
                    return Finding(
                        False, about,
                        f"its calls reach this site, but {member.address} cannot be called from here: open that port "
                        f"there for incoming connections, and forward it behind NAT ({trouble})",
                    )  # fmt: skip
                return Finding(False, about, _advice(member.address, trouble, own))
            time.sleep(0.3)
    finally:
        line.channel.close()


def _both_ways(found: Finding, line: Connection, address: str, terms: Terms) -> Finding:
    """This site's calls reach a member: ask it to call back with as many bytes as a message has."""
    try:
        answer = line.probe(probe_of(terms, call_back=True), timeout=_CALL_BACK)
    except grpc.RpcError as error:
        why = (
            f"answers, but nothing as large as a message gets there: check the line, such as its MTU ({reason(error)})"
        )
        return Finding(False, found.about, why)
    if answer[:1] == bytes([REACHED]):
        return Finding(True, found.about, f"{found.says}; its calls reach this site, too")
    if answer[:1] == bytes([NOT_REACHED]):
        why = (
            f"answers, but cannot call this site back at {address}: open that port here for incoming connections, and "
        )
        return Finding(False, found.about, f"{why}forward it behind NAT ({printable(answer[1:])})")
    return Finding(True, found.about, f"{found.says}; only calls from here to there were tested")


def _compare(about: str, answer: Heartbeat, terms: Terms) -> Finding:
    if (answer.federation, answer.ring) != (terms.federation, terms.ring):
        return Finding(False, about, f"answers, but {differing(answer.ring, terms.ring)}")
    if answer.signature != terms.signature.digest:
        return Finding(False, about, "builds another model from the same ring file; install the same version of FIRMA")
    skew = answer.clock - time.time()
    if abs(skew) > _SKEW:
        return Finding(
            True, about, f"answers, same ring file and model; its clock is {skew:+.0f} s off, which does no harm"
        )
    return Finding(True, about, "answers with the pinned certificate, the same ring file, model and protocol version")


def _advice(address: str, trouble: str, own: bool) -> str:
    low = trouble.lower()
    if "certificate" in low or "handshake" in low or "ssl" in low:
        return (
            f"{address} answers with a certificate other than the pinned one, does not know ours, or is another "
            f"program ({trouble})"
        )
    if "refused" in low and own:
        return f"{address} does not lead to this site; with --listen, forward that port here ({trouble})"
    if "refused" in low:
        return f"nobody listens on {address}; start firma doctor or firma join there ({trouble})"
    return f"{address} does not answer; check the address, the firewall, and that it is running ({trouble})"


def _built(ring: Ring) -> str:
    if ring.flower is not None:
        return f"{ring.flower.app} is the code in the ring file ({len(ring.flower.files)} files)"
    task = ring.task
    if task.is_own_code:
        files = f"{len(task.files)} files" if len(task.files) > 1 else next(iter(task.files))
        return f"{task.model} is the code in the ring file ({files}), and builds the same tensors"
    return f"{task.model}, built in"


def _blank(ring: Ring, me: int, model: str | None, app: str | None) -> LocalSite:
    """The agreed model with no data, for its signature."""
    if ring.flower is not None:
        from firma.peer.flower_site import check_app, learner

        check_app(ring.flower, app)
        return LocalSite(ring, me, learner(ring, me, {}), torch.device("cpu"))
    check_consent(ring.task, model)
    shape = (1, *ring.task.shape)
    nothing, labels = np.zeros(shape, ring.task.dtype), np.zeros(1, np.int64)
    own = Dataset("none", nothing, labels, nothing, labels, len(ring.task.labels), task=ring.task.kind)
    site = LocalSite(ring, me, own, torch.device("cpu"))
    site.close()
    return site
