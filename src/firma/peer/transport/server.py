"""The receiving side: a gRPC server that takes what members send, checks it, and hands it on."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

import grpc

from firma.peer.identity import Identity
from firma.peer.membership.views import ControlMessage
from firma.peer.ring_file import Ring
from firma.peer.transport.send_queue import AT_ONCE
from firma.peer.transport.tls import caller, open_server, server_credentials
from firma.peer.wire.control import decode_control
from firma.peer.wire.heartbeat import Heartbeat, decode_heartbeat
from firma.peer.wire.message import ANSWERS, DONE, EARLY, REFUSED, Assembly, Header, Verdict, decode_header
from firma.peer.wire.message_signature import genuine, public_key, split
from firma.peer.wire.terms import Tag, Terms, WireError
from firma.protocol import Message

SERVICE = "firma.Ring"
AnswerStatements = Callable[[int, bytes], bytes]  # sender, its statements in bytes: this site's; or `WireError`
# The answer to a probe: it is here; calls from here reach the caller; they do not, followed by what went wrong.
HERE, REACHED, NOT_REACHED = 0, 1, 2


class Receiver(Protocol):
    """Decides about what arrives, on any thread."""

    def heartbeat(self, sender: int, heartbeat: Heartbeat | None) -> Heartbeat:
        """A heartbeat (None: unreadable, or of another ring) is answered with this member's own."""

    def control(self, sender: int, message: ControlMessage) -> bytes:
        """A control message is answered with another, or with nothing."""

    def announced(self, sender: int, header: Header) -> Verdict:
        """Whether a message with this header is taken now."""

    def progressed(self, sender: int, tag: Tag, share: float) -> None:
        """A part of a message arrived; now this share of it is here."""

    def probed(self, sender: int) -> None:
        """A probe arrived, as large as a message."""

    def call_back(self, sender: int) -> str:
        """Probe the sender in turn, because it asks for it; "" if it answered, else what went wrong."""

    def keep(self, sender: int, header: Header, raw: bytes, signature: bytes, body: bytearray) -> None:
        """The bytes of a message that is to be taken, with the sender's signature, which is genuine."""

    def arrived(self, sender: int, header: Header, message: Message) -> None:
        """A message that is to be taken is here."""

    def turned_down(self, kind: str, sender: str, why: str) -> None:
        """Something was refused."""

    def cut_short(self, connection: str) -> None:
        """A message that had stopped moving was ended."""


