"""Real rings with an all-gather and robust combines: the simulation's bits, and a member that lies."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from firma.errors import BadInput
from firma.peer.runtime.audit_log import audit
from firma.peer.runtime.local_training import LocalSite
from firma.peer.runtime.round_loop import RoundLoop
from firma.peer.wire.message import Assembly, decode_header, encode
from firma.peer.wire.terms import WireError
from firma.protocol import ExtractorState, Message

from .conftest import made_ring
from .test_node import assert_same, run_threads, simulated
from .victim import VIEW

TRIMMED = "frame:topology=all-gather,combine=trimmed"
LIAR = 2


@pytest.mark.parametrize(
    ("method", "members", "rounds"),
    [
        ("frame:topology=all-gather", 2, 2),
        (TRIMMED, 5, 3),
        ("frame:topology=all-gather,combine=clipped", 3, 2),
        ("fibfl++:combine=clipped", 4, 6),
    ],
)
def test_a_real_ring_gives_the_simulations_bits(make_ring, method, members, rounds):
    made = make_ring(method, members, rounds, "dir-0.5")
    outcomes, result = run_threads(made), simulated(made, "dir-0.5", audit=True)
    assert_same(made, outcomes, result)
    for number, outcome in outcomes.items():
        assert torch.equal(outcome.parameters, result.parameters[number])
        assert outcome.refused == {}
        verdict = audit(made.state(number) / "audit.jsonl")
        assert not verdict.breaches
        assert "digests" in verdict.numbers
        assert verdict.size == outcome.sent
    assert result.audit["server_free"]
    assert not events(made, 0, "mismatch")


def events(made, number, name):
    lines = (made.state(number) / "log.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def lied_to(made, monkeypatch):
    """The ring's outcomes when one member sends the opposite of what it trained."""
    honest = LocalSite.shared.fget

    def shared(site):
        return -honest(site) if site.client.number == LIAR else honest(site)

    with monkeypatch.context() as patch:
        patch.setattr(LocalSite, "shared", property(shared))
        return run_threads(made)


def honest_mean(outcomes):
    return float(np.mean([outcome.history[-1] for number, outcome in outcomes.items() if number != LIAR]))


def test_one_liar_of_five_does_not_spoil_a_robust_ring(monkeypatch, tmp_path):
    """Honest members reach what they reach without the liar; with a plain mean they do not come near it."""
    settings = {"extractor_epochs": 5, "hidden": 32, "embedding": 16}
    lost = {}
    for method in ("frame", TRIMMED, "frame:topology=all-gather,combine=clipped"):
        folder = tmp_path / str(len(lost))
        folder.mkdir()
        made = made_ring(folder, method, 5, 4, "iid", set=settings)
        outcomes = lied_to(made, monkeypatch)
        assert not [error for error in outcomes.values() if isinstance(error, BaseException)], outcomes
        truthful = float(np.delete(simulated(made, "iid").history[-1], LIAR).mean())
        lost[method] = truthful - honest_mean(outcomes)
    plain, *robust = lost.values()
    assert max(robust) < 0.05
    assert plain > 0.3


def test_a_member_that_changes_what_it_passes_on_is_named(make_ring, monkeypatch):
    made = make_ring(TRIMMED, 5, 2, "iid")
    send = RoundLoop.send

    def tampering(loop, work):
        if loop._site.client.number == LIAR and 0 < work.tag[2] < 4:
            changed = ExtractorState(-work.message.state.values)
            work = replace(work, message=replace(work.message, state=changed))
        send(loop, work)

    monkeypatch.setattr(RoundLoop, "send", tampering)
    notices = []
    outcomes = run_threads(made, on_notice=notices.append)
    assert not [error for error in outcomes.values() if isinstance(error, BaseException)], outcomes
    name = made.ring.names[LIAR]
    for number in set(range(5)) - {LIAR}:
        found = events(made, number, "mismatch")
        assert len(found) == 2 * 3, "three extractors pass through the liar, in each of two rounds"
        assert all(name in event["between"] for event in found)
    assert any(f"was changed between {name} and" in text for text in notices)


def test_ring_files_refuse_what_cannot_be(tmp_path):
    def refused(method, members, says, **changes):
        folder = tmp_path / f"{method}-{changes}"
        folder.mkdir()
        with pytest.raises(BadInput, match=says):
            made_ring(folder, method, members, **changes)

    refused("frame:topology=all-gather,combine=krum", 4, "requires at least 5 clients to combine, and there are 4")
    refused(TRIMMED, 5, "bit for bit and compare digests; use float32", wire="int8")
    refused("frame:combine=trimmed", 5, "it would see sums instead of single clients")


def test_a_site_may_not_choose_a_narrow_encoding_for_an_all_gather(make_ring):
    made = make_ring(TRIMMED, 5)
    with pytest.raises(BadInput, match="bit for bit and compare digests; use float32"):
        run_threads(made, wire="bfloat16")


def digests_of(victim, count, **others):
    message = Message(ExtractorState(torch.empty(0)), digests=tuple(bytes([n]) * 32 for n in range(count)), **others)
    return encode(victim.terms, (VIEW, 1, 4), message)


def test_digests_on_the_wire(victim):
    header, body = digests_of(victim, 5)
    decoded = decode_header(victim.terms, header)
    assert (len(body), decoded.count, decoded.cuts) == (0, 0, ())
    message = Assembly(decoded).finish()
    assert message.digests == tuple(bytes([n]) * 32 for n in range(5))
    assert message.state.values.numel() == 0
    for wrong in (resealed(header[:-33]), resealed(header[:-32] + b"x"), resealed(header[:-192])):
        with pytest.raises(WireError):
            decode_header(victim.terms, wrong)
    with pytest.raises(WireError, match="travel alone"):
        decode_header(victim.terms, digests_of(victim, 5, accuracy=0.5)[0])
    with pytest.raises(WireError, match="without parameters"):
        encode(victim.terms, (VIEW, 1, 4), Message(ExtractorState(torch.ones(victim.size)), digests=(bytes(32),)))
    assert victim.say(1, header)[0] != 0, "a ring of neighbours expects no digests"
    assert victim.untouched


def resealed(body):
    return body + hashlib.sha256(body).digest()
