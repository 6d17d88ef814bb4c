"""The agreement on who is in: every order, loss, repetition, crash and lie within bounds, and mutants are caught."""

from dataclasses import replace

import pytest

from firma.peer.membership import agreement
from firma.peer.membership.views import (
    NO_BALLOT,
    Commit,
    Committed,
    ControlMessage,
    MemberState,
    Memory,
    Prepare,
    Promise,
    Proof,
    Propose,
    Receipt,
    Refusal,
    Seat,
    View,
    Voter,
    receipt_statement,
)

from .explorer import RING, Bounds, Explorer, Machine, rules_for, signature, symbolic

FORMER = View(1, 0, tuple(Seat(n, 0) for n in range(4)))
# Members, bounds and how many states there are: a change of the machine shows here first. States were counted with
# every note deliverable at any time, any number of times or never, after each step.
SMALL = [
    (3, Bounds(1, crashes=1), 2_369),
    (3, Bounds(2, proposers=(0, 1)), 31_287),
    (4, Bounds(1), 2_830),
]
LARGE = [
    (3, Bounds(2), 70_440),
    (3, Bounds(2, crashes=1, proposers=(0, 1)), 255_703),
    (3, Bounds(2, rounds=1, views=2), None),
    (4, Bounds(1, crashes=1), None),
    (5, Bounds(1), None),
]
# The same with one member of four that lies: bounds, which one, the view from which they start, and states.
LIES = [
    (Bounds(1), 3, None, 1_606),
    (Bounds(0, lies=1), 3, None, 6_924),
    (Bounds(0, lies=1), 0, None, None),
    (Bounds(1, rounds=2, proposers=(0,)), 3, FORMER, None),
]
MANY_LIES = [
    (Bounds(2, proposers=(0, 1)), 3, None, None),
    (Bounds(0, lies=1, crashes=1), 3, None, None),
    (Bounds(1, lies=1, proposers=(0,)), 3, None, None),
]


def named(case):
    members, bounds, _ = case
    extras = f"-{bounds.rounds} rounds-{bounds.views} views" if bounds.rounds else ""
    return f"{members} members-{bounds.proposals} proposals-{bounds.crashes} crashes{extras}"


def lying(case):
    bounds, liar, former, _ = case
    extras = f"-{bounds.rounds} rounds" if former is not None else ""
    return f"member {liar} lies-{bounds.proposals} proposals-{bounds.lies} of it-{bounds.crashes} crashes{extras}"


def hold(explorer, states):
    found = explorer.explore()
    assert not found.violations, found.violations[0]
    assert found.complete
    assert found.decided == explorer.bounds.views, "some schedule decides"
    assert len(found.chosen) > 1, "different histories decide differently, so agreement is not by chance"
    if states is not None:
        assert found.states == states


@pytest.mark.parametrize("case", SMALL, ids=map(named, SMALL))
def test_nothing_that_can_happen_breaks_the_agreement(case):
    members, bounds, states = case
    hold(Explorer(members, bounds), states)


@pytest.mark.slow
@pytest.mark.parametrize("case", LARGE, ids=map(named, LARGE))
def test_nothing_that_can_happen_breaks_the_agreement_in_larger_bounds(case):
    members, bounds, states = case
    hold(Explorer(members, bounds), states)


@pytest.mark.parametrize("case", LIES, ids=map(lying, LIES))
def test_nothing_that_one_of_four_can_say_breaks_the_agreement(case):
    bounds, liar, former, states = case
    hold(Explorer(4, bounds, liar=liar, insiders=1, former=former), states)


@pytest.mark.slow
@pytest.mark.parametrize("case", MANY_LIES, ids=map(lying, MANY_LIES))
def test_nothing_that_one_of_four_can_say_breaks_the_agreement_in_larger_bounds(case):
    bounds, liar, former, states = case
    hold(Explorer(4, bounds, liar=liar, insiders=1, former=former), states)


def forgets_its_promise(member, word):
    return Voter(member.me, word, replace(member.memory, promised=NO_BALLOT))


