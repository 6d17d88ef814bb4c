"""The sending side: one pinned channel a member, deliveries repeated until they are acknowledged, and beats."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc

from firma.peer.desk import Desk, PeerLost
from firma.peer.hello import Hello, decode_hello
from firma.peer.identity import Identity
from firma.peer.inbox import Payload
from firma.peer.reception import DONE, EARLY, SERVICE, STALE
from firma.peer.ringfile import Ring
from firma.peer.terms import Tag, Terms, WireError
from firma.peer.tls import channel
from firma.peer.wire import chunks, encode

Record = Callable[[int, Tag, bytes, int, Payload], None]
_PAUSE = 0.1  # seconds before a delivery is tried again


@dataclass(frozen=True)
class Line:
    """The two calls that a member answers."""

    channel: Any
    hello: Any
    send: Any


def open_line(identity: Identity, ring: Ring, member: int) -> Line:
    """A line to a member; nothing is sent yet."""
    way = channel(identity, ring.members[member])
    return Line(way, way.unary_unary(f"/{SERVICE}/Hello"), way.stream_unary(f"/{SERVICE}/Send"))


class Links:
    """All that leaves this member leaves through here, and is recorded before it does."""

    def __init__(self, identity: Identity, ring: Ring, me: int, terms: Terms, desk: Desk, record: Record) -> None:
        self._lines = {n: open_line(identity, ring, n) for n in range(len(ring.members)) if n != me}
        self._terms, self._desk, self._record = terms, desk, record
        self._pool = ThreadPoolExecutor(len(ring.members), thread_name_prefix="links")
        self._stop = threading.Event()

    def exchange(self, to: tuple[int, ...], wait: tuple[int, ...], payload: Payload, tag: Tag) -> dict[int, Payload]:
        """Send to everybody in `to`, wait for everybody in `wait`; `PeerLost` if that cannot be."""
        head, values = encode(self._terms, tag, payload)
        self._desk.enter(tag)

        def deliver(member: int) -> None:
            self._record(member, tag, head, values.nbytes, payload)
            self._deliver(member, tag, lambda: iter([head, *chunks(values)]))

        sending = [self._pool.submit(deliver, member) for member in to]

        def check() -> None:
            for each in sending:
                if each.done():
                    each.result()

        arrived = self._desk.wait(wait, tag, check)
        for each in sending:
            each.result()
        return arrived

    def _deliver(self, member: int, tag: Tag, parts: Callable[[], Iterator[bytes]]) -> None:
        """Until the member has it. Repeating does no harm: what it has, it does not take twice."""
        began = time.monotonic()
        while not self._stop.is_set():
            answer = self._attempt(member, tag, parts())
            if answer is not None and answer[0] == DONE:
                return
            if answer is not None and not (answer[0] == EARLY or (answer[0] == STALE and tag[0] == 0)):
                why = answer[1:].decode(errors="replace")[:300]
                raise PeerLost(f"{self._desk.names[member]} refuses a message ({why})")
            self._desk.lost(member, tag, began)
            self._stop.wait(_PAUSE)
        raise PeerLost("this site is stopping")

    def _attempt(self, member: int, tag: Tag, parts: Iterator[bytes]) -> bytes | None:
        """One try; None if the line failed. A try may last as long as it moves or the member shows life."""
        moved = [time.monotonic()]

        def moving() -> Iterator[bytes]:
            for part in parts:
                moved[0] = time.monotonic()
                yield part

        call: Future[bytes] = self._lines[member].send.future(moving())
        while True:
            try:
                answer = call.result(timeout=0.25)
                self._desk.heard(member)
                return bytes(answer) or None
            except grpc.FutureTimeoutError:
                try:
                    self._desk.lost(member, tag, moved[0])
                except PeerLost:
                    call.cancel()
                    raise
                if self._stop.is_set():
                    call.cancel()
                    return None
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                self._desk.trouble[member] = reason(error)
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
                    self._desk.trouble[member] = "its ring file differs from this site's"
            except (grpc.RpcError, WireError) as error:
                self._desk.trouble[member] = reason(error)

    def close(self) -> None:
        """Stop sending and hang up."""
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for line in self._lines.values():
            line.channel.close()


def reason(error: Exception) -> str:
    """What went wrong with a call, in a few words."""
    details = error.details() if isinstance(error, grpc.Call) else str(error)
    return str(details or type(error).__name__).splitlines()[0][:200]
