"""A message in bytes: header, manifest, seal, then the parameters in chunks. Only an `ExtractorState` can be encoded.

A message without parameters carries digests, 32 bytes each, in the place of the manifest.

The header and the manifest are compared with the terms before anything is allocated; the manifest names the encoding of
the parameters, one per message. There is no field in which a model's head could travel. Parameters are float32,
bfloat16 or int8; a receiver takes any of them, once the bytes, the hashes and the finite values are what they must be.
"""

import hashlib
import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from firma.encoding import WIRES, Bytes, Wire, pack, size, unpack
from firma.peer.membership.views import SEAL
from firma.peer.wire.terms import MAGIC, VERSION, Cut, Tag, Terms, WireError, check_version
from firma.protocol import ExtractorState, Message

CHUNK = 1 << 20
# A receiver answers a message with one of these bytes and a sentence: it has the message; it cannot take it yet, try
# again later; it no longer needs it; it will never take it.
DONE, EARLY, STALE, REFUSED = 0, 1, 2, 3
Verdict = Literal["take", "have", "early", "stale", "future", "misfit"]  # on a message, once its header is known
ANSWERS: dict[Verdict, int] = {"have": DONE, "early": EARLY, "stale": STALE, "future": REFUSED, "misfit": REFUSED}
_HEADER = struct.Struct("<4sHBB16s32sIIIQQddH64s")
_ENTRY, _RANGE = struct.Struct("<HBB"), struct.Struct("<QQ32s")
_STATE = 1  # the only kind of message
_ACCURACY, _WEIGHT, _DIGESTS = 1, 2, 4  # flags
_DIGEST = 32


@dataclass(frozen=True, slots=True)
class Header:
    """A checked header: which elements follow, in which cuts with which hashes."""

    tag: Tag
    start: int
    count: int
    accuracy: float | None
    weight: float | None
    cuts: tuple[tuple[Cut, bytes], ...]
    digest: bytes  # of the header itself: equal digests, equal messages
    wire: Wire = "float32"  # how the parameters are encoded
    digests: tuple[bytes, ...] = ()
    receipt: bytes = bytes(SEAL)  # the sender's signature that it has saved the round before


def encode(terms: Terms, tag: Tag, message: Message, receipt: bytes = b"") -> tuple[bytes, Bytes]:
    """Header and body of a message; anything but an extractor within the signature is refused."""
    state = message.state
    if type(state) is not ExtractorState:
        raise WireError(f"a {type(state).__name__} cannot be sent: only extractors travel")
    if state.values.dtype != torch.float32 or state.values.ndim != 1:
        raise WireError("an extractor must be flat float32 before it is encoded")
    count = state.values.numel()
    if message.digests:
        if count:
            raise WireError("digests travel without parameters")
        return encode_header(terms, tag, message, (), receipt), np.empty(0, np.uint8)
    if state.start < 0 or state.start + count > terms.signature.size:
        raise WireError("these elements are not all of the extractor: nothing is sent")
    values = state.values.detach().cpu().contiguous().numpy()
    packed, cuts, place = [], terms.signature.cuts(state.start, count), 0
    for cut in cuts:
        try:
            packed.append(pack(message.wire, values[place : place + cut.count]))
        except ValueError as error:
            raise WireError(f"this site's extractor holds {error}: nothing is sent") from None
        place += cut.count
    manifest = zip(cuts, map(_sha, packed), strict=True)
    return encode_header(terms, tag, message, manifest, receipt), np.concatenate(packed)


def encode_header(
    terms: Terms, tag: Tag, message: Message, cuts: Iterable[tuple[Cut, bytes]], receipt: bytes = b""
) -> bytes:
    """The header before an extractor's elements, with the hash of each cut's bytes."""
    entries = [_entry(cut, message.wire) + _RANGE.pack(cut.start, cut.count, digest) for cut, digest in cuts]
    flags = (message.accuracy is not None) * _ACCURACY + (message.weight is not None) * _WEIGHT
    flags += bool(message.digests) * _DIGESTS
    fixed = _HEADER.pack(
        MAGIC, VERSION, _STATE, flags, terms.federation, terms.ring, *tag, message.state.start,
        message.state.values.numel(), message.accuracy or 0.0, message.weight or 0.0, len(entries),
        receipt,
    )  # fmt: skip
    body = fixed + b"".join(entries) + b"".join(message.digests)
    return body + hashlib.sha256(body).digest()


