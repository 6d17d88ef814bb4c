"""The sending side: one pinned channel per member, deliveries repeated until they are acknowledged, heartbeats."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from firma.encoding import Bytes
from firma.peer.identity import Identity
from firma.peer.membership.views import ControlMessage
from firma.peer.ring_file import Ring
from firma.peer.spoken import differing
from firma.peer.transport.send_queue import SendQueue
from firma.peer.transport.server import SERVICE
from firma.peer.transport.tls import channel
from firma.peer.wire.control import decode_control
from firma.peer.wire.heartbeat import Heartbeat, decode_heartbeat
from firma.peer.wire.message import DONE, EARLY, STALE, chunks
from firma.peer.wire.terms import Tag, Terms, WireError

_PAUSE = 0.1  # seconds before a delivery is tried again
_POLL = 0.25  # seconds between looks at a delivery that is under way
_REFUSED, _REFUSED_LONG = 0.5, 10.0  # seconds before a refused message is sent again, doubled up to the second
_PROBE = 1 << 16  # bytes: more than any packet, and little enough for a slow line
_REPORTS = 32  # times that the progress of a message is reported, at most


class Outcomes(Protocol):
    """Receives reports of what became of what was sent, on any thread."""

    def heartbeat_answered(self, member: int, heartbeat: Heartbeat) -> None:
        """A member answered with its own heartbeat."""

    def control_answered(self, member: int, message: ControlMessage) -> None:
        """A member answered a control message."""

    def delivered(self, member: int, tag: Tag) -> None:
        """A member has a message, or no longer needs it."""

    def refused(self, member: int, tag: Tag, why: str) -> None:
        """A member does not take a message; it is sent again."""

    def moved(self, member: int, tag: Tag, share: float) -> None:
        """This share of a message has left."""

    def probe_answered(self, member: int) -> None:
        """A member answered a probe."""

    def alive(self, member: int) -> None:
        """A member answered a message, whatever it said."""

    def unreachable(self, member: int, why: str) -> None:
        """A call failed."""

    def unmoved(self, member: int, since: float) -> bool:
        """No byte of a message has left since then: whether to break off and try again."""


@dataclass(frozen=True)
class Connection:
    """The calls that a member answers."""

    channel: Any
    heartbeat: Any
    send: Any
    control: Any
    probe: Any


def connect(identity: Identity, ring: Ring, member: int) -> Connection:
    """A connection to a member; nothing is sent yet."""
    way = channel(identity, ring.members[member])
    calls = (way.unary_unary(f"/{SERVICE}/Hello"), way.stream_unary(f"/{SERVICE}/Send"))
    return Connection(way, *calls, way.unary_unary(f"/{SERVICE}/Note"), way.unary_unary(f"/{SERVICE}/Probe"))


def probe_of(terms: Terms, call_back: bool = False) -> bytes:
    """As many zeros as a whole extractor has bytes, up to 64 KiB, after a byte that says whether to call back."""
    return bytes([call_back]) + bytes(min(4 * terms.signature.size, _PROBE))


def exchange_statements(connection: Connection, raw: bytes, timeout: float) -> bytes:
    """Hand a member statements and return what it answers with."""
    return bytes(connection.channel.unary_unary(f"/{SERVICE}/Statements")(raw, timeout=timeout))


class Client:
    """All that leaves this member leaves through here."""

    def __init__(self, identity: Identity, ring: Ring, me: int, terms: Terms, outcomes: Outcomes) -> None:
        self._connections = {n: connect(identity, ring, n) for n in range(len(ring.members)) if n != me}
        self._identity, self._terms, self._ring, self._outcomes = identity, terms, ring, outcomes
        self.queue = SendQueue(4 * len(ring.members))
        self._cancelled = 0  # messages of views up to this one are no longer delivered
        self._stop = threading.Event()

    def send(self, member: int, tag: Tag, header: bytes, body: Bytes) -> None:
        """Deliver a message, repeatedly until it is acknowledged, refused or cancelled."""

        def deliver(on_line: Callable[[], None]) -> None:
            self._deliver(member, tag, lambda: self._reported(member, tag, [header, *chunks(body)]), on_line)

        self.queue.post(member, tag[0], deliver)

    def cancel(self, view_number: int) -> None:
        """Deliver no more messages of views up to this one."""
        self._cancelled = max(self._cancelled, view_number)

    def _reported(self, member: int, tag: Tag, parts: list[bytes]) -> Iterator[bytes]:
        """The parts of a message; how much of it has left is reported on the way."""
        total, left, told = sum(map(len, parts)), 0, 0.0
        for part in parts:
            yield part
            left += len(part)  # the line has asked for the next one
            if left / total >= told + 1 / _REPORTS:
                told = left / total
                self._outcomes.moved(member, tag, told)

    def _ended(self, tag: Tag) -> bool:
        return tag[0] <= self._cancelled or self._stop.is_set()

    def _deliver(
        self, member: int, tag: Tag, parts: Callable[[], Iterator[bytes]], on_line: Callable[[], None]
    ) -> None:
        """Repeating does no harm: a receiver does not take a message twice."""
        refusals = 0
        while not self._ended(tag):
            answer = self._attempt(member, tag, parts(), on_line)
            if answer is not None and answer[0] in (DONE, STALE):  # stale: it is past this exchange, or in a later view
                self._outcomes.delivered(member, tag)
                return
            if answer is not None and answer[0] != EARLY:
                self._outcomes.refused(member, tag, printable(answer[1:]))
                self._rest(tag, min(_REFUSED * 2.0**refusals, _REFUSED_LONG))
                refusals += 1
            self._stop.wait(_PAUSE)

    def _rest(self, tag: Tag, seconds: float) -> None:
        """Wait before the next try, unless it is cancelled meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._ended(tag):
            self._stop.wait(_POLL)

    def _attempt(self, member: int, tag: Tag, parts: Iterator[bytes], on_line: Callable[[], None]) -> bytes | None:
        """One try; None if the connection failed. A try may last as long as it moves or the member is alive."""
        moved = [time.monotonic()]

        def moving() -> Iterator[bytes]:
            for part in parts:
                moved[0] = time.monotonic()
                yield part
            on_line()

        call: Future[bytes] = self._connections[member].send.future(moving())
        while True:
            try:
                answer = bytes(call.result(timeout=_POLL))
                self._outcomes.alive(member)
                return answer or None
            except grpc.FutureTimeoutError:
                stuck = time.monotonic() - moved[0] > self._ring.patience and self._outcomes.unmoved(member, moved[0])
                if stuck or self._ended(tag):
                    call.cancel()
                    return None
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                self._outcomes.unreachable(member, reason(error))
                return None

    def heartbeat(self, heartbeat: Heartbeat, timeout: float) -> list[Any]:
        """Send a heartbeat to all other members at the same time; returns the calls."""
        calls = []
        for member, connection in self._connections.items():
            with suppress(ValueError):  # closed at this very moment
                call = connection.heartbeat.future(heartbeat.encode(), timeout=timeout)
                call.add_done_callback(lambda call, member=member: self._heartbeat_answered(member, call))
                calls.append(call)
        return calls

    def last_heartbeat(self, heartbeat: Heartbeat, timeout: float) -> None:
        """Send a heartbeat and wait until it is answered or time is up."""
        for call in self.heartbeat(heartbeat, timeout):
            with suppress(grpc.RpcError, grpc.FutureCancelledError):
                call.result()

    def _heartbeat_answered(self, member: int, call: Any) -> None:
        try:
            answer = decode_heartbeat(call.result())
            if answer.ring != self._terms.ring:
                self._outcomes.unreachable(member, differing(answer.ring, self._terms.ring))
            else:
                self._outcomes.heartbeat_answered(member, answer)
        except (grpc.RpcError, grpc.FutureCancelledError, WireError) as error:
            self._outcomes.unreachable(member, reason(error))

    def statements(self, member: int, raw: bytes, timeout: float) -> bytes:
        """Exchange statements with a member; `grpc.RpcError` if it cannot be reached."""
        return exchange_statements(self._connections[member], raw, timeout)

    def control(self, member: int, raw: bytes) -> None:
        """Send a control message once; its answer, if there is one, is handed on."""
        if not self._stop.is_set():
            with suppress(ValueError):  # closed at this very moment
                call = self._connections[member].control.future(raw, timeout=max(self._ring.patience / 2, 0.5))
                call.add_done_callback(lambda call: self._control_answered(member, call))

    def _control_answered(self, member: int, call: Any) -> None:
        try:
            raw = bytes(call.result())
            if raw:
                members, rounds = len(self._ring.members), self._ring.rounds
                self._outcomes.control_answered(member, decode_control(self._terms, raw, members, rounds, member))
        except (grpc.RpcError, grpc.FutureCancelledError, WireError) as error:
            self._outcomes.unreachable(member, reason(error))

    def probe(self, member: int, timeout: float) -> None:
        """Send a member as much as a message once, to see whether it gets there."""
        if not self._stop.is_set():
            with suppress(ValueError):  # closed at this very moment
                call = self._connections[member].probe.future(probe_of(self._terms), timeout=timeout)
                call.add_done_callback(lambda call: self._probe_answered(member, call))

    def _probe_answered(self, member: int, call: Any) -> None:
        try:
            call.result()
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            self._outcomes.unreachable(member, reason(error))
        else:
            self._outcomes.probe_answered(member)

    def call_back(self, member: int) -> str:
        """Probe a member that has asked for it, now; "" if it answered, else what went wrong."""
        fresh = connect(self._identity, self._ring, member)  # the channel in use may be waiting to connect again
        try:
            return try_probe(fresh, self._terms)
        finally:
            fresh.channel.close()

    def close(self) -> None:
        """Stop sending and close the connections."""
        self._stop.set()
        self.queue.close()
        for connection in self._connections.values():
            connection.channel.close()


def try_probe(connection: Connection, terms: Terms, seconds: float = 3.0) -> str:
    """Probe a member and wait; "" if it answered, else what went wrong."""
    try:
        connection.probe(probe_of(terms), timeout=seconds)
    except (grpc.RpcError, ValueError) as error:
        return reason(error)
    return ""


def printable(raw: bytes) -> str:
    """What another member wrote, fit for a terminal and a log."""
    text = raw.decode(errors="replace")[:300]
    return "".join(each if each.isprintable() else "?" for each in text)


def reason(error: Exception) -> str:
    """What went wrong with a call, in a few words."""
    details = error.details() if isinstance(error, grpc.Call) else str(error)
    return str(details or type(error).__name__).splitlines()[0][:200]
