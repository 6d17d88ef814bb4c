"""From members' words to a view: who is in, from which round on, in which order. The same words give the same view."""

from collections.abc import Mapping

import numpy as np

from firma.mixing.order import similarity, two_opt
from firma.peer.membership.paxos import beginning
from firma.peer.membership.views import Compose, Rules, Word
from firma.peer.ring_file import Ring


def rules_of(ring: Ring) -> Rules:
    """How the members of a ring agree on a view."""
    return Rules(len(ring.members), ring.needed, _compose(ring))


def _compose(ring: Ring) -> Compose:
    def compose(epoch: int, words: Mapping[int, Word]) -> tuple[int, tuple[int, ...]] | None:
        ready = {number: words[number] for number in sorted(words) if words[number].ready}
        needed = len(ring.members) if epoch == 1 else ring.needed  # a federation begins with everybody
        return (beginning(ready), agreed_order(ring, ready)) if len(ready) >= needed else None

    return compose


def agreed_order(ring: Ring, words: Mapping[int, Word]) -> tuple[int, ...]:
    """Those who are in as given, or by 2-opt of their class proportions, anew for whoever is in."""
    members = tuple(sorted(words))
    if ring.row.order == "given" or ring.proportions == "none" or not all(words[n].shares for n in members):
        return members
    shares = np.array([words[number].shares for number in members])
    return tuple(members[place] for place in two_opt(similarity(shares, ring.hyper.ring_cost)))
