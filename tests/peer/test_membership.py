"""The agreement on who is in: every order, loss, repetition and crash within bounds, and mutants that are caught."""

from dataclasses import replace

import pytest

from firma.peer.membership import paxos
from firma.peer.membership.views import (
    NO_BALLOT,
    Accept,
    Accepted,
    ControlMessage,
    MemberState,
    Memory,
    PaxosState,
    Promise,
    Rules,
    Seat,
    View,
)

from .explorer import Bounds, Explorer, Machine, compose

# Members, bounds and how many states there are: a change of the machine shows here first. States were counted with
# every note deliverable at any time, any number of times or never, after each step.
SMALL = [
    (3, Bounds(2, crashes=1), 96_981),
    (3, Bounds(2, rounds=2, views=2), 22_780),
    (4, Bounds(1, crashes=1), 9_350),
    (5, Bounds(1), 10_522),
]
LARGE = [
    (3, Bounds(3), 526_666),
    (3, Bounds(2, crashes=1, rounds=1, views=2), 175_007),
    (3, Bounds(2, crashes=2), 519_447),
    (4, Bounds(2), 359_173),
    (5, Bounds(1, crashes=1), 132_347),
]


def named(case):
    members, bounds, _ = case
    extras = f"-{bounds.rounds} rounds-{bounds.views} views" if bounds.rounds else ""
    return f"{members} members-{bounds.proposals} proposals-{bounds.crashes} crashes{extras}"


def hold(members, bounds, states):
    found = Explorer(members, bounds).explore()
    assert not found.violations, found.violations[0]
    assert found.complete
    assert found.decided == bounds.views, "some schedule decides"
    assert len(found.chosen) > 1, "different histories decide differently, so agreement is not by chance"
    if states is not None:
        assert found.states == states


@pytest.mark.parametrize("case", SMALL, ids=map(named, SMALL))
def test_nothing_that_can_happen_breaks_the_agreement(case):
    hold(*case)


@pytest.mark.slow
@pytest.mark.parametrize("case", LARGE, ids=map(named, LARGE))
def test_nothing_that_can_happen_breaks_the_agreement_in_larger_bounds(case):
    hold(*case)


def forgets_its_promise(member, word):
    return PaxosState(member.me, word, replace(member.memory, promised=NO_BALLOT))


def forgets_what_it_accepted(member, word):
    return PaxosState(member.me, word, replace(member.memory, accepted=None))


def forgets_the_view(member, word):
    return PaxosState(member.me, word, Memory())


def ignores_what_was_accepted(rules, member):
    blank = tuple((number, replace(said, accepted=None)) for number, said in member.promises)
    return paxos.settle(rules, replace(member, promises=blank))


def accepts_below_its_promise(rules, member, sender, note):
    if isinstance(note.body, Accept) and member.view_number == (note.view.number if note.view else 0):
        member = replace(member, memory=replace(member.memory, promised=NO_BALLOT))
    return paxos.receive(rules, member, sender, note)


def takes_one_consent_for_all(rules, member, sender, note):
    if isinstance(note.body, Accepted) and member.ballot == note.body.ballot and member.value:
        member = replace(member, consents=frozenset(range(rules.members)))
    return paxos.receive(rules, member, sender, note)


def answers_notes_of_older_views(rules, member, sender, note):
    return paxos.receive(rules, member, sender, replace(note, view=member.memory.view) if note.body else note)


def goes_on_after_its_word(member, number, rounds):
    if not member.seated or number != member.own.view_number:
        return member
    return replace(member, own=replace(member.own, rounds=rounds))


