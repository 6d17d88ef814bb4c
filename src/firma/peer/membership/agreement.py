"""The agreement on views: numbered views, each decided once by a quorum, though some members may lie. Pure.

View v+1 is one single-decree agreement among everybody in the ring file. Any two quorums share more members than the
`insiders` that may do anything, so at least one honest one; every vote is signed, and nobody is believed without votes:

    Prepare(ballot)                    -> Promise: my state, what was prepared before, what others have signed
    Propose(ballot, view, promises)    -> Echo, if the view follows from the promises: one view per ballot
    Commit(ballot, view, echoes)       -> Committed, once a quorum has echoed it: kept for every later ballot
    a quorum has committed             -> the view is decided, and travels with these signatures as its proof

So two views with one number cannot both be decided, a minority can decide nothing, and no view is believed without its
proof. Every control message carries the newest view that its sender knows; the rest of it is about the view after that
one. The caller hands in what arrives, makes `memory` durable whenever it has changed, and only then sends the answers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from firma.peer.membership.exclusion import left_out
from firma.peer.membership.views import (
    Ballot,
    Body,
    Commit,
    Committed,
    ControlMessage,
    Echo,
    MemberState,
    Memory,
    Prepare,
    Prepared,
    Promise,
    Proof,
    Propose,
    Receipt,
    Refusal,
    Rules,
    Seat,
    Signed,
    Step,
    View,
    Voter,
    receipt_statement,
    statement,
)

# How far a ballot may lie above the last one: more than anybody proposes in a lifetime, and so little of what a number
# can hold that no member can use the numbers up.
LONGEST_JUMP = 1 << 20


def beginning(rules: Rules, former: View | None, promises: Mapping[int, Promise]) -> int | None:
    """The round from which a view of those that are ready starts: the smallest that is credible; None: nobody's is.

    A member's claim counts if it was in the former view (or claims to be in none later), if it is not less than what
    the member signed before, and if it is in step with the others: neighbours are at most one round apart, so nobody
    of one view is further behind than there are members. The view and the round that the others are compared with are
    those that more members than can lie claim to have reached. Whoever has less is behind, and is brought there.
    """
    number, most = (former.number if former is not None else 0), rules.insiders
    signed: dict[int, tuple[int, int]] = {}
    for promise in promises.values():
        for receipt in promise.receipts:
            signed[receipt.member] = max(signed.get(receipt.member, (0, 0)), receipt.place)
    claims = [
        promise.state.place
        for member, promise in promises.items()
        if promise.state.ready
        and promise.state.place >= signed.get(member, (0, 0))
        and _had_a_seat(former, member, promise.state)
    ]
    if len(claims) <= most:
        return None
    newest = sorted(claims, reverse=True)[most][0]
    rounds = sorted((rounds for view_number, rounds in claims if view_number == newest), reverse=True)
    reached = rounds[min(most, len(rounds) - 1)]
    in_step = sorted(each for each in rounds if each >= reached - rules.members)
    if newest == number:
        return in_step[0]
    return in_step[min(most, len(in_step) - 1)]  # who was in that view is not known any more: take no single word


def _had_a_seat(former: View | None, member: int, state: MemberState) -> bool:
    if former is None or state.view_number < former.number:
        return True
    return member in former.order and state.rounds >= former.start


def composed(rules: Rules, former: View | None, promises: Mapping[int, Promise]) -> View | None:
    """The view that follows from promises, or None if they are too few."""
    number = former.number + 1 if former is not None else 1
    states = {member: promises[member].state for member in sorted(promises) if promises[member].state.ready}
    needed = max(rules.first, rules.quorum) if number == 1 else rules.quorum
    for member in left_out({member: state.against for member, state in states.items()}, needed):
        del states[member]
    if len(states) < needed:
        return None
    start = beginning(rules, former, promises)
    if start is None:
        return None
    ring = tuple(Seat(member, states[member].process) for member in rules.order(states))
    behind = tuple(member for member, state in states.items() if state.rounds < start)
    return View(number, start, ring, behind)


def follows(rules: Rules, former: View | None, promises: Mapping[int, Promise], view: View) -> bool:
    """Whether a view is what promises give: what was prepared under the highest ballot, or else the composed one."""
    before = [promise.prepared for promise in promises.values() if promise.prepared is not None]
    if before:
        return view == max(before, key=lambda each: each.ballot).view
    expected = composed(rules, former, promises)
    if expected is None or view == expected:
        return expected is not None
    states = {seat.member: promises[seat.member].state for seat in expected.ring}
    same = sorted(view.order) == sorted(expected.order) and set(view.ring) == set(expected.ring)
    return same and replace(view, ring=expected.ring) == expected and rules.same_order(states, view.order)


# Votes


def decided(rules: Rules, view: View, proof: Proof | None) -> bool:
    """Whether a quorum has committed a view."""
    return proof is not None and _signed_by_quorum(rules, b"commit", view, proof.ballot, proof.commits)


def _signed_by_quorum(rules: Rules, kind: bytes, view: View, ballot: Ballot, votes: Signed) -> bool:
    members = {member for member, _ in votes}
    said = statement(rules.seals.ring, kind, view.number, ballot, view.digest)
    return (
        len(members) == len(votes) >= rules.quorum
        and all(0 <= member < rules.members for member in members)
        and all(rules.seals.verify(member, said, signature) for member, signature in votes)
    )


def _sign(rules: Rules, kind: bytes, number: int, ballot: Ballot, digest: bytes) -> bytes:
    return rules.seals.sign(statement(rules.seals.ring, kind, number, ballot, digest))


def _promise(rules: Rules, voter: Voter, ballot: Ballot) -> Promise:
    unsigned = Promise(ballot, voter.own, voter.memory.prepared, voter.receipts)
    return replace(unsigned, signature=_sign(rules, b"promise", voter.view_number + 1, ballot, unsigned.digest))


def genuine(rules: Rules, former: int, member: int, promise: Promise) -> bool:
    """Whether a promise about the view after `former` is the member's own, and all that it holds is signed."""
    seals, before, number = rules.seals, promise.prepared, former + 1
    if promise.state.view_number > former or len({each.member for each in promise.receipts}) < len(promise.receipts):
        return False
    said = statement(seals.ring, b"promise", number, promise.ballot, promise.digest)
    if not seals.verify(member, said, promise.signature) or not all(valid(rules, each) for each in promise.receipts):
        return False
    return before is None or (before.ballot < promise.ballot and _is_prepared(rules, number, before))


