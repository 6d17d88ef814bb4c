"""Real members that are alive and deliver nothing: the others go on without them, say whom they wait for, and why."""

import re
import threading
import time
from contextlib import ExitStack

import pytest

from firma.peer.doctor import probe
from firma.peer.runtime.event_log import EventLog
from firma.peer.runtime.state_folder import claim
from firma.peer.runtime.status import read_status
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
    assert set(re.findall(r"proposing a new view: (\w+): it", said)) <= {NAMES[member]}, said
    assert set(re.findall(r"(\w+) is left out of view", said)) == {NAMES[member]}, said
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
    ring.wait_notice(1, "nothing arrives in time between it and")
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
    assert re.search(rf"waiting for bee for \d+ s: {says}", said), "before that, the operators were told"
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
    assert set(re.findall(r"(\w+) is left out of view", "".join(ring.out(n) for n in range(3)))) <= {"dog"}
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


def examined(made, **listen):
    """What the doctors of all members find, at the same time: {(site, about): finding}."""
    found = {}

    def examine(number):
        wait = 20.0 if not listen else 4.0
        for each in probe(made.ring, made.identity(number), listen.get(NAMES[number]), wait):
            found[NAMES[number], each.about] = each

    threads = [threading.Thread(target=examine, args=(number,)) for number in range(len(made.ring.members))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return found


def test_doctors_try_both_directions(make_ring):
    found = examined(make_ring("fibfl", 2, 1, "iid"))
    for site, other in (("ant", "bee"), ("bee", "ant")):
        assert found[site, other].passed, found[site, other].says
        assert "its calls reach this site, too" in found[site, other].says


def test_doctors_say_who_cannot_be_called(make_ring):
    """Bee listens, but its address leads nowhere: its own calls get through."""
    made = make_ring("fibfl", 2, 1, "iid")
    (inner,) = free_ports(1)
    found = examined(made, bee=f"127.0.0.1:{inner}")
    address = made.ring.members[1].address
    assert not found["ant", "bee"].passed
    assert f"its calls reach this site, but {address} cannot be called from here" in found["ant", "bee"].says
    assert not found["bee", "ant"].passed
    assert f"cannot call this site back at {address}" in found["bee", "ant"].says
    assert found["ant", "my own address"].passed
    assert not found["bee", "my own address"].passed


def test_a_running_member_calls_a_doctor_back(victim):
    """Member 0 runs; the doctor of member 1 asks it, from a machine where nobody listens yet, and where it does."""
    findings = {each.about: each for each in probe(victim.made.ring, victim.made.identity(1), None, 5.0)}
    assert "its calls reach this site, too" in findings["ant"].says
    inner = f"127.0.0.1:{free_ports(1)[0]}"
    findings = {each.about: each for each in probe(victim.made.ring, victim.made.identity(1), inner, 1.0)}
    assert "cannot call this site back" in findings["ant"].says


def test_the_status_shows_who_is_waited_for_and_why(make_ring):
    made = make_ring("fibfl", 2, 1, "iid")
    folder = made.state(0)
    lock, _ = claim(folder)
    log = EventLog(folder / "log.jsonl")
    try:
        (folder / "ring.toml").write_text(made.path.read_text())
        log.event("notice", {"says": "waiting for bee for 6 s: it is still training for round 1"})
        log.event("awaiting", {"members": {"bee": {"seconds": 6.0, "why": "it is still training for round 1"}}})
        assert "  waiting for bee for 6 s: it is still training for round 1" in read_status(folder).lines()
        assert read_status(folder).condition == ""
        log.event("notice", {"says": "the wait for bee is over after 9 s"})
        log.event("awaiting", {"members": {}})
        assert read_status(folder).awaited == ()
        assert not any("wait" in line for line in read_status(folder).lines())
    finally:
        log.close()
        lock.release()