class Server:
    """The handlers of the calls and what they share."""

    def __init__(
        self, ring: Ring, terms: Terms, receiver: Receiver, statements: AnswerStatements | None = None
    ) -> None:  # fmt: skip
        self.ring, self._terms, self._receiver, self._statements = ring, terms, receiver, statements
        self._members = {member.certificate.encode(): number for number, member in enumerate(ring.members)}
        self._keys = [public_key(member.certificate) for member in ring.members]
        self._lock = threading.Lock()
        self._connections = 0
        self._known: set[str] = set()  # connections that passed the handshake
        self._busy: Counter[int] = Counter()
        self._calling_back: set[int] = set()
        self._calls: dict[int, list[Any]] = {}  # messages that are arriving, and when each last moved

    @property
    def handshakes_failed(self) -> int:
        """Handshakes that led to no call: strangers, and members that disconnected at once."""
        with self._lock:
            return max(0, self._connections - len(self._known))

    def open(self, identity: Identity, address: str) -> Any:
        """Start to listen; returns the gRPC server."""
        handler = grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Statements": grpc.unary_unary_rpc_method_handler(self.answer_statements),
                "Hello": grpc.unary_unary_rpc_method_handler(self.answer_heartbeat),
                "Send": grpc.stream_unary_rpc_method_handler(self.answer_send),
                "Note": grpc.unary_unary_rpc_method_handler(self.answer_control),
                "Probe": grpc.unary_unary_rpc_method_handler(self.answer_probe),
            },
        )
        members = len(self.ring.members)
        pool = ThreadPoolExecutor((AT_ONCE + 2) * members + 4, thread_name_prefix="server")
        credentials = server_credentials(identity, self.ring, self._count_handshake)
        return open_server(pool, handler, credentials, address, most=6 * members + 8, members=members)

    def answer_heartbeat(self, raw: bytes, context: Any) -> bytes:
        """Heartbeat for heartbeat; a member that means another ring still gets this one's."""
        sender, received = self._sender(context), None
        try:
            received = decode_heartbeat(raw)
        except WireError as error:
            self._receiver.turned_down("hello", self.ring.names[sender], str(error))
        if received is not None and not received.agrees(self._terms):
            received = None
        return self._receiver.heartbeat(sender, received).encode()

    def answer_statements(self, raw: bytes, context: Any) -> bytes:
        """Statements for statements, or nothing."""
        sender = self._sender(context)
        try:
            return self._statements(sender, raw) if self._statements is not None else b""
        except WireError as error:
            self._receiver.turned_down("statements", self.ring.names[sender], str(error))
            return b""

    def answer_send(self, parts: Iterator[bytes], context: Any) -> bytes:
        """Take one message. Whatever is wrong with it, the answer is a sentence and nothing changes."""
        sender = self._sender(context)
        with self._lock:
            self._busy[sender] += 1
            crowded = self._busy[sender] > AT_ONCE
            self._calls[id(context)] = [context, time.monotonic()]
        try:
            if crowded:  # an earlier try may still be closing: the sender may try again
                why = f"more than {AT_ONCE} messages at a time"
                self._receiver.turned_down("message", self.ring.names[sender], why)
                return bytes([EARLY]) + why.encode()
            return self._receive(sender, parts, context)
        except WireError as error:
            self._receiver.turned_down("message", self.ring.names[sender], str(error))
            return bytes([REFUSED]) + str(error).encode()
        finally:
            with self._lock:
                self._busy[sender] -= 1
                self._calls.pop(id(context), None)

    def _receive(self, sender: int, parts: Iterator[bytes], context: Any) -> bytes:
        first = next(parts, None)
        if first is None:
            raise WireError("a message without a header")
        raw, signature = split(first)
        header = decode_header(self._terms, raw)
        verdict = self._receiver.announced(sender, header)
        if verdict != "take":
            view, turn, step = header.tag
            where = f"view {view}, turn {turn}.{step}"
            if verdict != "early":
                kind = "repeated" if verdict == "have" else verdict
                self._receiver.turned_down(kind, self.ring.names[sender], where)
            return bytes([ANSWERS[verdict]]) + f"{verdict}: {where}".encode()
        if not genuine(self._keys[sender], self._terms.ring, header.tag, header.digest, signature):
            raise WireError("the message is not signed with the key of its sender's certificate")
        assembly = Assembly(header)
        for part in parts:
            assembly.feed(part)
            self._receiver.progressed(sender, header.tag, assembly.share)
            with suppress(KeyError), self._lock:
                self._calls[id(context)][1] = time.monotonic()
        message = assembly.finish()
        self._receiver.keep(sender, header, raw, signature, assembly.body)
        self._receiver.arrived(sender, header, message)
        return bytes([DONE])

    def answer_control(self, raw: bytes, context: Any) -> bytes:
        """Take a control message and answer it, or answer with nothing."""
        sender = self._sender(context)
        try:
            message = decode_control(self._terms, raw, len(self.ring.members), self.ring.rounds, sender)
        except WireError as error:
            self._receiver.turned_down("note", self.ring.names[sender], str(error))
            return b""
        return self._receiver.control(sender, message)

    def answer_probe(self, raw: bytes, context: Any) -> bytes:
        """Say that a probe is here; with a first byte of 1, whether a call from here reaches the caller, too."""
        sender = self._sender(context)
        self._receiver.probed(sender)
        if raw[:1] != b"\1":
            return bytes([HERE])
        with self._lock:
            if sender in self._calling_back:  # one at a time, so that nobody makes this member call without end
                return bytes([HERE])
            self._calling_back.add(sender)
        try:
            why = self._receiver.call_back(sender)
        finally:
            with self._lock:
                self._calling_back.discard(sender)
        return bytes([NOT_REACHED]) + why.encode() if why else bytes([REACHED])

    def cancel_unmoved(self, seconds: float) -> None:
        """End messages that have stopped moving for longer than this."""
        with self._lock:
            stuck = [call for call, moved in self._calls.values() if time.monotonic() - moved > seconds]
        for call in stuck:
            self._receiver.cut_short(call.peer())
            call.cancel()

    def _count_handshake(self) -> None:
        with self._lock:
            self._connections += 1

    def _sender(self, context: Any) -> int:
        number = caller(context, self._members)
        if number is None:  # the handshake lets in members only; this is a second check
            self._receiver.turned_down("stranger", context.peer(), "a certificate that is not pinned")
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "this certificate is not in the ring file")
        with self._lock:
            if len(self._known) < 65536:
                self._known.add(context.peer())
        return int(number or 0)
