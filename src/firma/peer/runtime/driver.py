"""The driver: the one lock around a `Member`, and what its actions mean on a real machine.

Threads of the server, the client and the clock report events here. What must happen at once (promises on disk, control
messages, heartbeats) is done by the thread that reported; training, sending and saving wait in `work` for the main
thread. Everything that is sent is recorded in the audit log first.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

from firma.encoding import Bytes
from firma.peer.identity import Identity
from firma.peer.membership.views import ControlMessage
from firma.peer.ring_file import Ring
from firma.peer.runtime.audit_log import AuditLog
from firma.peer.runtime.event_log import EventLog
from firma.peer.runtime.events import (
    Action,
    Announced,
    Answer,
    AnswerControl,
    Arrived,
    CancelSends,
    ControlAnswered,
    ControlArrived,
    Delivered,
    Event,
    Fail,
    Failed,
    HeartbeatAnswered,
    HeartbeatArrived,
    LogEvent,
    Moved,
    Notice,
    Probe,
    ProbeArrived,
    Probed,
    Progressed,
    Refused,
    Remember,
    SendControl,
    SendHeartbeat,
    Stopping,
    Tick,
    Unmoved,
    Unreachable,
    Work,
)
from firma.peer.runtime.evidence import Evidence
from firma.peer.runtime.member_machine import Member
from firma.peer.runtime.promises import Promises
from firma.peer.transport.client import Client
from firma.peer.wire.control import encode_control, numbers_in, promises_in
from firma.peer.wire.heartbeat import PROBING, Heartbeat
from firma.peer.wire.message import Header, Verdict
from firma.peer.wire.message_signature import SIZE, signer, with_signature
from firma.peer.wire.terms import Tag, Terms
from firma.protocol import Message

_Answer = Heartbeat | bytes | Verdict | bool | None
_LAST = 1.0  # seconds for the last heartbeat to get out


class Driver:
    """Drives a member with this machine's clock, disk and network."""

    def __init__(
        self, member: Member, ring: Ring, me: int, terms: Terms, identity: Identity, promises: Promises,
        audit_log: AuditLog, log: EventLog, evidence: Evidence | None = None, waiting: bool = False,
    ) -> None:  # fmt: skip
        self.work: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._member, self._terms, self._promises, self._audit_log, self._log = member, terms, promises, audit_log, log
        self._evidence, self._kept = evidence, True
        self._sign, self._signed = signer(identity, terms.ring), (b"", b"")  # the last header, and the same signed
        self._lock = threading.Lock()
        self._timeout = max(min(ring.patience / 5, 5.0), 0.5)  # seconds for a heartbeat to be answered
        self._client = Client(identity, ring, me, terms, self)
        self._waiting = waiting  # until `begin`, this site only looks: it promises, takes and sends nothing

    def on(self, event: Event) -> _Answer:
        """Report an event; returns the answer for the caller, where the event has one."""
        with self._lock:
            answer, sends = self._carry_out(self._member.on(event, time.monotonic()))
        for send in sends:  # without the lock: a call that fails at once reports back on this thread
            send()
        return answer

    def _carry_out(  # noqa: PLR0912, one case per action
        self, actions: list[Action]
    ) -> tuple[_Answer, list[Callable[[], object]]]:
        """Do what is to be done at once; returns the answer and what is to be sent, both recorded."""
        answer: _Answer = None
        sends: list[Callable[[], object]] = []
        for action in actions:
            match action:
                case Remember(memory):
                    try:
                        self._promises.write(memory)
                    except OSError as error:  # nothing that follows from it may be sent
                        self._failed(
                            f"state folder: promises cannot be saved ({error.strerror}); the saved rounds are whole, "
                            "make room and continue with --resume"
                        )
                        return None, sends
                case AnswerControl(to, message):
                    raw = encode_control(self._terms, message)
                    answer = raw if self._recorded(to, message, raw) else None
                case Answer(value):
                    answer = value
                case SendControl(to, message):
                    raw = encode_control(self._terms, message)
                    if self._recorded(to, message, raw):
                        sends.append(partial(self._client.control, to, raw))
                case SendHeartbeat(heartbeat, last):
                    stamped = replace(heartbeat, clock=time.time())
                    send = self._client.last_heartbeat if last else self._client.heartbeat
                    sends.append(partial(send, stamped, _LAST if last else self._timeout))
                case Probe(to):
                    sends.append(partial(self._client.probe, to, 2 * self._timeout))
                case CancelSends(view_number):
                    self._client.cancel(view_number)
                case LogEvent(name, facts):
                    self._log.event(name, facts)
                case Notice(text):
                    self._log.event("notice", {"says": text})
                    self.work.put(action)
                case _:
                    self.work.put(action)
        return answer, sends

    def _recorded(self, member: int, message: ControlMessage, raw: bytes) -> bool:
        """What cannot be recorded is not sent."""
        try:
            self._audit_log.record_control(member, numbers_in(message), len(raw), promises_in(message))
        except OSError as error:
            self._failed(f"audit file: cannot write ({error.strerror}); the saved rounds are whole")
            return False
        except ValueError:  # it is closed: this member is leaving
            return False
        return True

    def _failed(self, why: str) -> None:
        self._carry_out(self._member.on(Failed(why), time.monotonic()))

    # The clock

    def tick(self) -> float:
        """Let the member look at the time; returns the seconds until it wants to look again."""
        self.on(Tick())
        with self._lock:
            return self._member.pause(time.monotonic())

    def begin(self) -> None:
        """From now on this site takes part."""
        with self._lock:
            self._member.begin(time.monotonic())
            self._waiting = False

    def run_clock(self, stop: threading.Event, each: Callable[[], None]) -> None:
        """Tick until the run ends; `each` is called with every tick. A mistake in the machine ends the run."""
        try:
            while not stop.wait(self.tick()):
                each()
        except Exception as error:
            self.work.put(Fail(error))

    def silence(self) -> dict[str, float]:
        """Seconds since each member was last heard."""
        with self._lock:
            now = time.monotonic()
            return {name: max(0.0, now - when) for name, when in self._member.last_heard.items()}

    def awaited(self) -> dict[str, float]:
        """For how many seconds this site has been waiting for whom."""
        with self._lock:
            return self._member.awaited(time.monotonic())

    # What the main thread sends

    def send(self, to: int, tag: Tag, header: bytes, body: Bytes) -> None:
        """Record a message and have it delivered; `OSError` if it cannot be recorded, and then it is not sent."""
        self._audit_log.record_message(to, tag, header, SIZE + body.nbytes)
        if self._signed[0] is not header:  # a message often goes to two members
            self._signed = header, with_signature(self._sign, tag, header)
        self._client.send(to, tag, self._signed[1], body)

    def exchange_statements(self, member: int, raw: bytes, timeout: float) -> bytes:
        """Hand statements to a member and get its own; they are recorded like everything that leaves this site."""
        self._audit_log.record_statements(member, raw)
        return self._client.statements(member, raw, timeout)

    def close(self) -> None:
        """Say that this member stops, and close the connections."""
        self.on(Stopping())
        self._client.close()

    # What the server reports

    def heartbeat(self, sender: int, heartbeat: Heartbeat | None) -> Heartbeat:
        """See `server.Receiver`."""
        if self._waiting:
            process = self._member.voter.own.process
            return Heartbeat(
                self._terms.federation, self._terms.ring, self._terms.signature.digest, process, (0, 0, 0), time.time(),
                PROBING,
            )  # fmt: skip
        answer = self.on(HeartbeatArrived(sender, heartbeat))
        assert isinstance(answer, Heartbeat)  # every heartbeat is answered
        return replace(answer, clock=time.time())

    def control(self, sender: int, message: ControlMessage) -> bytes:
        """See `server.Receiver`."""
        answer = None if self._waiting else self.on(ControlArrived(sender, message))
        return answer if isinstance(answer, bytes) else b""

    def announced(self, sender: int, header: Header) -> Verdict:
        """See `server.Receiver`."""
        if self._waiting:
            return "early"
        answer = self.on(Announced(sender, header))
        return cast(Verdict, answer)  # every header is answered

    def progressed(self, sender: int, tag: Tag, share: float) -> None:
        """See `server.Receiver`."""
        self.on(Progressed(sender, tag, share))

    def probed(self, sender: int) -> None:
        """See `server.Receiver`."""
        self.on(ProbeArrived(sender))

    def call_back(self, sender: int) -> str:
        """See `server.Receiver`."""
        return self._client.call_back(sender)

    def keep(self, sender: int, header: Header, raw: bytes, signature: bytes, body: bytearray) -> None:
        """See `server.Receiver`; a disk that is full costs the evidence, not the message."""
        if self._evidence is None:
            return
        try:
            self._evidence.keep(sender, header, raw, signature, body)
            self._kept = True
        except OSError as error:
            if self._kept:
                text = f"warning: evidence of what others send cannot be kept ({error.strerror}); make room"
                self._log.event("notice", {"says": text})
                self.work.put(Notice(text))
            self._kept = False
        except ValueError:  # it is closed: this member is leaving
            pass

    def arrived(self, sender: int, header: Header, message: Message) -> None:
        """See `server.Receiver`."""
        self.on(Arrived(sender, header, message))

    def turned_down(self, kind: str, sender: str, why: str) -> None:
        """See `server.Receiver`."""
        self._log.refused(kind, sender, why)

    def cut_short(self, connection: str) -> None:
        """See `server.Receiver`."""
        self._log.event("stalled", {"connection": connection})

    # What the client reports

    def heartbeat_answered(self, member: int, heartbeat: Heartbeat) -> None:
        """See `client.Outcomes`."""
        self.on(HeartbeatAnswered(member, heartbeat))

    def control_answered(self, member: int, message: ControlMessage) -> None:
        """See `client.Outcomes`."""
        self.on(ControlAnswered(member, message))

    def delivered(self, member: int, tag: Tag) -> None:
        """See `client.Outcomes`."""
        self.on(Delivered(member, tag))

    def refused(self, member: int, tag: Tag, why: str) -> None:
        """See `client.Outcomes`."""
        self.on(Refused(member, tag, why))

    def moved(self, member: int, tag: Tag, share: float) -> None:
        """See `client.Outcomes`."""
        self.on(Moved(member, tag, share))

    def probe_answered(self, member: int) -> None:
        """See `client.Outcomes`."""
        self.on(Probed(member))

    def alive(self, member: int) -> None:
        """See `client.Outcomes`."""
        self.on(Progressed(member))

    def unreachable(self, member: int, why: str) -> None:
        """See `client.Outcomes`."""
        self.on(Unreachable(member, why))

    def unmoved(self, member: int, since: float) -> bool:
        """See `client.Outcomes`."""
        return self.on(Unmoved(member, since)) is True