def forgets_what_was_prepared(member, word):
    return Voter(member.me, word, replace(member.memory, prepared=None))


def forgets_what_it_echoed(member, word):
    return Voter(member.me, word, replace(member.memory, echoed=None))


def forgets_the_view(member, word):
    return Voter(member.me, word, Memory())


def votes_below_its_promise(rules, member, sender, note):
    same = member.view_number == (note.view.number if note.view else 0)
    if same and isinstance(note.body, Propose | Commit) and note.body.ballot < member.memory.promised:
        member = replace(member, memory=replace(member.memory, promised=NO_BALLOT))
    return agreement.receive(rules, member, sender, note)


def takes_one_commit_for_all(rules, member, sender, note):
    if isinstance(note.body, Committed) and member.ballot == note.body.ballot and member.prepared:
        others = ((n, b"") for n in range(rules.members) if n not in (member.me, sender))
        member = replace(member, commits=(*member.commits, *others))
    return agreement.receive(rules, member, sender, note)


def answers_notes_of_older_views(rules, member, sender, note):
    same = replace(note, view=member.memory.view, proof=member.memory.proof)
    return agreement.receive(rules, member, sender, same if note.body else note)


def goes_on_after_its_word(rules, member, number, rounds):
    if not member.seated or number != member.own.view_number:
        return member
    return replace(member, own=replace(member.own, rounds=rounds))


MUTANTS = {
    "a promise is forgotten in a crash": (
        3,
        Machine(restart=forgets_its_promise),
        Bounds(2, crashes=1, proposers=(0, 1)),
    ),
    "what was prepared is forgotten in a crash": (
        3,
        Machine(restart=forgets_what_was_prepared),
        Bounds(2, crashes=1, proposers=(0, 1)),
    ),
    "the view is forgotten in a crash": (3, Machine(restart=forgets_the_view), Bounds(2, crashes=1, proposers=(0, 1))),
    "a lower ballot is voted for": (3, Machine(receive=votes_below_its_promise), Bounds(2, proposers=(0, 1))),
    "one commit is enough": (4, Machine(receive=takes_one_commit_for_all), Bounds(1)),
    "rounds are completed after the word": (
        3,
        Machine(completed=goes_on_after_its_word),
        Bounds(2, rounds=1, views=2, proposers=(0,)),
    ),
}
SLOW = [name for name in MUTANTS if "forgotten" in name]


@pytest.mark.parametrize("mutant", [pytest.param(m, marks=[pytest.mark.slow] if m in SLOW else []) for m in MUTANTS])
def test_the_explorer_finds_what_is_wrong_with_a_mutant(mutant):
    members, machine, bounds = MUTANTS[mutant]
    assert Explorer(members, bounds, machine).explore(deep=True).violations


def unpatched_may_echo(rules, voter, asked, inner=agreement._may_echo):
    """Signs as many views under a ballot as it is shown."""
    return inner(rules, replace(voter, memory=replace(voter.memory, echoed=None)), asked)


def without_receipts(rules, former, promises, inner=agreement.beginning):
    return inner(rules, former, {n: replace(promise, receipts=()) for n, promise in promises.items()})


LIARS_FRIENDS = {
    "an echo of two views under one ballot": ("_may_echo", unpatched_may_echo, Bounds(0, lies=1), None),
    "a view that does not follow is echoed": ("follows", lambda *_: True, Bounds(0, lies=1), None),
    "a decided view is believed without its proof": ("decided", lambda *_: True, Bounds(0, lies=1), None),
    "a view is committed without a quorum's echoes": ("_is_prepared", lambda *_: True, Bounds(0, lies=1), None),
    "receipts are ignored": ("beginning", without_receipts, Bounds(1, rounds=2, proposers=(0,)), FORMER),
}


@pytest.mark.parametrize("mutant", LIARS_FRIENDS)
def test_the_explorer_finds_the_mistake_that_a_liar_can_use(mutant, monkeypatch):
    name, planted, bounds, former = LIARS_FRIENDS[mutant]
    monkeypatch.setattr(agreement, name, planted)
    lures = ("forged",) if "follow" in mutant or "without" in mutant else ("true",)
    assert Explorer(4, bounds, liar=3, insiders=1, former=former, lures=lures).explore(deep=True).violations


