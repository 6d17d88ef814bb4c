"""Bringing a member that is behind to the round from which a view starts: extractors only, heads stay where they are.

A view names the members that are `behind`: they were away, or have lost their disk, and lack rounds that the others
have. Each is sent the extractor of the round from which the view starts by 2f + 1 members that have it, f being the
number of insiders that the ring bears, as ordinary checked messages with a step of their own. It combines them so that
f of them may be anything, keeps its own head (a new one, if that is lost), and goes on with the others. Pure.
"""

from collections.abc import Sequence

from torch import Tensor

from firma.mixing.combine import median
from firma.peer.membership.views import View
from firma.peer.runtime.bounds import FACTOR, norm

STEP = (1 << 32) - 1  # of a message that brings a member to the round before: no exchange has so many steps


def holders(view: View, member: int, insiders: int) -> tuple[int, ...]:
    """Who sends a member that is behind the extractor of round `view.start`: the nearest on the ring that have it."""
    order = view.order
    if member not in view.behind or member not in order:
        return ()
    place, size = order.index(member), len(order)
    around = [order[(place + side * step) % size] for step in range(1, size // 2 + 1) for side in (1, -1)]
    ready = [other for other in dict.fromkeys(around) if other != member and other not in view.behind]
    return tuple(ready[: 2 * insiders + 1] if insiders else ready[:2])


def enough(arrived: int, awaited: int, insiders: int, waited: float, silence: float) -> bool:
    """Whether to wait no longer: all are here, or after a while more than can lie, or after a long while any."""
    if arrived == awaited:
        return True
    return (arrived > insiders and waited > silence / 4) or (arrived > 0 and waited > silence / 2)


def caught_up(own: Tensor, received: Sequence[Tensor]) -> Tensor:
    """(E,) what a member goes on with: of three or more the median in each coordinate, of two their mean, of one that.

    Of two whose norms differ by more than honest ones can, the one that is nearer in norm to this member's own.
    """
    if len(received) > 2:
        return median(received)
    sizes = sorted(norm(each) for each in received)
    if len(received) == 2 and sizes[1] <= FACTOR * sizes[0]:
        return (received[0] + received[1]) / 2
    return min(received, key=lambda each: abs(norm(each) - norm(own)))
