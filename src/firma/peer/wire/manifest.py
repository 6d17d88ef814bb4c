"""The head of a message in bytes: a fixed header, then a manifest of tensors, then a seal. No sockets.

Everything in it is compared with the terms before anything is allocated. The manifest names the encoding of the numbers
that follow, one for the whole message.
"""

import hashlib
import math
import struct
from collections.abc import Iterable

from firma.encoding import WIRES, Wire
from firma.peer.wire.signature import Cut
from firma.peer.wire.terms import MAGIC, VERSION, Head, Tag, Terms, WireError, version
from firma.protocol import Message

_HEADER = struct.Struct("<4sHBB16s32sIIIQQddH")
_ENTRY, _RANGE = struct.Struct("<HBB"), struct.Struct("<QQ32s")
_STATE = 1  # the only kind
_ACCURACY, _WEIGHT = 1, 2  # flags
_DIGEST = 32


def state_head(terms: Terms, tag: Tag, said: Message, cuts: Iterable[tuple[Cut, bytes]]) -> bytes:
    """The head before an extractor's elements, with the hash of each cut's bytes."""
    entries = [_entry(cut, said.wire) + _RANGE.pack(cut.start, cut.count, digest) for cut, digest in cuts]
    flags = (said.accuracy is not None) * _ACCURACY + (said.weight is not None) * _WEIGHT
    header = _HEADER.pack(
        MAGIC, VERSION, _STATE, flags, terms.federation, terms.ring, *tag, said.state.start,
        said.state.values.numel(), said.accuracy or 0.0, said.weight or 0.0, len(entries),
    )  # fmt: skip
    return _sealed(header + b"".join(entries))


def decode_head(terms: Terms, raw: bytes) -> Head:
    """A head that agrees with the terms, or `WireError`; reads at most what is there and allocates no tensor."""
    version(raw)
    body = _unsealed(raw)
    _, _, kind, flags, federation, ring, *tag, start, count, accuracy, weight, entries = _HEADER.unpack_from(body)
    if federation != terms.federation:
        raise WireError("the message is of another federation")
    if ring != terms.ring:
        raise WireError("the sender's ring file differs from this site's; compare firma ring-file RING.toml")
    rest = memoryview(body)[_HEADER.size :]
    digest = raw[-_DIGEST:]
    if kind != _STATE or flags & ~(_ACCURACY | _WEIGHT):
        raise WireError("a message of no known kind")
    epoch, turn, step = tag
    if epoch == 0 or turn == 0 or count == 0 or start + count > terms.signature.size:
        raise WireError("the message reaches beyond the extractor")
    told = accuracy if flags & _ACCURACY else None
    if (told is None and accuracy != 0) or not 0 <= accuracy <= 1:
        raise WireError("an accuracy is a number from 0 to 1")
    heavy = weight if flags & _WEIGHT else None
    if (heavy is None and weight != 0) or not 0 <= weight < math.inf or heavy == 0:
        raise WireError("a weight is a positive number")
    wire = _read_wire(rest)
    cuts = _read_manifest(rest, terms.signature.cuts(start, count), entries, wire)
    return Head((epoch, turn, step), start, count, told, heavy, cuts, digest, wire)


def _read_wire(rest: memoryview) -> Wire:
    """The encoding, as the first entry names it; that the others name the same is then compared byte by byte."""
    kind = _ENTRY.unpack_from(rest)[1] if len(rest) >= _ENTRY.size else 0
    if not 1 <= kind <= len(WIRES):
        raise WireError("the numbers are in no encoding that this site knows; install the same FIRMA")
    return WIRES[kind - 1]


def _read_manifest(rest: memoryview, expected: list[Cut], entries: int, wire: Wire) -> tuple[tuple[Cut, bytes], ...]:
    """Hashes of the cuts; every other byte must be as expected."""
    if entries != len(expected):
        raise WireError(f"the manifest names {entries} tensors, {len(expected)} are agreed")
    found, place = [], 0
    for cut in expected:
        entry = _entry(cut, wire)
        tail = place + len(entry)
        if rest[place:tail] != entry or len(rest) < tail + _RANGE.size:
            raise WireError(f"the manifest differs from the agreed model at {cut.name}")
        start, count, digest = _RANGE.unpack_from(rest, tail)
        if (start, count) != (cut.start, cut.count):
            raise WireError(f"the manifest differs from the agreed model at {cut.name}")
        found.append((cut, digest))
        place = tail + _RANGE.size
    if place != len(rest):
        raise WireError("bytes behind the manifest")
    return tuple(found)


def _entry(cut: Cut, wire: Wire) -> bytes:
    name = cut.name.encode()
    shape = struct.pack(f"<{len(cut.shape)}I", *cut.shape)
    return _ENTRY.pack(len(name), WIRES.index(wire) + 1, len(cut.shape)) + name + shape


def _sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def _unsealed(raw: bytes) -> bytes:
    body = raw[:-_DIGEST]
    if len(body) < _HEADER.size or hashlib.sha256(body).digest() != raw[-_DIGEST:]:
        raise WireError("a head that is cut off or changed")
    return body