def _is_prepared(rules: Rules, number: int, prepared: Prepared) -> bool:
    view = prepared.view
    return view.number == number and _signed_by_quorum(rules, b"echo", view, prepared.ballot, prepared.echoes)


# Receipts


def valid(rules: Rules, receipt: Receipt) -> bool:
    """Whether a member has signed a receipt."""
    said = receipt_statement(rules.seals.ring, receipt.member, receipt.view_number, receipt.rounds)
    return 0 <= receipt.member < rules.members and rules.seals.verify(receipt.member, said, receipt.signature)


def hear(rules: Rules, voter: Voter, receipt: Receipt) -> Voter:
    """Keep a member's receipt if it is newer than what this one holds, and genuine."""
    held = next((each for each in voter.receipts if each.member == receipt.member), None)
    if receipt.member == voter.me or (held is not None and receipt.place <= held.place) or not valid(rules, receipt):
        return voter
    return _holding(voter, receipt)


def _holding(voter: Voter, receipt: Receipt) -> Voter:
    others = (each for each in voter.receipts if each.member != receipt.member)
    return replace(voter, receipts=tuple(sorted((*others, receipt), key=lambda each: each.member)))


def _here(rules: Rules, voter: Voter, view_number: int, rounds: int) -> Voter:
    """This member has saved a round of a view, and signs that."""
    said = receipt_statement(rules.seals.ring, voter.me, view_number, rounds)
    own = replace(voter.own, view_number=view_number, rounds=rounds)
    return _holding(replace(voter, own=own), Receipt(voter.me, view_number, rounds, rules.seals.sign(said)))


