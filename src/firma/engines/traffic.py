"""What a round's mixing costs in messages and bytes, without sending any."""

from firma.schedule import RoundPlan

_FLOAT, _NUMBER = 4, 8


def traffic(plan: RoundPlan, clients: int, elements: int) -> tuple[int, int]:
    """Messages and bytes of one round, all clients together; `elements` is the size of what is shared.

    Ring: both neighbours, each pass (one neighbour if N = 2). All-reduce: 2(N-1) steps of one N-th each.
    Star: N up, N down. With the gate each neighbour is told one accuracy, in the first pass.
    """
    if plan.mixing == "star":
        return 2 * clients, 2 * clients * elements * _FLOAT + clients * _NUMBER
    if plan.mixing == "none" or clients == 1:
        return 0, 0
    if plan.mixing == "all-reduce":
        steps = 2 * (clients - 1)
        return steps * clients, steps * (elements * _FLOAT + clients * _NUMBER)
    links = clients * min(clients - 1, 2)
    gate = links * _NUMBER if plan.gate is not None else 0
    return links * plan.passes, links * plan.passes * elements * _FLOAT + gate
