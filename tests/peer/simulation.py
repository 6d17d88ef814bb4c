"""What both simulations of whole rings share: a virtual clock with a queue, the history, and lines that are cut.

`virtual.py` drives the members' machine alone, with a disk of plain values and insiders that lie; `faults/world.py`
drives the real driver, server, round loop and files. Both are a `Timeline` of things that happen to named members.
"""

import heapq
import itertools

NAMES = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibex")


class Timeline:
    """Virtual time, what is still to happen, and what has: entries (seconds, name, what, facts ...)."""

    def __init__(self):
        self.now, self.history, self.stopped = 0.0, [], False
        self._queue, self._order = [], itertools.count()

    def at(self, seconds, act):
        heapq.heappush(self._queue, (seconds, next(self._order), act))

    def after(self, seconds, act):
        self.at(self.now + seconds, act)

    def run(self, until=600.0):
        """Until nothing is left to happen, or `stopped`; going on for longer is an error."""
        while self._queue and not self.stopped:
            self.now, _, act = heapq.heappop(self._queue)
            assert self.now < until, f"still at it after {until} s: {self.history[-12:]}"
            act()
        return self

    def note(self, member, what, *facts):
        self.history.append((round(self.now, 6), NAMES[member], what, *facts))

    def of(self, what):
        return [entry for entry in self.history if entry[2] == what]

    def processes_by_number(self):
        """The present or last process of each member that was started."""
        raise NotImplementedError

    def ends(self):
        """How each member ended last, by number; those that were killed are left out."""
        return {n: process.end for n, process in self.processes_by_number().items() if process.end is not None}

    def views(self):
        """All views that anybody entered, by number: (ring, start). Two that differ are a failed agreement."""
        found = {}
        for _, _, _, view in self.of("entered"):
            given = (view.ring, view.start)
            assert found.setdefault(view.number, given) == given, "two views of one number"
        return found


class Cuts:
    """Lines that are cut, (from, to), each one way; for classes that have `cuts`, a set."""

    def part(self, one, other):
        """Cut all lines between two groups of members."""
        self.cuts |= {pair for a in one for b in other for pair in ((a, b), (b, a))}

    def heal(self):
        self.cuts.clear()


def simulated_ring(kind, members, rounds, method, task, **changes):
    """A ring file of these members, not validated; `kind` is `Ring` or a subclass of it."""
    values = {"patience": 2.0, "gathering": 20.0, "insiders": int(len(members) >= 4)} | changes
    return kind.model_construct(
        federation="virtual", method=method, rounds=rounds, task=task, members=members, set={}, **values
    )
