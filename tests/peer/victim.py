"""Member 0 of three on a real socket, for strangers and liars to try their luck with."""

import torch

from firma.models import SplitModel, mlp
from firma.peer.course import course
from firma.peer.desk import Desk
from firma.peer.identity import load_identity
from firma.peer.membership.failure_detector import Patience, Signs
from firma.peer.runtime.event_log import Log
from firma.peer.transport.client import open_line
from firma.peer.transport.server import Reception, serve
from firma.peer.wire.heartbeat import RUNNING, Hello
from firma.peer.wire.message import chunks, encode
from firma.peer.wire.signature import signature
from firma.peer.wire.terms import Terms, federation_tag
from firma.protocol import ExtractorState, Message
from firma.schedule import plan

VIEW = 3


class Victim:
    """Member 0 of three, in round 1, waiting for its neighbours."""

    def __init__(self, made, tmp_path):
        self.made, ring = made, made.ring
        sizes = (ring.hyper.hidden, ring.hyper.embedding)
        layout = SplitModel(*mlp((8, 8), 10, *sizes)).layout()
        self.terms = Terms(federation_tag(ring.federation), ring.digest, signature(layout), 10)
        self.size = self.terms.signature.size
        self.log = Log(tmp_path / "log.jsonl")

        def today(number):
            return plan(ring.row, ring.hyper, 3, ring.rounds, number)

        self.desk = Desk(Signs(0, ring.names, Patience(5.0, 5.0)), self.log)
        self.desk.begin(VIEW, course(VIEW, 0, (0, 1, 2), ring.rounds, self.size, today), 0)

        def hello():
            return Hello(
                self.terms.federation, self.terms.ring, self.terms.signature.digest, 8, (VIEW, 1, 0), 0.0, RUNNING
            )

        self.reception = Reception(ring, self.terms, self.log, hello, self.desk)
        self.server = serve(self.reception, load_identity(made.identity(0)), ring.members[0].address)

    def line(self, identity):
        return open_line(identity, self.made.ring, 0)

    def say(self, sender, *parts):
        line = self.line(load_identity(self.made.identity(sender)))
        try:
            return line.send(iter(parts), timeout=10)
        finally:
            line.channel.close()

    def message(self, tag=(VIEW, 1, 0), value=1.0, count=None, start=0):
        state = ExtractorState(torch.full((self.size if count is None else count,), value), start)
        head, values = encode(self.terms, tag, Message(state))
        return [head, *chunks(values)]

    @property
    def untouched(self):
        return not self.desk.inbox._held