def entered(rules: Rules, voter: Voter) -> Voter:
    """This member is where its view starts. One that was behind, and has promised meanwhile, still is."""
    view = voter.memory.view
    if view is None or not voter.seated or (voter.frozen and voter.own.place != (view.number, view.start)):
        return voter
    return _here(rules, voter, view.number, view.start)


def completed(rules: Rules, voter: Voter, view_number: int, rounds: int) -> Voter:
    """A round of the present view is saved. A member that has promised no longer changes what it said."""
    if voter.frozen or not voter.seated or view_number != voter.own.view_number:
        return voter
    return _here(rules, voter, view_number, rounds)


# The proposer's side


def propose(rules: Rules, voter: Voter) -> Step:
    """Ask everybody, with a ballot above all that it knows of; a member that is mute asks nobody."""
    if voter.muted:
        return voter, ()
    ballot = (max(voter.memory.promised[0], voter.highest) + 1, voter.me)
    memory, own = replace(voter.memory, promised=ballot), _promise(rules, voter, ballot)
    asking = replace(abandon(voter), memory=memory, ballot=ballot, promises=((voter.me, own),))
    return asking, _to_others(rules, asking, Prepare(ballot))


def settle(rules: Rules, voter: Voter) -> Step:
    """Wait for no further promises: put a view to the vote, if a quorum has promised and a ring can be made of it."""
    if voter.ballot is None or voter.value is not None or len(voter.promises) < rules.quorum:
        return voter, ()
    promises = dict(voter.promises)
    before = [promise.prepared for promise in promises.values() if promise.prepared is not None]
    former = voter.memory.view
    view = max(before, key=lambda each: each.ballot).view if before else composed(rules, former, promises)
    if view is None:
        return voter, ()
    memory, echo = _echo(rules, voter, voter.ballot, view)
    voting = replace(voter, memory=memory, value=view, echoes=((voter.me, echo),))
    return voting, _to_others(rules, voting, Propose(voter.ballot, view, voter.promises))


def repeat(voter: Voter, members: Iterable[int]) -> tuple[tuple[int, ControlMessage], ...]:
    """The present request once more, to members that have not answered: messages get lost."""
    if voter.ballot is None:
        return ()
    body: Body = Prepare(voter.ballot)
    if voter.prepared is not None:
        body = Commit(voter.prepared)
    elif voter.value is not None:
        body = Propose(voter.ballot, voter.value, voter.promises)
    return tuple((number, informing(voter, body)) for number in members)


def abandon(voter: Voter) -> Voter:
    """End a proposal that has come to nothing; what was promised stays promised."""
    return replace(
        voter, ballot=None, promises=(), value=None, echoes=(), prepared=None, commits=(), refusals=()
    )  # fmt: skip


def informing(voter: Voter, body: Body | None = None) -> ControlMessage:
    """A control message with the newest view and its proof."""
    return ControlMessage(voter.memory.view, body, voter.memory.proof)


def _promised(rules: Rules, voter: Voter, sender: int, promise: Promise) -> Step:
    if not genuine(rules, voter.view_number, sender, promise):
        return voter, ()
    others = tuple((number, each) for number, each in voter.promises if number != sender)
    voter = replace(voter, promises=tuple(sorted((*others, (sender, promise)), key=lambda each: each[0])))
    return settle(rules, voter) if len(voter.promises) == rules.members else (voter, ())


