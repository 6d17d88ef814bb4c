"""A state folder that is put back to an earlier copy: the site notices by what it signed since, and does not vote."""

import shutil
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace

import pytest

from firma.peer.membership import agreement
from firma.peer.membership.views import (
    ControlMessage,
    MemberState,
    Memory,
    Prepare,
    Proof,
    Receipt,
    Seat,
    View,
    Voter,
    receipt_statement,
    statement,
)
from firma.peer.runtime.events import AnswerControl, ControlArrived, Notice, Remember
from firma.peer.runtime.machine.voting import Voting
from firma.peer.wire.control import decode_control, encode_control

from .crew import Crew
from .test_member import Machine
from .test_virtual import assert_finished
from .virtual import NAMES, World

OLD = "the state folder is older than what this site has signed"


def put_back(world, member, copied, killed):
    """Copy a member's disk at one time; kill it later and start it with the copy."""
    copies = []
    world.at(copied, lambda: copies.append(deepcopy(world.disks[member])))

    def restore():
        world.kill(member)
        world.disks[member] = copies[0]
        world.start(member)

    world.at(killed, restore)


def told(world, member):
    return [text for _, who, _, text in world.of("notice") if who == NAMES[member] and OLD in text]


@pytest.mark.parametrize(("members", "member"), [(3, 1), (5, 0)])
def test_a_site_that_was_put_back_notices_votes_only_later_and_catches_up(members, member):
    world = World(members, 50, seed=2)
    put_back(world, member, 1.5, 6.0)
    world.start().run()
    assert {world.ends().get(each) for each in range(members)} == {"finished"}
    (notice,) = told(world, member)
    assert "does not vote until two views were decided without it" in notice
    entered = [view for _, who, _, view in world.of("entered") if who == NAMES[member]]
    before = [view for when, _, _, view in world.of("entered") if when < 6.0]
    assert entered[-1].number >= max(view.number for view in before) + 3, "two views were decided without it"
    assert member in entered[-1].behind
    others = [
        view.order for _, _, _, view in world.of("entered") if before[-1].number < view.number < entered[-1].number
    ]
    assert all(member not in order for order in others)


def test_a_site_that_was_put_back_to_before_a_view_that_it_had_a_seat_in_notices_that(
    monkeypatch,
):
    """If nobody has heard a receipt of it: its seat shows that it has promised."""
    monkeypatch.setattr(Voting, "_reminding", lambda self, member, message: message)
    world = World(5, 60, seed=3)
    world.at(2.0, lambda: world.kill(2))
    world.at(6.0, lambda: world.start(2))
    put_back(world, 1, 1.5, 9.0)
    world.start().run()
    assert {world.ends().get(each) for each in range(5)} == {"finished"}
    assert len(told(world, 1)) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_site_that_was_only_away_votes_as_before(seed):
    world = World(5, 40, seed)
    world.at(2.0, lambda: world.kill(seed))
    world.at(6.0, lambda: world.start(seed))
    world.start().run()
    assert_finished(world, *range(5))
    assert not [told(world, member) for member in range(5) if told(world, member)]


def test_where_every_vote_is_needed_a_site_that_was_put_back_says_so_and_goes_on():
    world = World(2, 40, seed=1)
    put_back(world, 1, 1.5, 6.0)
    world.start().run()
    assert {world.ends().get(each) for each in range(2)} == {"finished"}
    (notice,) = told(world, 1)
    assert "its vote is needed for everything" in notice


@pytest.fixture
def rules():
    world = World(4, 10)
    return world.agreement.rules, world.seals


def receipt_of(seals, member, view_number, rounds):
    said = receipt_statement(seals[member].ring, member, view_number, rounds)
    return Receipt(member, view_number, rounds, seals[member].sign(said))


def proof_of(seals, view, members):
    said = statement(seals[0].ring, b"commit", view.number, (1, 0), view.digest)
    return Proof((1, 0), tuple((member, seals[member].sign(said)) for member in members))


