"""Who is in the ring: numbered views, each decided once by a majority of all members. Pure: no clock, sockets or disk.

View e+1 is one single-decree agreement (Paxos) among everybody in the ring file, so two views of one number cannot both
be decided, and a minority can decide nothing. Every note carries the newest view that its sender knows; what else it
says is about the view after that one. A driver hands in what arrives, makes `memory` durable whenever it has changed,
and only then sends what comes out.
"""

from collections.abc import Mapping
from dataclasses import replace

from firma.peer.membership.views import (
    Accept,
    Accepted,
    Ballot,
    Body,
    Member,
    Memory,
    Note,
    Prepare,
    Promise,
    Refusal,
    Rules,
    Seat,
    Step,
    View,
    Word,
)


def beginning(words: Mapping[int, Word]) -> int:
    """Rounds that all have who were in the newest view; who comes back from an older one does not drag them back."""
    newest = max(word.epoch for word in words.values())
    return min(word.rounds for word in words.values() if word.epoch == newest)


def propose(rules: Rules, member: Member) -> Step:
    """Ask everybody, with a ballot above all that were heard of."""
    ballot = (max(member.memory.promised[0], member.highest) + 1, member.me)
    own = Promise(ballot, member.word, member.memory.accepted)
    memory = replace(member.memory, promised=ballot)
    asking = replace(
        member, memory=memory, ballot=ballot, promises=((member.me, own),), value=None, consents=frozenset()
    )
    return asking, _to_others(rules, asking, Prepare(ballot))


def settle(rules: Rules, member: Member) -> Step:
    """Wait for no further promises: put a view to the vote, if a quorum has promised and a ring can be made of it."""
    if member.ballot is None or member.value is not None or len(member.promises) < rules.quorum:
        return member, ()
    accepted = [promise.accepted for _, promise in member.promises if promise.accepted is not None]
    view = max(accepted, key=lambda each: each[0])[1] if accepted else _composed(rules, member)
    if view is None:
        return member, ()
    memory = replace(member.memory, accepted=(member.ballot, view))
    voting = replace(member, memory=memory, value=view, consents=frozenset({member.me}))
    return voting, _to_others(rules, voting, Accept(member.ballot, view))


def receive(rules: Rules, member: Member, sender: int, note: Note) -> Step:
    """Take a note; who is behind is told the newest view, and nothing that it says of an older one counts."""
    theirs = note.view.epoch if note.view is not None else 0
    if theirs < member.epoch:
        return member, ((sender, Note(member.memory.view)),)
    if note.view is not None and theirs > member.epoch:
        member = learn(member, note.view)
    match note.body:
        case Prepare() | Accept() as asked:
            return _asked(member, sender, asked)
        case Promise(ballot) as promise if ballot == member.ballot and member.value is None:
            return _counted(rules, member, sender, promise)
        case Accepted(ballot) if ballot == member.ballot and member.value is not None:
            return _consented(rules, member, sender)
        case Refusal(ballot) if member.ballot is not None and ballot > member.ballot:
            return _yielding(member, ballot), ()
    return member, ()


def learn(member: Member, view: View) -> Member:
    """Take over a decided view. Who has a seat in it is from now on where the view begins."""
    word = member.word
    if Seat(member.me, word.process) in view.ring:
        word = replace(word, epoch=view.epoch, rounds=view.start)
    return Member(member.me, word, Memory(view))


def completed(member: Member, epoch: int, rounds: int) -> Member:
    """A round of the present view is saved. Who has told how far it is stays at its word."""
    if member.frozen or not member.seated or epoch != member.word.epoch:
        return member
    return replace(member, word=replace(member.word, rounds=rounds))


def restart(member: Member, word: Word) -> Member:
    """The same member as a new process: it has its memory and nothing else."""
    return Member(member.me, word, member.memory)


def _composed(rules: Rules, member: Member) -> View | None:
    words = {number: promise.word for number, promise in member.promises}
    found = rules.compose(member.epoch + 1, words)
    if found is None:
        return None
    start, order = found
    return View(member.epoch + 1, start, tuple(Seat(number, words[number].process) for number in order))


def _asked(member: Member, sender: int, asked: Prepare | Accept) -> Step:
    """Promise or accept, unless a higher ballot was promised."""
    memory, ballot = member.memory, asked.ballot
    if ballot < memory.promised:
        return member, ((sender, Note(memory.view, Refusal(memory.promised))),)
    answer: Body = Promise(ballot, member.word, memory.accepted)
    memory = replace(memory, promised=ballot)
    if isinstance(asked, Accept):
        memory, answer = replace(memory, accepted=(ballot, asked.view)), Accepted(ballot)
    return _yielding(replace(member, memory=memory), ballot), ((sender, Note(memory.view, answer)),)


def _counted(rules: Rules, member: Member, sender: int, promise: Promise) -> Step:
    others = tuple((number, said) for number, said in member.promises if number != sender)
    member = replace(member, promises=tuple(sorted((*others, (sender, promise)), key=lambda each: each[0])))
    return settle(rules, member) if len(member.promises) == rules.members else (member, ())


def _consented(rules: Rules, member: Member, sender: int) -> Step:
    member = replace(member, consents=member.consents | {sender})
    if len(member.consents) < rules.quorum or member.value is None:
        return member, ()
    member = learn(member, member.value)
    return member, _to_others(rules, member, None)


def _yielding(member: Member, ballot: Ballot) -> Member:
    """A higher ballot is about: an own attempt below it is over."""
    highest = max(member.highest, ballot[0])
    if member.ballot is None or ballot <= member.ballot:
        return replace(member, highest=highest)
    return replace(member, ballot=None, promises=(), value=None, consents=frozenset(), highest=highest)


def _to_others(rules: Rules, member: Member, body: Body | None) -> tuple[tuple[int, Note], ...]:
    note = Note(member.memory.view, body)
    return tuple((number, note) for number in range(rules.members) if number != member.me)
