"""What the members' parameters must be: the history of a ring computed again, in lock-step, from its views alone.

It knows nothing of processes, messages, promises or files. A member holds its state after each round, as far as it has
come. A view of some members from some round on puts each of them where the view starts: it forgets later rounds, and
one that has not come so far begins with the last state that it has and the extractors of those that brought it there.
Then all of them train and mix, round after round.
"""

import torch

from firma.engines.message_passing import drive
from firma.mixing.kind import exchange
from firma.peer.runtime.catching_up import caught_up
from firma.protocol import Participant

from .trainer import blended, first_parameters, samples, shared, trained


class Replay:
    """The states of all members; `entered` and `state` are asked in the order in which things happened."""

    def __init__(self, members, plan, brought=None):
        self._plan = plan
        self._brought = (
            brought or {}
        )  # (member, view number): members whose extractors brought it where the view starts
        self.shelves = [{0: first_parameters(number)} for number in range(members)]  # by member: {rounds: parameters}
        self._views = {}  # number: (order, start, [states of its members after round start, start + 1, ...])
        self.newest = [0] * members  # the view that each member entered last

    def entered(self, member, view):
        """A member is where a view starts."""
        shelf = self.shelves[member]
        self._begun(view)
        self.newest[member] = view.number
        begin = self._beginning(member, view)
        self.shelves[member] = {n: held for n, held in shelf.items() if n < view.start} | {view.start: begin}

    def state(self, member, view, rounds):
        """(P,) parameters of a member of a view after so many rounds; it has them from now on."""
        self._begun(view)
        order, start, states = self._views[view.number]
        for seat in order:  # one that has not entered yet will do so with what it has
            self._beginning(seat, view)
        while len(states) <= rounds - start:
            states.append(self._round(order, states[-1], start + len(states) - 1))
        self.shelves[member][rounds] = states[rounds - start][member]
        return self.shelves[member][rounds]

    def _beginning(self, member, view):
        """(P,) what a member has where a view starts."""
        first = self._views[view.number][2][0]
        if member not in first:
            own = _nearest(self.shelves[member], view.start)
            if senders := self._brought.get((member, view.number)):
                extractors = [shared(self._beginning(sender, view)) for sender in senders]
                own = blended(own, caught_up(shared(own), extractors))
            first[member] = own
        return first[member]

    def _begun(self, view):
        self._views.setdefault(view.number, (view.order, view.start, [{}]))

    def _round(self, order, before, turn):
        plan, after, parts = self._plan(len(order), turn), {}, {}
        for member in order:
            after[member], accuracy = trained(before[member], member, turn)
            parts[member] = Participant(member, order, shared(after[member]), accuracy, samples(member))
        mixed = drive({member: exchange(plan, part) for member, part in parts.items()}, lambda *_: None)
        return {member: blended(after[member], mixed[member]) for member in order}


def _nearest(shelf, rounds):
    """The last state up to that round, or else the first after it."""
    return shelf[max((n for n in shelf if n <= rounds), default=min(shelf))]


def as_tensor(raw):
    return torch.frombuffer(bytearray(raw), dtype=torch.float32)