def decode_header(terms: Terms, raw: bytes) -> Header:
    """A header that agrees with the terms, or `WireError`; reads at most what is there and allocates no tensor."""
    check_version(raw)
    body = _unsealed(raw)
    _, _, kind, flags, federation, ring, *tag, start, count, accuracy, weight, entries, receipt = _HEADER.unpack_from(
        body
    )
    if federation != terms.federation:
        raise WireError("the message is of another federation")
    if ring != terms.ring:
        raise WireError("the sender's ring file differs from this site's; compare firma ring-file RING.toml")
    rest = memoryview(body)[_HEADER.size :]
    if kind != _STATE or flags & ~(_ACCURACY | _WEIGHT | _DIGESTS):
        raise WireError("unknown kind of message")
    if flags & _DIGESTS:
        others = (start, count, accuracy, weight, entries)
        return replace(_read_digests(flags, tuple(tag), others, rest, raw[-_DIGEST:]), receipt=receipt)
    view_number, turn, step = tag
    if view_number == 0 or turn == 0 or count == 0 or start + count > terms.signature.size:
        raise WireError("the message reaches beyond the extractor")
    claimed = accuracy if flags & _ACCURACY else None
    if (claimed is None and accuracy != 0) or not 0 <= accuracy <= 1:
        raise WireError("an accuracy must be a number from 0 to 1")
    heavy = weight if flags & _WEIGHT else None
    if (heavy is None and weight != 0) or not 0 <= weight < math.inf or heavy == 0:
        raise WireError("a weight must be a positive number")
    wire = _read_wire(rest)
    cuts = _read_manifest(rest, terms.signature.cuts(start, count), entries, wire)
    return Header((view_number, turn, step), start, count, claimed, heavy, cuts, raw[-_DIGEST:], wire, (), receipt)


def chunks(body: NDArray[np.generic]) -> Iterator[bytes]:
    """The body, up to a mebibyte at a time."""
    raw = body.view(np.uint8).data
    for start in range(0, len(raw), CHUNK):
        yield bytes(raw[start : start + CHUNK])


class Assembly:
    """A body on its way in: exactly as many bytes as the header says, and finished only if every hash is right."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self._buffer = bytearray(sum(size(header.wire, cut.count) for cut, _ in header.cuts))
        self._filled = 0

    @property
    def body(self) -> bytearray:
        """What has arrived, as it was sent."""
        return self._buffer

    def feed(self, chunk: bytes) -> None:
        """Take one chunk; more than was announced is refused before it is stored."""
        if not chunk or self._filled + len(chunk) > len(self._buffer):
            raise WireError("more bytes than announced, or an empty chunk")
        self._buffer[self._filled : self._filled + len(chunk)] = chunk
        self._filled += len(chunk)

    @property
    def share(self) -> float:
        """How much of the body is here, from 0 to 1."""
        return self._filled / max(len(self._buffer), 1)

    def finish(self) -> Message:
        """The message, if it is whole, unchanged and finite."""
        if self._filled != len(self._buffer):
            raise WireError(f"{self._filled} bytes arrived of {len(self._buffer)}")
        header, raw = self.header, np.frombuffer(self._buffer, np.uint8)
        values, place, filled = np.empty(header.count, np.float32), 0, 0
        for cut, digest in header.cuts:
            part = raw[place : place + size(header.wire, cut.count)]
            if _sha(part) != digest:
                raise WireError(f"{cut.name} does not have the hash that was announced")
            try:
                values[filled : filled + cut.count] = unpack(header.wire, part, cut.count)
            except ValueError as error:
                raise WireError(f"the message holds {error}") from None
            place, filled = place + len(part), filled + cut.count
        state = ExtractorState(torch.from_numpy(values), header.start)
        return Message(state, header.accuracy, header.weight, header.wire, header.digests)


def _read_digests(flags: int, tag: tuple[int, ...], others: tuple[float, ...], rest: memoryview, seal: bytes) -> Header:
    """The header of a message of digests: every other field is zero."""
    view_number, turn, step = tag
    if flags != _DIGESTS or any(others) or view_number == 0 or turn == 0:
        raise WireError("digests travel alone")
    if not len(rest) or len(rest) % _DIGEST:
        raise WireError("digests have 32 bytes each")
    digests = tuple(bytes(rest[at : at + _DIGEST]) for at in range(0, len(rest), _DIGEST))
    return Header((view_number, turn, step), 0, 0, None, None, (), seal, "float32", digests)


def _read_wire(rest: memoryview) -> Wire:
    """The encoding, as the first entry names it; that the others name the same is then compared byte by byte."""
    kind = _ENTRY.unpack_from(rest)[1] if len(rest) >= _ENTRY.size else 0
    if not 1 <= kind <= len(WIRES):
        raise WireError("unknown encoding of the parameters; install the same version of FIRMA")
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
        raise WireError("bytes after the manifest")
    return tuple(found)


def _entry(cut: Cut, wire: Wire) -> bytes:
    name = cut.name.encode()
    shape = struct.pack(f"<{len(cut.shape)}I", *cut.shape)
    return _ENTRY.pack(len(name), WIRES.index(wire) + 1, len(cut.shape)) + name + shape


def _unsealed(raw: bytes) -> bytes:
    body = raw[:-_DIGEST]
    if len(body) < _HEADER.size or hashlib.sha256(body).digest() != raw[-_DIGEST:]:
        raise WireError("the header is cut off or changed")
    return body


def _sha(raw: Bytes) -> bytes:
    return hashlib.sha256(raw.data).digest()
