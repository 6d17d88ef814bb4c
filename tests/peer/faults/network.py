"""A simulated network between processes: what becomes of a call follows from its faults and the dice.

Calls are those of the real service: a heartbeat, a control message, a probe, or a message of several parts. What
arrives goes to the member's real `Server`; `SimulatedClient` is the real `Client` without threads and gRPC.
Connections are TCP's: a message on a line that is cut waits until the line is back or its sender breaks it off, and a
call with a deadline ends with that. All bytes that leave anybody are kept in `sent`.
"""

import struct
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace

import grpc

from firma.peer.transport.client import Client, printable, probe_of
from firma.peer.transport.send_queue import AT_ONCE
from firma.peer.wire.message import DONE, EARLY, STALE, chunks
from firma.peer.wire.terms import VERSION

from ..simulation import Cuts  # noqa: TID252
from .facades import current

RETRY = 0.1  # seconds before a delivery is tried again
_REFUSED, _REFUSED_LONG = 0.5, 10.0  # seconds before a refused message is sent again, doubled up to the second
_LOOK = 0.25  # seconds between looks at a delivery that is under way
_PREFIX = struct.Struct("<4sH")


class CallFailed(grpc.RpcError):
    """A call that came to nothing."""


@dataclass
class Network(Cuts):
    """What happens to calls, in seconds and probabilities."""

    delay: tuple = (0.001, 0.01)
    loss: float = 0.0  # of a call, and of its answer: the connection is reset
    control_delay: float = 0.0  # up to so much more for control messages and the answers to them
    control_loss: float = 0.0  # of control messages, beside `loss`
    duplicates: float = 0.0  # of a call, which is then handled again, up to `late` seconds later
    late: float = 0.01
    cuts: set = field(default_factory=set)  # (from, to): calls that cannot be made; both ways if both are in it
    slow: dict = field(default_factory=dict)  # (from, to): bytes per second of messages
    untrusted: set = field(default_factory=set)  # members whose certificate nobody accepts: no new connection
    sent: list = field(default_factory=list)
    lines: set = field(default_factory=set)  # (process, process) that are connected
    counts: Counter = field(default_factory=Counter)

    def drop_lines(self, member):
        """Connections of a member break, as they do when a network changes."""
        self.lines = {pair for pair in self.lines if member not in (pair[0].number, pair[1].number)}


class Call:
    """One call; `done(answer)` is called once with bytes, or with a `CallFailed`."""

    def __init__(self, world, caller, to, parts, kind, deadline, done):
        self.world, self.caller, self.to, self.kind, self._done = world, caller, to, kind, done
        self.parts, self.ended, self.answered_at = parts, False, None
        network = world.network
        network.sent += parts
        network.counts[kind] += 1
        if deadline is not None:
            caller.after(deadline, lambda: self._end(CallFailed("deadline exceeded")))
        self._depart()

    def cancel(self):
        self.ended = True

    def _end(self, answer):
        if not self.ended:
            self.ended = True
            self._done(answer)

    def _fail(self, why, delay):
        self.caller.after(delay, lambda: self._end(CallFailed(why)))

    def _travel(self):
        network = self.world.network
        seconds = self.world.dice.uniform(*network.delay)
        if self.kind == "control" and network.control_delay:
            seconds += self.world.dice.uniform(0.0, network.control_delay)
        return seconds

    def _lost(self):
        network = self.world.network
        return self.world.dice.random() < (
            max(network.loss, network.control_loss) if self.kind == "control" else network.loss
        )

    def _depart(self):
        """Connect and send; on a line that is cut, wait for it."""
        if self.ended or not self.caller.up:
            return
        network, pair = self.world.network, (self.caller.number, self.to)
        if pair in network.cuts:
            self.world.after(_LOOK, self._depart)
            return
        target = self.world.processes.get(self.to)
        if target is None or not target.up:
            self._fail("connection refused", self._travel())
            return
        if (self.caller, target) not in network.lines:
            if network.untrusted & set(pair):
                self._fail("handshake failed: certificate has expired", self._travel())
                return
            network.lines.add((self.caller, target))
        if self._lost():
            network.lines.discard((self.caller, target))
            self._fail("connection reset", self._travel())
            return
        seconds = self._travel()
        if self.kind in ("send", "probe") and pair in network.slow:
            self._crawl(target, sum(map(len, self.parts)))
        else:
            self.world.after(seconds, lambda: self._arrive(target))

    def _crawl(self, target, left):
        """On a slow line some of what is left arrives; when the line is as fast as usual again, the rest of it."""
        rate = self.world.network.slow.get((self.caller.number, self.to))
        if rate is None or left <= 0:
            self.world.after(self._travel(), lambda: self._arrive(target))
        elif not self.ended and self.caller.up:
            self.world.after(_LOOK, lambda: self._crawl(target, left - rate * _LOOK))

    def _arrive(self, target):
        if self.ended and self.kind == "send":  # a stream that was broken off
            return
        network, dice = self.world.network, self.world.dice
        if not target.up:
            self._fail("connection reset", self._travel())
            return
        if (self.caller.number, self.to) in network.cuts:  # cut meanwhile
            self.world.after(_LOOK, self._depart)
            return
        target.post(lambda: self._handle(target))
        if dice.random() < network.duplicates:
            network.counts["duplicate"] += 1
            self.world.after(dice.uniform(0, network.late), lambda: target.post(lambda: self._handled(target)))

    def _handle(self, target):
        answer = self._handled(target)
        if self._lost():
            self.world.network.lines.discard((self.caller, target))
            self._fail("connection reset", self._travel())
        else:
            self.caller.after(self._travel(), lambda: self._end(answer))

    def _handled(self, target):
        """What the server does with it; both ends may speak another version than this one."""
        context = SimpleNamespace(member=self.caller.number, peer=lambda: f"member {self.caller.number}")
        if self.kind == "probe":  # of any version
            return target.server.answer_probe(self.parts[0], context)
        parts = [_heard(_spoken(part, self.caller.version), target.version) for part in self.parts[:1]] + self.parts[1:]
        match self.kind:
            case "heartbeat":
                answer = target.server.answer_heartbeat(parts[0], context)
            case "control":
                answer = target.server.answer_control(parts[0], context)
            case _:
                answer = target.server.answer_send(iter(parts), context)
        self.world.network.sent.append(answer)
        return answer if self.kind == "send" else _heard(_spoken(answer, target.version), self.caller.version)


