"""What is fuzzed: every reader of bytes or files that somebody else may have written.

A target takes bytes and returns whether they were refused. It must refuse in the way that its callers expect, or give
something within the terms; anything else, an `AssertionError` or another exception, is a finding. Seals and hashes are
made right by the targets themselves where it says so, for no fuzzer guesses a SHA-256.
"""

import hashlib
import json
import os
import shutil
import struct
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from firma.encoding import WIRES, size
from firma.errors import BadInput
from firma.models import SplitModel, mlp
from firma.peer.membership.views import (
    Commit,
    Committed,
    ControlMessage,
    MemberState,
    Memory,
    Prepare,
    Prepared,
    Promise,
    Proof,
    Propose,
    Receipt,
    Refusal,
    Seat,
    View,
)
from firma.peer.ring_file import read_ring, ring_toml
from firma.peer.runtime import checkpoint
from firma.peer.runtime.backup import make_backup, restore_backup
from firma.peer.runtime.promises import Promises
from firma.peer.wire.control import decode_control, encode_control, encode_memory
from firma.peer.wire.heartbeat import Heartbeat, decode_heartbeat
from firma.peer.wire.message import Assembly, chunks, decode_header, encode, encode_header
from firma.peer.wire.results import Result, SignedResult, is_genuine
from firma.peer.wire.statements import Statements, decode_statements, encode_statements, is_signed
from firma.peer.wire.terms import Terms, WireError, federation_tag, signature
from firma.protocol import ExtractorState, Message

TERMS = Terms(federation_tag("fuzz"), b"r" * 32, signature(SplitModel(*mlp((3,), 2, 4, 3)).layout()), 3)
SIZE = TERMS.signature.size
RING = Path(__file__).parent / "fuzz_ring.toml"  # two members whose keys were thrown away
RING_READ = read_ring(RING)
SHARING = RING_READ.model_copy(update={"summary": "classes"})  # the same members, who agree to share results
MEMBERS, ROUNDS = len(RING_READ.members), RING_READ.rounds
_SHM = Path("/dev/shm")
_FOLDER = Path(tempfile.mkdtemp(prefix="firma-fuzz-", dir=_SHM if os.access(_SHM, os.W_OK) else None))
_BODY = struct.Struct("<BHH")


def header(raw):
    """A header as it is, seal included."""
    try:
        found = decode_header(TERMS, raw)
    except WireError:
        return True
    assert 0 <= found.start <= found.start + found.count <= SIZE
    assert sum(cut.count for cut, _ in found.cuts) == found.count
    assert found.accuracy is None or 0 <= found.accuracy <= 1
    assert found.weight is None or 0 < found.weight < float("inf")
    return False


def sealed_header(raw):
    """A header whose seal is made right."""
    return header(raw + hashlib.sha256(raw).digest())


def body(raw):
    """Numbers in any encoding behind a header with the right hashes: encoding, start, count, then the bytes."""
    if len(raw) < _BODY.size:
        return True
    kind, start, count = _BODY.unpack_from(raw)
    wire, start = WIRES[kind % len(WIRES)], start % SIZE
    count = 1 + count % (SIZE - start)
    numbers, place, cuts = raw[_BODY.size :], 0, []
    for cut in TERMS.signature.cuts(start, count):
        part = numbers[place : place + size(wire, cut.count)]
        cuts.append((cut, hashlib.sha256(part).digest()))
        place += size(wire, cut.count)
    message = Message(ExtractorState(torch.empty(count), start), wire=wire)
    found = decode_header(TERMS, encode_header(TERMS, (1, 1, 0), message, cuts))
    assembly = Assembly(found)
    try:
        for part in (numbers[:7], numbers[7:]):
            if part:
                assembly.feed(part)
        arrived = assembly.finish()
    except WireError:
        return True
    assert len(numbers) == place
    assert arrived.wire == wire
    assert arrived.state.values.dtype == torch.float32
    assert arrived.state.values.shape == (count,)
    assert torch.isfinite(arrived.state.values).all()
    return False


def statements(raw):
    """Members' statements behind a right header; what is read can be written, and nobody's signature is believed."""
    start = encode_statements(Statements(SHARING.digest))
    try:
        found = decode_statements(start[: start.index(b"{")] + raw, SHARING)
    except WireError:
        return True
    assert decode_statements(encode_statements(found), SHARING) == found
    assert not any(is_signed(SHARING, each, signature) for each, signature in found.signatures.items())
    assert not any(is_genuine(SHARING, each) for each in found.results)
    return False


def backup(raw):
    """A file of `firma backup`; what is restored holds no promises, and nothing is written elsewhere."""
    file, folder = _FOLDER / "backup.zip", _FOLDER / "restored"
    file.write_bytes(raw)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        restore_backup(file, folder)
    except BadInput as error:
        assert "\n" not in str(error), "one sentence"
        assert not folder.exists()
        return True
    assert not (folder / "promises.json").exists()
    return False


def heartbeat(raw):
    """A heartbeat."""
    try:
        found = decode_heartbeat(raw)
    except WireError:
        return True
    assert (len(found.federation), len(found.ring)) == (16, 32)
    return False


def control(raw):
    """A control message behind a right header; what is read can be written, and is then the same."""
    start = encode_control(TERMS, ControlMessage(None, None))
    try:
        found = decode_control(TERMS, start[: start.index(b"{")] + raw, MEMBERS, ROUNDS)
    except WireError:
        return True
    assert decode_control(TERMS, encode_control(TERMS, found), MEMBERS, ROUNDS) == found
    if found.view is not None:
        assert all(0 <= seat.member < MEMBERS for seat in found.view.ring)
        assert 0 <= found.view.start <= ROUNDS
    return False


