"""What is said before a run that can be trained, but may not be what was meant: robust combines and attacks."""

import warnings
from collections.abc import Iterator, Mapping

from firma.attacks import Attack
from firma.engines.engine import Federation
from firma.graphs import every_sender, senders
from firma.mixing.combine import needed
from firma.mixing.ring_order import neighbours
from firma.schedule import RoundPlan


def warn_of_doubts(run: Federation) -> None:
    """Warn of clients that a robust combine never changes, of attacks that are too much for it or never come."""
    found = [_too_few_neighbours(run)]
    if run.attack is not None:
        found += [_never_drawn(run, run.attack), _too_many_liars(run, run.attack)]
    for text in found:
        if text:
            warnings.warn(f"{run.method.name}: {text}", UserWarning, stacklevel=2)


def _too_few_neighbours(run: Federation) -> str:
    """On a graph of the user's own: who has too few neighbours for the combine, so that it keeps its own for ever."""
    last = run.plan(run.rounds - 1)
    if last.graph is None or last.graph.topology != "edges" or last.combine == "mean":
        return ""
    least = needed(last.combine, last.byzantine, last.clip_radius)
    heard = senders(last.graph, range(run.clients))
    alone = [client for client in range(run.clients) if 1 + len(heard[client]) < least]
    if not alone:
        return ""
    shown = ", ".join(map(str, alone[:5])) + (", …" if len(alone) > 5 else "")
    return (
        f"combine = {last.combine!r} with byzantine = {last.byzantine} requires {least - 1} neighbours, and "
        f"{len(alone)} of {run.clients} clients have fewer ({shown}): they keep their own parameters in every round; "
        "add edges, or use a smaller byzantine"
    )


def _never_drawn(run: Federation, attack: Attack) -> str:
    """Which attackers take part in no round."""
    drawn = {client for plan in _plans(run) for client in run.ring(plan)}
    missing = [client for client in attack.clients if client not in drawn]
    if not missing:
        return ""
    effect = "nobody attacks" if len(missing) == len(attack.clients) else "fewer attack"
    return (
        f"{len(missing)} of {len(attack.clients)} dishonest clients ({', '.join(map(str, missing))}) take part in none "
        f"of the {run.rounds} rounds, so {effect}; use a larger participation, more rounds, or another seed"
    )


def _too_many_liars(run: Federation, attack: Attack) -> str:
    """Whether somebody honest combines more attackers than a robust combine withstands."""
    if run.method.combine == "mean":
        return ""
    liars = set(attack.clients)
    most = max(
        (
            len(liars & set(heard))
            for plan in _plans(run)
            for one, heard in _heard(run, plan).items()
            if one not in liars
        ),
        default=0,
    )
    if most <= run.hyper.byzantine:
        return ""
    return (
        f"{most} dishonest clients are combined at a time, but combine = {run.method.combine!r} withstands byzantine = "
        f"{run.hyper.byzantine}; use fewer attackers, or a larger byzantine"
    )


def _plans(run: Federation) -> Iterator[RoundPlan]:
    """Every round in which something else is mixed, or by others, than in one before it."""
    same = run.participation == 1.0 and not run.orders
    numbers = sorted({0, run.rounds - 1}) if same else range(run.rounds)  # the warm-up, if there is one, and the rest
    return (run.plan(number) for number in numbers)


def _heard(run: Federation, plan: RoundPlan) -> Mapping[int, tuple[int, ...]]:
    """Whose parameters each client combines with its own; at a server, for -1, those of all who take part."""
    ring = run.ring(plan)
    if plan.graph is not None and plan.graph.topology != "complete":
        return every_sender(plan.graph, ring, range(plan.number * plan.passes, (plan.number + 1) * plan.passes))
    return neighbours(ring) if plan.mixing == "ring" else {-1: ring}
