"""A member that was away, or has lost its disk, is brought to the ring's round by the others, and gets a result."""

import json
import shutil
from contextlib import ExitStack

import pytest
import torch

from firma.peer.membership.views import Seat, View
from firma.peer.runtime.catching_up import STEP, caught_up, enough, holders
from firma.peer.runtime.events import SendExtractor

from .crew import Crew
from .test_virtual import assert_finished
from .virtual import LAYOUT, NAMES, VirtualNode, World

FIVE = tuple(range(5))


def view_of(order, behind):
    return View(3, 7, tuple(Seat(n, n) for n in order), behind)


def test_the_nearest_that_have_the_round_bring_a_member_to_it():
    view = view_of((4, 0, 3, 1, 2), (1, 3))
    assert holders(view, 1, 0) == (2, 4), "its left neighbour is behind itself"
    assert holders(view, 1, 1) == (2, 4, 0)
    assert holders(view, 0, 1) == ()
    assert holders(view_of((0, 1), (1,)), 1, 0) == (0,)


def test_one_absurd_extractor_of_three_changes_nothing():
    own, honest = torch.zeros(4), torch.tensor([1.0, 2.0, 3.0, 4.0])
    for lie in (torch.full((4,), 3e38), -honest, torch.zeros(4)):
        found = caught_up(own, [honest, lie, honest + 0.1])
        assert bool(((found >= honest) & (found <= honest + 0.1)).all())
    assert torch.equal(caught_up(own + 1, [honest, torch.full((4,), 3e38)]), honest)
    assert torch.equal(caught_up(own, [honest, honest + 1]), honest + 0.5)
    assert torch.equal(caught_up(own, [honest]), honest)


def test_nobody_waits_for_one_that_does_not_send():
    assert enough(3, 3, 1, 0.0, 10.0)
    assert [enough(2, 3, 1, waited, 10.0) for waited in (1.0, 3.0)] == [False, True]
    assert [enough(1, 3, 1, waited, 10.0) for waited in (3.0, 6.0)] == [False, True]
    assert not enough(0, 2, 0, 1e9, 10.0)


def brought(world, member):
    return [senders for _, name, _, _, senders in world.of("caught up") if name == NAMES[member]]


@pytest.mark.parametrize("members", [3, 5])
def test_a_latecomer_comes_in_with_the_present_extractor_and_its_own_head(members):
    world = World(members, 40, seed=2)
    world.at(2.0, lambda: world.kill(1))
    world.at(8.0, lambda: world.start(1))
    heads = {}
    world.at(7.9, lambda: heads.update(old=world.parameters(1)[1][LAYOUT.extractor :].clone()))
    world.start().run()
    assert_finished(world, *range(members))
    assert len(brought(world, 1)[0]) == (3 if members == 5 else 2)
    assert heads["old"].abs().max() > 0


@pytest.mark.parametrize(("members", "killed", "seed"), [(3, 1, 0), (5, 0, 2)])
def test_a_site_that_lost_its_disk_comes_back_and_votes_only_later(members, killed, seed):
    world = World(members, 50, seed=seed)
    world.at(2.0 + seed / 3, lambda: world.kill(killed))
    world.at(6.0, lambda: world.lose(killed))
    world.start().run()
    assert_finished(world, *range(members))
    told = [text for _, who, _, text in world.of("notice") if who == NAMES[killed]]
    assert any("this site's promises are lost" in text for text in told)
    assert brought(world, killed)
    entered = [view for _, who, _, view in world.of("entered") if who == NAMES[killed]]
    before = [view for when, _, _, view in world.of("entered") if when < 6.0]
    assert entered[-1].number >= max(view.number for view in before) + 3, "two views were decided without it"


def test_a_ring_that_needs_every_vote_refuses_a_site_without_promises():
    world = World(2, 40, seed=1)
    world.at(2.0, lambda: world.kill(1))
    world.at(4.0, lambda: world.lose(1))
    world.at(8.0, lambda: world.kill(0))
    world.start().run()
    assert "cannot agree on anything without this site's vote" in world.ends()[1]


def test_one_that_brings_absurd_values_is_outvoted(monkeypatch):
    honest = VirtualNode._perform

    def perform(node, work):
        if node.number == 2 and isinstance(work, SendExtractor):
            node.disk.checkpoints[work.tag[1] - 1][1][LAYOUT.span("extractor")] = 3e38
        return honest(node, work)

    monkeypatch.setattr(VirtualNode, "_perform", perform)
    world = World(5, 40, seed=2)
    world.at(2.0, lambda: world.kill(1))
    world.at(8.0, lambda: world.start(1))
    world.start().run()
    assert 2 in brought(world, 1)[0]
    assert {world.ends()[n] for n in FIVE if n != 2} == {"finished"}
    for member in (0, 1, 3, 4):
        assert world.parameters(member)[1].abs().max() < 20
    assert STEP > 10**9


@pytest.mark.parametrize("members", [3, 5])
def test_one_that_comes_back_in_the_last_round_gets_the_last_extractor_and_a_result(members):
    """No round is left for it: the others, which have all rounds, open one more view for its sake, and then end."""
    world = World(members, 12, seed=4, training=0.5)
    world.at(2.0, lambda: world.kill(1))
    last = []

    def watch():
        done = [rounds for _, who, _, _, rounds in world.of("round") if who == NAMES[0]]
        if done and max(done) == 11 and not last:
            last.append(world.now)
            world.start(1)
        if not last:
            world.after(0.02, watch)

    world.at(3.0, watch)
    world.start().run()
    assert_finished(world, *range(members))
    assert brought(world, 1)
    assert [view.start for _, who, _, view in world.of("entered") if who == NAMES[1]][-1] == 12
    assert world.now < last[0] + 10 * world.ring.patience


# Real processes


@pytest.fixture
def crew(make_ring):
    with ExitStack() as crews:

        def make(members, rounds, pace, method="fibfl", **changes):
            each = Crew(make_ring(method, members, rounds, "iid", patience=2.0, gathering=600.0, **changes), pace=pace)
            crews.callback(each.end)
            return each

        yield make


def outcome(ring, number):
    return json.loads((ring.made.folder / NAMES[number] / "outcome.json").read_text())


@pytest.mark.slow
def test_a_site_whose_disk_is_lost_is_brought_back_and_gets_a_result(crew):
    """It enters with the others' extractor and a new head, and its result says which rounds it missed."""
    ring = crew(3, 40, 0.4)
    for number in range(3):
        ring.start(number)
    ring.wait_round(0, 2)
    ring.kill(2)
    ring.wait_notice(0, ": ant-bee, from")
    shutil.rmtree(ring.made.state(2))
    ring.start(2)
    assert ring.finish(timeout=240) == [0, 0, 0], ring.out(2)
    assert "this site's promises are lost" in ring.out(2)
    came = ring.events(2, "caught_up")[0]
    assert set(came["from"]) == {"ant", "bee"}
    taken = ring.events(2, "view")[0]
    assert (taken["from_round"], taken["behind"]) == (came["rounds"] + 1, ["cat"])
    found = outcome(ring, 2)
    assert (len(found["history"]), found["history"][0], found["participation"][0]["members"]) == (40, None, None)
    assert found["participation"][-1]["members"] == ["ant", "bee", "cat"]
    assert found["history"][-1] > 0.8
