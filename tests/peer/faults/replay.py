"""What the members' parameters must be: the history of a ring computed again, in lock-step, from its views alone.

It knows nothing of processes, messages, promises or files. A member holds its state after each round, as far as it has
come. A view of some members from some round on puts each of them where the view starts: it forgets later rounds, and
one that has not come so far begins with the last state that it has. Then all of them train and mix, round after round.
"""

import torch

from firma.engines.message_passing import drive
from firma.mixing.kind import exchange
from firma.protocol import Participant

from .trainer import blended, first_parameters, samples, shared, trained


class Replay:
    """The states of all members; `entered` and `state` are asked in the order in which things happened."""

    def __init__(self, members, plan):
        self._plan = plan
        self.shelves = [{0: first_parameters(number)} for number in range(members)]  # by member: {rounds: parameters}
        self._views = {}  # number: (order, start, [states of its members after round start, start + 1, ...])
        self.newest = [0] * members  # the view that each member entered last

    def entered(self, member, view):
        """A member is where a view starts."""
        shelf = self.shelves[member]
        self._begun(view)
        self.newest[member] = view.number
        begin = self._views[view.number][2][0].setdefault(member, _nearest(shelf, view.start))
        self.shelves[member] = {n: held for n, held in shelf.items() if n < view.start} | {view.start: begin}

    def state(self, member, view, rounds):
        """(P,) parameters of a member of a view after so many rounds; it has them from now on."""
        self._begun(view)
        order, start, states = self._views[view.number]
        for seat in order:  # one that has not entered yet will do so with what it has
            states[0].setdefault(seat, _nearest(self.shelves[seat], start))
        while len(states) <= rounds - start:
            states.append(self._round(order, states[-1], start + len(states) - 1))
        self.shelves[member][rounds] = states[rounds - start][member]
        return self.shelves[member][rounds]

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
