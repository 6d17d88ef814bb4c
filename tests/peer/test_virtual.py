"""Whole rings under a virtual clock: the machine of every member, real codecs, and a seed."""

import time

import pytest
import torch

from .virtual import Network, World, replayed

FIVE = tuple(range(5))
GOSSIP = [
    pytest.param(f"fibfl:topology={topology},weights=metropolis,retention=none,passes={passes}", marks=marks)
    for topology, passes, marks in (
        ("complete", "one", ()),
        ("exponential", "cover", ()),
        ("one-peer-exponential", "one", ()),
        ("one-peer-exponential", "cover", pytest.mark.slow),
        ("torus", "one", pytest.mark.slow),
        ("ring", "cover", pytest.mark.slow),
    )
]


def assert_replayed(world, *members):
    """They hold what their views give, bit for bit."""
    final = replayed(world)
    for member in members:
        rounds, parameters = world.parameters(member)
        assert final[member][0] == rounds
        assert torch.equal(final[member][1], parameters)


def assert_finished(world, *members):
    assert {member: world.ends().get(member) for member in members} == dict.fromkeys(members, "finished")
    assert all(world.parameters(member)[0] == world.ring.rounds for member in members)
    assert_replayed(world, *members)


@pytest.mark.parametrize(
    "method",
    ["fibfl", "fibfl+", "fibfl++:warmup=no", "fibfl++", "frame", "frame:topology=all-gather", *GOSSIP],
)
@pytest.mark.parametrize("members", [2, 3, 5])
def test_an_undisturbed_ring_ends_as_lock_step_message_passing(method, members):
    world = World(members, 7, method=method).start().run()
    assert set(world.views()) == {1}
    assert_finished(world, *range(members))
    assert not world.of("notice") or all("waiting for" in text for *_, text in world.of("notice"))


@pytest.mark.parametrize("when", [0.35, 0.9, 1.6])
def test_a_robust_ring_goes_on_without_a_member_and_mixes_as_long_as_enough_are_left(when):
    world = World(5, 6, seed=3, method="frame:topology=all-gather,combine=trimmed", insiders=0)
    world.at(when, lambda: world.kill(1))
    world.at(when + 3, lambda: world.kill(3))
    world.start().run()
    assert_finished(world, 0, 2, 4)
    assert not any("too few for a robust combine" in text for *_, text in world.of("notice"))


@pytest.mark.parametrize("method", ["frame:topology=all-gather", "fibfl++:combine=clipped"])
def test_an_all_gather_is_not_stalled_by_two_members_that_are_not_neighbours_and_cannot_reach_each_other(method):
    """Digests come from everybody, so a member must notice the loss of anybody; the warm-up of fibfl++ is one, too."""
    world = World(5, 6, method=method)
    world.at(0.2, lambda: world.network.part({0}, {2}))
    world.start().run()
    finished = [member for member in range(5) if world.ends().get(member) == "finished"]
    assert len(finished) >= 4
    assert_replayed(world, *finished)


def test_members_too_few_for_a_robust_combine_train_on_and_say_so():
    world = World(3, 6, method="frame:topology=all-gather,combine=trimmed")
    world.at(0.9, lambda: world.kill(1))
    world.start().run()
    assert_finished(world, 0, 2)
    assert any("2 members are too few for a robust combine" in text for *_, text in world.of("notice"))


def test_equal_seeds_give_equal_histories_and_others_do_not():
    def history(seed):
        world = World(5, 5, seed, Network((0.001, 0.2), loss=0.05, duplicates=0.1))
        world.at(1.3, lambda: world.kill(2))
        world.at(6.0, lambda: world.start(2))
        world.start().run()
        return world.history

    assert history(3) == history(3)
    assert history(3) != history(4)


@pytest.mark.parametrize("victim", range(3))
@pytest.mark.parametrize("when", [0.35, 0.71, 0.9, 1.43])
def test_a_member_that_crashes_is_left_out_and_the_others_end_as_their_views_say(victim, when):
    world = World(3, 8, seed=victim)
    world.at(when, lambda: world.kill(victim))
    world.start().run()
    others = [n for n in range(3) if n != victim]
    assert_finished(world, *others)
    ring, _ = world.views()[max(world.views())]
    assert sorted(seat.member for seat in ring) == others


@pytest.mark.parametrize("method", GOSSIP)
@pytest.mark.parametrize(
    ("victim", "when"),
    [(1, 0.9), pytest.param(0, 0.71, marks=pytest.mark.slow), pytest.param(4, 1.43, marks=pytest.mark.slow)],
)
def test_a_member_of_a_graph_that_crashes_is_left_out_and_comes_back(method, victim, when):
    """On an unreliable network: the others go on along the graph of four, and then all along the graph of five."""
    world = World(5, 30, victim, Network((0.001, 0.1), loss=0.02, duplicates=0.05), method=method)
    world.at(when, lambda: world.kill(victim))
    world.at(5.0, lambda: world.start(victim))
    world.start().run()
    assert_finished(world, *FIVE)
    assert {len(ring) for ring, _ in world.views().values()} == {4, 5}


