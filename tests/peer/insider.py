"""An insider: real member code with planted misbehaviour, in a virtual ring or as a process of its own.

It has its own key and nobody else's. A lie is a generator of notes, (receiver, or None for all others, what it says),
given the member's own side of the agreement; it is asked again and again, and its notes are sent as they are. Lies
about itself are planted in the functions that speak for it.
"""

import itertools
import threading
import time
from dataclasses import replace

from firma.peer.membership import agreement
from firma.peer.membership.views import ControlMessage, Prepare, Prepared, Proof, Propose, Seat, View, statement
from firma.peer.runtime.round_loop import RoundLoop
from firma.peer.wire.control import encode_control
from firma.peer.wire.terms import WireError

LAST = 2**32 - 1


def _proof(rules, voter, view, kind=b"commit"):
    """As many signatures as it can make: its own."""
    said = statement(rules.seals.ring, kind, view.number, (1, voter.me), view.digest)
    return (1, voter.me), ((voter.me, rules.seals.sign(said)),)


def forged_views(rules, voter, counter):
    """The last number there is, and the next one, with the right and with wrong processes, from the first round on."""
    del counter
    seats = [tuple(Seat(n, process) for n in range(rules.members)) for process in (1, 2)]
    own = voter.memory.view.ring
    for number, ring in itertools.product((LAST, voter.view_number + 1), (*seats, own)):
        view = View(number, 0, ring)
        yield None, ControlMessage(view, None, Proof(*_proof(rules, voter, view)))
        yield None, ControlMessage(view)
        yield None, ControlMessage(view, Prepare((1, voter.me)), voter.memory.proof)


def endless_proposals(rules, voter, counter):
    """One ballot after the other, and never a view."""
    del rules
    ballot = (max(voter.memory.promised[0], 0) + 1 + counter, voter.me)
    yield None, agreement.informing(voter, Prepare(ballot))


def jumping_ballots(rules, voter, counter):
    """The highest numbers that can be written."""
    del rules
    for number in (1 << 62, (1 << 62) - 1, (1 << 40) + counter):
        yield None, agreement.informing(voter, Prepare((number, voter.me)))


def unjustified_views(rules, voter, counter):
    """A view that nobody has promised anything for, voted for by itself alone."""
    view = View(voter.view_number + 1, 0, voter.memory.view.ring)
    ballot = (1 + counter, voter.me)
    yield None, agreement.informing(voter, Propose(ballot, view, ()))
    own = agreement._promise(rules, voter, ballot)
    yield None, agreement.informing(voter, Propose(ballot, view, tuple((n, own) for n in range(rules.members))))
    first, votes = _proof(rules, voter, view, b"echo")
    yield None, agreement.informing(voter, agreement.Commit(Prepared(first, view, votes)))


LIES = {
    "forged views": forged_views,
    "endless proposals": endless_proposals,
    "jumping ballots": jumping_ballots,
    "unjustified views": unjustified_views,
}


def notes(rules, voter, terms, kind, counter):
    """(receiver, bytes) of a lie."""
    if voter.memory.view is None:
        return
    for to, said in LIES[kind](rules, voter, counter):
        try:
            raw = encode_control(terms, said)
        except WireError:
            continue
        yield from ((n, raw) for n in (range(rules.members) if to is None else [to]) if n != voter.me)


# In a virtual ring


def plant(world, number, kind, every=0.1, start=1.0, end=40.0):
    """Let a member of a virtual ring lie, beside what its honest code does."""
    counter = itertools.count()

    def lie():
        node = world.nodes[number]
        if node.up and world.now < end:
            rules = node.member.agreement.rules
            for to, raw in notes(rules, node.member.voter, world.terms, kind, next(counter)):
                node._control(to, raw)
            world.after(every, lie)

    world.at(start, lie)


# As a process


def install(kind, rounds=3, every=0.1):
    """Let this process lie from this round on."""
    if kind in ABOUT_ITSELF:
        ABOUT_ITSELF[kind]()
        return
    saved = RoundLoop.save

    def save(self, work):
        report = saved(self, work)
        if report.number == rounds:
            threading.Thread(target=_talk, args=(self._driver, kind, every), daemon=True).start()
        return report

    RoundLoop.save = save


def _talk(driver, kind, every):
    for counter in itertools.count():
        with driver._lock:
            rules, voter = driver._member.agreement.rules, driver._member.voter
            out = list(notes(rules, voter, driver._terms, kind, counter))
        for to, raw in out:
            driver._client.control(to, raw)
        time.sleep(every)


def _claim_nothing():
    """Its promises say that it has no round of the present view."""
    inner = agreement._promise

    def promise(rules, voter, ballot):
        return inner(rules, replace(voter, own=replace(voter.own, rounds=0)), ballot)

    agreement._promise = promise


def _equivocate():
    """As a proposer it shows each half of the others another view; both follow from promises."""
    inner = agreement.settle

    def settle(rules, voter):
        after, out = inner(rules, voter)
        promises = dict(after.promises)
        for left in sorted(promises):
            fewer = {n: promise for n, promise in promises.items() if n != left}
            if left != voter.me and len(fewer) >= rules.quorum and out:
                view = agreement.composed(rules, voter.memory.view, fewer)
                other = agreement.informing(after, Propose(after.ballot, view, tuple(sorted(fewer.items()))))
                return after, tuple((to, other if to % 2 else note) for to, note in out)
        return after, out

    agreement.settle = settle


ABOUT_ITSELF = {"claims nothing": _claim_nothing, "equivocates": _equivocate}
