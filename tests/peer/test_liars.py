"""Liars: whatever a member says, no member crashes or changes its parameters, and all of it is counted."""

import contextlib
import hashlib
import struct
import threading

import grpc
import pytest
import torch

from firma.encoding import size as encoded_size
from firma.peer.identity import load_identity
from firma.peer.transport.tls import LARGEST
from firma.peer.wire.message import DONE, REFUSED, STALE, encode
from firma.protocol import ExtractorState, Message
from tests.processes import wait_until

from .victim import VIEW


def test_what_a_member_says_counts_for_itself_alone(victim):
    assert victim.say(1, *victim.message())[0] == DONE
    assert {sender for sender, _ in victim.held} == {1}


def resealed(head, old, new):
    body = head[:-32].replace(old, new)
    return body + hashlib.sha256(body).digest()


def test_lies_of_every_kind_are_refused_and_counted(victim):
    head, *rest = victim.message()
    whole = b"".join(rest)
    first = victim.terms.signature.cuts(0, victim.size)[0]
    digest = hashlib.sha256(whole[: 4 * first.count]).digest()
    nan = b"\0\0\xc0\x7f" + whole[4:]
    nan_digest = hashlib.sha256(nan[: 4 * first.count]).digest()
    lies = {
        "truncated": [head, whole[:-4]],
        "oversized": [head, whole, b"more"],
        "mis-hashed": [head, b"\1" + whole[1:]],
        "not a number": [resealed(head, digest, nan_digest), nan],
        "wrong shape": [resealed(head, b"extractor.1.weight", b"extractor.9.weight"), whole],
        "no head": [b"x" * 500],
        "nothing": [],
        "part of it": victim.message(count=victim.size - 1),
        "far future": victim.message(tag=(VIEW, 4, 0)),
        "no such round": victim.message(tag=(VIEW, 99, 0)),
        "of an older view": victim.message(tag=(VIEW - 1, 1, 0)),
    }
    for name, parts in lies.items():
        answer = victim.say(1, *parts)
        assert answer[0] in (REFUSED, STALE), name
        assert victim.untouched, name
    assert sum(victim.log.total().values()) == len(lies)
    with contextlib.suppress(grpc.RpcError):
        victim.say(1, b"x" * (LARGEST + 1))
    assert victim.untouched
    assert victim.say(1, head, whole)[0] == DONE, "the member still listens"


def test_a_replay_changes_nothing(victim):
    assert victim.say(1, *victim.message())[0] == DONE
    assert victim.say(1, *victim.message())[0] == DONE
    assert victim.say(1, *victim.message(value=2.0))[0] == REFUSED
    assert victim.held[1, (VIEW, 1, 0)].state.values[0] == 1.0
    assert victim.log.total() == {"repeated": 1, "misfit": 1}
    assert victim.say(2, *victim.message())[0] == DONE
    victim.next_round()
    assert victim.say(1, *victim.message(value=3.0))[0] in (STALE, REFUSED)
    assert victim.untouched


def test_a_flood_from_one_member_leaves_room_for_the_other(victim):
    line = victim.line(load_identity(victim.made.identity(1)))
    hold = threading.Event()

    def slow():
        yield victim.signed(1, victim.message()[0])
        hold.wait(60)

    flood = [line.send.future(slow()) for _ in range(6)]
    try:
        wait_until(lambda: victim.log.total().get("message") == 4, 30, "two are taken at a time, four are refused")
        assert victim.say(2, *victim.message())[0] == DONE
    finally:
        hold.set()
        for each in flood:
            with contextlib.suppress(grpc.RpcError):
                each.result(timeout=10)
        line.channel.close()
    assert victim.log.total()["message"] >= 4


def forged(victim, wire, bad):
    """A whole message in an encoding, whose first bytes are others: its hashes and its seal are right."""
    state = ExtractorState(torch.ones(victim.size))
    head, body = encode(victim.terms, (VIEW, 1, 0), Message(state, wire=wire))
    length = encoded_size(wire, victim.terms.signature.cuts(0, victim.size)[0].count)
    whole, changed = body.tobytes(), bad + body.tobytes()[len(bad) :]
    before, after = (hashlib.sha256(raw[:length]).digest() for raw in (whole, changed))
    return [resealed(head, before, after), changed]


@pytest.mark.parametrize(
    ("wire", "bad"),
    [
        ("bfloat16", struct.pack("<H", 0x7FC0)),
        ("bfloat16", struct.pack("<H", 0x7F80)),
        ("int8", struct.pack("<f", float("nan"))),
        ("int8", struct.pack("<f", float("inf"))),
        ("int8", struct.pack("<f", 3.4e38)),
        ("int8", struct.pack("<f", -1.0)),
    ],
)
def test_narrow_lies_are_refused_and_the_truth_is_taken(victim, wire, bad):
    assert victim.say(1, *forged(victim, wire, bad))[0] == REFUSED
    assert victim.untouched
    assert victim.log.total() == {"message": 1}
    assert victim.say(1, *forged(victim, wire, b""))[0] == DONE
    assert victim.held[1, (VIEW, 1, 0)].wire == wire


def test_the_wrong_number_of_bytes_for_the_encoding(victim):
    """Bodies and heads of different encodings do not go together, whichever is the longer."""
    for wire, other in (("int8", "float32"), ("float32", "int8"), ("bfloat16", "int8")):
        state = ExtractorState(torch.ones(victim.size))
        head = encode(victim.terms, (VIEW, 1, 0), Message(state, wire=wire))[0]
        body = encode(victim.terms, (VIEW, 1, 0), Message(state, wire=other))[1]
        assert victim.say(1, head, body.tobytes())[0] == REFUSED
        assert victim.untouched
    assert victim.log.total() == {"message": 3}


def test_who_repeats_anothers_words_says_them_for_itself(victim):
    """A message has no sender's name in it: what cat recorded of bee and sends again is cat's own word."""
    recorded = victim.message(value=3.0)
    assert victim.say(2, *recorded)[0] == DONE
    assert set(victim.held) == {(2, (VIEW, 1, 0))}
    assert victim.say(2, *recorded)[0] == DONE
    assert victim.log.total() == {"repeated": 1}


def test_a_flood_of_junk_is_counted_and_not_written_out(victim, tmp_path):
    line = victim.line(load_identity(victim.made.identity(1)))
    for _ in range(150):
        assert line.send(iter([b"junk" * 50]), timeout=10)[0] == REFUSED
        line.heartbeat(b"junk", timeout=10)
    line.channel.close()
    assert victim.log.total() == {"message": 150, "hello": 150}
    assert (tmp_path / "log.jsonl").read_text().count('"event": "refused"') == 40
    assert victim.say(2, *victim.message())[0] == DONE


def test_a_message_that_stops_half_way_is_ended_and_logged(victim, tmp_path):
    hold = threading.Event()
    head, *rest = victim.message()

    def half():
        yield victim.signed(1, head)
        yield rest[0][:100]
        hold.wait(60)

    line = victim.line(load_identity(victim.made.identity(1)))
    call = line.send.future(half())
    try:
        wait_until(lambda: victim.server.cancel_unmoved(0.2) or call.done(), 30, "the message is ended")
    finally:
        hold.set()
    with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)):
        call.result()
    line.channel.close()
    assert victim.untouched
    assert '"stalled"' in (tmp_path / "log.jsonl").read_text()
