"""Members that die, hang, return or are many at once: real processes, and parameters checked against a replay."""

import json
import random
import signal
import socket
import time
from contextlib import ExitStack

import numpy as np
import pytest
import torch

from firma.peer.runtime.audit_log import audit
from firma.peer.runtime.checkpoint import latest, read
from tests.processes import assert_holds

from .conftest import NAMES
from .crew import Crew, replayed
from .test_node import simulated

PHASES = [
    ("training",), ("before exchange",), ("mid transfer",), ("after exchange",), ("before exchange", 1),
    ("after exchange", 1), ("before save",), ("mid save",), ("after save",),
]  # fmt: skip


@pytest.fixture
def crew(make_ring):
    """`crew(members, rounds, ...)`: a ring that is ended with the test."""
    with ExitStack() as crews:

        def make(members=3, rounds=6, method="fibfl++:warmup=no", pace=0.0, scenario="iid", **changes):
            made = make_ring(method, members, rounds, scenario, **({"patience": 1.5, "gathering": 30.0} | changes))
            each = Crew(made, pace=pace)
            crews.callback(each.end)
            return each

        yield make


ENDLESS = 100_000  # rounds: the test ends the ring when it has seen enough


def assert_replayed(crew, *members):
    """They hold what their views give, bit for bit, at the end or where they were halted; no audit finds a breach."""
    final, all_rounds = replayed(crew), crew.made.ring.rounds
    for number in members:
        rounds, parameters = final[number]
        assert all_rounds in (rounds, ENDLESS)
        assert torch.equal(crew.parameters(number, rounds), parameters), NAMES[number]
        if rounds == all_rounds:
            assert not audit(crew.made.state(number) / "audit.jsonl").breaches


def let_in(crew, number):
    """Until a member that was started again has a seat."""

    def seated():
        starts, views = crew.events(number, "started"), crew.events(number, "view")
        return len(starts) > 1 and views and views[-1]["time"] > starts[-1]["time"]

    crew.wait(seated, f"{NAMES[number]} is let in")


def some_rounds(crew, *members, more=2):
    """Until each of them has completed some more rounds."""
    before = {number: len(crew.rounds(number)) for number in members}
    crew.wait(lambda: all(len(crew.rounds(n)) >= before[n] + more for n in members), f"{more} more rounds")


def heal(crew, victim, phase):
    number = 2  # the third round
    faults = {victim: [(phase[0], number, *phase[1:])]}
    for member in range(3):
        crew.start(member, *faults.get(member, ()))
    codes = crew.finish()
    others = [n for n in range(3) if n != victim]
    assert codes[victim] == -signal.SIGKILL, crew.out(victim)
    assert [codes[n] for n in others] == [0, 0], [crew.out(n) for n in others]
    views = crew.views()
    assert views[1][0] == NAMES[:3]
    assert views[max(views)] == (tuple(NAMES[n] for n in others), views[max(views)][1])
    assert 1 <= views[max(views)][1] <= 3, "at most the round in hand is repeated"
    held = latest(crew.made.state(victim))
    assert held == 2 + (phase == ("after save",)), "whoever is killed loses the round in hand and no other"
    assert crew.parameters(victim, held) is not None
    assert_replayed(crew, *others)


@pytest.mark.parametrize(("victim", "phase"), [(0, ("training",)), (1, ("mid transfer",)), (2, ("mid save",))])
def test_the_ring_goes_on_without_a_member_that_was_killed(crew, victim, phase):
    heal(crew(), victim, phase)


@pytest.mark.parametrize(("victim", "phase"), [(1, ("mid transfer",)), (2, ("before exchange", 2))])
def test_an_all_reduce_goes_on_without_a_member_that_was_killed(crew, victim, phase):
    heal(crew(method="frame"), victim, phase)


@pytest.mark.slow
@pytest.mark.parametrize("phase", [("training",), ("before exchange",), ("after exchange",), ("mid save",)])
def test_a_complete_graph_goes_on_without_a_member_that_was_killed(crew, phase):
    heal(crew(method="fibfl:topology=complete,weights=metropolis,retention=none"), 1, phase)


@pytest.mark.slow
def test_an_all_gather_goes_on_without_a_member_that_was_killed_before_its_digests(crew):
    heal(crew(method="frame:topology=all-gather"), 2, ("before exchange", 2))


@pytest.mark.slow
@pytest.mark.parametrize("victim", range(3))
@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: "-".join(map(str, phase)))
def test_every_member_killed_at_every_phase(crew, victim, phase):
    heal(crew(), victim, phase)


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 3])
def test_one_of_five_killed_in_the_warm_up(crew, step):
    """Messages go one way there, a piece at a time; afterwards there are other pieces, passes and neighbours."""
    ring = crew(5, 12, method="fibfl++", scenario="dir-0.1")
    for number in range(5):
        ring.start(number, *([("after exchange", 1, step)] if number == 2 else []))
    assert ring.finish(0, 1, 3, 4) == [0] * 4, ring.out(0)
    names, start = ring.views()[max(ring.views())]
    assert set(names) == {"ant", "bee", "dog", "eel"}
    assert start <= 1
    assert_replayed(ring, 0, 1, 3, 4)


