"""Rings over bad networks: every member in a network namespace of its own; delay, loss, cut links, a partition."""

import shutil
import subprocess
from contextlib import ExitStack

import pytest

from tests.processes import assert_holds

from .crew import Crew
from .network import Network
from .test_healing import ENDLESS, assert_replayed, some_rounds


@pytest.fixture
def networked(make_ring):
    """`networked(members, rounds, pace, ...)`: a network and a crew on it."""
    if not (shutil.which("ip") and shutil.which("tc")):
        pytest.skip("network namespaces need ip and tc (iproute2)")
    with ExitStack() as made:

        def make(members, rounds, pace=0.0, delay=0.0, loss=0.0, **changes):
            network = Network(members)
            made.callback(network.remove)
            try:
                network.build(delay, loss)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
            ring = make_ring("fibfl++:warmup=no", members, rounds, "iid", hosts=network.hosts, **changes)
            crew = Crew(ring, network.spaces, pace)
            made.callback(crew.end)
            return network, crew

        yield make


def test_five_percent_loss_and_100_ms_of_delay_are_borne(networked):
    network, crew = networked(3, 3, delay=0.1, loss=0.05, patience=15.0, gathering=60.0)
    for number in range(3):
        crew.start(number)
    assert crew.finish(timeout=90) == [0, 0, 0], crew.out(0)
    assert set(crew.views()) == {1}, "a slow line is no lost member"
    assert network.wire is None or network.wire.dropped > 10
    assert_replayed(crew, 0, 1, 2)


def test_a_partition_never_makes_two_rings_and_heals(networked):
    network, crew = networked(3, ENDLESS, pace=0.3, patience=2.0)
    for number in range(3):
        crew.start(number)
    crew.wait_round(2, 2)
    network.plug(2, "down")
    crew.wait_notice(0, ": ant-bee, from")
    crew.wait_notice(2, "2 of 3 are needed, 1 here")
    alone = crew.rounds(2)
    some_rounds(crew, 0, more=4)
    assert crew.rounds(2) == alone, "a minority does not go on"
    before = max(crew.views())
    network.plug(2, "up")
    crew.wait(lambda: crew.events(2, "view")[-1]["number"] > before, "cat is back")
    some_rounds(crew, 0, 1, 2)
    crew.halt()
    assert_replayed(crew, 0, 1, 2)


@pytest.mark.slow
def test_three_of_five_go_on_and_two_do_not(networked):
    network, crew = networked(5, ENDLESS, pace=0.3, patience=2.0, insiders=0)
    for number in range(5):
        crew.start(number)
    crew.wait_round(2, 2)
    for number in (1, 3):
        network.plug(number, "down")
    some_rounds(crew, 0, more=6)
    assert "3 of 5 are needed" in crew.out(1)
    assert "3 of 5 are needed" in crew.out(3)
    before = max(crew.views())
    for number in (1, 3):
        network.plug(number, "up")
    crew.wait(lambda: all(crew.events(number, "view")[-1]["number"] > before for number in (1, 3)), "both are back")
    some_rounds(crew, *range(5))
    crew.halt()
    assert_replayed(crew, *range(5))


def test_of_two_who_cannot_reach_each_other_one_is_left_out_until_they_can(networked):
    network, crew = networked(3, ENDLESS, pace=0.3, patience=2.0)
    for number in range(3):
        crew.start(number)
    crew.wait_round(0, 2)
    network.cut(0, 1)
    crew.wait(lambda: any(len(names) == 2 for names, _ in crew.views().values()), "one of the two is left out")
    apart, ring = next((epoch, names) for epoch, (names, _) in sorted(crew.views().items()) if len(names) == 2)
    out = 0 if "ant" not in ring else 1
    assert set(ring) in ({"ant", "cat"}, {"bee", "cat"})
    some_rounds(crew, 2, more=5)
    assert max(crew.views()) <= apart + 1, "it is not let in only to be left out again"
    before = max(crew.views())
    network.mend(0, 1)
    crew.wait(lambda: crew.events(out, "view")[-1]["number"] > before, "it is back")
    some_rounds(crew, 0, 1, 2)
    crew.halt()
    assert_replayed(crew, 0, 1, 2)


@pytest.mark.slow
def test_of_two_halves_neither_goes_on(networked):
    network, crew = networked(4, 16, pace=0.4, patience=2.0)
    halves = [(one, two) for one in (0, 1) for two in (2, 3)]
    for number in range(4):
        crew.start(number)
    crew.wait_round(0, 2)
    for pair in halves:
        network.cut(*pair)
    for number in range(4):
        crew.wait_notice(number, "3 of 4 are needed, 2 here")
    done = [crew.rounds(number) for number in range(4)]
    assert_holds(lambda: [crew.rounds(number) for number in range(4)] == done, 4.0, "neither half goes on")
    for pair in halves:
        network.mend(*pair)
    assert crew.finish(timeout=90) == [0] * 4, crew.out(0)
    assert_replayed(crew, *range(4))
