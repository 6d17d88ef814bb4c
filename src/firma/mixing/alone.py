"""No mixing: everybody trains alone and sends nothing."""

from collections.abc import Mapping, Sequence

from firma.mixing.kind import ByClient, Cost
from firma.protocol import Exchanges, Message, Participant, Score
from firma.schedule import RoundPlan

NEEDS_SERVER = False


def mixture(plan: RoundPlan, order: Sequence[int], sizes: ByClient[int], accuracies: ByClient[float]) -> None:
    """The identity, which need not be applied."""
    del plan, order, sizes, accuracies


def exchange(plan: RoundPlan, one: Participant) -> Exchanges:
    """A generator that yields no exchange."""
    del plan
    yield from ()
    return one.shared


def server(plan: RoundPlan, one: Participant) -> None:
    """There is no server."""
    del plan, one


def pass_weights(
    plan: RoundPlan, order: Sequence[int], me: int, arrived: Mapping[int, Message], score: Score | None
) -> dict[int, float]:
    """A client has all the weight in its own model."""
    del plan, order, arrived, score
    return {me: 1.0}


def steps(plan: RoundPlan, members: int) -> int:
    """No exchange."""
    del plan, members
    return 0


def expected(plan: RoundPlan, order: Sequence[int], me: int, sender: int, step: int, elements: int) -> None:
    """Nobody sends anything."""
    del plan, order, me, sender, step, elements


def lead(plan: RoundPlan, members: int) -> int:
    """Nobody is ahead of anybody."""
    del plan, members
    return 0


def cost(plan: RoundPlan, clients: int, elements: int) -> Cost:
    """Nothing is sent."""
    del plan, clients, elements
    return Cost(0, 0)