def test_all_killed_and_resumed_end_where_an_uninterrupted_run_ends(crew):
    ring = crew(3, 8, pace=0.1)
    for number in range(3):
        ring.start(number)
    ring.wait_round(1, 3)
    for number in range(3):
        ring.kill(number)
    for number in range(3):
        ring.start(number, resume=True)
    assert ring.finish() == [0, 0, 0], ring.out(0)
    expected = simulated(ring.made, "iid", audit=True)
    for number in range(3):
        assert torch.equal(ring.parameters(number, 8), expected.parameters[number])
        outcome = json.loads((ring.made.folder / NAMES[number] / "outcome.json").read_text())
        np.testing.assert_allclose(outcome["history"], expected.history[:, number], atol=1e-12)


def test_a_member_that_returns_is_let_in_at_the_next_round(crew):
    ring = crew(3, ENDLESS, pace=0.3)
    for number in range(3):
        ring.start(number)
    ring.wait_round(1, 2)
    ring.kill(1)
    killed = time.time()
    ring.wait_notice(0, ": ant-cat, from")
    healed = min(event["time"] for event in ring.events(0, "view") if event["ring"] == ["ant", "cat"])
    assert healed - killed < 15, "noticed and healed within a set time"
    some_rounds(ring, 0)
    ring.start(1, resume=True)
    let_in(ring, 1)
    some_rounds(ring, 0, 1, 2)
    ring.halt()
    views = ring.views()
    alone = min(epoch for epoch in views if "bee" not in views[epoch][0])
    entered = min(epoch for epoch in views if epoch > alone and "bee" in views[epoch][0])
    before = max(done for view, done in ring.rounds(0) if view < entered)
    assert before - 1 <= views[entered][1] <= before, "it does not drag the others back"
    assert_replayed(ring, 0, 1, 2)
    history = read(ring.made.state(1), latest(ring.made.state(1)), ring.made.ring.digest).history
    assert None in history, "the rounds without it are no rounds of it"


@pytest.mark.parametrize("victims", [(1, 2), pytest.param((1, 3), marks=pytest.mark.slow)])
def test_two_killed_at_once_of_five(crew, victims):
    ring = crew(5, 6, insiders=0)
    for number in range(5):
        ring.start(number, *([("after exchange", 2)] if number in victims else []))
    codes = ring.finish()
    others = [n for n in range(5) if n not in victims]
    assert [codes[n] for n in others] == [0, 0, 0], [ring.out(n) for n in others]
    assert_replayed(ring, *others)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [("before promise", 0), ("after promise", 0), ("entering", 2)], ids=lambda f: f[0])
@pytest.mark.parametrize("second", [0, 2])
def test_one_killed_while_the_others_agree_to_go_on_without_another(crew, fault, second):
    ring = crew(5, 6, insiders=0)
    faults = {4: [("training", 2)], second: [fault]}
    for number in range(5):
        ring.start(number, *faults.get(number, ()))
    codes = ring.finish()
    others = [n for n in range(5) if n not in faults]
    assert [codes[n] for n in faults] == [-signal.SIGKILL] * 2
    assert [codes[n] for n in others] == [0, 0, 0], [ring.out(n) for n in others]
    assert_replayed(ring, *others)


def test_below_the_quorum_the_ring_pauses_and_says_so_until_somebody_is_back(crew):
    ring = crew(3, ENDLESS, pace=0.2)
    for number in range(3):
        ring.start(number)
    ring.wait_round(0, 2)
    ring.kill(1)
    ring.kill(2)
    ring.wait_notice(0, "2 of 3 are needed, 1 here")
    paused = ring.rounds(0)
    assert_holds(lambda: ring.rounds(0) == paused, 2.0, "nothing goes on")
    ring.start(2, resume=True)
    ring.wait_notice(0, "ant-cat")
    ring.start(1, resume=True)
    let_in(ring, 1)
    some_rounds(ring, 0, 1, 2)
    ring.halt()
    assert_replayed(ring, 0, 1, 2)


@pytest.mark.slow
def test_a_larger_quorum_is_kept_to(crew):
    ring = crew(3, ENDLESS, pace=0.2, quorum=3)
    for number in range(3):
        ring.start(number)
    ring.wait_round(0, 2)
    ring.kill(1)
    ring.wait_notice(0, "3 of 3 are needed, 2 here")
    ring.signal(0, signal.SIGTERM)
    assert ring.finish(0) == [130]
    assert all(len(names) == 3 for names, _ in ring.views().values())


