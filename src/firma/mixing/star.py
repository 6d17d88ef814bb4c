"""Averaging by size at a server, the hub of a star: θ_i ← Σ_j (n_j / n) θ_j for everybody.

With a robust combine the server combines the clients' parameters otherwise, and all count alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from firma.mixing.combine import Common, common
from firma.mixing.kind import FLOAT, NUMBER, Average, ByClient, Cost
from firma.mixing.weights import by_size, in_average
from firma.protocol import SERVER, Exchange, Exchanges, Expected, Message, Participant, Score, state
from firma.schedule import RoundPlan

if TYPE_CHECKING:
    from torch import Tensor

NEEDS_SERVER = True


def mixture(
    plan: RoundPlan, order: Sequence[int], sizes: ByClient[int], accuracies: ByClient[float]
) -> Average | Common:
    """Every row holds the clients' shares of the samples, or equal ones; neither order nor accuracies matter."""
    del accuracies
    if plan.combine != "mean":
        return Common(tuple(sorted(order)))
    return Average(by_size([in_average(plan.weights, sizes[client]) for client in sorted(order)]))


def exchange(plan: RoundPlan, one: Participant) -> Exchanges:
    """A client of the star: send to the server, take what it sends back."""
    weight = in_average(plan.weights, one.samples) if plan.combine == "mean" else None
    message = Message(state(plan, one.shared), weight=weight, wire=one.wire)
    arrived = yield Exchange((SERVER,), (SERVER,), message, (plan.number, 0))
    return arrived[SERVER].state.values


def server(plan: RoundPlan, one: Participant) -> Exchanges:
    """The hub: wait for all clients, send each the average by size."""
    clients = tuple(one.order)
    nothing = Message(state(plan, one.shared[:0]))
    arrived = yield Exchange((), clients, nothing, (plan.number, 0))
    made = _combined(plan, one, [arrived[client] for client in sorted(clients)])
    yield Exchange(clients, (), Message(state(plan, made), wire=one.wire), (plan.number, 0))
    return made


def _combined(plan: RoundPlan, one: Participant, arrived: Sequence[Message]) -> Tensor:
    """(q,) what the server makes of the messages: their average, or what the method's own `aggregate` says."""
    if plan.combine != "mean":
        return common(plan, [message.state.values for message in arrived])
    weights = by_size([message.weight or 0.0 for message in arrived])
    if one.aggregate is not None:
        import torch  # only where something is computed: rings are analysed without it

        return one.aggregate(torch.stack([each.state.values for each in arrived]), torch.from_numpy(weights))
    mean = one.shared
    for message, share in zip(arrived, weights.tolist(), strict=True):
        mean = mean + message.state.values * share
    return mean


def pass_weights(
    plan: RoundPlan, order: Sequence[int], me: int, arrived: Mapping[int, Message], score: Score | None
) -> dict[int, float]:
    """A client does not know how many samples the others have."""
    del plan, order, me, arrived, score
    return {}


def steps(plan: RoundPlan, members: int) -> int:
    """One exchange: up and down."""
    del plan, members
    return 1


def expected(plan: RoundPlan, order: Sequence[int], me: int, sender: int, step: int, elements: int) -> Expected | None:
    """The server sends every client the average; every client sends the server its parameters and its sample count."""
    del step
    if me == SERVER and sender in order:
        return Expected(0, elements, weight=plan.combine == "mean")
    return Expected(0, elements) if sender == SERVER and me in order else None


def lead(plan: RoundPlan, members: int) -> int:
    """None: a client's next message follows the server's answer to its last."""
    del plan, members
    return 0


def cost(plan: RoundPlan, clients: int, elements: int) -> Cost:
    """N messages up, with a sample count each if they are averaged by it, and N down."""
    counts = clients * NUMBER if plan.combine == "mean" else 0
    return Cost(2 * clients, 2 * clients * elements * FLOAT + counts)