def _echoed(rules: Rules, voter: Voter, sender: int, signature: bytes) -> Step:
    """Count a signature under the proposed view; a quorum of them is worth a second vote."""
    ballot, view = voter.ballot, voter.value
    assert ballot is not None  # the caller has compared
    assert view is not None
    said = statement(rules.seals.ring, b"echo", view.number, ballot, view.digest)
    if sender in voter.answered or not rules.seals.verify(sender, said, signature):
        return voter, ()
    voter = replace(voter, echoes=tuple(sorted((*voter.echoes, (sender, signature)))))
    if len(voter.echoes) < rules.quorum:
        return voter, ()
    prepared = Prepared(ballot, view, voter.echoes)
    own = _sign(rules, b"commit", view.number, ballot, view.digest)
    memory = replace(voter.memory, prepared=prepared)
    voter = replace(voter, memory=memory, prepared=prepared, commits=((voter.me, own),))
    return voter, _to_others(rules, voter, Commit(prepared))


def _committed(rules: Rules, voter: Voter, sender: int, signature: bytes) -> Step:
    ballot, view = voter.ballot, voter.value
    assert ballot is not None  # the caller has compared
    assert view is not None
    said = statement(rules.seals.ring, b"commit", view.number, ballot, view.digest)
    if not rules.seals.verify(sender, said, signature):
        return voter, ()
    others = tuple(each for each in voter.commits if each[0] != sender)
    voter = replace(voter, commits=tuple(sorted((*others, (sender, signature)))))
    if len(voter.commits) < rules.quorum:
        return voter, ()
    voter = learn(voter, view, Proof(ballot, voter.commits))
    return voter, _to_others(rules, voter, None)


def _refused(rules: Rules, voter: Voter, sender: int, ballot: Ballot) -> Voter:
    """A proposal is over when so many have promised a higher ballot that no quorum is left; one may be lying."""
    others = tuple(each for each in voter.refusals if each[0] != sender)
    refusals = (*others, (sender, ballot[0]))
    if len(refusals) <= rules.members - rules.quorum:
        return replace(voter, refusals=refusals)
    numbers = sorted((number for _, number in refusals), reverse=True)
    known = numbers[min(rules.insiders, len(numbers) - 1)]
    return replace(abandon(voter), highest=max(voter.highest, known))


# The voter's side


def receive(rules: Rules, voter: Voter, sender: int, message: ControlMessage) -> Step:  # noqa: PLR0911, one case per kind
    """Take a control message; a sender that is behind is sent the newest view, and nothing else that it says counts."""
    theirs = message.view.number if message.view is not None else 0
    if theirs < voter.view_number:
        return voter, ((sender, informing(voter)),)
    if message.view is not None and theirs > voter.view_number:
        if not decided(rules, message.view, message.proof):
            return voter, ()  # a view without its proof is nobody's view
        voter = learn(voter, message.view, message.proof)
    match message.body:
        case Prepare() | Propose() | Commit() as asked if asked.ballot[1] == sender:
            return _asked(rules, voter, sender, asked)
        case Promise(ballot) as promise if ballot == voter.ballot and voter.value is None:
            return _promised(rules, voter, sender, promise)
        case Echo(ballot, signature) if ballot == voter.ballot and voter.value is not None and voter.prepared is None:
            return _echoed(rules, voter, sender, signature)
        case Committed(ballot, signature) if ballot == voter.ballot and voter.prepared is not None:
            return _committed(rules, voter, sender, signature)
        case Refusal(ballot) if voter.ballot is not None and ballot > voter.ballot:
            return _refused(rules, voter, sender, ballot), ()
    return voter, ()


def learn(voter: Voter, view: View, proof: Proof | None) -> Voter:
    """Take over a decided view. A member with a seat is from now on where the view starts, unless it is behind."""
    own = voter.own
    if Seat(voter.me, own.process) in view.ring and voter.me not in view.behind:
        own = replace(own, view_number=view.number, rounds=view.start)
    return Voter(voter.me, own, Memory(view, proof=proof, mute=voter.memory.mute), voter.receipts)


