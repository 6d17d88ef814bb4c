"""Paxos over views: numbered views, each decided once by a majority of all members. Pure: no clock, sockets or disk.

View v+1 is one single-decree agreement (Paxos) among everybody in the ring file, so two views with one number cannot
both be decided, and a minority can decide nothing. Every control message carries the newest view that its sender knows;
the rest of it is about the view after that one. The caller hands in what arrives, makes `memory` durable whenever it
has changed, and only then sends what comes out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from firma.peer.membership.views import (
    Accept,
    Accepted,
    Ballot,
    Body,
    ControlMessage,
    MemberState,
    Memory,
    PaxosState,
    Prepare,
    Promise,
    Refusal,
    Rules,
    Seat,
    Step,
    View,
)


def beginning(states: Mapping[int, MemberState]) -> int:
    """Rounds that all members of the newest view have; one that returns from an older view does not drag them back."""
    newest = max(state.view_number for state in states.values())
    return min(state.rounds for state in states.values() if state.view_number == newest)


def propose(rules: Rules, state: PaxosState) -> Step:
    """Ask everybody, with a ballot above all that it knows of."""
    ballot = (max(state.memory.promised[0], state.highest) + 1, state.me)
    own = Promise(ballot, state.own, state.memory.accepted)
    memory = replace(state.memory, promised=ballot)
    asking = replace(state, memory=memory, ballot=ballot, promises=((state.me, own),), value=None, consents=frozenset())
    return asking, _to_others(rules, asking, Prepare(ballot))


def settle(rules: Rules, state: PaxosState) -> Step:
    """Wait for no further promises: put a view to the vote, if a quorum has promised and a ring can be made of it."""
    if state.ballot is None or state.value is not None or len(state.promises) < rules.quorum:
        return state, ()
    accepted = [promise.accepted for _, promise in state.promises if promise.accepted is not None]
    view = max(accepted, key=lambda each: each[0])[1] if accepted else _composed(rules, state)
    if view is None:
        return state, ()
    memory = replace(state.memory, accepted=(state.ballot, view))
    voting = replace(state, memory=memory, value=view, consents=frozenset({state.me}))
    return voting, _to_others(rules, voting, Accept(state.ballot, view))


def receive(rules: Rules, state: PaxosState, sender: int, message: ControlMessage) -> Step:
    """Take a control message; a sender that is behind is sent the newest view, and nothing else that it says counts."""
    theirs = message.view.number if message.view is not None else 0
    if theirs < state.view_number:
        return state, ((sender, ControlMessage(state.memory.view)),)
    if message.view is not None and theirs > state.view_number:
        state = learn(state, message.view)
    match message.body:
        case Prepare() | Accept() as asked:
            return _asked(state, sender, asked)
        case Promise(ballot) as promise if ballot == state.ballot and state.value is None:
            return _counted(rules, state, sender, promise)
        case Accepted(ballot) if ballot == state.ballot and state.value is not None:
            return _consented(rules, state, sender)
        case Refusal(ballot) if state.ballot is not None and ballot > state.ballot:
            return _yielding(state, ballot), ()
    return state, ()


def abandon(state: PaxosState) -> PaxosState:
    """End a proposal that has come to nothing; what was promised stays promised."""
    return replace(state, ballot=None, promises=(), value=None, consents=frozenset())


def repeat(state: PaxosState, members: Iterable[int]) -> tuple[tuple[int, ControlMessage], ...]:
    """The present request once more, to members that have not answered: messages get lost."""
    if state.ballot is None:
        return ()
    body = Prepare(state.ballot) if state.value is None else Accept(state.ballot, state.value)
    return tuple((number, ControlMessage(state.memory.view, body)) for number in members)


def learn(state: PaxosState, view: View) -> PaxosState:
    """Take over a decided view. A member with a seat in it is from now on where the view begins."""
    own = state.own
    if Seat(state.me, own.process) in view.ring:
        own = replace(own, view_number=view.number, rounds=view.start)
    return PaxosState(state.me, own, Memory(view))


def completed(state: PaxosState, view_number: int, rounds: int) -> PaxosState:
    """A round of the present view is saved. A member that has promised no longer changes what it said."""
    if state.frozen or not state.seated or view_number != state.own.view_number:
        return state
    return replace(state, own=replace(state.own, rounds=rounds))


def restart(state: PaxosState, own: MemberState) -> PaxosState:
    """The same member as a new process: it has its memory and nothing else."""
    return PaxosState(state.me, own, state.memory)


def _composed(rules: Rules, state: PaxosState) -> View | None:
    states = {number: promise.state for number, promise in state.promises}
    found = rules.compose(state.view_number + 1, states)
    if found is None:
        return None
    start, order = found
    return View(state.view_number + 1, start, tuple(Seat(number, states[number].process) for number in order))


def _asked(state: PaxosState, sender: int, asked: Prepare | Accept) -> Step:
    """Promise or accept, unless a higher ballot was promised."""
    memory, ballot = state.memory, asked.ballot
    if ballot < memory.promised:
        return state, ((sender, ControlMessage(memory.view, Refusal(memory.promised))),)
    answer: Body = Promise(ballot, state.own, memory.accepted)
    memory = replace(memory, promised=ballot)
    if isinstance(asked, Accept):
        memory, answer = replace(memory, accepted=(ballot, asked.view)), Accepted(ballot)
    return _yielding(replace(state, memory=memory), ballot), ((sender, ControlMessage(memory.view, answer)),)


def _counted(rules: Rules, state: PaxosState, sender: int, promise: Promise) -> Step:
    others = tuple((number, each) for number, each in state.promises if number != sender)
    state = replace(state, promises=tuple(sorted((*others, (sender, promise)), key=lambda each: each[0])))
    return settle(rules, state) if len(state.promises) == rules.members else (state, ())


def _consented(rules: Rules, state: PaxosState, sender: int) -> Step:
    state = replace(state, consents=state.consents | {sender})
    if len(state.consents) < rules.quorum or state.value is None:
        return state, ()
    state = learn(state, state.value)
    return state, _to_others(rules, state, None)


def _yielding(state: PaxosState, ballot: Ballot) -> PaxosState:
    """A higher ballot is known: an own proposal below it is over."""
    highest = max(state.highest, ballot[0])
    if state.ballot is None or ballot <= state.ballot:
        return replace(state, highest=highest)
    return replace(abandon(state), highest=highest)


def _to_others(rules: Rules, state: PaxosState, body: Body | None) -> tuple[tuple[int, ControlMessage], ...]:
    message = ControlMessage(state.memory.view, body)
    return tuple((number, message) for number in range(rules.members) if number != state.me)
