"""What a message looks like in bytes: a fixed header, a manifest, raw little-endian numbers. No sockets here.

A message is a head and then chunks. Everything in the head is compared with the agreed signature before anything is
allocated; only an `ExtractorState` can be encoded, and there is no field in which a head could travel.
"""

import hashlib
import math
import struct
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from firma.peer.signature import FLOAT32, Cut
from firma.peer.terms import MAGIC, VERSION, Head, Tag, Terms, WireError, version
from firma.protocol import ExtractorState, Message

CHUNK = 1 << 20
_HEADER = struct.Struct("<4sHBB16s32sIIIQQddH")
_ENTRY, _RANGE = struct.Struct("<HBB"), struct.Struct("<QQ32s")
_STATE = 1  # the only kind
_ACCURACY, _WEIGHT = 1, 2  # flags
_DIGEST = 32


def encode(terms: Terms, tag: Tag, payload: Message) -> tuple[bytes, NDArray[np.float32]]:
    """Head and numbers of a message; anything but an extractor within the signature is refused."""
    state = payload.state
    if type(state) is not ExtractorState:
        raise WireError(f"a {type(state).__name__} cannot be sent: only extractors travel")
    if state.values.dtype != torch.float32 or state.values.ndim != 1:
        raise WireError("an extractor travels as flat float32")
    count = state.values.numel()
    if state.start < 0 or state.start + count > terms.signature.size:
        raise WireError("these elements are not all of the extractor: nothing is sent")
    values = state.values.detach().cpu().contiguous().numpy().astype("<f4", copy=False)
    if not np.isfinite(values).all():
        raise WireError("this site's extractor holds NaN or infinity: nothing is sent")
    cuts = terms.signature.cuts(state.start, count)
    flags = (payload.accuracy is not None) * _ACCURACY + (payload.weight is not None) * _WEIGHT
    header = _HEADER.pack(
        MAGIC, VERSION, _STATE, flags, terms.federation, terms.ring, *tag, state.start, count,
        payload.accuracy or 0.0, payload.weight or 0.0, len(cuts),
    )  # fmt: skip
    entries, place = [], 0
    for cut in cuts:
        entries.append(_entry(cut) + _RANGE.pack(cut.start, cut.count, _sha(values[place : place + cut.count])))
        place += cut.count
    return _sealed(header + b"".join(entries)), values


def chunks(values: NDArray[np.float32]) -> Iterator[bytes]:
    """The numbers, about a mebibyte at a time."""
    raw = values.view(np.uint8).data
    for start in range(0, len(raw), CHUNK):
        yield bytes(raw[start : start + CHUNK])


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
    cuts = _read_manifest(rest, terms.signature.cuts(start, count), entries)
    return Head((epoch, turn, step), start, count, told, heavy, cuts, digest)


class Assembly:
    """Numbers on their way in: exactly as many as the head said, and finished only if every hash is right."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self._buffer = bytearray(4 * head.count)
        self._filled = 0

    def feed(self, chunk: bytes) -> None:
        """Take one chunk; more than was announced is refused before it is kept."""
        if not chunk or self._filled + len(chunk) > len(self._buffer):
            raise WireError("more bytes than announced, or none at all in a chunk")
        self._buffer[self._filled : self._filled + len(chunk)] = chunk
        self._filled += len(chunk)

    def finish(self) -> Message:
        """The message, if it is whole, unchanged and finite."""
        if self._filled != len(self._buffer):
            raise WireError(f"{self._filled} bytes arrived of {len(self._buffer)}")
        values, place = np.frombuffer(self._buffer, "<f4"), 0
        for cut, digest in self.head.cuts:
            if _sha(values[place : place + cut.count]) != digest:
                raise WireError(f"{cut.name} does not have the hash that was announced")
            place += cut.count
        if not np.isfinite(values).all():
            raise WireError("the message holds NaN or infinity")
        tensor = torch.from_numpy(values.astype(np.float32, copy=False))
        return Message(ExtractorState(tensor, self.head.start), self.head.accuracy, self.head.weight)


def _read_manifest(rest: memoryview, expected: list[Cut], entries: int) -> tuple[tuple[Cut, bytes], ...]:
    """Hashes of the cuts; every other byte must be as expected."""
    if entries != len(expected):
        raise WireError(f"the manifest names {entries} tensors, {len(expected)} are agreed")
    found, place = [], 0
    for cut in expected:
        entry = _entry(cut)
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


def _entry(cut: Cut) -> bytes:
    name = cut.name.encode()
    shape = struct.pack(f"<{len(cut.shape)}I", *cut.shape)
    return _ENTRY.pack(len(name), FLOAT32, len(cut.shape)) + name + shape


def _sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def _unsealed(raw: bytes) -> bytes:
    body = raw[:-_DIGEST]
    if len(body) < _HEADER.size or hashlib.sha256(body).digest() != raw[-_DIGEST:]:
        raise WireError("a head that is cut off or changed")
    return body


def _sha(values: NDArray[np.float32]) -> bytes:
    return hashlib.sha256(values.view(np.uint8).data).digest()