@pytest.mark.slow
def test_a_liar_uses_what_a_crash_makes_an_honest_member_forget():
    machine = Machine(restart=forgets_what_it_echoed)
    explorer = Explorer(4, Bounds(0, lies=1, crashes=2), machine, liar=3, insiders=1, lures=("true",))
    assert explorer.explore(deep=True).violations


@pytest.mark.slow
def test_a_liar_uses_promises_that_nobody_checks(monkeypatch):
    """It cuts what was prepared out of another member's promise."""
    monkeypatch.setattr(agreement, "genuine", lambda *_: True)
    assert Explorer(4, Bounds(1, lies=1, proposers=(0,)), liar=3, insiders=1).explore(deep=True).violations


def test_a_quorum_of_two_of_four_is_found_out_by_a_liar():
    assert Explorer(4, Bounds(0, lies=1), quorum=2, liar=3, insiders=1, lures=("true",)).explore(deep=True).violations


@pytest.mark.parametrize(
    ("members", "bounds"),
    [(3, Bounds(1)), (3, Bounds(1, rounds=1)), pytest.param(4, Bounds(1), marks=pytest.mark.slow)],
)
def test_leaving_out_dead_notes_leaves_out_no_history(members, bounds):
    """The search drops notes that can change nothing any more; with all of them kept it finds the same histories."""
    short, whole = Explorer(members, bounds).explore(), Explorer(members, bounds, prune=False).explore()
    assert not whole.violations
    assert short.chosen == whole.chosen
    assert short.states < whole.states


