"""All that can happen to a few members: a breadth-first search over every state that the real machine can reach.

The network is the set of all notes ever sent. Any of them may be delivered at any time, again and again, or never: that
is every order, every loss and every repetition. A member may crash at any time and come back with its memory; one
that never comes back is one that nothing is delivered to any more. States and notes are numbered and each member's
step is computed once, so that a state is a few integers.

With a liar, one member has no state: as soon as it can make a note, the note is in the network, for each honest member
to receive or not. It can sign for itself alone, and puts together what was sent to it: promises of whatever it likes to
claim, two views for one ballot that both follow from promises, one that follows from none, votes for everything,
certificates with too few signatures, a decided view out of thin air. Signatures are symbols that only their member can
make; the machine under test verifies them as it does real ones.
"""

import hashlib
import itertools
from collections import deque
from dataclasses import dataclass, field, replace

from firma.peer.membership import agreement
from firma.peer.membership.views import (
    Commit,
    Committed,
    ControlMessage,
    Echo,
    MemberState,
    Prepare,
    Prepared,
    Promise,
    Proof,
    Propose,
    Receipt,
    Refusal,
    Rules,
    Seals,
    Seat,
    View,
    Voter,
    receipt_statement,
    statement,
)

RING = b"r" * 32
FORGED = 9  # a process, a round and a view's number that nobody has


def signature(member, said):
    """A symbol for a signature; the search lets nobody but the member itself make one."""
    return bytes([member]) + hashlib.sha256(said).digest()[:12]


def symbolic(member):
    return Seals(RING, lambda said: signature(member, said), lambda who, said, seal: seal == signature(who, said))


def given_order(states):
    return tuple(sorted(states))


def rules_for(member, members, quorum=None, insiders=0, first=0):
    """The rules as one member has them: they hold its key."""
    least = (members + insiders) // 2 + 1
    exact = lambda states, order: order == given_order(states)  # noqa: E731
    return Rules(members, quorum or least, symbolic(member), given_order, exact, insiders, first)


@dataclass
class Machine:
    """The functions under test; a mutation replaces one, here or in the module."""

    receive: object = agreement.receive
    propose: object = agreement.propose
    settle: object = agreement.settle
    restart: object = agreement.restart
    completed: object = agreement.completed


@dataclass(frozen=True)
class Bounds:
    proposals: int  # attempts in all, by anybody who is honest
    crashes: int = 0
    rounds: int = 0  # rounds that a member may complete
    views: int = 1
    lies: int = 0  # ballots of the liar for each view
    proposers: tuple = ()  # honest members that propose; none named: all of them
    states: int = 5_000_000  # an end to the search, which then says that it was not complete


@dataclass
class Found:
    states: int = 0
    steps: int = 0
    complete: bool = True
    violations: list = field(default_factory=list)
    decided: int = 0  # the highest view that every honest member has learnt in some state
    chosen: set = field(default_factory=set)  # the sequences of views that were decided, over all histories


