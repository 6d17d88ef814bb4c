"""What messages are made of and must agree with: the terms of a ring, and a head that was checked against them."""

import hashlib
import struct
from dataclasses import dataclass

from firma.encoding import Wire
from firma.peer.wire.signature import Cut, Signature

VERSION = 2
MAGIC = b"FIRM"
_OUTLINE = struct.Struct("<4sH")  # what every version starts with
Tag = tuple[int, int, int]  # epoch of the view, turn (round r is turn r+1), step


class WireError(ValueError):
    """What arrived is not what was agreed on; nothing of it is used."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a message must agree with."""

    federation: bytes  # (16,)
    ring: bytes  # (32,)
    signature: Signature
    classes: int


@dataclass(frozen=True, slots=True)
class Head:
    """A checked head: which elements follow, in which cuts with which hashes."""

    tag: Tag
    start: int
    count: int
    accuracy: float | None
    weight: float | None
    cuts: tuple[tuple[Cut, bytes], ...]
    digest: bytes  # of the head itself: equal digests, equal messages
    wire: Wire = "float32"  # how the elements are encoded


def federation_tag(name: str) -> bytes:
    """(16,) bytes that stand for a federation's name."""
    return hashlib.sha256(name.encode()).digest()[:16]


def version(raw: bytes) -> None:
    """Refuse what is not FIRMA's, or is of another protocol version."""
    if len(raw) < _OUTLINE.size or raw[: len(MAGIC)] != MAGIC:
        raise WireError("not a message of FIRMA")
    spoken = _OUTLINE.unpack_from(raw)[1]
    if spoken != VERSION:
        raise WireError(f"the sender speaks protocol version {spoken}, this site {VERSION}; install the same FIRMA")