def _spoken(raw, version):
    """What a process of another version would have sent in place of these bytes."""
    return raw if version == VERSION or not raw else raw[:4] + _PREFIX.pack(b"", version)[4:] + raw[6:]


def _heard(raw, version):
    """What a process of that version, which runs this one's code, reads: its own version as this one and vice versa."""
    if version == VERSION or not raw:
        return raw
    spoken = _PREFIX.unpack_from(raw)[1]
    other = {version: VERSION, VERSION: version}.get(spoken, spoken)
    return raw[:4] + _PREFIX.pack(b"", other)[4:] + raw[6:]


class _Answered:
    """A gRPC call that has ended, as the real client reads it."""

    def __init__(self, answer):
        self._answer = answer

    def result(self):
        if isinstance(self._answer, CallFailed):
            raise self._answer
        return self._answer


class SimulatedClient(Client):
    """The client of the process that is acting: what it makes of answers is the real client's."""

    def __init__(self, identity, ring, me, terms, outcomes):
        self._process, self._world = current(), current().world
        self._terms, self._ring, self._outcomes, self._me = terms, ring, outcomes, me
        self._cancelled, self._closed = 0, False
        self._others = [member for member in range(len(ring.members)) if member != me]
        self._queues = defaultdict(list)

    def heartbeat(self, heartbeat, timeout):
        raw = heartbeat.encode()
        for member in self._others:
            self._call(member, [raw], "heartbeat", timeout, self._heartbeat_answered)

    def last_heartbeat(self, heartbeat, timeout):
        self.heartbeat(heartbeat, timeout)

    def control(self, member, raw):
        if not self._closed:
            self._call(member, [raw], "control", max(self._ring.patience / 2, 0.5), self._control_answered)

    def probe(self, member, timeout):
        if not self._closed:
            self._call(member, [probe_of(self._terms)], "probe", timeout, self._probe_answered)

    def _call(self, member, parts, kind, deadline, answered):
        self._process.mount.step()
        Call(self._world, self._process, member, parts, kind, deadline,
             lambda answer: None if self._closed else answered(member, _Answered(answer)))  # fmt: skip

    def send(self, member, tag, header, body):
        self._process.mount.step()
        self._queues[member].append(_Delivery(self, member, tag, [header, *chunks(body)]))
        self.start(member)

    def cancel(self, view_number):
        self._cancelled = max(self._cancelled, view_number)

    def close(self):
        self._closed = True

    def is_over(self, tag):
        return tag[0] <= self._cancelled or self._closed

    def start(self, member):
        """Start what may start: in order, AT_ONCE of one view at a time."""
        queue = self._queues[member] = [each for each in self._queues[member] if not each.over]
        under_way = Counter()
        for each in queue:
            under_way[each.tag[0]] += 1
            if under_way[each.tag[0]] <= AT_ONCE and not each.started:
                each.started = True
                each.attempt()


class _Delivery:
    """A message on its way: tried again until it is acknowledged or cancelled, as `Client._deliver` does."""

    def __init__(self, client, member, tag, parts):
        self._client, self._member, self.tag, self._parts = client, member, tag, parts
        self.started = self.over = False
        self._call, self._moved, self._refusals = None, 0.0, 0

    def attempt(self):
        if self._ended():
            return
        process = self._client._process
        self._moved = process.monotonic()
        self._call = Call(self._client._world, process, self._member, self._parts, "send", None, self._answered)
        process.after(self._client._ring.patience, self._look)

    def _look(self):
        """Break off what does not move, if the member says so."""
        call, process, client = self._call, self._client._process, self._client
        if self.over or call is None or call.ended:
            return
        if self._ended():
            call.cancel()
        elif process.monotonic() - self._moved > client._ring.patience and client._outcomes.unmoved(
            self._member, self._moved
        ):
            call.cancel()
            process.after(RETRY, self.attempt)
        else:
            process.after(_LOOK, self._look)

    def _answered(self, answer):
        outcomes = self._client._outcomes
        if isinstance(answer, CallFailed):
            outcomes.unreachable(self._member, str(answer))
            self._client._process.after(RETRY, self.attempt)
            return
        outcomes.alive(self._member)
        if not answer or answer[0] == EARLY:
            self._client._process.after(RETRY, self.attempt)
            return
        if answer[0] not in (DONE, STALE):
            outcomes.refused(self._member, self.tag, printable(answer[1:]))
            pause = min(_REFUSED * 2.0**self._refusals, _REFUSED_LONG)
            self._refusals += 1
            self._client._process.after(pause + RETRY, self.attempt)
            return
        self.over = True
        outcomes.delivered(self._member, self.tag)
        self._client.start(self._member)

    def _ended(self):
        """Whether nobody needs it any more."""
        if self._client.is_over(self.tag) and not self.over:
            self.over = True
            self._client.start(self._member)
        return self.over
