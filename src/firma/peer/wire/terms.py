"""What members have agreed on about bytes: the protocol version, the ring, and which tensors may travel."""

import hashlib
import struct
from dataclasses import dataclass

from firma.models.split_model import Layout

VERSION = 3
MAGIC = b"FIRM"
_PREFIX = struct.Struct("<4sH")  # what every version starts with
_FLOAT32 = 1  # the type of a model's parameters, whatever they are encoded as on the wire
Tag = tuple[int, int, int]  # view number, turn (round r is turn r+1), step: names one exchange


class WireError(ValueError):
    """What arrived is not what was agreed on; nothing of it is used."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Elements [start, start + count) of one tensor."""

    name: str
    shape: tuple[int, ...]
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Signature:
    """The extractor's tensors in torch's layout, in order; `size` is the number of elements in all of them.

    A model's head has no entry, so there is no way to name one in a message.
    """

    tensors: tuple[tuple[str, tuple[int, ...], int], ...]  # name, shape, start in the flat extractor
    size: int

    @property
    def digest(self) -> bytes:
        """(32,) SHA-256 of names, type and shapes."""
        text = ";".join(f"{name}:{_FLOAT32}:{shape}" for name, shape, _ in self.tensors)
        return hashlib.sha256(text.encode()).digest()

    def cuts(self, start: int, count: int) -> list[Cut]:
        """What [start, start + count) of the flat extractor holds of each tensor; empty tensors are left out."""
        ends = [*(begin for _, _, begin in self.tensors[1:]), self.size]
        found = []
        for (name, shape, begin), end in zip(self.tensors, ends, strict=True):
            low, high = max(begin, start), min(end, start + count)
            if low < high:
                found.append(Cut(name, shape, low - begin, high - low))
        return found


@dataclass(frozen=True, slots=True)
class Terms:
    """What every message must agree with."""

    federation: bytes  # (16,)
    ring: bytes  # (32,) digest of the ring file
    signature: Signature
    classes: int


def signature(layout: Layout) -> Signature:
    """The signature of a model: its extractor, and nothing else of it."""
    pieces = [piece for piece in layout.pieces if piece.stop <= layout.extractor]
    return Signature(tuple((piece.name, piece.shape, piece.start) for piece in pieces), layout.extractor)


def federation_tag(name: str) -> bytes:
    """(16,) bytes that stand for a federation's name."""
    return hashlib.sha256(name.encode()).digest()[:16]


def check_version(raw: bytes) -> None:
    """Refuse bytes that are not FIRMA's, or that are of another protocol version."""
    if len(raw) < _PREFIX.size or raw[: len(MAGIC)] != MAGIC:
        raise WireError("not a FIRMA message")
    spoken = _PREFIX.unpack_from(raw)[1]
    if spoken != VERSION:
        raise WireError(
            f"the sender speaks protocol version {spoken}, this site {VERSION}; install the same version of FIRMA"
        )