def test_only_what_a_member_has_signed_itself_shows_that_its_memory_is_old(rules):
    rules, seals = rules
    view = View(3, 4, tuple(Seat(n, n) for n in range(4)))
    voter = Voter(1, MemberState(1, 3, 6), Memory(view))
    for receipt, old in [
        (receipt_of(seals, 1, 3, 7), True),
        (receipt_of(seals, 1, 4, 0), True),
        (receipt_of(seals, 1, 3, 6), False),
        (receipt_of(seals, 1, 2, 9), False),
        (receipt_of(seals, 2, 9, 9), False),
        (replace(receipt_of(seals, 2, 9, 9), member=1), False),  # another's signature
    ]:
        assert agreement.outdated(rules, voter, ControlMessage(view, None, None, receipt)) is old, receipt


def test_a_seat_in_a_decided_view_shows_that_a_member_knew_the_view_before(rules):
    rules, seals = rules

    def outdated(voter, view, signed=(0, 2, 3)):
        return agreement.outdated(rules, voter, ControlMessage(view, None, proof_of(seals, view, signed)))

    seats = tuple(Seat(n, n) for n in range(4))
    first, second, third = (View(number, 0, seats) for number in (1, 2, 3))
    voter = Voter(1, MemberState(1, 1, 0), Memory(first))
    assert outdated(voter, second), "it has no note of the promise that gave it the seat"
    promised = replace(voter, memory=Memory(first, promised=(1, 0)))
    assert not outdated(promised, second), "it was started again after its promise"
    assert outdated(promised, third), "and for this one it knew view 2"
    assert not outdated(voter, second, signed=(0, 2)), "nobody has decided that"
    assert not outdated(voter, View(3, 0, (seats[0], seats[2], seats[3]))), "it was away"
    assert not outdated(voter, first)


def test_an_old_memory_is_noticed_before_the_vote_that_it_would_cost(make_ring):
    """It has promised a ballot of 7 about view 2; the copy does not know that, and is asked for a lower one."""
    ring = make_ring("fibfl", 3, 5, "iid", patience=5.0, gathering=5.0).ring
    machine = Machine(ring)
    machine.seat()
    memory = machine.member.voter.memory
    asked = ControlMessage(memory.view, Prepare((2, 1)), memory.proof)
    for receipt, votes in ((None, True), (receipt_of(machine.seals, 0, 1, 3), False)):
        copy = Machine(ring, memory)
        actions = copy.on(ControlArrived(1, replace(asked, receipt=receipt)))
        assert any(isinstance(action, AnswerControl) for action in actions) is votes
    assert actions[0] == Remember(replace(memory, mute=memory.view.number + 2)), "a restart does not forget it"
    assert [OLD in each.text for each in actions if isinstance(each, Notice)] == [True]
    again = copy.on(ControlArrived(1, replace(asked, receipt=receipt)))
    assert not [each for each in again if isinstance(each, Notice | AnswerControl)], "it is told once"


def test_a_receipt_travels_with_a_control_message(rules):
    _, seals = rules
    world = World(4, 10)
    message = ControlMessage(None, Prepare((1, 0)), None, receipt_of(seals, 2, 3, 4))
    assert decode_control(world.terms, encode_control(world.terms, message), 4, 10) == message


# Real processes


@pytest.mark.slow
def test_a_copy_of_a_state_folder_that_is_put_back_is_noticed(make_ring, tmp_path):
    with ExitStack() as crews:
        ring = Crew(make_ring("fibfl", 3, 40, "iid", patience=2.0, gathering=600.0), pace=0.4)
        crews.callback(ring.end)
        for number in range(3):
            ring.start(number)
        ring.wait_round(2, 2)
        shutil.copytree(ring.made.state(2), tmp_path / "copy")
        ring.wait_round(2, 6)
        ring.kill(2)
        shutil.rmtree(ring.made.state(2))
        shutil.copytree(tmp_path / "copy", ring.made.state(2))
        ring.start(2, resume=True)
        assert ring.finish(timeout=600) == [0, 0, 0], ring.out(2)
        assert ring.out(2).count(OLD) == 1
        assert OLD not in ring.out(0) + ring.out(1)
        entered = [view["number"] for view in ring.events(2, "view")]
        assert entered[-1] >= 4, "two views were decided without it"
