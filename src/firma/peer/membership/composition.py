"""Which view to propose: who is in, from which round on, in which order. The same states give the same view. Pure."""

from collections.abc import Mapping

import numpy as np

from firma.mixing.order import similarity, two_opt
from firma.peer.membership.paxos import beginning
from firma.peer.membership.views import Compose, MemberState, Rules
from firma.peer.ring_file import Ring


def rules_of(ring: Ring) -> Rules:
    """How the members of a ring agree on a view."""
    return Rules(len(ring.members), ring.needed, _compose(ring))


def _compose(ring: Ring) -> Compose:
    def compose(number: int, states: Mapping[int, MemberState]) -> tuple[int, tuple[int, ...]] | None:
        ready = {member: states[member] for member in sorted(states) if states[member].ready}
        needed = len(ring.members) if number == 1 else ring.needed  # a federation starts with everybody
        return (beginning(ready), agreed_order(ring, ready)) if len(ready) >= needed else None

    return compose


def agreed_order(ring: Ring, states: Mapping[int, MemberState]) -> tuple[int, ...]:
    """The members in the given order, or by 2-opt of their class proportions, computed anew for each view."""
    members = tuple(sorted(states))
    if ring.row.order == "given" or ring.proportions == "none" or not all(states[n].shares for n in members):
        return members
    shares = np.array([states[member].shares for member in members])
    return tuple(members[place] for place in two_opt(similarity(shares, ring.hyper.ring_cost)))
