"""The receiving side: a gRPC server that takes messages from members, checks them, and leaves them on the desk."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc

from firma.peer.council import Council
from firma.peer.desk import Desk
from firma.peer.identity import Identity
from firma.peer.ring_file import Ring
from firma.peer.runtime.event_log import Log
from firma.peer.transport.send_queue import AT_ONCE
from firma.peer.transport.tls import caller, open_server, server_credentials
from firma.peer.wire.heartbeat import Hello, decode_hello
from firma.peer.wire.message import Assembly, decode_head
from firma.peer.wire.terms import Terms, WireError

SERVICE = "firma.Ring"
DONE, EARLY, STALE, REFUSED = 0, 1, 2, 3  # first byte of an answer; a sentence follows
_ANSWERS = {"have": DONE, "early": EARLY, "stale": STALE, "future": REFUSED, "misfit": REFUSED}


@dataclass
class Reception:
    """What the handlers share; `desk` is None while only hellos are answered (firma doctor)."""

    ring: Ring
    terms: Terms
    log: Log
    hello: Callable[[], Hello]
    desk: Desk | None = None
    council: Council | None = None
    connections: int = 0
    known: set[str] = field(default_factory=set)  # connections that passed the handshake
    _busy: Counter[int] = field(default_factory=Counter)
    _calls: dict[int, list[Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._members = {member.certificate.encode(): number for number, member in enumerate(self.ring.members)}

    def knocked(self) -> None:
        """A handshake begins."""
        with self._lock:
            self.connections += 1

    @property
    def turned_away(self) -> int:
        """Handshakes that led to no call: strangers, and members that hung up at once."""
        with self._lock:
            return max(0, self.connections - len(self.known))

    def answer_hello(self, raw: bytes, context: Any) -> bytes:
        """Hello for hello; a member that means another ring is still told what this one is."""
        sender = self._sender(context)
        try:
            hello = decode_hello(raw)
        except WireError as error:
            self.log.refused("hello", self.ring.names[sender], str(error))
            return self.hello().encode()
        if self.desk is not None and (hello.federation, hello.ring) == (self.terms.federation, self.terms.ring):
            self.desk.greet(sender, hello)
        return self.hello().encode()

    def answer_send(self, parts: Iterator[bytes], context: Any) -> bytes:
        """Take one message. Whatever is wrong with it, the answer is a sentence and nothing changes."""
        sender = self._sender(context)
        if self.desk is None:
            return bytes([EARLY]) + b"this site is not training yet"
        with self._lock:
            self._busy[sender] += 1
            crowded = self._busy[sender] > AT_ONCE
            self._calls[id(context)] = [context, time.monotonic()]
        try:
            if crowded:  # an earlier try may still be closing: it may ask again
                self.log.refused("message", self.ring.names[sender], f"more than {AT_ONCE} at a time")
                return bytes([EARLY]) + f"more than {AT_ONCE} messages at a time".encode()
            return self._receive(self.desk, sender, parts, context)
        except WireError as error:
            self.log.refused("message", self.ring.names[sender], str(error))
            return bytes([REFUSED]) + str(error).encode()
        finally:
            with self._lock:
                self._busy[sender] -= 1
                self._calls.pop(id(context), None)

    def _receive(self, desk: Desk, sender: int, parts: Iterator[bytes], context: Any) -> bytes:
        raw = next(parts, None)
        if raw is None:
            raise WireError("a message without a head")
        head = decode_head(self.terms, raw)
        verdict = desk.admit(sender, head)
        if verdict != "take":
            view, turn, step = head.tag
            return bytes([_ANSWERS[verdict]]) + f"{verdict}: view {view}, turn {turn}.{step}".encode()
        assembly = Assembly(head)
        for part in parts:
            assembly.feed(part)
            desk.heard(sender)
            self._calls[id(context)][1] = time.monotonic()
        desk.store(sender, head, assembly.finish())
        return bytes([DONE])

    def answer_note(self, raw: bytes, context: Any) -> bytes:
        """Take a control message and answer it, or say nothing."""
        sender = self._sender(context)
        try:
            return self.council.received(sender, raw) if self.council is not None else b""
        except WireError as error:
            self.log.refused("note", self.ring.names[sender], str(error))
            return b""

    def sweep(self, silence: float) -> None:
        """End messages that have stopped moving."""
        with self._lock:
            stuck = [call for call, moved in self._calls.values() if time.monotonic() - moved > silence]
        for call in stuck:
            self.log.event("stalled", {"connection": call.peer()})
            call.cancel()

    def _sender(self, context: Any) -> int:
        number = caller(context, self._members)
        if number is None:  # the handshake lets members in only; this is the second lock on the door
            self.log.refused("stranger", context.peer(), "a certificate that is not pinned")
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "this certificate is not in the ring file")
        with self._lock:
            if len(self.known) < 65536:
                self.known.add(context.peer())
        return int(number or 0)


def serve(reception: Reception, identity: Identity, address: str) -> Any:
    """Start to listen; returns the gRPC server."""
    handler = grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Hello": grpc.unary_unary_rpc_method_handler(reception.answer_hello),
            "Send": grpc.stream_unary_rpc_method_handler(reception.answer_send),
            "Note": grpc.unary_unary_rpc_method_handler(reception.answer_note),
        },
    )
    members = len(reception.ring.members)
    pool = ThreadPoolExecutor((AT_ONCE + 2) * members + 4, thread_name_prefix="reception")
    credentials = server_credentials(identity, reception.ring, reception.knocked)
    return open_server(pool, handler, credentials, address, most=6 * members + 8)