MUTANTS = {
    "a promise is forgotten in a crash": (Machine(restart=forgets_its_promise), Bounds(2, crashes=1)),
    "what was accepted is forgotten in a crash": (Machine(restart=forgets_what_it_accepted), Bounds(2, crashes=1)),
    "the view is forgotten in a crash": (Machine(restart=forgets_the_view), Bounds(2, crashes=1)),
    "the value accepted before is ignored": (Machine(settle=ignores_what_was_accepted), Bounds(2)),
    "a lower ballot is accepted": (Machine(receive=accepts_below_its_promise), Bounds(2)),
    "one consent is enough": (Machine(receive=takes_one_consent_for_all), Bounds(1)),
    "notes of older views count": (Machine(receive=answers_notes_of_older_views), Bounds(2, views=2)),
    "rounds are completed after the word": (Machine(completed=goes_on_after_its_word), Bounds(2, rounds=1, views=2)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_explorer_finds_what_is_wrong_with_a_mutant(mutant):
    machine, bounds = MUTANTS[mutant]
    members = 4 if "one consent" in mutant else 3  # of three, one and the proposer are a quorum
    prune = "older views" not in mutant  # what the machine ignores by rule is kept out of the search, but not here
    assert Explorer(members, bounds, machine, prune=prune).explore().violations


@pytest.mark.parametrize(("members", "bounds"), [(3, Bounds(1, crashes=1)), (3, Bounds(1, rounds=1)), (4, Bounds(1))])
def test_leaving_out_dead_notes_leaves_out_no_history(members, bounds):
    """The search drops notes that can change nothing any more; with all of them kept it finds the same histories."""
    short, whole = Explorer(members, bounds).explore(), Explorer(members, bounds, prune=False).explore()
    assert not whole.violations
    assert short.chosen == whole.chosen
    assert short.states < whole.states


@pytest.mark.parametrize("members", [3, 4, 5])
def test_a_quorum_below_a_majority_is_found_out(members):
    assert Explorer(members, Bounds(2), quorum=members // 2).explore().violations


def test_who_returns_does_not_drag_the_others_back():
    words = {
        0: MemberState(1, view_number=4, rounds=9),
        1: MemberState(2, view_number=4, rounds=8),
        2: MemberState(3, view_number=2, rounds=3),
    }
    assert paxos.beginning(words) == 8
    assert paxos.beginning({2: words[2]}) == 3


def lockstep(rules, members, out):
    """Deliver everything once, in the order in which it was sent."""
    while out:
        sender, to, note = out.pop(0)
        members[to], more = paxos.receive(rules, members[to], sender, note)
        out += [(to, receiver, each) for receiver, each in more]


def test_without_losses_one_proposal_decides_for_all():
    for size in (2, 3, 5, 9):
        rules = Rules(size, size // 2 + 1, compose(size // 2 + 1))
        members = [PaxosState(n, MemberState(process=n + 7)) for n in range(size)]
        for number in (1, 2, 3):
            who = number % size
            members[who], sent = paxos.propose(rules, members[who])
            lockstep(rules, members, [(who, to, note) for to, note in sent])
            assert {member.view_number for member in members} == {number}
            assert len({member.memory.view for member in members}) == 1
            assert all(member.seated and not member.frozen for member in members)


def test_a_member_that_was_started_again_has_no_seat_until_the_next_view():
    view = View(1, 0, (Seat(0, 5), Seat(1, 6), Seat(2, 7)))
    member = paxos.learn(PaxosState(1, MemberState(6)), view)
    assert member.seated
    again = paxos.restart(member, MemberState(60, 1, 0))
    assert not again.seated
    assert again.memory.view == view
    assert paxos.completed(again, 1, 1) == again


def test_what_a_member_said_of_itself_it_keeps_to():
    view = View(1, 0, (Seat(0, 5), Seat(1, 6), Seat(2, 7)))
    rules = Rules(3, 2, compose(2))
    member = paxos.completed(paxos.learn(PaxosState(1, MemberState(6)), view), 1, 1)
    assert member.own.rounds == 1
    member, ((to, note),) = paxos.receive(rules, member, 0, ControlMessage(view, paxos.Prepare((1, 0))))
    assert to == 0
    assert isinstance(note.body, Promise)
    assert note.body.state.rounds == 1
    assert member.frozen
    assert paxos.completed(member, 1, 2).own.rounds == 1
