"""Two seconds of the fuzz in fuzz_wire.py, and what longer runs have found."""

import base64
import json
import tomllib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from firma.errors import BadInput
from firma.peer.identity import read_certificate
from firma.peer.ring_file import read_ring, ring_toml

from .fuzz_targets import RING, control, promises, ring_file, saved_state, seeds
from .fuzz_wire import fuzz


def test_valid_inputs_are_taken():
    for target, raw in seeds():
        assert not target(raw), target.__name__


def test_every_reader_bears_two_seconds_of_mutations():
    tried, refused = fuzz(2.0)
    assert set(tried) == {target.__name__ for target, _ in seeds()}
    assert sum(tried.values()) > 500
    assert all(0 < refused[name] <= count for name, count in tried.items())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("patience = 60.0", "patience = inf"),
        ("scale = 1.0", "scale = inf"),
        ("rate = 0.001", "rate = inf"),
        ("rate = 0.001", "rate = 1e400"),
        ("seed = 0", f"seed = {'9' * 5000}"),
        ("rate = 0.001", f"rate = {'[' * 3000}"),
    ],
)
def test_ring_files_that_were_findings_are_refused_in_a_sentence(old, new):
    text = RING.read_text()
    assert old in text
    assert ring_file(text.replace(old, new).encode())


def test_a_certificate_with_a_key_of_no_known_kind_is_refused():
    """One bit of the key's kind or curve is another; the certificate itself is still one."""
    der = x509.load_pem_x509_certificate(certificate()).public_bytes(serialization.Encoding.DER)
    kind, curve = bytes.fromhex("2a8648ce3d0201"), bytes.fromhex("2a8648ce3d030107")
    for known in (kind, curve):
        assert known in der
        changed = der.replace(known, known[:-1] + bytes([known[-1] ^ 0x40]))
        pem = base64.encodebytes(changed)
        with pytest.raises(BadInput, match="certificate"):
            read_certificate(b"-----BEGIN CERTIFICATE-----\n" + pem + b"-----END CERTIFICATE-----\n")


def test_a_certificate_of_no_known_version_is_refused():
    der = x509.load_pem_x509_certificate(certificate()).public_bytes(serialization.Encoding.DER)
    known = bytes.fromhex("a003020102")  # version 3
    assert known in der
    pem = base64.encodebytes(der.replace(known, known[:-1] + b"\x12", 1))
    with pytest.raises(BadInput, match="certificate"):
        read_certificate(b"-----BEGIN CERTIFICATE-----\n" + pem + b"-----END CERTIFICATE-----\n")


def certificate():
    return tomllib.loads(RING.read_text())["members"][0]["certificate"].encode()


def test_a_federations_name_may_hold_any_character(tmp_path):
    ring = read_ring(RING).model_copy(update={"federation": '\x7f \\ " \n é 😀'})
    (tmp_path / "ring.toml").write_text(ring_toml(ring), encoding="utf-8")
    assert read_ring(tmp_path / "ring.toml") == ring


@pytest.mark.parametrize("tensors", [b"", b"junk", b"\xff" * 100])
def test_a_checkpoint_with_broken_tensors_and_a_right_hash_is_refused(tensors):
    (valid,) = (raw for target, raw in seeds() if target is saved_state)
    length = int.from_bytes(valid[:2], "little")
    assert saved_state(valid[: 2 + length] + tensors)
    nested = b"[" * 5000
    assert saved_state(len(nested).to_bytes(2, "little") + nested + tensors)


def test_control_messages_and_promises_that_were_findings_are_refused():
    word = {"process": 1, "epoch": 0, "rounds": 0, "ready": True, "shares": [10**400, 0, 0], "against": []}
    body = {"ballot": [1, 0], "prepared": None, "word": word, "receipts": [], "signature": "00" * 64}
    huge = {"view": None, "proof": None, "kind": "Promise", "body": body}
    assert control(json.dumps(huge).encode())
    assert promises(b"[" * 100_000)
