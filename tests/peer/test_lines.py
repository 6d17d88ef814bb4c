"""Lines that carry heartbeats and no messages, in whole rings under a virtual clock: who is left out, and how long."""

from dataclasses import replace
from itertools import pairwise

import pytest

from firma.peer.agreed_text import agreed_lines
from firma.peer.membership.exclusion import Exclusions, left_out
from firma.peer.membership.failure_detector import FailureDetector, Patience
from firma.peer.membership.line_monitor import Complaint, LineMonitor, Pace
from firma.peer.membership.views import Seat, View
from firma.peer.runtime.events import Unreachable
from firma.peer.wire.heartbeat import EXCHANGING, PREPARING, decode_heartbeat
from firma.peer.wire.message import REFUSED, decode_header

from .test_virtual import assert_finished, assert_replayed
from .virtual import VirtualNode, World, agreed_ring

PATIENCE = 5.0


class BrokenLines:
    """Messages from one member to another that do not get through, though heartbeats do; and heartbeats that lie."""

    def __init__(self):
        self.cut = set()  # (from, to): neither messages nor probes
        self.muted = set()  # (from, to): no messages; probes get through, so the sender does it on purpose
        self.refusing = set()
        self.lies = {}  # member: what its heartbeats are turned into

    def receive(self, node, sender, parts, inner):
        if (sender, node.number) in self.cut | self.muted:
            return None
        if node.number in self.refusing:
            return bytes([REFUSED]) + b"on principle"
        return inner(node, sender, parts)

    def probed(self, node, sender, inner):
        return None if (sender, node.number) in self.cut else inner(node, sender)

    def on(self, node, event, inner):
        """What a member answers and sends; a liar's heartbeats say something else."""
        answer = inner(node, event)
        lie = self.lies.get(node.number)
        return lie(answer) if lie and type(answer).__name__ == "Heartbeat" else answer

    def beat(self, node, to, raw, inner):
        lie = self.lies.get(node.number)
        inner(node, to, lie(decode_heartbeat(raw)).encode() if lie else raw)


@pytest.fixture
def lines(monkeypatch):
    broken = BrokenLines()
    receive, probed, on, beat = VirtualNode.receive, VirtualNode.probed, VirtualNode.on, VirtualNode._heartbeat
    patches = {
        "receive": lambda node, sender, parts: broken.receive(node, sender, parts, receive),
        "probed": lambda node, sender: broken.probed(node, sender, probed),
        "on": lambda node, event: broken.on(node, event, on),
        "_heartbeat": lambda node, to, raw: broken.beat(node, to, raw, beat),
    }
    for name, patch in patches.items():
        monkeypatch.setattr(VirtualNode, name, patch)
    return broken


def around(member, members):
    """Lines from a member, and to it."""
    return {(member, other) for other in range(members)}, {(other, member) for other in range(members)}


def notices(world, *members):
    return [text for _, name, _, text in world.of("notice") if not members or name in members]


def rings(world):
    return [tuple(sorted(seat.member for seat in ring)) for _, (ring, _) in sorted(world.views().items())]


def entered(world, number):
    """When a view was first entered."""
    return min(when for when, _, _, view in world.of("entered") if view.number == number)


