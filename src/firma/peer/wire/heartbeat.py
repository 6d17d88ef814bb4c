"""The heartbeat: the short message by which members see that the other is alive and means the same ring. Pure."""

import struct
from dataclasses import dataclass

from firma.peer.membership.views import SEAL
from firma.peer.wire.terms import MAGIC, VERSION, Tag, Terms, WireError, check_version

_HEARTBEAT = struct.Struct("<4sHBB16s32s32sQIIIdII64s")
NO_SEAL = bytes(SEAL)
RUNNING = 1  # has a seat in the newest view
LEAVING = 2  # is about to stop
PROBING = 3  # only looks (firma doctor); not a member at work
ASKING = 4  # wants a seat
WAITING = 5  # wants a seat, but hangs, or does not reach everybody who has one
STALLED = 6  # hangs in its training
FINISHED = 7  # has completed all rounds
# What a member with a seat does about the exchange of its tag:
PREPARING = 0  # it trains, or returns to where the view starts; it has sent nothing of this exchange
EXCHANGING = 1  # it has sent its messages, and waits for those of others or for acknowledgements
COMPLETING = 2  # it has everything of this exchange: it scores, mixes, tests or saves
_MOST_COMPLAINTS = 1024


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
    doing: int = PREPARING
    complaints: tuple[int, ...] = ()  # members that do not deliver to this one, or take nothing from it; ascending
    saved: tuple[int, int] = (0, 0)  # view number and rounds that it signs to have saved
    seal: bytes = NO_SEAL  # its signature under that

    def encode(self) -> bytes:
        """(188 + 2 c,) bytes with c complaints."""
        fixed = _HEARTBEAT.pack(
            MAGIC, VERSION, self.status, self.doing, self.federation, self.ring, self.signature, self.process,
            *self.tag, self.clock, *self.saved, self.seal,
        )  # fmt: skip
        return fixed + struct.pack(f"<{len(self.complaints)}H", *self.complaints)

    def agrees(self, terms: Terms) -> bool:
        """Whether the sender means the same federation and the same ring file."""
        return (self.federation, self.ring) == (terms.federation, terms.ring)


def heartbeat(
    terms: Terms, process: int, tag: Tag, status: int, clock: float = 0.0, doing: int = PREPARING,
    complaints: tuple[int, ...] = (),
) -> Heartbeat:  # fmt: skip
    """A heartbeat under these terms."""
    digest = terms.signature.digest
    return Heartbeat(terms.federation, terms.ring, digest, process, tag, clock, status, doing, complaints)


def decode_heartbeat(raw: bytes) -> Heartbeat:
    """A heartbeat, or `WireError`."""
    check_version(raw)
    count, odd = divmod(len(raw) - _HEARTBEAT.size, 2)
    if odd or not 0 <= count <= _MOST_COMPLAINTS:
        raise WireError("a heartbeat of the wrong size")
    fields = _HEARTBEAT.unpack_from(raw)
    _, _, status, doing, federation, ring, signature, process, *tag, clock, number, rounds, seal = fields
    if not RUNNING <= status <= FINISHED or doing > COMPLETING:
        raise WireError("a heartbeat with an unknown status")
    complaints = struct.unpack_from(f"<{count}H", raw, _HEARTBEAT.size)
    if list(complaints) != sorted(set(complaints)):
        raise WireError("a heartbeat with complaints out of order")
    view_number, turn, step = tag
    place, saved = (view_number, turn, step), (number, rounds)
    return Heartbeat(federation, ring, signature, process, place, clock, status, doing, complaints, saved, seal)
