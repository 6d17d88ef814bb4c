"""The heartbeat: the short message by which members see that the other is alive and means the same ring. Pure."""

import struct
from dataclasses import dataclass

from firma.peer.wire.terms import MAGIC, VERSION, Tag, Terms, WireError, check_version

_HEARTBEAT = struct.Struct("<4sHBB16s32s32sQIIId")
RUNNING = 1  # has a seat in the newest view
LEAVING = 2  # is about to stop
PROBING = 3  # only looks (firma doctor); not a member at work
ASKING = 4  # wants a seat
WAITING = 5  # wants a seat, but hangs, or does not reach everybody who has one
STALLED = 6  # hangs in its training
FINISHED = 7  # has completed all rounds


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The agreed terms, this process's number, and where the member is."""

    federation: bytes
    ring: bytes
    signature: bytes
    process: int  # random: a member that was started again has another one
    tag: Tag  # number of the newest view that it knows, and the exchange that it is in
    clock: float  # seconds since 1970; read by firma doctor only
    status: int = RUNNING

    def encode(self) -> bytes:
        """(116,) bytes."""
        return _HEARTBEAT.pack(
            MAGIC, VERSION, self.status, 0, self.federation, self.ring, self.signature, self.process, *self.tag,
            self.clock,
        )  # fmt: skip

    def agrees(self, terms: Terms) -> bool:
        """Whether the sender means the same federation and the same ring file."""
        return (self.federation, self.ring) == (terms.federation, terms.ring)


def heartbeat(terms: Terms, process: int, tag: Tag, status: int, clock: float = 0.0) -> Heartbeat:
    """A heartbeat under these terms."""
    return Heartbeat(terms.federation, terms.ring, terms.signature.digest, process, tag, clock, status)


def decode_heartbeat(raw: bytes) -> Heartbeat:
    """A heartbeat, or `WireError`."""
    check_version(raw)
    if len(raw) != _HEARTBEAT.size:
        raise WireError("a heartbeat of the wrong size")
    _, _, status, zero, federation, ring, signature, process, *tag, clock = _HEARTBEAT.unpack(raw)
    if not RUNNING <= status <= FINISHED or zero:
        raise WireError("a heartbeat with an unknown status")
    view_number, turn, step = tag
    return Heartbeat(federation, ring, signature, process, (view_number, turn, step), clock, status)
