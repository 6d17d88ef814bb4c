"""Whole rings with faults of every kind: the promises hold, and planted mistakes are found.

`make faults` runs thousands; docs/faults.md has the figures.
"""

from collections import Counter

import pytest
import torch

from firma.peer.membership.views import Seat, View

from .checker import PROMISES, _rounds
from .effects import build
from .mistakes import MISTAKES, found_by
from .network import Network
from .report import Report, figures_of
from .scenarios import KINDS, KNOWN, Fault, Scenario, draw
from .search import one, run_ring, shrunk, told
from .trainer import head_in
from .world import World

# Planted mistakes that a handful of rings shows; all others take up to a few dozen, see the slow test.
QUICK = {
    "an older view is believed": 1,
    "rounds are not synced": 1,
    "only the newest round is kept": 2,
    "a site does not go back to where a view starts": 1,
    "a head leaves": 1,
    "a member that cannot be reached ends the run": 1,
}
MOST = 100  # rings in which every planted mistake must show


def explained(verdict):
    return "\n".join(told(verdict, last=25))


@pytest.mark.parametrize("seed", range(5))
def test_the_promises_hold(seed):
    verdict = one(seed)
    assert not verdict.violations, explained(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 2000, 50))
def test_the_promises_hold_in_many_rings(first):
    for seed in range(first, first + 50):
        verdict = one(seed)
        assert not verdict.violations, explained(verdict)


@pytest.mark.parametrize("mistake", QUICK)
def test_a_planted_mistake_is_found_at_once(mistake):
    assert found_by(MISTAKES[mistake], range(QUICK[mistake])) is not None


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_planted_mistake_is_found(mistake):
    assert found_by(MISTAKES[mistake], range(MOST)) is not None


def test_equal_seeds_give_equal_histories():
    def history():
        return [
            entry
            for entry in one(5, profile="storm", keep_history=True).history
            if entry[2] not in ("snapshot", "restored")
        ]

    assert history() == history()


def test_an_undisturbed_ring_breaks_no_promise_and_completes_every_round():
    verdict = run_ring(Scenario(0, 5, 6, "fibfl++", (), (0.001, 0.001)))
    assert not verdict.violations
    assert verdict.rounds == 6
    assert verdict.views == 1


def test_seeds_draw_every_kind_of_fault_alone_and_together():
    scenarios = [draw(seed) for seed in range(300)]
    kinds = Counter(fault.kind for scenario in scenarios for fault in scenario.faults)
    assert set(kinds) == set(KINDS)
    assert any(len({fault.kind for fault in scenario.faults}) > 3 for scenario in scenarios)
    clean = sum(not any(fault.kind in KNOWN for fault in scenario.faults) for scenario in scenarios)
    assert clean > 100, "many rings have no fault that excuses anything"


def test_known_violations_name_kinds_and_promises_that_exist():
    assert set(KNOWN) <= set(KINDS)
    assert all(set(promises) <= set(PROMISES) for promises in KNOWN.values())


def test_a_failing_scenario_is_shrunk_to_the_fault_that_matters():
    mistake = MISTAKES["nobody is told of a stall"]
    faults = (
        Fault("clock-jump", 0.5, 1.0, (0,), 99.0),
        Fault("partition", 1.0, 14.0, (0,)),
        Fault("pause", 1.2, 1.3, (1,)),
    )
    scenario = Scenario(1, 3, 40, "fibfl", faults, (0.001, 0.001))
    assert any(each.promise == "announced" for each in run_ring(scenario, (mistake,)).violations)
    least = shrunk(scenario, (mistake,), "announced")
    assert [fault.kind for fault in least.faults] == ["partition"]
    text = "\n".join(told(run_ring(least, (mistake,), keep_history=True)))
    assert "no progress since" in text
    assert "partition: ant" in text


def test_a_head_is_recognised_and_nothing_else_is():
    world = World(3, 2).start().run()
    everything = b"|".join(world.network.sent)
    assert len(everything) > 10_000
    assert head_in(everything) is None
    for head in (world.stored(0)[2][-8:].numpy(), world.stored(2)[2][-8:].bfloat16().view(torch.uint8).numpy()):
        assert head_in(everything + head.tobytes() + everything) is not None
    assert head_in(f'{{"x": {float(world.stored(1)[2][-3])}}}'.encode()) is not None


def test_a_member_that_hangs_in_its_training_does_not_ask_for_a_new_view_every_round():
    """It asked for a seat while it could not take one, and the others agreed on a view without it after every round."""
    world = World(3, 20, seed=11, method="fibfl", stalled=3.0)
    world.at(0.5, lambda: world.training.__setitem__(1, 60.0))
    world.at(60.0, lambda: setattr(world, "stopped", True))
    world.start().run()
    assert {0, 2} <= {n for n, end in world.ends().items() if end == "finished"}
    assert len(world.views()) <= 3, sorted(world.views())


def test_the_report_adds_up():
    report = Report()
    for seed in (10, 11):
        report.add(figures_of(seed))
    found = report.as_json()
    assert found["rings"] == 2
    assert sum(found["faults"].values()) == sum(len(draw(seed).faults) for seed in (10, 11))
    assert found["rounds"] > 0
    assert any("recovery" in line or "violations" in line for line in report.lines())


