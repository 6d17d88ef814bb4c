"""A message in bytes: its head, then its numbers in chunks. Only an `ExtractorState` can be encoded. No sockets here.

There is no field in which a head of a model could travel. Numbers are float32, bfloat16 or int8, as the message says;
what arrives is taken in any of them, once it has exactly the bytes, the hashes and the finite values that it must have.
"""

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from firma.encoding import Bytes, pack, size, unpack
from firma.peer.wire.manifest import decode_head, state_head
from firma.peer.wire.terms import Head, Tag, Terms, WireError
from firma.protocol import ExtractorState, Message

CHUNK = 1 << 20


def encode(terms: Terms, tag: Tag, payload: Message) -> tuple[bytes, Bytes]:
    """Head and body of a message; anything but an extractor within the signature is refused."""
    state = payload.state
    if type(state) is not ExtractorState:
        raise WireError(f"a {type(state).__name__} cannot be sent: only extractors travel")
    if state.values.dtype != torch.float32 or state.values.ndim != 1:
        raise WireError("an extractor travels as flat float32 or what is made of it")
    count = state.values.numel()
    if state.start < 0 or state.start + count > terms.signature.size:
        raise WireError("these elements are not all of the extractor: nothing is sent")
    values = state.values.detach().cpu().contiguous().numpy()
    packed, cuts, place = [], terms.signature.cuts(state.start, count), 0
    for cut in cuts:
        try:
            packed.append(pack(payload.wire, values[place : place + cut.count]))
        except ValueError as error:
            raise WireError(f"this site's extractor holds {error}: nothing is sent") from None
        place += cut.count
    manifest = zip(cuts, map(_sha, packed), strict=True)
    return state_head(terms, tag, payload, manifest), np.concatenate(packed)


def chunks(body: NDArray[np.generic]) -> Iterator[bytes]:
    """The body, about a mebibyte at a time."""
    raw = body.view(np.uint8).data
    for start in range(0, len(raw), CHUNK):
        yield bytes(raw[start : start + CHUNK])


class Assembly:
    """A body on its way in: exactly as many bytes as the head said, and finished only if every hash is right."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self._buffer = bytearray(sum(size(head.wire, cut.count) for cut, _ in head.cuts))
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
        head, raw = self.head, np.frombuffer(self._buffer, np.uint8)
        values, place, filled = np.empty(head.count, np.float32), 0, 0
        for cut, digest in head.cuts:
            part = raw[place : place + size(head.wire, cut.count)]
            if _sha(part) != digest:
                raise WireError(f"{cut.name} does not have the hash that was announced")
            try:
                values[filled : filled + cut.count] = unpack(head.wire, part, cut.count)
            except ValueError as error:
                raise WireError(f"the message holds {error}") from None
            place, filled = place + len(part), filled + cut.count
        return Message(ExtractorState(torch.from_numpy(values), head.start), head.accuracy, head.weight, head.wire)


def _sha(raw: Bytes) -> bytes:
    return hashlib.sha256(raw.data).digest()


__all__ = ["CHUNK", "Assembly", "chunks", "decode_head", "encode"]