@pytest.mark.parametrize("members", [3, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("fault", ["takes nothing", "sends nothing", "refuses"])
def test_a_member_that_is_alive_and_delivers_nothing_is_left_out(lines, members, fault):
    world = World(members, 60, seed=1, patience=PATIENCE)
    out, into = around(1, members)

    def strike():
        match fault:
            case "takes nothing":
                lines.cut |= into
            case "sends nothing":
                lines.muted |= out
            case "refuses":
                lines.refusing.add(1)

    world.at(1.5, strike)
    world.start()
    world.at(40.0, lambda: world.kill(1))
    world.run()
    others = [n for n in range(members) if n != 1]
    assert_finished(world, *others)
    assert rings(world)[1] == tuple(others)
    left = next(when for when, _, _, view in world.of("entered") if view.number == 2)
    assert left < 1.5 + 3 * PATIENCE
    for name in ("ant", "cat"):
        assert any(
            text.startswith("bee is left out of view 2: nothing arrives in time between it and")
            for text in notices(world, name)
        )


@pytest.mark.parametrize(
    "method",
    ["frame", *(pytest.param(each, marks=pytest.mark.slow) for each in ("frame:topology=all-gather", "fibfl++"))],
)
def test_in_other_kinds_of_mixing_too(lines, method):
    world = World(5, 12, seed=2, patience=PATIENCE, method=method)
    world.at(0.7, lambda: lines.cut.update(around(3, 5)[1]))
    world.at(30.0, lambda: world.kill(3))
    world.start().run()
    assert_finished(world, 0, 1, 2, 4)
    assert all("dog: it" in text for text in notices(world, "ant", "bee", "cat", "eel") if "new view" in text)


@pytest.mark.parametrize(
    ("members", "hidden"), [(4, 0), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((3, 1), (4, 3), (5, 2)))]
)
def test_a_member_that_nobody_can_call_from_the_start_on(members, hidden):
    """As behind NAT without a forwarded port: a ring starts with everybody, and goes on without it."""
    world = World(members, 12, seed=hidden, patience=PATIENCE)
    inner = world.call

    def call(caller, to, handle, answered):
        if to != hidden:
            inner(caller, to, handle, answered)
        else:
            why = Unreachable(to, "connection refused")
            world.after(0.01, lambda: caller.up and (caller.on(why), answered(None)))

    world.call = call
    world.at(60.0, lambda: world.kill(hidden))
    world.start().run()
    others = [n for n in range(members) if n != hidden]
    assert_finished(world, *others)
    assert rings(world) == [tuple(range(members)), tuple(others)]
    assert entered(world, 2) - entered(world, 1) < 3 * PATIENCE


@pytest.mark.parametrize(
    ("sender", "receiver"), [(0, 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 0), (3, 4)))]
)
def test_of_two_ends_of_a_line_that_is_broken_one_way_one_is_left_out_until_the_line_works(lines, sender, receiver):
    """Whichever end it is: the ring goes on, does not let it in before the line works, and then does."""
    world = World(5, 45, seed=sender, patience=PATIENCE, training=0.8, method="fibfl++:warmup=no,order=given")
    world.at(2.0, lambda: lines.cut.add((sender, receiver)))
    world.at(20.0, lines.cut.clear)
    world.start().run(until=1000)
    assert_finished(world, *range(5))
    sizes = [len(ring) for ring in rings(world)]
    assert sizes == [5, 4, 5], "left out once, let in once"
    (out,) = set(range(5)) - set(rings(world)[1])
    assert out in (sender, receiver)
    assert entered(world, 2) < 2.0 + 3 * PATIENCE
    assert 20.0 < entered(world, 3) < 20.0 + 10 * PATIENCE
    assert any(
        "nothing arrives in time between it and" in text and "run firma doctor here" in text for text in notices(world)
    )


@pytest.mark.slow
def test_a_member_that_is_mute_on_purpose_is_let_in_ever_more_seldom(lines):
    """Its line works whenever it is tried: time alone keeps it out, twice as long every time."""
    world = World(4, 110, seed=5, patience=PATIENCE, training=1.0)
    world.at(2.0, lambda: lines.muted.update(around(2, 4)[0]))
    world.at(130.0, lambda: world.kill(2))
    world.start().run(until=1000)
    assert_finished(world, 0, 1, 3)
    views = [(entered(world, number + 1), len(ring)) for number, ring in enumerate(rings(world)) if number]
    let_in = [when for when, size in views if size == 4]
    left_out_at = [when for when, size in views if size == 3]
    assert 2 <= len(let_in) <= 4
    absences = [back - out for out, back in zip(left_out_at, let_in, strict=False)]
    assert all(later > 1.7 * earlier for earlier, later in pairwise(absences)), absences
    assert all(set(ring) >= {0, 1, 3} for ring in rings(world)), "nobody else is ever left out"


@pytest.mark.parametrize("victims", [(4, 0), pytest.param((4,), marks=pytest.mark.slow)])
def test_a_member_that_complains_of_honest_ones_is_soon_the_one_that_is_left_out(lines, victims):
    """It accuses one neighbour, and when that one is gone, or back, the next one, or the same."""
    world = World(5, 130, seed=3, patience=PATIENCE, training=1.0, method="fibfl++:warmup=no,order=given")
    accused = []

    def begin():
        monitor = world.nodes[3].member._lines.monitor
        judge = type(monitor).look

        def look(view, neighbours, missing, now):
            judge(monitor, view, neighbours, missing, now)
            monitor.complaints |= {n: Complaint("a lie", view.number) for n in accused if n in view.order}

        monitor.look = look

    world.start()
    world.at(1.0, begin)
    for turn in range(30):
        world.at(2.0 + 4 * turn, lambda turn=turn: accused.__setitem__(slice(None), [victims[turn % len(victims)]]))
    world.at(125.0, lambda: world.kill(3))
    world.run(until=2000)
    assert_finished(world, 0, 1, 2)
    assert_replayed(world, 4)
    out = [set(range(5)) - set(ring) for ring in rings(world)]
    times = {n: sum(n in after - before for before, after in pairwise(out)) for n in range(5)}
    assert times[0] == times[1] == times[2] == 0
    assert times[4] <= (4 if victims == (4,) else 1), "of a pair that quarrels again and again, each in turn"
    assert times[3] >= 2


