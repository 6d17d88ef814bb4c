"""All that can happen to a few members: a breadth-first search over every state that the real machine can reach.

The network is the set of all notes ever sent. Any of them may be delivered at any time, again and again, or never: that
is every order, every loss and every repetition. A member may crash at any time and come back with its memory; one
that never comes back is one that nothing is delivered to any more. States and notes are numbered and each member's
step is computed once, so that a state is a few integers.
"""

from collections import deque
from dataclasses import dataclass, field

from firma.peer.membership import paxos
from firma.peer.membership.views import Accepted, MemberState, PaxosState, Promise, Refusal, Rules


def compose(quorum, first=0):
    """Everybody who answered, in the given order; `first` members are needed for the first view."""

    def composed(number, words):
        ready = tuple(sorted(number for number, word in words.items() if word.ready))
        if len(ready) < max(quorum, first if number == 1 else 0):
            return None
        return paxos.beginning({number: words[number] for number in ready}), ready

    return composed


@dataclass
class Machine:
    """The functions under test; a mutation replaces one."""

    receive: object = paxos.receive
    propose: object = paxos.propose
    settle: object = paxos.settle
    restart: object = paxos.restart
    completed: object = paxos.completed


@dataclass(frozen=True)
class Bounds:
    proposals: int  # attempts in all, by anybody
    crashes: int = 0
    rounds: int = 0  # rounds that a member may complete
    views: int = 1
    states: int = 5_000_000  # an end to the search, which then says that it was not complete


@dataclass
class Found:
    states: int = 0
    steps: int = 0
    complete: bool = True
    violations: list = field(default_factory=list)
    decided: int = 0  # the highest view that every member has learnt in some state
    chosen: set = field(default_factory=set)  # the sequences of views that were decided, over all histories


class Explorer:
    def __init__(self, members, bounds, machine=None, quorum=None, first=0, prune=True):
        self.quorum = quorum or members // 2 + 1
        self.rules = Rules(members, self.quorum, compose(self.quorum, first))
        self.machine, self.bounds, self.size, self.prune = machine or Machine(), bounds, members, prune
        self.truth = members // 2 + 1  # what a quorum must be, whatever the machine believes
        self._numbers, self.states = {}, []
        self._bits, self.notes, self._inboxes = {}, [], [0] * members
        self._chosen, self._histories = {(): 0}, [()]
        self._effects, self._live, self._restarts = {}, {}, {}

    def number(self, member):
        if member not in self._numbers:
            self._numbers[member] = len(self.states)
            self.states.append(member)
        return self._numbers[member]

    def mask(self, sender, out):
        total = 0
        for to, note in out:
            key = (to, sender if note.body is not None else -1, note)  # a view is a view, whoever tells it
            if key not in self._bits:
                self._bits[key] = len(self.notes)
                self._inboxes[to] |= 1 << len(self.notes)
                self.notes.append(key)
            total |= 1 << self._bits[key]
        return total

    def effects(self, which, state, mask):
        """What deliveries and its own decisions make of a member: (state, notes out, proposals used, a view learnt)."""
        key = (state, mask & self._inboxes[which])
        if key not in self._effects:
            found, member = {}, self.states[state]
            waiting = key[1]
            while waiting:
                bit = (waiting & -waiting).bit_length() - 1
                waiting &= waiting - 1
                _, sender, note = self.notes[bit]
                self._add(found, which, self.machine.receive(self.rules, member, sender, note), 0)
            self._add(found, which, self.machine.settle(self.rules, member), 0)
            if member.view_number < self.bounds.views:
                self._add(found, which, self.machine.propose(self.rules, member), 1)
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
                dead |= bit if self._dead(member, sender, note) else 0
            self._live[key] = ~dead
        return mask & self._live[key]

    def _dead(self, member, sender, note):
        """A note of an older view is answered with the newest, which was sent to everybody when it was decided.

        Answers to a ballot that the member has given up, or that it has counted already, are read by nobody, and
        its next ballot is higher than any that it knows.
        """
        if self._number(note) != member.view_number:
            return self._number(note) < member.view_number
        match note.body:
            case None:
                return True
            case Promise(ballot):
                counted = (sender, note.body) in member.promises
                return ballot != member.ballot or member.value is not None or counted
            case Accepted(ballot):
                return ballot != member.ballot or (member.value is not None and sender in member.consents)
            case Refusal(ballot):
                known = max(member.highest, member.memory.promised[0])
                return ballot[0] <= known if member.ballot is None else ballot < member.ballot
        return False

    def _add(self, found, which, step, cost):
        after, out = step
        found[self.number(after), self.mask(which, out), cost] = None

    def explore(self):
        found = Found()
        start = (
            tuple(self.number(PaxosState(n, MemberState(process=0))) for n in range(self.size)),
            0, self.bounds.proposals, self.bounds.crashes, 0,
        )  # fmt: skip
        seen, queue = {start}, deque([start])
        while queue:
            world = queue.popleft()
            found.states += 1
            found.decided = max(found.decided, min(self.states[s].view_number for s in world[0]))
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

    def _next(self, world):
        members, mask, proposals, crashes, history = world
        inboxes = self._inboxes
        for which, state in enumerate(members):
            left, right = members[:which], members[which + 1 :]
            for after, out, cost, learnt in self.effects(which, state, mask):
                if cost > proposals:
                    continue
                moved, kept, new, problem = (*left, after, *right), mask | out, history, None
                if learnt:
                    new, problem = self._judged(members, which, after, history)
                kept = self.live(which, after, kept)
                for number in range(self.size):
                    if out & inboxes[number]:
                        kept = self.live(number, moved[number], kept)
                yield (moved, kept, proposals - cost, crashes, new), problem
            if crashes:
                for again in self._crashed(state):
                    yield ((*left, again, *right), self.live(which, again, mask), proposals, crashes - 1, history), None
            if self.bounds.rounds and self._may_complete(which, members):
                member = self.states[state]
                after = self.number(self.machine.completed(member, member.view_number, member.own.rounds + 1))
                if after != state:
                    yield ((*left, after, *right), mask, proposals, crashes, history), None

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

    def _may_complete(self, which, members):
        """Rounds go on in step: nobody is more than one ahead of anybody in its view."""
        member = self.states[members[which]]
        if not member.seated or member.own.rounds >= self.bounds.rounds:
            return False
        others = [self.states[members[seat.member]] for seat in member.memory.view.ring]
        return all((o.own.view_number, o.own.rounds) >= (member.view_number, member.own.rounds) for o in others)

    def _judged(self, members, which, after, history):
        """The history of decided views with this step, and what is wrong with it."""
        before, now = self.states[members[which]], self.states[after]
        if now.view_number < before.view_number:
            return history, "a member went back to an older view"
        if now.view_number == before.view_number:
            return history, None if now.memory.view == before.memory.view else "a member changed a decided view"
        views, view = self._histories[history], now.memory.view
        if view.number <= len(views):
            return history, None if views[view.number - 1] == view else "two views of one number"
        if view.number != len(views) + 1:
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
        held = [self.states[state].memory.accepted for state in members]
        if sum(each is not None and each[1] == view for each in held) < self.truth:
            return "a view without a quorum's consent"
        words = {seat.member: self.states[members[seat.member]].own for seat in view.ring}
        all_here = all(words[seat.member].process == seat.process for seat in view.ring)
        return "a start where its members are not" if all_here and view.start != paxos.beginning(words) else None

    @staticmethod
    def _number(note):
        return note.view.number if note.view is not None else 0
