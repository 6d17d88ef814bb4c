"""What a member can prove: every message is signed by its sender, and what was signed is kept."""

import json
import stat
import struct

import pytest
import torch

from firma.peer.identity import load_identity, make_identity
from firma.peer.runtime import evidence
from firma.peer.runtime.evidence import Evidence, examined
from firma.peer.wire.message import DONE, REFUSED, decode_header, encode
from firma.peer.wire.message_signature import SIZE, genuine, public_key, signer, split, with_signature
from firma.peer.wire.terms import WireError
from firma.protocol import ExtractorState, Message

from .test_node import run_threads
from .victim import VIEW


def test_a_message_that_its_sender_did_not_sign_is_refused(victim, make_ring):
    """TLS says who speaks; only the signature shows it to others. It is of this ring, this exchange and these bytes."""
    made, (header, *body) = victim.made, victim.message()
    bee, cat = (load_identity(made.identity(number)) for number in (1, 2))
    ring, tag = victim.terms.ring, (VIEW, 1, 0)
    other = victim.message(value=2.0)[0]
    wrong = {
        "another's": with_signature(signer(cat, ring), tag, header),
        "another ring's": with_signature(signer(bee, bytes(32)), tag, header),
        "another exchange's": with_signature(signer(bee, ring), (VIEW, 2, 0), header),
        "another message's": header + with_signature(signer(bee, ring), tag, other)[-SIZE:],
        "none": header + bytes(SIZE),
        "damaged": with_signature(signer(bee, ring), tag, header)[:-1] + b"\0",
    }
    line = victim.line(bee)
    try:
        for what, first in wrong.items():
            answer = line.send(iter([first, *body]), timeout=10)
            assert (answer[0], b"not signed" in answer) == (REFUSED, True), what
            assert victim.untouched, what
        assert line.send(iter([b"x" * (SIZE + 31)]), timeout=10)[0] == REFUSED
        right = with_signature(signer(bee, ring), tag, header)
        assert line.send(iter([right, *body]), timeout=10)[0] == DONE
    finally:
        line.channel.close()
    assert list(victim.held) == [(1, tag)]


def test_what_others_sent_is_proved_from_the_state_folder(make_ring, command, monkeypatch):
    made = make_ring("fibfl++:warmup=no,order=given", 3, 4, "iid")
    outcomes = run_threads(made)
    assert not [each for each in outcomes.values() if isinstance(each, BaseException)], outcomes
    path = made.state(0) / "evidence.jsonl"
    found = examined(path)
    assert (found.site, found.forged, dict(found.messages)) == ("ant", (), {"bee": 8, "cat": 8})
    assert found.rounds == {"bee": (1, 4), "cat": (1, 4)}
    assert {each.round for each in found.kept} == {3, 4}
    assert len(found.kept) == 8
    assert {each.accuracy is None for each in found.kept if each.step == 0} == {False}
    code, out, err = command("audit", path)
    assert (code, "evidence passed: every message is what its sender signed" in out) == (0, True), err
    assert "from bee: 8 messages, rounds 1 to 4" in out
    modes = {each: stat.S_IMODE(each.stat().st_mode) for each in (path, *(path.parent / "evidence").rglob("*"))}
    assert set(modes.values()) == {0o600}

    lines = path.read_text().splitlines()
    changed = json.loads(lines[3]) | {"round": 2, "from": "bee"}
    path.write_text("\n".join([*lines[:3], json.dumps(changed), *lines[4:]]) + "\n")
    kept = sorted((path.parent / "evidence").glob("*bee.message"))
    raw = bytearray(kept[0].read_bytes())
    raw[-1] ^= 1
    kept[0].write_bytes(raw)
    kept[1].rename(kept[1].with_name(kept[1].name.replace("bee", "cat")))
    code, out, _ = command("audit", path, "--json")
    report = json.loads(out)
    assert code == 1
    assert report["forged"][0] == "line 4: not signed by bee"
    assert any("hash that was announced" in text for text in report["forged"])
    assert any("not signed by cat" in text for text in report["forged"])


def kept_message(terms, number, turn, sign, value=1.0):
    tag = (1, turn, 0)
    header, body = encode(terms, tag, Message(ExtractorState(torch.full((terms.signature.size,), value))))
    raw, signature = split(with_signature(sign, tag, header))
    return number, decode_header(terms, raw), raw, signature, bytearray(body.tobytes())


def test_two_rounds_are_kept_within_a_budget_and_a_restart_goes_on(victim, tmp_path):
    terms, ring = victim.terms, victim.made.ring
    bee = signer(load_identity(victim.made.identity(1)), terms.ring)
    folder = tmp_path / "kept"
    folder.mkdir()
    for turns in ((1, 2), (3, 4, 5)):  # two processes
        held = Evidence(folder, ring, 0, terms)
        for turn in turns:
            held.keep(*kept_message(terms, 1, turn, bee))
            held.keep(*kept_message(terms, 2, turn, bee, 2.0))  # it claims to be of another
        held.close()
        names = sorted(each.name for each in (folder / "evidence").iterdir())
        assert [name[:14] for name in names[::2]] == [f"v000001-round{turn:06d}"[:14] for turn in turns[-2:]]
    found = examined(folder / "evidence.jsonl")
    assert (found.messages, len(found.kept)) == ({"bee": 5, "cat": 5}, 2)
    assert len(found.forged) == 5 + 2
    size = sum(each.stat().st_size for each in (folder / "evidence").iterdir())
    small = Evidence(folder, ring, 0, terms, budget=size // 2)
    small.keep(*kept_message(terms, 1, 6, bee))
    small.close()
    assert sum(each.stat().st_size for each in (folder / "evidence").iterdir()) <= size // 2


def test_a_full_disk_costs_the_evidence_and_not_the_message(victim, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Evidence, "keep", full)
    assert victim.say(1, *victim.message())[0] == DONE
    assert list(victim.held) == [(1, (VIEW, 1, 0))]
    told = [work.text for work in iter_queue(victim.driver.work) if hasattr(work, "text")]
    assert any("evidence of what others send cannot be kept" in text for text in told)


def iter_queue(work):
    while not work.empty():
        yield work.get_nowait()


def test_signatures_are_of_the_certificates_key(tmp_path):
    one, two = make_identity(tmp_path / "one", "one"), make_identity(tmp_path / "two", "two")
    tag, digest, ring = (7, 8, 9), b"d" * 32, b"r" * 32
    made = signer(one, ring)(tag, digest)
    assert len(made) == SIZE
    keys = [public_key(each.certificate.decode()) for each in (one, two)]
    assert [genuine(key, ring, tag, digest, made) for key in keys] == [True, False]
    assert not genuine(keys[0], ring, tag, digest, made[:-1])
    assert not genuine(keys[0], ring, tag, digest, struct.pack("64x"))
    with pytest.raises(WireError):
        split(bytes(SIZE + 32))
    assert evidence.ROUNDS == 2
