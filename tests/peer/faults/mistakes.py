"""Planted mistakes: what a search that is worth anything must find. Each replaces a few functions of the real code.

The mistakes in the agreement that `test_membership.py` plants for its explorer are all here, too.
"""

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from firma.peer.membership import agreement as voting
from firma.peer.membership.proposer import Abandon, Proposer, Repeat
from firma.peer.membership.views import MemberState, Seat, View, Voter
from firma.peer.ring_file import Ring
from firma.peer.runtime import checkpoint
from firma.peer.runtime.admission import Inbox
from firma.peer.runtime.driver import Driver
from firma.peer.runtime.events import Failed, Notice
from firma.peer.runtime.machine.standing import Standing
from firma.peer.runtime.member_machine import Member
from firma.peer.runtime.promises import Promises
from firma.peer.runtime.round_loop import RoundLoop
from firma.peer.wire import control

from .. import test_membership  # noqa: TID252, pytest and make faults know this package by two names
from ..explorer import Machine  # noqa: TID252
from .facades import current
from .search import one
from .trainer import LAYOUT, TinySite


@dataclass(frozen=True)
class Mistake:
    """Which names are replaced by what while a ring runs, and what becomes of memory and agreement at a start."""

    breaks: frozenset  # promises, one of which must be found broken
    changes: tuple = ()
    at_start: object = field(default=lambda memory: memory)
    agreed: object = field(default=lambda agreement: agreement)
    kinds: tuple | None = None  # faults with which it is looked for; None: any
    profile: str | None = None


def _in_the_agreement(machine):
    """A mutant of the explorer's as a mistake of whole rings."""
    usual = Machine()
    names = [name for name in vars(usual) if getattr(machine, name) is not getattr(usual, name) and name != "restart"]
    mutant = SimpleNamespace(**vars(voting)) if names else voting
    for name in names:
        setattr(mutant, name, getattr(machine, name))
    changes = (("firma.peer.runtime.machine.voting", "agreement", mutant),) if names else ()
    if "completed" in names:  # a member that is frozen has no next round to complete, so that must be wrong, too
        changes += ((Standing, "current", _current_although_frozen),)

    def at_start(memory):
        if memory is None or machine.restart is usual.restart:
            return memory
        return machine.restart(Voter(0, MemberState(0), memory), MemberState(0)).memory

    return Mistake(frozenset({"views", "rounds", "durable", "parameters"}), changes, at_start, profile="agreement")


# Faults that are hard on the agreement: many proposals at a time, answers that get lost, members that come and go.
_HARD = ("kill", "promise-kill", "power", "cut", "partition", "loss", "delay", "duplicates", "pause")
_CRASHES = ("kill", "power", "blackout")


@property
def _current_although_frozen(self):
    return self.inbox is not None and self.voter.view_number == self.followed


def _with_two(inner):
    """A function of the agreement that takes two votes to commit for a quorum: the own one and one other."""
    return lambda rules, *others: inner(replace(rules, quorum=2), *others)