class Explorer:
    def __init__(
        self,
        members,
        bounds,
        machine=None,
        quorum=None,
        first=0,
        prune=True,
        liar=None,
        insiders=0,
        former=None,
        lures=("forged", "cut", "true"),
    ):
        self.rules = [rules_for(n, members, quorum, insiders, first) for n in range(members)]
        self.machine, self.bounds, self.size, self.prune = machine or Machine(), bounds, members, prune
        self.truth = (members + insiders) // 2 + 1  # what a quorum must be, whatever the machine believes
        self.liar, self.former, self.lures = liar, former, lures  # lures: kinds of views that the liar proposes
        self.honest = [n for n in range(members) if n != liar]
        self._numbers, self.states = {}, []
        self._bits, self.notes, self._inboxes = {}, [], [0] * members
        self._chosen, self._histories = {(): 0}, [()]
        self._effects, self._live, self._restarts, self._lies = {}, {}, {}, {}

    def number(self, member):
        member = self._plain(member)
        if member not in self._numbers:
            self._numbers[member] = len(self.states)
            self.states.append(member)
        return self._numbers[member]

    def mask(self, sender, out):
        total = 0
        for to, note in out:
            if to == self.liar and isinstance(note.body, Refusal):
                continue  # it has no use for it
            plain = self._plain_note(note)
            key = (to, sender if note.body is not None else -1, plain)  # a view is a view, whoever tells it
            if key not in self._bits:
                self._bits[key] = len(self.notes)
                self._inboxes[to] |= 1 << len(self.notes)
                self.notes.append(key)
            total |= 1 << self._bits[key]
        return total

    # Which members of a quorum have signed a certificate changes nothing, and nobody takes one apart: the search gives
    # every valid one the same signatures, so that it need not follow each choice of them.

    def _plain(self, member):
        memory = replace(
            member.memory, prepared=self._certified(member.memory.prepared), proof=self._proved(member.memory)
        )
        prepared = self._certified(member.prepared)
        return replace(member, memory=memory, prepared=prepared, echoes=prepared.echoes if prepared else member.echoes)

    def _plain_note(self, note):
        body = note.body
        match body:
            case Commit(prepared):
                body = Commit(self._certified(prepared))
            case Promise(_, _, prepared):
                body = replace(body, prepared=self._certified(prepared))
            case Propose(_, _, promises):
                plain = ((n, replace(each, prepared=self._certified(each.prepared))) for n, each in promises)
                body = replace(body, promises=tuple(plain))
        return ControlMessage(note.view, body, self._proved(note))

    def _certified(self, prepared):
        if prepared is None or len(prepared.echoes) < self.rules[0].quorum:
            return prepared
        return replace(prepared, echoes=self._all_signed(b"echo", prepared.ballot, prepared.view))

    def _proved(self, holder):
        proof = holder.proof
        if proof is None or len(proof.commits) < self.rules[0].quorum:
            return proof
        return Proof((1, 0), self._all_signed(b"commit", (1, 0), holder.view))

    def _all_signed(self, kind, ballot, view):
        return tuple((n, self._vote(n, kind, ballot, view)) for n in range(self.rules[0].quorum))

    def effects(self, which, state, mask):
        """What deliveries and its own decisions make of a member: (state, notes out, proposals used, a view learnt)."""
        key = (state, mask & self._inboxes[which])
        if key not in self._effects:
            found, member, rules = {}, self.states[state], self.rules[which]
            waiting = key[1]
            while waiting:
                bit = (waiting & -waiting).bit_length() - 1
                waiting &= waiting - 1
                _, sender, note = self.notes[bit]
                self._add(found, which, self.machine.receive(rules, member, sender, note), 0)
            self._add(found, which, self.machine.settle(rules, member), 0)
            asks = which in (self.bounds.proposers or self.honest)
            if asks and member.view_number < self.bounds.views + (self.former is not None):
                self._add(found, which, self.machine.propose(rules, member), 1)
            found.pop((state, 0, 0), None)
            number, view = member.view_number, member.memory.view
            self._effects[key] = [
                (after, out, cost, (self.states[after].view_number, self.states[after].memory.view) != (number, view))
                for after, out, cost in found
            ]
        return self._effects[key]

    def live(self, which, state, mask):
        """The notes without those that can never again change this member."""
        if not self.prune:
            return mask
        mine = mask & self._inboxes[which]
        key = (state, mine)
        if key not in self._live:
            member, dead, waiting = self.states[state], 0, mine
            while waiting:
                bit = waiting & -waiting
                waiting ^= bit
                _, sender, note = self.notes[bit.bit_length() - 1]
                dead |= bit if self._dead(which, member, sender, note) else 0
            self._live[key] = ~dead
        return mask & self._live[key]

    def _dead(self, which, member, sender, note):  # noqa: PLR0911, one case per kind
        """A note of an older view is answered with the newest, which was sent to everybody when it was decided.

        Answers to a ballot that the member has given up, or that it has counted already, are read by nobody, and
        its next ballot is higher than any that it knows. A request that does not follow from its signatures never
        will; a liar has no use for a refusal.
        """
        if self._number(note) != member.view_number:
            older = self._number(note) < member.view_number
            return older or not agreement.decided(self.rules[which], note.view, note.proof)
        memory = member.memory
        match note.body:
            case None:
                return True
            case Prepare(ballot):
                return sender == self.liar and ballot < memory.promised
            case Propose(ballot) | Commit(Prepared(ballot)):
                if ballot < memory.promised:
                    return sender == self.liar
                return self.machine.receive(self.rules[which], member, sender, note) == (member, ())
            case Promise(ballot):
                counted = (sender, note.body) in member.promises
                return ballot != member.ballot or member.value is not None or counted
            case Echo(ballot):
                return ballot != member.ballot or member.prepared is not None or sender in member.answered
            case Committed(ballot):
                return ballot != member.ballot or (member.prepared is not None and sender in member.answered)
            case Refusal(ballot):
                return member.ballot is None or ballot < member.ballot
        return False

    def _add(self, found, which, step, cost):
        after, out = step
        found[self.number(after), self.mask(which, out), cost] = None

    def explore(self, deep=False):
        """Breadth first, or `deep` first, which finds a planted mistake sooner."""
        found = Found()
        members = tuple(self.number(self._first(n)) for n in range(self.size))
        start = (members, self.told(0), self.bounds.proposals, self.bounds.crashes, 0)
        seen, queue = {start}, deque([start])
        while queue:
            world = queue.pop() if deep else queue.popleft()
            found.states += 1
            numbers = [self.states[world[0][n]].view_number for n in self.honest]
            found.decided = max(found.decided, min(numbers) - (self.former is not None))
            for after, problem in self._next(world):
                found.steps += 1
                if problem:
                    found.violations.append((problem, after))
                    return found
                if after not in seen:
                    if len(seen) >= self.bounds.states:
                        found.complete = False
                        continue
                    seen.add(after)
                    queue.append(after)
        found.chosen = {history for history in self._histories if history}
        return found

    def _first(self, number):
        """A member before the first view, or in the view that it starts from."""
        voter = Voter(number, MemberState(process=0))
        if self.former is None:
            return voter
        proof = Proof((1, 0), tuple((n, self._vote(n, b"commit", (1, 0), self.former)) for n in range(self.size)))
        return agreement.entered(self.rules[number], agreement.learn(voter, self.former, proof))

    def _next(self, world):
        members, mask, proposals, crashes, history = world
        for which in self.honest:
            state = members[which]
            left, right = members[:which], members[which + 1 :]
            for after, out, cost, learnt in self.effects(which, state, mask):
                if cost > proposals:
                    continue
                moved, kept, new, problem = (*left, after, *right), mask | out, history, None
                if learnt:
                    new, problem = self._judged(members, which, after, history)
                yield (moved, self._settled(moved, which, kept, out), proposals - cost, crashes, new), problem
            if crashes:
                for again in self._crashed(state):
                    yield ((*left, again, *right), self.live(which, again, mask), proposals, crashes - 1, history), None
            if self.bounds.rounds:
                for after in self._worked(which, members):
                    yield ((*left, after, *right), mask, proposals, crashes, history), None

    def _settled(self, members, which, mask, out):
        """The network after a step: with what the liar makes of it, and without what nobody can use any more."""
        whole = self.told(mask)
        touched = (out | whole) & ~mask if self.liar is not None else 0
        mask = self.live(which, members[which], whole)
        for number in self.honest:
            if (out | touched) & self._inboxes[number]:
                mask = self.live(number, members[number], mask)
        return mask

    def _crashed(self, state):
        if state not in self._restarts:
            member = self.states[state]
            words = self._after_crash(member)
            self._restarts[state] = [self.number(self.machine.restart(member, word)) for word in words]
        return self._restarts[state]

    def _after_crash(self, member):
        """It comes back where it was, or, having crashed before its first checkpoint in the view, from long ago."""
        word = member.own
        yield MemberState(word.process + 1, word.view_number, word.rounds)
        if self.bounds.rounds and word.view_number:
            yield MemberState(word.process + 1)

    def _worked(self, which, members):
        """Who is behind gets there; a round is completed with a message, and so a receipt, from all in the ring."""
        member, rules = self.states[members[which]], self.rules[which]
        if member.seated and member.own.view_number < member.view_number:
            after = self.number(agreement.entered(rules, member))
            return [after] if after != members[which] else []
        if not self._may_complete(which, members):
            return []
        number, rounds = member.view_number, member.own.rounds
        after = self.machine.completed(rules, member, number, rounds + 1)
        if after != member:
            for other in member.memory.view.order:
                seal = signature(other, receipt_statement(RING, other, number, rounds))
                after = agreement.hear(rules, after, Receipt(other, number, rounds, seal))
        after = self.number(after)
        return [after] if after != members[which] else []

    def _may_complete(self, which, members):
        """Rounds go on in step: nobody is more than one ahead of anybody in its view."""
        member = self.states[members[which]]
        if not member.seated or member.own.rounds >= self.bounds.rounds:
            return False
        others = [self.states[members[n]] for n in member.memory.view.order if n != self.liar]
        return all((o.own.view_number, o.own.rounds) >= (member.view_number, member.own.rounds) for o in others)

    def _judged(self, members, which, after, history):
        """The history of decided views with this step, and what is wrong with it."""
        before, now = self.states[members[which]], self.states[after]
        first = self.former.number if self.former is not None else 0
        if now.view_number < before.view_number:
            return history, "a member went back to an older view"
        if now.view_number == before.view_number:
            return history, None if now.memory.view == before.memory.view else "a member changed a decided view"
        views, view = self._histories[history], now.memory.view
        if view.number <= first + len(views):
            return history, None if views[view.number - first - 1] == view else "two views of one number"
        if view.number != first + len(views) + 1:
            return history, "a number was left out"
        problem = self._against(view, members)
        longer = (*views, view)
        if longer not in self._chosen:
            self._chosen[longer] = len(self._histories)
            self._histories.append(longer)
        return self._chosen[longer], problem

    def _against(self, view, members):
        """What speaks against a view at the moment of its decision."""
        if len({seat.member for seat in view.ring}) < self.truth or len(set(view.ring)) != len(view.ring):
            return "a ring below the quorum"
        held = [self.states[members[n]].memory for n in self.honest]
        consents = sum(view in (each.view, each.prepared and each.prepared.view) for each in held)
        if consents < self.truth - (self.liar is not None):
            return "a view without a quorum's consent"
        seats = [seat for seat in view.ring if seat.member != self.liar]
        words = {seat.member: self.states[members[seat.member]].own for seat in seats}
        if any(seat.process > words[seat.member].process for seat in seats):
            return "a seat for a process that never was"
        if any(words[seat.member].process != seat.process for seat in seats):
            return None  # it was started again since it promised
        newest = max(word.view_number for word in words.values())
        places = [word.rounds for word in words.values() if word.view_number == newest]
        if self.liar is None:
            return None if view.start == min(places) else "a start where its members are not"
        lowest = min(places) - 1  # the liar may be as far behind as an honest neighbour can be
        return None if lowest <= view.start <= max(places) else "a start where its honest members are not"

    # The liar

    def told(self, mask):
        """The network with all that the liar can say, knowing what was sent to it."""
        if self.liar is None:
            return mask
        known = mask & self._inboxes[self.liar]
        if known not in self._lies:
            notes = [(sender, note) for to, sender, note in self._chosen_notes(known)]
            self._lies[known] = self.mask(self.liar, self._said(notes))
        return mask | self._lies[known]

    def _chosen_notes(self, mask):
        while mask:
            yield self.notes[(mask & -mask).bit_length() - 1]
            mask &= mask - 1

    def _vote(self, member, kind, ballot, view):
        return signature(member, statement(RING, kind, view.number, ballot, view.digest))

    def _said(self, notes):
        decided = {(note.view, note.proof) for _, note in notes}
        decided |= {(None, None)} if self.former is None else {(self.former, self._first(0).memory.proof)}
        out = []
        for view, proof in sorted(decided, key=lambda each: each[0].number if each[0] else 0):
            about = [(sender, note.body) for sender, note in notes if note.view == view and note.body is not None]
            if (view.number if view else 0) < self.bounds.views + (self.former is not None):
                for to, body in self._about_the_next(view, about):
                    note = body if isinstance(body, ControlMessage) else ControlMessage(view, body, proof)
                    out += [(n, note) for n in (self.honest if to is None else [to])]
        return out

    def _claims(self, view):
        """What it says about itself: as little as it may have, or more than anybody has."""
        number, start = (view.number, view.start) if view else (0, 0)
        return [MemberState(0, number, start), MemberState(FORGED, number, start + FORGED)]

    def _own_promise(self, ballot, number, state, prepared=None):
        said = Promise(ballot, state, prepared)
        seal = signature(self.liar, statement(RING, b"promise", number, ballot, said.digest))
        return Promise(ballot, state, prepared, (), seal)

    def _about_the_next(self, former, about):
        """(receiver, or None for everybody; what it says about the view after `former`)."""
        me, number = self.liar, (former.number if former else 0) + 1
        forged = View(number, FORGED, tuple(Seat(n, FORGED) for n in range(self.size)))
        jump = View(number + FORGED, 0, forged.ring)
        proofs = [Proof((1, me), ((me, self._vote(me, b"commit", (1, me), each)),)) for each in (forged, jump)]
        yield from (
            (None, ControlMessage(each, None, proof)) for each, proof in zip((forged, jump), proofs, strict=True)
        )
        certificates = {body.prepared for _, body in about if isinstance(body, Commit)}
        for sender, body in about:
            match body:
                case Prepare(ballot):
                    for state in self._claims(former):
                        yield sender, self._own_promise(ballot, number, state)
                    for each in certificates:
                        if each.ballot < ballot:
                            yield sender, self._own_promise(ballot, number, self._claims(former)[0], each)
                case Propose(ballot, view):
                    yield sender, Echo(ballot, self._vote(me, b"echo", ballot, view))
                case Commit(Prepared(ballot, view)):
                    yield sender, Committed(ballot, self._vote(me, b"commit", ballot, view))
        for lie in range(1, self.bounds.lies + 1):
            yield from self._own_ballot(former, (lie, me), about, forged)

    def _own_ballot(self, former, ballot, about, forged):
        """As a proposer: two views that follow from promises, one that does not, and certificates for all."""
        me, number, quorum = self.liar, forged.number, self.rules[0].quorum
        yield None, Prepare(ballot)
        promises = [(n, body) for n, body in about if isinstance(body, Promise) and body.ballot == ballot]
        mine = (me, self._own_promise(ballot, number, self._claims(former)[0]))
        views, some = [forged], (*promises, mine)[-quorum:]
        if len(some) == quorum and "forged" in self.lures:
            yield None, Propose(ballot, forged, tuple(sorted(some, key=lambda each: each[0])))
        if len(some) == quorum and "cut" in self.lures:
            bare = [(n, replace(p, prepared=None)) for n, p in promises if p.prepared]
            kept = {**dict(promises), **dict(bare), me: mine[1]}
            view = agreement.composed(self.rules[0], former, kept) if bare else None
            if view is not None:  # what was prepared, cut out of another's promise
                views.append(view)
                yield None, Propose(ballot, view, tuple(sorted(kept.items())))
        for chosen in itertools.combinations((*promises, mine), quorum if "true" in self.lures else self.size + 1):
            members = dict(chosen)  # one set with each two of the honest is as good as another
            if (
                len(members) == quorum
                and me in members
                and (min(set(members) - {me}) == min(self.honest) or quorum < 3)
            ):
                view = self._following(former, members)
                if view is not None:
                    views.append(view)
                    yield None, Propose(ballot, view, tuple(sorted(chosen, key=lambda each: each[0])))
        for view in dict.fromkeys(views):
            echoes = [(n, b.signature) for n, b in about if isinstance(b, Echo) and b.ballot == ballot]
            true = {n: seal for n, seal in echoes if seal == self._vote(n, b"echo", ballot, view)}
            true[me] = self._vote(me, b"echo", ballot, view)
            yield None, Commit(Prepared(ballot, view, tuple(sorted(true.items())[-quorum:])))
            commits = [(n, b.signature) for n, b in about if isinstance(b, Committed) and b.ballot == ballot]
            real = {n: seal for n, seal in commits if seal == self._vote(n, b"commit", ballot, view)}
            real[me] = self._vote(me, b"commit", ballot, view)
            yield None, ControlMessage(view, None, Proof(ballot, tuple(sorted(real.items())[-quorum:])))

    def _following(self, former, promises):
        before = [promise.prepared for promise in promises.values() if promise.prepared is not None]
        if before:
            return max(before, key=lambda each: each.ballot).view
        return agreement.composed(self.rules[0], former, promises)

    @staticmethod
    def _number(note):
        return note.view.number if note.view is not None else 0
