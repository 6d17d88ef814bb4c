"""The short message by which members see that the other is alive and means the same ring. Pure."""

import struct
from dataclasses import dataclass

from firma.peer.wire.terms import MAGIC, VERSION, Tag, WireError, version

_HELLO = struct.Struct("<4sHBB16s32s32sQIIId")
# At work in a view; stopping; only looking (firma doctor); wanting a seat; wanting one, but not reaching all who have
# one; hanging in its training; done with all rounds.
RUNNING, LEAVING, PROBING, ASKING, WAITING, STALLED, FINISHED = range(1, 8)


@dataclass(frozen=True, slots=True)
class Hello:
    """Who is there: agreed terms, this process's number, and where it is."""

    federation: bytes
    ring: bytes
    signature: bytes
    process: int  # random: a member that was started again has another one
    tag: Tag  # epoch of the newest view that it knows, and the exchange that it is in
    clock: float
    status: int = RUNNING

    def encode(self) -> bytes:
        """(116,) bytes."""
        return _HELLO.pack(
            MAGIC, VERSION, self.status, 0, self.federation, self.ring, self.signature, self.process, *self.tag,
            self.clock,
        )  # fmt: skip


def decode_hello(raw: bytes) -> Hello:
    """A hello, or `WireError`."""
    version(raw)
    if len(raw) != _HELLO.size:
        raise WireError("a hello of the wrong size")
    _, _, status, zero, federation, ring, signature, process, epoch, turn, step, clock = _HELLO.unpack(raw)
    if not RUNNING <= status <= FINISHED or zero:
        raise WireError("a hello of no known kind")
    return Hello(federation, ring, signature, process, (epoch, turn, step), clock, status)
