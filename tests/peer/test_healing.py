"""Members that die, hang, return or are many at once: real processes, and parameters checked against a replay."""

import json
import signal
import time

import pytest
import torch

from firma.peer.ledger import judge

from .conftest import NAMES
from .crew import Crew, replayed

PHASES = [
    ("training",), ("before exchange",), ("mid transfer",), ("after exchange",), ("before exchange", 1),
    ("after exchange", 1), ("before save",), ("mid save",), ("after save",),
]  # fmt: skip


@pytest.fixture
def crew(make_ring):
    """`crew(members, rounds, ...)`: a ring that is ended with the test."""
    crews = []

    def make(members=3, rounds=6, method="fibfl++:warmup=no", pace=0.0, namespaces=None, **changes):
        made = make_ring(method, members, rounds, "iid", **({"patience": 1.5, "gathering": 30.0} | changes))
        crews.append(Crew(made, namespaces, pace))
        return crews[-1]

    yield make
    for each in crews:
        each.end()


def assert_replayed(crew, *finished):
    """Those who finished hold what their views give, bit for bit; nobody's audit finds a breach."""
    final, rounds = replayed(crew), crew.made.ring.rounds
    for number in finished:
        assert final[number][0] == rounds
        assert torch.equal(crew.parameters(number, rounds), final[number][1]), NAMES[number]
        assert not judge(crew.made.state(number) / "audit.jsonl").breaches


def heal(crew, victim, phase):
    number = 2  # the third round
    faults = {victim: [(phase[0], number, *phase[1:])]}
    for member in range(3):
        crew.start(member, *faults.get(member, ()))
    began = time.monotonic()
    codes = crew.finish()
    others = [n for n in range(3) if n != victim]
    assert codes[victim] == -signal.SIGKILL, crew.out(victim)
    assert [codes[n] for n in others] == [0, 0], [crew.out(n) for n in others]
    assert time.monotonic() - began < 30
    views = crew.views()
    assert views[1][0] == NAMES[:3]
    assert views[max(views)] == (tuple(NAMES[n] for n in others), views[max(views)][1])
    assert 1 <= views[max(views)][1] <= 3, "at most the round in hand is repeated"
    assert_replayed(crew, *others)


@pytest.mark.parametrize(("victim", "phase"), [(0, ("training",)), (1, ("mid transfer",)), (2, ("mid save",))])
def test_the_ring_goes_on_without_a_member_that_was_killed(crew, victim, phase):
    heal(crew(), victim, phase)


@pytest.mark.slow
@pytest.mark.parametrize("victim", range(3))
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: "-".join(map(str, phase)))
def test_every_member_killed_at_every_phase(crew, victim, phase):
    heal(crew(), victim, phase)