def _small_quorum(agreement):
    rules = agreement.rules
    return replace(agreement, rules=replace(rules, quorum=max(rules.members // 2, 1)))


class _ReaderOfAnyRing(control._Reader):
    """Reads views of any size: what members refuse to read they cannot agree on."""

    def view(self, plain):
        ring = tuple(Seat(seat["member"], seat["process"]) for seat in plain["ring"])
        return View(plain["epoch"], plain["start"], ring, tuple(plain["behind"]))


def _write_later(self, memory, write=Promises.write):
    current().after(0.05, lambda: write(self, memory))


def _not_synced(path, raw, private=False):
    with path.open("wb") as file:
        file.write(raw)


def _replaced_unsynced(path, raw, private=False):
    draft = path.with_name(f".{path.name}.draft")
    _not_synced(draft, raw)
    draft.replace(path)


@contextmanager
def _whole_folder_unsynced(target, private=False):
    draft = target.with_name(f".{target.name}.draft")
    draft.rmtree(ignore_errors=True)
    draft.mkdir(parents=True)
    yield draft
    draft.rename(target)


@contextmanager
def _names_not_synced(target, private=False):
    """As `whole_folder` was: the draft's files are synced, their names are not."""
    draft = target.with_name(f".{target.name}.draft")
    draft.rmtree(ignore_errors=True)
    draft.mkdir(parents=True)
    yield draft
    draft.rename(target)
    target.parent._node().sync()


def _keeps_one(folder, site, ring, epoch, order, history, keep, parts=(), write=checkpoint.write):
    return write(folder, site, ring, epoch, order, history, 1, parts)


def _drops_only(folder, rounds, epoch, drop=checkpoint._set_aside_after):
    drop(folder, rounds)


def _takes_any_view(rules, state, sender, message):
    if message.view is not None and message.view.number < state.view_number:
        return voting.learn(state, message.view, message.proof), ()
    return voting.receive(rules, state, sender, message)


def _admits_older(self, sender, header, admit=Inbox.admit):
    return admit(self, sender, self.as_of_now(header))


def _stores_older(self, sender, header, message, store=Inbox.store):
    store(self, sender, self.as_of_now(header), message)


def _as_of_now(self, header):
    return replace(header, tag=(self.sequence.view_number, *header.tag[1:]))


def _leaks_its_head(self):
    values = self.client.parameters[LAYOUT.span("extractor")].clone()
    head = self.client.parameters[LAYOUT.span("head")]
    values[: len(head)] = head
    return values


def _never_again(self, state, now, tend=Proposer._tend):
    return [move for move in tend(self, state, now) if not isinstance(move, Repeat | Abandon)]


def _says_nothing(self, event, now, on=Member.on):
    return [action for action in on(self, event, now) if not isinstance(action, Notice)]


def _never_goes_back(self, work, enter=RoundLoop.enter):
    if len(self.history) > work.view.start:
        later = self._site.client.parameters.clone()  # what is restored is written into the tensor that it has
        enter(self, work)
        self._site.client.parameters = later
    else:
        enter(self, work)


MISTAKES = {
    **{name: _in_the_agreement(machine) for name, (_, machine, _) in test_membership.MUTANTS.items()},
    # As the explorer plants it, in the proposer alone, it does no harm here: nobody else can read such a proof. So all
    # members have it and take two votes for a proof. That does harm among five that bear no insider: in smaller rings,
    # and with larger quorums, those that have not voted are no quorum.
    "one commit is enough": Mistake(
        frozenset({"views", "rounds", "parameters"}),
        ((voting, "_committed", _with_two(voting._committed)), (voting, "decided", _with_two(voting.decided))),
        profile="agreement",
    ),
    "a quorum is half of the members": Mistake(
        frozenset({"views", "rounds"}),
        ((Ring, "needed", property(lambda ring: max(len(ring.members) // 2, 1))),
         ("firma.peer.wire.control", "_Reader", _ReaderOfAnyRing)),
        agreed=_small_quorum, kinds=("partition", "cut"),
    ),
    "an older view is believed": Mistake(
        frozenset({"views"}), (("firma.peer.runtime.machine.voting", "agreement",
                                SimpleNamespace(**vars(voting) | {"receive": _takes_any_view})),), kinds=_HARD,
    ),
    "promises are written after they are given": Mistake(
        frozenset({"views", "rounds", "durable"}), ((Promises, "write", _write_later),), profile="agreement"
    ),
    "promises are not synced": Mistake(
        frozenset({"exit", "views"}), (("firma.peer.runtime.promises", "replace_synced", _replaced_unsynced),),
        kinds=_CRASHES,
    ),
    "rounds are not synced": Mistake(
        frozenset({"durable", "exit"}),
        ((checkpoint, "whole_folder", _whole_folder_unsynced), (checkpoint, "write_synced", _not_synced)),
        kinds=_CRASHES,
    ),
    "the names of a round's files are not synced": Mistake(
        frozenset({"durable", "exit"}), ((checkpoint, "whole_folder", _names_not_synced),), kinds=_CRASHES
    ),
    "old rounds are removed file by file": Mistake(
        frozenset({"exit"}), ((checkpoint, "remove_whole", lambda path: path.rmtree()),), kinds=_CRASHES
    ),
    "only the newest round is kept": Mistake(
        frozenset({"parameters"}), ((checkpoint, "write", _keeps_one),), kinds=_HARD
    ),
    "a round is not marked with its view": Mistake(
        frozenset({"durable", "parameters"}), ((checkpoint, "mark", _drops_only),), kinds=_HARD
    ),
    "messages of an older view count": Mistake(
        frozenset({"parameters"}),
        ((Inbox, "admit", _admits_older), (Inbox, "store", _stores_older), (Inbox, "as_of_now", _as_of_now)),
        profile="council",
    ),
    "a site does not go back to where a view starts": Mistake(
        frozenset({"parameters"}), ((RoundLoop, "enter", _never_goes_back),), profile="agreement"
    ),
    "a member goes on although it is frozen": Mistake(
        frozenset({"rounds"}), ((Standing, "current", _current_although_frozen),), profile="agreement"
    ),
    "a head leaves": Mistake(frozenset({"heads"}), ((TinySite, "shared", property(_leaks_its_head)),)),
    "nobody is told of a stall": Mistake(
        frozenset({"announced"}), ((Member, "on", _says_nothing),), kinds=("partition", "blackout")
    ),
    "a proposal that came to nothing is not repeated": Mistake(
        frozenset({"recovery"}), ((Proposer, "_tend", _never_again),), profile="agreement"
    ),
    "a member that cannot be reached ends the run": Mistake(
        frozenset({"exit"}), ((Driver, "unreachable", lambda self, member, why: self.on(Failed(why))),), kinds=_HARD
    ),
}  # fmt: skip


def found_by(mistake, seeds):
    """The first of these seeds whose ring breaks a promise that the mistake must break; None if none does."""
    for seed in seeds:
        found = one(seed, mistake.kinds, (mistake,), profile=mistake.profile)
        if any(each.promise in mistake.breaks for each in found.violations):
            return seed
    return None
