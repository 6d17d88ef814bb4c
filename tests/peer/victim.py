"""Member 0 of three on a real socket, for strangers and liars to try their luck with."""

import random
import time

import torch

from firma.models import SplitModel, mlp
from firma.peer.identity import load_identity
from firma.peer.membership.views import ControlMessage, MemberState, Memory, Proof, Seat, View, statement
from firma.peer.runtime.audit_log import AuditLog
from firma.peer.runtime.driver import Driver
from firma.peer.runtime.event_log import EventLog
from firma.peer.runtime.events import ControlArrived, Entered, Saved, Scored, Trained
from firma.peer.runtime.evidence import Evidence
from firma.peer.runtime.member_machine import Member, Start
from firma.peer.runtime.node import agreement_of
from firma.peer.runtime.promises import Promises
from firma.peer.signing import seals_of
from firma.peer.transport.client import connect
from firma.peer.transport.server import Server
from firma.peer.wire.message import chunks, decode_header, encode
from firma.peer.wire.message_signature import signer, with_signature
from firma.peer.wire.terms import Terms, WireError, federation_tag, signature
from firma.protocol import ExtractorState, Message

VIEW = 3


def proved(made, view, members=None, ballot=(1, 1)):
    """The proof that members (default: all) have decided a view: only whoever has their keys can make it."""
    said = statement(made.ring.digest, b"commit", view.number, ballot, view.digest)
    chosen = range(len(made.ring.members)) if members is None else members
    return Proof(ballot, tuple((n, seals_of(made.ring, load_identity(made.identity(n))).sign(said)) for n in chosen))


class Victim:
    """Member 0 of three, in round 1, waiting for its neighbours; it takes no part beyond that."""

    def __init__(self, made, tmp_path):
        self.made, ring = made, made.ring
        sizes = (ring.hyper.hidden, ring.hyper.embedding)
        layout = SplitModel(*mlp((8, 8), 10, *sizes)).layout()
        self.terms = Terms(federation_tag(ring.federation), ring.digest, signature(layout), 10)
        self.size = self.terms.signature.size
        self.log = EventLog(tmp_path / "log.jsonl")
        self.audit_log = AuditLog(tmp_path / "audit.jsonl", ring, 0, self.terms)
        self.evidence = Evidence(tmp_path, ring, 0, self.terms)
        start = Start(0, MemberState(10), Memory(), samples=7)
        identity = load_identity(made.identity(0))
        agreement = agreement_of(ring, self.terms, seals_of(ring, identity))
        self.member = Member(agreement, start, random.Random(0), time.monotonic())
        self.driver = Driver(
            self.member, ring, 0, self.terms, identity, Promises(tmp_path, ring), self.audit_log, self.log,
            self.evidence,
        )  # fmt: skip
        self.server = Server(ring, self.terms, self.driver)
        self.listening = self.server.open(identity, ring.members[0].address)
        view = View(VIEW, 0, tuple(Seat(number, 10 + number) for number in range(3)))
        self.driver.on(ControlArrived(1, ControlMessage(view, proof=proved(made, view))))
        self.driver.on(Entered())
        self.driver.on(Trained(0, torch.zeros(self.size), 1.0))
        assert self.member.phase == "exchanging"
        self.heard_before = dict(self.member.last_heard)

    def next_round(self):
        """Both neighbours' messages are here: mix, save, train, and wait for the next ones."""
        assert self.member.phase == "scoring"
        self.driver.on(Scored((VIEW, 1, 0), {}))
        self.driver.on(Saved(1))
        self.driver.on(Trained(1, torch.zeros(self.size), 1.0))
        assert self.member.phase == "exchanging"

    def close(self):
        self.listening.stop(0).wait()
        self.driver._client.close()
        self.log.close()
        self.audit_log.close()
        self.evidence.close()

    def line(self, identity):
        return connect(identity, self.made.ring, 0)

    def say(self, sender, *parts):
        """Send a member's message, signed with its key."""
        line = self.line(load_identity(self.made.identity(sender)))
        if parts:
            parts = (self.signed(sender, parts[0]), *parts[1:])
        try:
            return line.send(iter(parts), timeout=10)
        finally:
            line.channel.close()

    def signed(self, sender, header):
        """A header with the signature of a member, as it travels; one that cannot be read is signed all the same."""
        try:
            tag = decode_header(self.terms, header).tag
        except WireError:
            tag = (VIEW, 1, 0)
        return with_signature(signer(load_identity(self.made.identity(sender)), self.terms.ring), tag, header)

    def message(self, tag=(VIEW, 1, 0), value=1.0, count=None, start=0):
        state = ExtractorState(torch.full((self.size if count is None else count,), value), start)
        header, values = encode(self.terms, tag, Message(state))
        return [header, *chunks(values)]

    @property
    def held(self):
        """What has arrived: {(sender, tag): message}."""
        return {key: message for key, (_, message) in self.member.inbox.held.items()}

    @property
    def untouched(self):
        return not self.held