@pytest.mark.parametrize("members", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_a_quorum_below_a_majority_is_found_out(members):
    assert Explorer(members, Bounds(2), quorum=members // 2).explore(deep=True).violations


# Where a view starts


def promised(words, receipts=()):
    """Promises of these members with these receipts, each held by the first of them."""
    held = tuple(
        Receipt(n, view, rounds, signature(n, receipt_statement(RING, n, view, rounds))) for n, view, rounds in receipts
    )
    first = min(words)
    return {n: Promise((1, 0), word, None, held if n == first else ()) for n, word in words.items()}


def five(*places, view_number=4):
    return {n: MemberState(n, view_number, rounds) for n, rounds in enumerate(places) if rounds is not None}


VIEW_4 = View(4, 38, tuple(Seat(n, n) for n in range(5)))
RULES = rules_for(0, 5, insiders=1)


def test_a_view_starts_where_the_slowest_honest_member_is():
    assert agreement.beginning(RULES, VIEW_4, promised(five(44, 43, 44, 44, 44))) == 43
    assert agreement.beginning(RULES, VIEW_4, promised(five(44, 43, None, 44, 42))) == 42


@pytest.mark.parametrize("lie", [0, 37, 38])
def test_who_claims_to_have_nothing_sends_nobody_back(lie):
    """Nothing at all, less than the view's own start, or less than it signed: it is behind."""
    promises = promised(five(44, 43, 44, 44, lie), [(4, 4, 43)])
    assert agreement.beginning(RULES, VIEW_4, promises) == 43
    view = agreement.composed(RULES, VIEW_4, promises)
    assert view.start == 43
    assert view.behind == (4,)
    assert view.order == (0, 1, 2, 3, 4)


def test_without_receipts_a_liar_is_believed_as_far_as_an_honest_member_could_lag():
    far = View(4, 10, VIEW_4.ring)
    assert agreement.beginning(RULES, far, promised(five(44, 44, 44, 44, 39))) == 39
    assert agreement.beginning(RULES, far, promised(five(44, 44, 44, 44, 38))) == 44


@pytest.mark.parametrize("place", [(4, 10_000), (3, 10_000), (4, 44)])
def test_who_claims_more_than_it_has_draws_nobody_forward(place):
    words = five(44, 43, 44, 44) | {4: MemberState(4, *place)}
    assert agreement.beginning(RULES, VIEW_4, promised(words)) == 43


def test_who_claims_a_seat_that_it_did_not_have_is_not_asked():
    without = View(4, 38, VIEW_4.ring[:4])
    words = five(44, 43, 44, 44) | {4: MemberState(4, 4, 40)}
    assert agreement.beginning(RULES, without, promised(words)) == 43


def test_an_old_backup_of_an_honest_member_drags_nobody_back():
    """With insiders = 0 too: what it signed speaks against it, or the step that it cannot have fallen behind."""
    rules, view = rules_for(0, 3), View(1, 0, tuple(Seat(n, n) for n in range(3)))
    words = {0: MemberState(1, 1, 50), 1: MemberState(2, 1, 50), 2: MemberState(3, 1, 11)}
    assert agreement.beginning(rules, view, promised(words)) == 50
    close = words | {2: MemberState(3, 1, 48)}
    assert agreement.beginning(rules, view, promised(close)) == 48, "an honest slow member is waited for"
    assert agreement.beginning(rules, view, promised(close, [(2, 1, 50)])) == 50


def test_who_returns_does_not_drag_the_others_back():
    words = {
        0: MemberState(1, view_number=4, rounds=9),
        1: MemberState(2, view_number=4, rounds=8),
        2: MemberState(3, view_number=2, rounds=3),
    }
    rules, view = rules_for(0, 3), View(4, 5, (Seat(0, 1), Seat(1, 2)))
    assert agreement.beginning(rules, view, promised(words)) == 8
    assert agreement.composed(rules, view, promised(words)).behind == (2,)


def test_a_member_that_is_behind_still_is_until_it_has_got_there():
    rules, view = rules_for(2, 3), View(5, 8, (Seat(0, 1), Seat(1, 2), Seat(2, 3)), behind=(2,))
    member = agreement.learn(Voter(2, MemberState(3, 2, 3)), view, None)
    assert member.seated
    assert member.own.place == (2, 3)
    assert agreement.completed(rules, member, 5, 9) == member
    assert agreement.entered(rules, replace(member, memory=replace(member.memory, promised=(1, 0)))).own.place == (2, 3)
    there = agreement.entered(rules, member)
    assert there.own.place == (5, 8)
    assert there.receipt.place == (5, 8)
    assert agreement.valid(rules, there.receipt)


def lockstep(rules, members, out):
    """Deliver everything once, in the order in which it was sent."""
    while out:
        sender, to, note = out.pop(0)
        members[to], more = agreement.receive(rules[to], members[to], sender, note)
        out += [(to, receiver, each) for receiver, each in more]


@pytest.mark.parametrize(("size", "insiders"), [(2, 0), (3, 0), (5, 0), (5, 1), (9, 2)])
def test_without_losses_one_proposal_decides_for_all(size, insiders):
    rules = [rules_for(n, size, insiders=insiders) for n in range(size)]
    members = [Voter(n, MemberState(process=n + 7)) for n in range(size)]
    for number in (1, 2, 3):
        who = number % size
        members[who], sent = agreement.propose(rules[who], members[who])
        lockstep(rules, members, [(who, to, note) for to, note in sent])
        assert {member.view_number for member in members} == {number}
        assert len({member.memory.view for member in members}) == 1
        assert all(member.seated and not member.frozen for member in members)
        assert all(agreement.decided(rules[0], member.memory.view, member.memory.proof) for member in members)


def test_a_forged_view_is_nobodys_view():
    rules = rules_for(0, 5, insiders=1)
    member = Voter(0, MemberState(7))
    seats = tuple(Seat(n, 1) for n in range(5))
    for number in (1, 2, 2**32 - 1):
        view = View(number, 0, seats)
        votes = Explorer(5, Bounds(0))._vote
        some = tuple((n, votes(n, b"commit", (1, 4), view)) for n in (2, 3, 4))
        false = (*some, (1, votes(4, b"commit", (1, 4), view)))
        twice = (*some, some[-1])
        others = (*some, (1, votes(1, b"commit", (1, 3), view)))  # of another ballot
        for proof in (None, Proof((1, 4), some), Proof((1, 4), false), Proof((1, 4), twice), Proof((1, 4), others)):
            assert agreement.receive(rules, member, 4, ControlMessage(view, None, proof)) == (member, ())
    true = Proof((1, 4), tuple((n, votes(n, b"commit", (1, 4), view)) for n in (1, 2, 3, 4)))
    assert agreement.receive(rules, member, 4, ControlMessage(view, None, true))[0].memory.view == view, "with proof"


def test_one_refusal_does_not_end_a_proposal_and_numbers_cannot_jump():
    rules = rules_for(0, 5, insiders=1)
    asking, _ = agreement.propose(rules, Voter(0, MemberState(7)))
    high = ControlMessage(None, Refusal((1 << 61, 4)))
    one, _ = agreement.receive(rules, asking, 4, high)
    assert one.ballot == (1, 0)
    two, _ = agreement.receive(rules, one, 3, ControlMessage(None, Refusal((6, 4))))
    assert two.ballot is None
    assert agreement.propose(rules, two)[0].ballot == (7, 0), "what an honest member has promised, not what a liar says"
    jump = ControlMessage(None, Prepare((agreement.LONGEST_JUMP + 1, 4)))
    assert agreement.receive(rules, Voter(0, MemberState(7)), 4, jump) == (Voter(0, MemberState(7)), ())
    others = ControlMessage(None, Prepare((1, 3)))
    assert agreement.receive(rules, Voter(0, MemberState(7)), 4, others) == (Voter(0, MemberState(7)), ())


def test_a_promise_is_its_members_own_to_the_last_field():
    rules = rules_for(0, 5, insiders=1)
    member, ((_, note),) = agreement.receive(
        rules_for(1, 5, insiders=1), Voter(1, MemberState(7)), 0, ControlMessage(None, Prepare((1, 0)))
    )
    promise = note.body
    assert member.frozen
    assert agreement.genuine(rules, 0, 1, promise)
    changes = [
        {"ballot": (2, 0)}, {"state": replace(promise.state, rounds=1)}, {"state": replace(promise.state, process=8)},
        {"state": replace(promise.state, ready=False)}, {"state": replace(promise.state, shares=(0.5, 0.5))},
        {"receipts": (Receipt(2, 0, 0, signature(2, receipt_statement(RING, 2, 0, 0))),)},
    ]  # fmt: skip
    for change in changes:
        assert not agreement.genuine(rules, 0, 1, replace(promise, **change)), change
    assert not agreement.genuine(rules, 0, 2, promise)
    assert not agreement.genuine(rules, 1, 1, promise), "of another view"
    seals = replace(symbolic(0), ring=b"q" * 32)
    assert not agreement.genuine(replace(rules, seals=seals), 0, 1, promise), "of another ring file"


def test_a_member_that_was_started_again_has_no_seat_until_the_next_view():
    view = View(1, 0, (Seat(0, 5), Seat(1, 6), Seat(2, 7)))
    member = agreement.learn(Voter(1, MemberState(6)), view, None)
    assert member.seated
    again = agreement.restart(member, MemberState(60, 1, 0))
    assert not again.seated
    assert again.memory.view == view
    assert agreement.completed(rules_for(1, 3), again, 1, 1) == again


def test_what_a_member_said_of_itself_it_keeps_to():
    view = View(1, 0, (Seat(0, 5), Seat(1, 6), Seat(2, 7)))
    rules = rules_for(1, 3)
    member = agreement.completed(rules, agreement.learn(Voter(1, MemberState(6)), view, None), 1, 1)
    assert member.own.rounds == 1
    member, ((to, note),) = agreement.receive(rules, member, 0, ControlMessage(view, Prepare((1, 0))))
    assert to == 0
    assert isinstance(note.body, Promise)
    assert note.body.state.rounds == 1
    assert member.frozen
    assert agreement.completed(rules, member, 1, 2).own.rounds == 1
    assert member.receipt.place == (1, 1)
