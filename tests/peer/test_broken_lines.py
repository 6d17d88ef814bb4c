"""Real members that are alive and deliver nothing: the others go on without them, say whom they wait for, and why."""

import re
import time
from contextlib import ExitStack

import pytest

from tests.processes import wait_until

from .conftest import NAMES, free_ports
from .crew import Crew
from .proxy import Proxy
from .test_healing import ENDLESS, assert_replayed, some_rounds


@pytest.fixture
def crew(make_ring):
    """`crew(members, rounds, proxied, ...)`: a ring, one of whose members may be behind a proxy."""
    with ExitStack() as ended:

        def make(members=4, rounds=6, proxied=None, pace=0.0, **changes):
            changes = {"patience": 3.0, "gathering": 60.0} | changes
            made = make_ring("fibfl++:warmup=no", members, rounds, "iid", **changes)
            if proxied is None:
                ring = Crew(made, pace=pace)
            else:
                port, (inner,) = int(made.ring.members[proxied].address.split(":")[1]), free_ports(1)
                ring = Crew(made, pace=pace, listen={proxied: f"127.0.0.1:{inner}"})
                ring.proxy = Proxy(port, inner)
                ended.callback(ring.proxy.close)
            ended.callback(ring.end)
            return ring

        yield make


def assert_goes_on_without(crew, member, within=300):
    """All others complete all rounds, without a member that is alive, and what they hold is what their views give."""
    others = [n for n in range(len(crew.made.ring.members)) if n != member]
    codes = crew.finish(*others, timeout=within)
    assert codes == [0] * len(others), [crew.out(n)[-1500:] for n in range(len(codes) + 1)]
    last = crew.views()[max(crew.views())][0]
    assert set(last) == {NAMES[n] for n in others}
    said = "".join(crew.out(n) for n in others)
    blamed = re.findall(r"proposing a new view: (\w+): it", said)
    assert blamed and set(blamed) == {NAMES[member]}, said
    crew.end()
    assert_replayed(crew, *others)
    return said


def test_a_member_that_refuses_everything_is_left_out_and_nobody_else_leaves(crew):
    ring = crew(4, 6)
    for number in range(4):
        ring.start(number, *([("refuses", 2)] if number == 2 else []))
    said = assert_goes_on_without(ring, 2)
    assert "cat refuses this site's message of round 3 (on principle); it is sent again" in said


def test_a_member_that_nobody_can_call_is_left_out_and_comes_back_when_they_can(crew):
    """As behind NAT without a forwarded port: it calls the others, they hear it, and nothing reaches it."""
    ring = crew(3, ENDLESS, proxied=1, pace=0.2, patience=2.0)
    for number in range(3):
        ring.start(number)
    wait_until(lambda: len(ring.rounds(1)) > 1, 300, "the ring is at work")
    ring.proxy.shut()
    shut = time.monotonic()
    ring.wait_notice(0, ": ant-cat, from")
    assert time.monotonic() - shut < 60
    ring.wait_notice(1, "messages between it and")
    some_rounds(ring, 0, 2)
    ring.proxy.open()
    before = max(ring.views())
    ring.wait(lambda: ring.events(1, "view")[-1]["number"] > before, "bee is back")
    some_rounds(ring, 0, 1, 2)
    ring.halt()
    assert len(ring.views()) <= 4, "it is not let in only to be left out again"
    assert_replayed(ring, 0, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (("no data", 2), "it says that it has sent its message"),
        (("slow data", 2, 1.0), "it says that it has sent its message"),
        (("never acknowledges", 2), "it does not acknowledge this site's message"),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_the_others_complete_all_rounds_without_a_member_that(crew, fault, says):
    """It is mute; or it sends a byte per second; or it takes messages and never acknowledges one. It is alive."""
    ring = crew(4, 6, patience=8.0)
    for number in range(4):
        ring.start(number, *([fault] if number == 1 else []))
    said = assert_goes_on_without(ring, 1)
    assert f"proposing a new view: bee: {says}" in said
    assert "waiting for bee for " in said, "before that, the operators were told"
    waited = [each for n in (0, 2, 3) for each in ring.events(n, "awaiting")]
    assert any("bee" in each["members"] for each in waited)


@pytest.mark.slow
def test_the_others_complete_all_rounds_without_a_member_that_reads_one_byte_per_second(crew):
    ring = crew(4, ENDLESS, proxied=3, pace=0.2)
    for number in range(4):
        ring.start(number)
    wait_until(lambda: len(ring.rounds(3)) > 1, 300, "the ring is at work")
    ring.proxy.trickle()
    wait_until(lambda: ": ant-bee-cat, from" in ring.out(0), 300, lambda: ring.out(0))
    some_rounds(ring, 0, 1, 2, more=5)
    ring.halt()
    assert set(re.findall(r"proposing a new view: (\w+)", "".join(ring.out(n) for n in range(3)))) == {"dog"}
    assert len(ring.views()) == 2
    assert_replayed(ring, 0, 1, 2)


@pytest.mark.slow
def test_of_two_ends_of_a_line_that_carries_heartbeats_one_way_only_one_is_left_out(crew):
    ring = crew(4, 8, patience=4.0)
    for number in range(4):
        ring.start(number, *([("no data", 2, 1)] if number == 0 else []))
    wait_until(lambda: 2 in ring.views(), 300, "one end is left out")
    (out,) = {0, 1, 2, 3} - {NAMES.index(name) for name in ring.views()[2][0]}
    assert out in (0, 1)
    others = [n for n in range(4) if n != out]
    assert ring.finish(*others, timeout=300) == [0, 0, 0], [ring.out(n) for n in range(4)]
    assert max(ring.views()) == 2
    ring.end()
    assert_replayed(ring, *others)


@pytest.mark.slow
def test_a_member_that_trains_for_many_times_the_patience_is_waited_for(crew):
    ring = crew(3, 3, patience=2.0)
    for number in range(3):
        ring.start(number, *([("slow", 12.0)] if number == 1 else []))
    assert ring.finish(timeout=400) == [0, 0, 0], ring.out(0)
    assert set(ring.views()) == {1}
    assert "waiting for bee for 5 s: it is still training for round 1" in ring.out(0)
    assert "the wait for bee is over after" in ring.out(0)
    assert_replayed(ring, 0, 1, 2)