CUT, DECIDED = Fault("cut", 0.8, 6.5, (0, 1)), Fault("decision-kill", 0.8, 6.5)
DUELS = {
    "a promise is forgotten in a crash": (
        Fault("promise-kill", 0.8, 6.5, (2,), 1.0, down=0.1), Fault("vote-cut", 0.8, 6.5, (2,), 0.0, down=1.0),
    ),
    "what was prepared is forgotten in a crash": (Fault("commit-kill", 0.8, 6.5, (2,), 1.0, down=0.1),),
    "promises are written after they are given": (Fault("commit-kill", 0.8, 6.5, (2,), 1.0, down=0.1),),
}  # fmt: skip


@pytest.mark.parametrize("mistake", DUELS)
def test_a_crash_just_after_a_vote_shows_what_was_forgotten(mistake):
    """Two camps need the member between them; the first one that gets a view dies before it can tell anybody."""
    method = "fibfl:topology=one-peer-exponential,weights=metropolis,retention=none,passes=one"
    scenario = Scenario(0, 3, 12, method, (CUT, DECIDED, *DUELS[mistake]), (0.001, 0.001), 0.4)
    assert not run_ring(scenario).violations
    assert "views" in {each.promise for each in run_ring(scenario, (MISTAKES[mistake],)).violations}


def test_a_second_wait_is_told_although_the_first_was_as_long():
    """One wait of 9 s made the next one look usual: a member that waited for one that waits said nothing for 12 s."""
    straggler = Fault("straggler", 0.11, 11.658, (1,), 54.0)
    method = "fibfl:topology=one-peer-exponential,weights=metropolis,retention=none,passes=one"
    verdict = run_ring(Scenario(87, 3, 7, method, (straggler,), (0.001, 0.001)))
    assert not verdict.violations, explained(verdict)


@pytest.mark.parametrize("seed", [1033, 1090])
def test_an_agreement_whose_messages_get_lost_is_told_by_those_that_do_not_propose(seed):
    """Who had promised said nothing while others repeated their proposals for 8 s."""
    verdict = run_ring(draw(seed))
    assert not verdict.violations, explained(verdict)


def test_a_round_that_others_save_after_a_disk_was_put_back_is_not_complete():
    """Cat had saved it, behind a partition; nobody had heard of that when its disk lost it."""
    verdict = run_ring(draw(3286))
    assert not verdict.violations, explained(verdict)
    assert {each.promise for each in verdict.known} == {"rounds"}


def test_members_that_finish_have_recovered_although_no_round_was_left():
    """The last round was completed before the last fault was over; the one that lacks it is brought to it."""
    verdict = run_ring(draw(1042))
    assert not verdict.violations, explained(verdict)


@pytest.mark.parametrize("killed", [(), (2,)])
def test_a_ring_of_four_gets_back_a_member_that_has_lost_its_disk(killed):
    """Three of four are a quorum: they decide two views without it, then it votes and has its seat again."""
    faults = (Fault("lost-disk", 1.2, 3.0, (1,)), *(Fault("kill", 3.2, 6.0, (member,), 3.0) for member in killed))
    verdict = run_ring(Scenario(4, 4, 30, "fibfl", faults, (0.001, 0.001)), keep_history=True)
    assert not verdict.violations, explained(verdict)
    assert not verdict.known
    last = [view for *_, what, view in (entry[:4] for entry in verdict.history if entry[2] == "entered")][-1]
    assert sorted(last.order) == [0, 1, 2, 3]


def test_old_state_excuses_only_what_too_few_others_had_heard_of():
    def lost(held):
        """A round that all had completed, one of whom is put back to an earlier state; the next view starts before."""
        one, two = (View(number, start, (Seat(0, 1), Seat(1, 1), Seat(2, 1))) for number, start in ((1, 0), (2, 3)))
        saved = [(2.0, name, "saved", 1, 4, b"", False) for name in ("ant", "bee", "cat")]
        put_back = [(3.0, "bee", "restored", 7, held)]
        world = World(3, 9)
        world.history = [(1.0, "ant", "learnt", one), *saved, *put_back, (4.0, "ant", "learnt", two)]
        return [each.excuse for each in _rounds(world)]

    assert lost(((1, 3), (1, 3))) == ["old-state"]
    assert lost(((1, 4), (1, 3))) == ["old-state"], "the one that has heard of it may be away"
    assert lost(((1, 4), (1, 4))) == [""]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lost-disk"])
def test_what_is_excused_happens(kind):
    """If a kind of fault no longer breaks a promise, take it off the list; an unheard round is lost too rarely."""
    assert any(one(seed, (kind,), profile="plain").known for seed in range(12)), f"{kind} breaks nothing any more"


def test_lines_are_cut_one_way_or_both():
    network = Network()
    network.part({0}, {1, 2})
    assert network.cuts == {(0, 1), (1, 0), (0, 2), (2, 0)}
    world = build(Scenario(0, 3, 3, "fibfl", (Fault("one-way", 0.0, 0.1, (0, 1)),), (0.001, 0.001)))
    world.at(0.05, lambda: setattr(world, "stopped", True))
    world.run()
    assert world.network.cuts == {(0, 1)}