def promises(raw):
    """What a member must not forget, as it is on its disk."""
    (_FOLDER / "promises.json").write_bytes(raw.replace(b"@", RING_READ.digest.hex().encode()))
    try:
        Promises(_FOLDER, RING_READ).read()
    except BadInput:
        return True
    return False


def ring_file(raw):
    """A ring file; what is read can be written, and is then the same."""
    path = _FOLDER / "ring.toml"
    path.write_bytes(raw)
    try:
        ring = read_ring(path)
    except BadInput as error:
        assert "\n" not in str(error), "one sentence"
        return True
    path.write_text(ring_toml(ring), encoding="utf-8")
    assert read_ring(path) == ring
    return False


def saved_state(raw):
    """A checkpoint: two bytes say how long its facts are, the rest is its tensors; the hash in the facts is right."""
    length = int.from_bytes(raw[:2], "little")
    facts, tensors = raw[2 : 2 + length], raw[2 + length :]
    folder = _FOLDER / "round-000003"
    folder.mkdir(exist_ok=True)
    facts = facts.replace(b"@", hashlib.sha256(tensors).hexdigest().encode())
    (folder / "state.json").write_bytes(facts)
    (folder / "state.safetensors").write_bytes(tensors)
    try:
        checkpoint.read(_FOLDER, 3, TERMS.ring)
    except BadInput:
        return True
    return False


TARGETS = (header, sealed_header, body, heartbeat, ring_file, saved_state, control, promises, statements, backup)


def one(raw):
    """What a coverage-guided fuzzer calls: the first byte chooses the target."""
    return TARGETS[raw[0] % len(TARGETS)](raw[1:]) if raw else True


def _backup(facts, tensors):
    """A valid backup of a small checkpoint."""
    state, file = _FOLDER / "state", _FOLDER / "made.zip"
    (state / "round-000003").mkdir(parents=True, exist_ok=True)
    (state / "ring.toml").write_bytes(RING.read_bytes())
    (state / "round-000003" / "state.json").write_text(json.dumps(facts | {"ring": RING_READ.digest.hex()}))
    (state / "round-000003" / "state.safetensors").write_bytes(tensors)
    file.unlink(missing_ok=True)
    make_backup(state, file)
    return file.read_bytes()


def seeds():
    """(target, bytes) of valid inputs of every kind."""
    values = torch.linspace(-1, 1, SIZE)
    said = [
        ((1, 1, 0), Message(ExtractorState(values))),
        ((4, 9, 3), Message(ExtractorState(values), accuracy=0.5, wire="bfloat16")),
        ((1, 2, 1), Message(ExtractorState(values[5:40], 5), weight=37.0, wire="int8")),
    ]
    for tag, payload in said:
        first, numbers = encode(TERMS, tag, payload)
        yield header, first
        yield sealed_header, first[:-32]
        state = payload.state
        intro = _BODY.pack(WIRES.index(payload.wire), state.start, state.values.numel() - 1)
        yield body, intro + b"".join(chunks(numbers))
    yield heartbeat, Heartbeat(TERMS.federation, TERMS.ring, TERMS.signature.digest, 8, (1, 1, 2), 3.0).encode()
    yield ring_file, RING.read_bytes()
    facts = {
        "format": 1, "rounds": 3, "epoch": 1, "ring": TERMS.ring.hex(), "order": [0, 1], "history": [0.5, 0.6, 0.7],
        "steps": {"extractor": 5, "head": 1}, "sha256": "@",
    }  # fmt: skip
    text = json.dumps(facts).encode()
    tensors = save({"parameters": torch.from_numpy(np.arange(6, dtype=np.float32))})
    view = View(2, 1, (Seat(1, 8), Seat(0, 9)))
    word = MemberState(9, 1, 1, shares=(0.5, 0.25, 0.25))
    sealed = ((0, b"a" * 64), (1, b"b" * 64))
    prepared, proof = Prepared((1, 0), view, sealed), Proof((1, 0), sealed)
    promise = Promise((2, 1), word, prepared, (Receipt(0, 1, 1, b"c" * 64),), b"d" * 64)
    bodies = (
        Prepare((1, 0)), promise, Propose((2, 1), view, ((0, promise),)), Commit(prepared),
        Committed((2, 1), b"e" * 64), Refusal((3, 0)),
    )  # fmt: skip
    for written in bodies:
        raw = encode_control(TERMS, ControlMessage(view, written, proof))
        yield control, raw[raw.index(b"{") :]
    memory = {"ring": "@", "memory": encode_memory(Memory(view, (2, 1), ((1, 0), view.digest), prepared, proof))}
    yield promises, json.dumps(memory).encode()
    signatures = {("accept", 0): b"\x30\x06\x02\x01\x07\x02\x01\x09", ("stop", 1): bytes(range(70))}
    labels = len(SHARING.task.labels)
    results = tuple(
        SignedResult(Result(member, 1, 1, 0.5, 3 * labels, support), b"s" * 64)
        for member, support in ((0, ()), (1, (3,) * labels))
    )
    raw = encode_statements(Statements(SHARING.digest, signatures, results))
    yield statements, raw[raw.index(b"{") :]
    yield backup, _backup(facts | {"sha256": hashlib.sha256(tensors).hexdigest()}, tensors)
    yield saved_state, len(text).to_bytes(2, "little") + text + tensors