@pytest.mark.parametrize("doing", [PREPARING, EXCHANGING])
def test_a_mute_member_that_says_that_it_trains_or_waits_for_others_is_left_out_in_a_stated_time(lines, doing):
    """Five times the patience for training, as long as rounds are short; twice for waiting when nobody is behind it."""
    world = World(4, 30, seed=4, patience=PATIENCE)
    seen = []

    def lie(beat):
        seen.append(beat.tag)
        return replace(beat, tag=seen[0], doing=doing, complaints=())

    def begin():
        lines.muted.update(around(2, 4)[0])
        lines.lies[2] = lie

    world.at(2.0, begin)
    world.at(60.0, lambda: world.kill(2))
    world.start().run()
    assert_finished(world, 0, 1, 3)
    assert set(rings(world)[1]) == {0, 1, 3}
    assert entered(world, 2) < 2.0 + (5 if doing == PREPARING else 2) * PATIENCE + 2 * PATIENCE


def test_the_slowest_honest_member_is_waited_for_and_named():
    world = World(4, 4, patience=PATIENCE)
    world.training[2] = 9 * PATIENCE
    world.start().run(until=1000)
    assert_finished(world, 0, 1, 2, 3)
    assert len(rings(world)) == 1
    said = [text for text in notices(world, "bee") if not text.startswith("waiting for ant")]
    assert said[:2] == [
        "waiting for cat for 5 s: it is still training for round 1",
        "the wait for cat is over after 45 s",
    ]
    assert len(said) <= 4, "the next rounds are as usual"


def test_with_too_few_members_the_ring_pauses_and_nobody_leaves(lines):
    world = World(2, 12, patience=PATIENCE)
    world.at(1.0, lambda: lines.cut.add((0, 1)))
    world.at(30.0, lines.cut.clear)
    world.start().run()
    assert_finished(world, 0, 1)
    assert len(rings(world)) == 1
    assert any("paused: bee: it does not acknowledge" in text for text in notices(world, "ant"))
    assert any("paused: ant: it says that it has sent" in text for text in notices(world, "bee"))


@pytest.mark.parametrize(
    ("against", "needed", "out"),
    [
        ({0: (), 1: (), 2: ()}, 2, ()),
        ({0: (1,), 1: (0,), 2: ()}, 2, (1,)),  # of two equals the last
        ({0: (1,), 1: (), 2: ()}, 3, ()),  # nobody can be spared
        ({0: (1,), 1: (), 2: (1,), 3: ()}, 3, (1,)),
        ({0: (), 1: (0, 2), 2: (), 3: ()}, 3, (1,)),  # it complains of everybody: it goes itself
        ({0: (2,), 1: (), 2: (), 3: (0,), 4: (0,)}, 3, (0,)),  # the others' opinion of the two ends
        ({0: (1,), 1: (0,), 2: (3,), 3: (2,), 4: ()}, 3, (1, 3)),
        ({0: (1,), 1: (0,), 2: (3,), 3: (2,), 4: ()}, 4, (3,)),
        ({0: (7,), 1: (1,)}, 1, ()),  # complaints of those that are not here, or of oneself
    ],
)
def test_who_is_left_out(against, needed, out):
    assert left_out(against, needed) == out