def without_past(voter: Voter) -> Voter:
    """A member whose promises are lost has learnt a view, and votes about neither of the next two.

    It may have known one view more than those that it has heard, and have voted about the one after that. What is said
    of a view after these two, it has said with the memory that it has now. A proposal of its own is over.
    """
    return replace(abandon(voter), memory=replace(voter.memory, mute=voter.view_number + 2))


def outdated(rules: Rules, voter: Voter, message: ControlMessage) -> bool:
    """Whether a member has signed more than it remembers: its memory is an old copy.

    Either a receipt of its own is of a later place than it has saved; or it has a seat in a decided view. It got that
    by a promise, which it made when it knew the view before and had made a note of the promise. A member that was away
    has neither signed a later receipt, nor does it have a seat in a view that it did not promise for.
    """
    receipt, view = message.receipt, message.view
    if receipt is not None and receipt.member == voter.me and receipt.place > voter.own.place:
        return valid(rules, receipt)
    if view is None or voter.me not in view.order or view.number <= voter.view_number:
        return False
    forgotten = view.number > voter.view_number + 1 or not voter.frozen
    return forgotten and decided(rules, view, message.proof)


def restart(voter: Voter, own: MemberState) -> Voter:
    """The same member as a new process: it has its memory and nothing else."""
    return Voter(voter.me, own, voter.memory)


def _asked(rules: Rules, voter: Voter, sender: int, asked: Prepare | Propose | Commit) -> Step:
    """Promise, echo or commit, unless a higher ballot was promised, or what is asked for does not follow."""
    ballot, memory = asked.ballot, voter.memory
    if voter.muted:
        return voter, ()
    if ballot < memory.promised:
        return voter, ((sender, informing(voter, Refusal(memory.promised))),)
    match asked:
        case Prepare():
            if ballot[0] > memory.promised[0] + LONGEST_JUMP:
                return voter, ()
            answer: Body = _promise(rules, voter, ballot)
            memory = replace(memory, promised=ballot)
        case Propose(_, view):
            if not _may_echo(rules, voter, asked):
                return voter, ()
            memory, signature = _echo(rules, voter, ballot, view)
            answer = Echo(ballot, signature)
        case Commit(prepared):
            if not _is_prepared(rules, voter.view_number + 1, prepared):
                return voter, ()
            memory = replace(memory, promised=ballot, prepared=prepared)
            digest = prepared.view.digest
            answer = Committed(ballot, _sign(rules, b"commit", prepared.view.number, ballot, digest))
    voter = replace(voter, memory=memory)
    if voter.ballot is not None and ballot > voter.ballot:
        voter = abandon(voter)
    return voter, ((sender, informing(voter, answer)),)


def _may_echo(rules: Rules, voter: Voter, asked: Propose) -> bool:
    """One view per ballot, and only one that follows from the promises of a quorum."""
    echoed, ballot = voter.memory.echoed, asked.ballot
    if echoed is not None and echoed[0] == ballot:
        return echoed[1] == asked.view.digest
    promises = dict(asked.promises)
    return (
        asked.view.number == voter.view_number + 1
        and len(promises) == len(asked.promises) >= rules.quorum
        and all(0 <= member < rules.members for member in promises)
        and all(promise.ballot == ballot for promise in promises.values())
        and all(genuine(rules, voter.view_number, member, promise) for member, promise in promises.items())
        and follows(rules, voter.memory.view, promises, asked.view)
    )


def _echo(rules: Rules, voter: Voter, ballot: Ballot, view: View) -> tuple[Memory, bytes]:
    memory = replace(voter.memory, promised=ballot, echoed=(ballot, view.digest))
    return memory, _sign(rules, b"echo", view.number, ballot, view.digest)


def _to_others(rules: Rules, voter: Voter, body: Body | None) -> tuple[tuple[int, ControlMessage], ...]:
    message = informing(voter, body)
    return tuple((number, message) for number in range(rules.members) if number != voter.me)