@pytest.mark.parametrize("seed", range(4))
def test_a_member_that_comes_back_is_let_in(seed):
    world = World(5, 40, seed)
    world.at(2.0, lambda: world.kill(seed))
    world.at(6.0, lambda: world.start(seed))
    world.start().run()
    assert_finished(world, *FIVE)
    views = world.views()
    assert {len(ring) for ring, _ in views.values()} == {4, 5}
    assert len(views[max(views)][0]) == 5
    assert world.of("ended")[0][0] < 30, "a ring of forty rounds of 0.2 s"


def test_all_killed_and_started_again_end_where_an_undisturbed_run_ends():
    calm = World(3, 9).start().run()
    world = World(3, 9)
    for member in range(3):
        world.at(1.5, lambda member=member: world.kill(member))
    world.at(2.0, world.start)
    world.start().run()
    assert_finished(world, 0, 1, 2)
    for member in range(3):
        assert torch.equal(world.parameters(member)[1], calm.parameters(member)[1])


def test_a_proposal_that_did_not_get_through_is_repeated_soon_whatever_the_patience():
    """At a start a member may be heard before the connection to it is up."""
    world = World(3, 2, patience=60.0)
    world.network.cuts = {(0, 2)}
    world.at(0.6, world.network.heal)
    world.start().run()
    assert_finished(world, 0, 1, 2)
    assert max(when for when, *_ in world.of("entered")) < 2.0


def test_a_minority_pauses_and_says_so_until_it_is_back():
    world = World(5, 80, seed=1, insiders=0)
    world.at(2.0, lambda: world.network.part((1, 3), (0, 2, 4)))
    world.at(12.0, world.network.heal)
    world.start().run()
    assert_finished(world, *FIVE)
    alone = [(when, member) for when, member, _, _, _ in world.of("round") if member in ("bee", "dog")]
    assert not [when for when, _ in alone if 2.6 < when < 12.0], "a minority completes no round"
    assert any("3 of 5 are needed, 2 here" in text for _, member, _, text in world.of("notice") if member == "bee")
    assert {3, 5} <= {len(ring) for ring, _ in world.views().values()}


def test_a_full_disk_ends_one_member_and_no_other():
    world = World(3, 6)
    world.at(0.9, lambda: setattr(world.disks[1], "full", True))
    world.start().run()
    assert world.ends()[1].startswith("BadInput")
    assert_finished(world, 0, 2)


def hanging(seconds, rounds, until=300.0):
    """A ring of three in which bee hangs in its training from 1.5 s on, and is found to after 3 s."""
    world = World(3, rounds, seed=3, stalled=3.0)
    world.at(1.5, lambda: world.training.update({1: seconds}))
    world.at(1.5 + seconds, lambda: world.training.update({1: 0.2}))
    return world.start().run(until)


def test_a_member_that_hangs_asks_for_no_seat_and_stops_nobody_again():
    """If it asked, the others would agree on a view without it after every round, as soon as it may come back."""
    world = hanging(seconds=30.0, rounds=150)
    assert_finished(world, 0, 1, 2)
    views = [view for _, who, _, view in world.of("entered") if who == "ant"]
    assert [sorted(view.order) for view in views] == [[0, 1, 2], [0, 2], [0, 1, 2]]


def test_a_member_that_hangs_until_the_others_have_finished_ends_and_says_why():
    world = hanging(seconds=30.0, rounds=12)
    assert_finished(world, 0, 2)
    assert "the ring has finished without this site" in world.ends()[1]


@pytest.mark.parametrize("seed", range(30))
def test_bad_networks_and_crashes_by_the_dice(seed):
    """Delay, loss and duplicates all the while; members are killed and come back; never two views of one number."""
    network = Network((0.001, 0.1), loss=0.03, duplicates=0.05)
    world = World(5, 25, seed, network, patience=3.0, insiders=seed % 2)
    dice, down = world.random, set()

    def strike():
        if world.now > 25 or any(node.end for node in world.nodes.values()):
            world.start(*down) if down else None
            return
        member = dice.randrange(5)
        if member in down:
            down.remove(member)
            world.start(member)
        elif len(down) < 2 - seed % 2:
            down.add(member)
            world.kill(member)
        world.after(dice.uniform(0.2, 4.0), strike)

    world.start()
    world.after(2.0, strike)
    world.run()
    ends = world.ends()
    late = [n for n in FIVE if ends.get(n, "").startswith("PeerLost")]  # back after the others had finished and left
    assert len(late) < 3, ends
    assert_finished(world, *(n for n in FIVE if n not in late))


def test_hundreds_of_rings_a_minute():
    began = time.process_time()
    for seed in range(5):
        World(3, 5, seed).start().run()
    assert time.process_time() - began < 5 * 0.6
