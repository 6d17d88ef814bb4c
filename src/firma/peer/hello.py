"""The short message by which members see that the other is alive and means the same ring. Pure."""

import struct
from dataclasses import dataclass

from firma.peer.terms import MAGIC, VERSION, Tag, WireError, version

_HELLO = struct.Struct("<4sHBB16s32s32s8sIIhd")
RUNNING, LEAVING, PROBING = 1, 2, 3  # a member at work, one that stops, one that only looks (firma doctor)


@dataclass(frozen=True, slots=True)
class Hello:
    """Who is there: agreed terms, this process's number, where it is, and whom it lost if it leaves."""

    federation: bytes
    ring: bytes
    signature: bytes
    process: bytes  # (8,) random: a member that was started again has another one
    tag: Tag
    clock: float
    status: int = RUNNING
    about: int = -1  # the member that was lost, where status is LEAVING

    def encode(self) -> bytes:
        """(118,) bytes."""
        return _HELLO.pack(
            MAGIC, VERSION, self.status, 0, self.federation, self.ring, self.signature, self.process, *self.tag,
            self.about, self.clock,
        )  # fmt: skip


def decode_hello(raw: bytes) -> Hello:
    """A hello, or `WireError`."""
    version(raw)
    if len(raw) != _HELLO.size:
        raise WireError("a hello of the wrong size")
    _, _, status, zero, federation, ring, signature, process, turn, step, about, clock = _HELLO.unpack(raw)
    if status not in (RUNNING, LEAVING, PROBING) or zero:
        raise WireError("a hello of no known kind")
    return Hello(federation, ring, signature, process, (turn, step), clock, status, about)