def test_a_member_stays_out_for_a_time_that_doubles_and_then_the_two_ends_take_turns():
    whole, without = View(1, 0, tuple(Seat(n, n) for n in range(4))), View(2, 0, tuple(Seat(n, n) for n in (0, 1, 3)))
    memory, line = Exclusions(0, 10.0), frozenset((2, 3))
    seats = without.order
    memory.see({line}, 100.0)
    assert memory.opinion({line}, whole.order, 100.0) == set(), "the first time nothing speaks for either"
    memory.view_decided(whole, without, {line}, [0, 1, 2, 3], 100.0)
    assert memory.held(139.0) == {2} and not memory.held(141.0)
    assert memory.barred(2, set(), seats, 139.0)
    assert not memory.barred(2, set(), seats, 141.0), "the line works"
    assert memory.barred(2, {line}, seats, 141.0), "it does not"
    assert memory.opinion({line}, seats, 141.0) == set(), "this one is dealt with"
    assert not memory.barred(2, {line}, seats, 261.0)
    assert memory.opinion({line}, seats, 261.0) == {3}, "the other end's turn"
    assert memory.opinion({line}, whole.order, 141.0) == {3}, "and so if they quarrel again"
    memory.view_decided(whole, without, {line}, [0, 1, 2, 3], 300.0)
    assert memory.held(379.0) == {2} and not memory.held(381.0), "twice as long"
    memory.view_decided(whole, View(3, 0, whole.ring[:3]), {line}, [0, 1, 2], 400.0)
    assert 3 not in memory.held(401.0), "whoever is dead or silent was not left out for that"


def test_a_member_that_was_out_for_another_reason_is_not_kept_out_by_one_complaint_for_ever():
    memory, line, seats = Exclusions(0, 10.0), frozenset((1, 3)), (0, 1, 2)
    memory.see({line}, 100.0)
    assert memory.barred(3, {line}, seats, 101.0)
    assert memory.opinion({line}, seats, 101.0) == set()
    assert not memory.barred(3, {line}, seats, 261.0)
    assert memory.opinion({line}, seats, 261.0) == {1}
    assert memory.barred(3, {line, frozenset((2, 3))}, seats, 261.0), "two complain of it"


def test_after_its_last_round_nobody_waits_for_ever_for_a_receiver_that_takes_nothing():
    """Its own rounds are saved; with two members there is no view without the other."""
    world = World(2, 3, patience=PATIENCE).start()
    bee, ant = world.nodes[1], world.nodes[0]
    receive = bee.receive
    last = 3
    bee.receive = lambda sender, parts: (
        None if decode_header(world.terms, parts[0]).tag[1] == last else receive(sender, parts)
    )
    world.at(200.0, lambda: world.kill(1))
    world.run()
    assert ant.rounds == 3, "what bee sent has arrived"
    assert_finished(world, 0)
    assert bee.end is None
    assert world.of("ended")[0][0] < 15 * PATIENCE


def test_what_is_agreed_to_in_words_is_what_is_done():
    ring = agreed_ring(5, 10, patience=7.0, stalled=900.0, gathering=30.0)
    said = dict(agreed_lines(ring))
    monitor = LineMonitor(FailureDetector(0, ring.names, Patience(7.0, 30.0, 900.0), started=0.0))
    assert "within 7 s of its last progress" in said["deadlines"]
    assert monitor.limit(1) == 7.0
    monitor._paces[1] = Pace(1e6)
    assert f"at most {monitor.limit(1):g} s)" in said["deadlines"]
    assert f"may take {monitor.training_limit:g} s" in said["deadlines"]
    monitor._rounds.measured(0.1)
    assert f"after the first round at most {monitor.training_limit:g} s" in said["deadlines"]
    memory, whole = Exclusions(0, 7.0), View(1, 0, tuple(Seat(n, n) for n in range(5)))
    memory.view_decided(whole, View(2, 0, whole.ring[:4]), {frozenset((0, 4))}, [0, 4], 0.0)
    assert memory.held(27.9) and not memory.held(28.1)
    assert "after 28 s at the earliest" in said["left out"]


def test_who_quarrels_with_several_is_the_one_to_go():
    memory = Exclusions(0, 10.0)
    lines = {frozenset((1, 2)), frozenset((2, 3))}
    memory.see(lines, 100.0)
    assert memory.opinion(lines, (0, 1, 2, 3), 100.0) == {2}
    memory.see((), 100.0 + 2001.0)
    assert memory.opinion({frozenset((1, 2))}, (0, 1, 2, 3), 2101.0) == set(), "forgotten"


def test_a_pace_is_what_is_usual_and_its_deviation():
    pace = Pace()
    assert pace.longest == 0.0
    pace.measured(10.0)
    assert (pace.mean, pace.longest) == (10.0, 30.0)
    for _ in range(100):
        pace.measured(10.0)
    assert pace.longest == pytest.approx(10.0)
    pace.measured(18.0)
    assert (pace.mean, pace.longest) == (pytest.approx(11.0), pytest.approx(19.0))