def test_a_member_that_is_stopped_and_continued_comes_back_by_itself(crew):
    ring = crew(3, ENDLESS, pace=0.3)
    for number in range(3):
        ring.start(number)
    ring.wait_round(1, 2)
    ring.signal(2, signal.SIGSTOP)
    ring.wait_notice(0, ": ant-bee, from")
    some_rounds(ring, 0)
    ring.signal(2, signal.SIGCONT)
    ring.wait_notice(2, "without this site")
    ring.wait(lambda: ring.events(2, "view")[-1]["number"] == max(ring.views()) > 2, "cat is back")
    some_rounds(ring, 0, 1, 2)
    ring.halt()
    assert_replayed(ring, 0, 1, 2)


@pytest.mark.slow
def test_a_short_stop_changes_nothing(crew):
    ring = crew(3, 6, pace=0.2, patience=4.0)
    for number in range(3):
        ring.start(number)
    ring.wait_round(1, 2)
    ring.signal(2, signal.SIGSTOP)
    time.sleep(1.5)  # the fault itself: a stop that is shorter than the others' patience
    ring.signal(2, signal.SIGCONT)
    assert ring.finish() == [0, 0, 0]
    assert set(ring.views()) == {1}
    assert_replayed(ring, 0, 1, 2)


def test_a_member_that_hangs_in_its_training_is_left_out(crew):
    ring = crew(3, 6, stalled=2.0)
    for number in range(3):
        ring.start(number, *([("hang", 2)] if number == 1 else []))
    assert ring.finish(0, 2) == [0, 0], ring.out(0)
    assert "bee has been training for more than 2 s" in ring.out(0) + ring.out(2)
    assert_replayed(ring, 0, 2)


def test_a_clock_that_is_an_hour_off_changes_nothing(crew):
    ring = crew(3, 4, patience=10.0)
    for number, skew in enumerate((0, 3600, -3600)):
        ring.start(number, ("clock", skew))
    assert ring.finish() == [0, 0, 0], ring.out(1)
    assert set(ring.views()) == {1}
    assert_replayed(ring, 0, 1, 2)


def test_a_full_disk_ends_one_member_clearly_and_loses_nothing(crew):
    ring = crew(3, ENDLESS, pace=0.3)
    for number in range(3):
        ring.start(number, *([("disk", 2)] if number == 1 else []))
    assert ring.finish(1) == [3]
    assert "BadInput" in ring.out(1)
    assert "cannot" in ring.out(1)
    assert latest(ring.made.state(1)) == 2
    ring.start(1, resume=True)
    let_in(ring, 1)
    some_rounds(ring, 0, 1, 2)
    ring.halt()
    assert_replayed(ring, 0, 1, 2)


@pytest.mark.slow
def test_a_member_killed_in_the_last_round_does_not_keep_the_others(crew):
    ring = crew(3, 3)
    for number in range(3):
        ring.start(number, *([("before save", 2)] if number == 0 else []))
    codes = ring.finish()
    assert codes[1:] == [0, 0], ring.out(1)
    assert_replayed(ring, 1, 2)


def test_a_port_that_is_taken_is_a_clear_error(crew):
    ring = crew(3, 2)
    host, port = ring.made.ring.members[1].address.split(":")
    with socket.create_server((host, int(port))):
        ring.start(1)
        assert ring.finish(1) == [3]
    assert "the port is taken" in ring.out(1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_there_is_one_line_of_views_and_everybody_ends(crew, seed):
    """Five members, and every second or two one is killed, stopped, continued or started again, by the dice."""
    ring, dice = crew(5, 60, pace=0.15, insiders=0), random.Random(seed)
    for number in range(5):
        ring.start(number)
    ring.wait_round(0, 2)
    stopped, dead = set(), set()
    end = time.monotonic() + 45
    while time.monotonic() < end and max(done for each in range(5) for _, done in ring.rounds(each)) < 40:
        time.sleep(dice.uniform(0.2, 2.5))  # when it strikes is part of the fault
        number = dice.randrange(5)
        if number in dead:
            dead.remove(number)
            ring.start(number, resume=True)
        elif number in stopped:
            stopped.remove(number)
            ring.signal(number, signal.SIGCONT)
        elif dice.random() < 0.5:
            dead.add(number)
            ring.kill(number)
        else:
            stopped.add(number)
            ring.signal(number, signal.SIGSTOP)
    for number in stopped:
        ring.signal(number, signal.SIGCONT)
    for number in dead:
        ring.start(number, resume=True)
    codes = ring.finish(timeout=120)
    too_late = ("finished without this site", "did not appear within")  # the others have said goodbye, or have left
    late = [n for n in range(5) if codes[n] == 3 and any(text in ring.out(n) for text in too_late)]
    assert [codes[n] for n in range(5) if n not in late] == [0] * (5 - len(late)), [
        ring.out(n)[-600:] for n in range(5)
    ]
    assert len(late) < 3
    assert len(ring.views()) > 4
    assert_replayed(ring, *(n for n in range(5) if n not in late))
