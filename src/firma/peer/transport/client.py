"""The sending side: one pinned channel a member, deliveries repeated until they are acknowledged, beats and notes."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc

from firma.peer.desk import Desk, PeerLost
from firma.peer.identity import Identity
from firma.peer.ring_file import Ring
from firma.peer.transport.send_queue import Outbox
from firma.peer.transport.server import DONE, EARLY, SERVICE, STALE
from firma.peer.transport.tls import channel
from firma.peer.wire.heartbeat import Hello, decode_hello
from firma.peer.wire.message import chunks, encode
from firma.peer.wire.terms import Tag, Terms, WireError
from firma.protocol import Message

Record = Callable[[int, Tag, bytes, int, Message], None]
_PAUSE = 0.1  # seconds before a delivery is tried again
_TICK = 0.02  # seconds between looks at what is under way


@dataclass(frozen=True)
class Line:
    """The three calls that a member answers."""

    channel: Any
    hello: Any
    send: Any
    note: Any


def open_line(identity: Identity, ring: Ring, member: int) -> Line:
    """A line to a member; nothing is sent yet."""
    way = channel(identity, ring.members[member])
    calls = (way.unary_unary(f"/{SERVICE}/Hello"), way.stream_unary(f"/{SERVICE}/Send"))
    return Line(way, *calls, way.unary_unary(f"/{SERVICE}/Note"))


class Links:
    """All that leaves this member leaves through here, and is recorded before it does."""

    def __init__(self, identity: Identity, ring: Ring, me: int, terms: Terms, desk: Desk, record: Record) -> None:
        self._lines = {n: open_line(identity, ring, n) for n in range(len(ring.members)) if n != me}
        self._terms, self._desk, self._record, self._silence = terms, desk, record, ring.patience
        self._outbox = Outbox(4 * len(ring.members))
        self._stop = threading.Event()
        self.idle: Callable[[], None] = lambda: None  # called all the while by who waits

    def exchange(self, to: tuple[int, ...], wait: tuple[int, ...], message: Message, tag: Tag) -> dict[int, Message]:
        """Send to everybody in `to`, wait for everybody in `wait`; `Superseded` if the view ends before that.

        What was sent may still be under way when this returns; `settle` waits for it.
        """
        head, values = encode(self._terms, tag, message)
        self._desk.enter(tag)
        for member in to:
            self._record(member, tag, head, values.nbytes, message)

            def deliver(on_line: Callable[[], None], member: int = member) -> None:
                self._deliver(member, tag, lambda: iter([head, *chunks(values)]), on_line)

            self._outbox.post(member, tag[0], deliver)

        def check() -> None:
            self.idle()
            self._outbox.check(tag[0])

        return self._desk.wait(wait, tag, check)

    def settle(self, epoch: int) -> None:
        """Until all that was sent in a view has arrived; `Superseded` if the view ends before that."""
        while not self._outbox.check(epoch):
            self._desk.check(epoch)
            self.idle()
            self._stop.wait(_TICK)

    def _deliver(
        self, member: int, tag: Tag, parts: Callable[[], Iterator[bytes]], on_line: Callable[[], None]
    ) -> None:
        """Until the member has it or the view is over. Repeating does no harm: what it has, it does not take twice."""
        while self._desk.current(tag[0]) and not self._stop.is_set():
            answer = self._attempt(member, tag, parts(), on_line)
            if answer is not None and answer[0] in (DONE, STALE):  # stale: it is past this exchange, or in a later view
                return
            if answer is not None and answer[0] != EARLY:
                why = answer[1:].decode(errors="replace")[:300]
                raise PeerLost(f"{self._desk.names[member]} refuses a message ({why})")
            self._stop.wait(_PAUSE)

    def _attempt(self, member: int, tag: Tag, parts: Iterator[bytes], on_line: Callable[[], None]) -> bytes | None:
        """One try; None if the line failed. A try may last as long as it moves or the member shows life."""
        moved = [time.monotonic()]

        def moving() -> Iterator[bytes]:
            for part in parts:
                moved[0] = time.monotonic()
                yield part
            on_line()

        call: Future[bytes] = self._lines[member].send.future(moving())
        while True:
            try:
                answer = call.result(timeout=0.25)
                self._desk.heard(member)
                return bytes(answer) or None
            except grpc.FutureTimeoutError:
                stuck = self._desk.signs.silent(member, time.monotonic(), moved[0]) > 0
                if stuck or self._stop.is_set() or not self._desk.current(tag[0]):
                    call.cancel()
                    return None
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                self._desk.blame(member, reason(error))
                return None

    def beat(self, members: tuple[int, ...], hello: Hello, timeout: float) -> None:
        """Say hello to members at the same time and note who answers."""
        calls = [(member, self._lines[member].hello.future(hello.encode(), timeout=timeout)) for member in members]
        for member, call in calls:
            try:
                answer = decode_hello(call.result())
                if answer.ring == self._terms.ring:
                    self._desk.greet(member, answer)
                else:
                    self._desk.blame(member, "its ring file differs from this site's")
            except (grpc.RpcError, WireError) as error:
                self._desk.blame(member, reason(error))

    def note(self, member: int, raw: bytes, on_answer: Callable[[int, bytes], None]) -> None:
        """Send a control message once; its answer, if there is one, is handed on. Who sent it repeats it if need be."""

        def answered(call: Any) -> None:
            try:
                on_answer(member, bytes(call.result()))
            except (grpc.RpcError, grpc.FutureCancelledError, WireError) as error:
                self._desk.blame(member, reason(error))

        if not self._stop.is_set():
            with suppress(ValueError):  # hung up at this very moment
                call = self._lines[member].note.future(raw, timeout=max(self._silence / 2, 0.5))
                call.add_done_callback(answered)

    def close(self) -> None:
        """Stop sending and hang up."""
        self._stop.set()
        self._outbox.close()
        for line in self._lines.values():
            line.channel.close()


def reason(error: Exception) -> str:
    """What went wrong with a call, in a few words."""
    details = error.details() if isinstance(error, grpc.Call) else str(error)
    return str(details or type(error).__name__).splitlines()[0][:200]
