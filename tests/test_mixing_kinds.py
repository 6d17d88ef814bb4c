"""Every kind of mixing says four things of itself, and they must agree: matrix, exchange, expectation, cost."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

import reference_combine
from firma.engines.message_passing import drive
from firma.graphs import Graph, GraphTopology
from firma.method_lookup import on_topology
from firma.methods import COLUMNS, METHODS
from firma.mixing.combine import Common, Gossip, combined, common, enough
from firma.mixing.kind import FLOAT, NUMBER, kind_of
from firma.protocol import SERVER, Participant
from firma.schedule import Gate, Mixing, RoundPlan
from firma.schedule import plan as planned
from firma.settings import Hyper

KINDS = get_args(Mixing)
PLACED = [topology for topology in get_args(GraphTopology) if topology != "edges"]  # by place, for any number
ELEMENTS = 23  # no multiple of any number of clients below


def plans(mixing):  # noqa: PLR0912  # one branch per kind
    """Plans of a kind with every choice that it knows."""
    if mixing == "graph":
        for topology in PLACED:
            for passes in (1, 3):
                graph = Graph(topology, degree=2, seed=3)
                yield RoundPlan(4, (), mixing, "extractor", passes, "metropolis", graph=graph)
        for combine in ("clipped", "trimmed", "krum"):
            for topology in ("complete", "exponential"):
                plan = RoundPlan(4, (), mixing, "extractor", 2, "metropolis", graph=Graph(topology))
                yield replace(plan, combine=combine, byzantine=1)
        return
    if mixing in ("star", "all-gather"):
        for combine in ("trimmed", "median", "krum", "clipped")[: 4 if mixing == "all-gather" else 3]:
            yield RoundPlan(4, (), mixing, "extractor", weights="size", combine=combine, byzantine=1)
    if mixing in ("star", "all-reduce", "all-gather"):
        yield RoundPlan(4, (), mixing, "extractor", weights="equal")
    if mixing != "ring":
        yield RoundPlan(4, (), mixing, "extractor")
        return
    for combine in ("clipped", "trimmed", "median"):
        for gate in (None, Gate(0.5, 0.5)):
            yield RoundPlan(4, (), mixing, "extractor", 3, "half", 0.4, gate, combine=combine, byzantine=1)
    yield RoundPlan(4, (), mixing, "extractor", 3, "half", 0.4, combine="clipped", byzantine=1, clip_radius=2.0)
    for weights in ("golden", "half"):
        for gate in (None, Gate(0.5, 0.5)):
            for passes in (1, 3):
                yield RoundPlan(4, (), mixing, "extractor", passes, weights, 0.4, gate)


def cases():
    for mixing in KINDS:
        for plan in plans(mixing):
            for clients in (1, 2, 3, 5, 8):
                if mixing == "star" and clients > 1 and not enough(plan, clients):
                    continue  # refused before the run
                name = f"{plan.graph.topology if plan.graph else mixing}-{plan.combine}"
                for seed in (0, 1, 2):
                    yield pytest.param(plan, clients, seed, id=f"{name}-{plan.weights}-{plan.passes}-{clients}-{seed}")


@pytest.mark.parametrize(("plan", "clients", "seed"), list(cases()))
def test_matrix_exchange_expectation_and_cost_agree(plan, clients, seed):
    rng = np.random.default_rng([seed, clients])
    order = rng.permutation(clients).tolist()
    sizes = rng.integers(1, 100, clients).tolist()
    accuracies = rng.uniform(0, 1, clients).tolist()
    theta = torch.from_numpy(rng.normal(size=(clients, ELEMENTS))).float()
    kind, sent = kind_of(plan.mixing), []

    parts = {n: Participant(n, order, theta[n].clone(), accuracies[n], sizes[n]) for n in range(clients)}
    members = {n: kind.exchange(plan, part) for n, part in parts.items()}
    hub = kind.server(plan, Participant(SERVER, range(clients), torch.zeros(ELEMENTS), 0.0, 0))
    assert (hub is not None) == kind.NEEDS_SERVER
    if hub is not None:
        members[SERVER] = hub
    results = drive(members, lambda *delivery: sent.append(delivery))

    mixture = kind.mixture(plan, order, sizes, accuracies)
    if plan.combine == "mean":
        matrix = np.eye(clients) if mixture is None else mixture.matrix()
        np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-6)
        expected = torch.from_numpy(matrix).float() @ theta
    else:
        state = (plan.clip_radius, plan.passes, plan.retention, accuracies, plan.gate)
        if plan.graph is not None:
            found = reference_combine.on_graph(
                plan.graph.topology, plan.combine, theta, order, plan.byzantine, *state[:2]
            )  # fmt: skip
        else:
            found = reference_combine.mixed(plan.mixing, plan.combine, theta, order, plan.byzantine, *state)
        expected = torch.from_numpy(found).float()
        torch.testing.assert_close(applied(plan, mixture, theta), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.stack([results[n] for n in range(clients)]), expected, rtol=1e-4, atol=1e-5)

    everyone = [*range(clients), *([SERVER] if hub is not None else [])]
    due = {
        (sender, me, step): found
        for step in range(kind.steps(plan, clients))
        for me in everyone
        for sender in everyone
        if (found := kind.expected(plan, order, me, sender, step, ELEMENTS)) is not None
    }
    arrived = {
        (sender, me, tag[1]): (
            message.state.start if message.state.values.numel() else 0, message.state.values.numel(),
            message.accuracy is not None, message.weight is not None, len(message.digests),
        )
        for sender, me, tag, message in sent
    }  # fmt: skip
    assert arrived == {key: (e.start, e.count, e.accuracy, e.weight, e.digests) for key, e in due.items()}

    size = sum(FLOAT * m.state.values.numel() + NUMBER * ((m.accuracy, m.weight) != (None, None)) for *_, m in sent)
    size += sum(len(digest) for *_, message in sent for digest in message.digests)
    assert kind.cost(plan, clients, ELEMENTS) == (len(sent), size)


def applied(plan, mixture, theta):
    """What an engine makes of a mixture that is not linear."""
    if mixture is None:
        return theta
    if isinstance(mixture, Common):
        return common(plan, list(theta)).expand(len(theta), -1)
    assert isinstance(mixture, Gossip)
    for _ in range(mixture.passes):
        theta = torch.stack(
            [
                combined(plan, theta[me], [theta[other] for other in reads.others], reads)
                for me, reads in sorted(mixture.reads.items())
            ]
        )
    return theta


AHEAD = [pytest.param(list(plans(kind))[kind == "ring"], id=kind) for kind in KINDS if kind not in ("none", "graph")]
AHEAD += [pytest.param(each, id=each.graph.topology) for each in plans("graph") if each.passes == 3]


@pytest.mark.parametrize("plan", AHEAD)
def test_nobody_is_further_ahead_than_the_kind_allows(plan):
    """Members advance in a random order for as long as they can: how far ahead of a receiver does a message arrive?"""
    kind = kind_of(plan.mixing)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        clients = int(rng.integers(2, 7))
        order = rng.permutation(clients).tolist()
        members = {n: kind.exchange(plan, Participant(n, order, torch.zeros(ELEMENTS), 1.0, 5)) for n in range(clients)}
        hub = kind.server(plan, Participant(SERVER, range(clients), torch.zeros(ELEMENTS), 0.0, 0))
        members |= {SERVER: hub} if hub is not None else {}
        boxes, at = {}, {n: next(member) for n, member in members.items()}

        def post(number, at=at, boxes=boxes, kind=kind, clients=clients, plan=plan):
            for receiver in at[number].to:
                boxes[number, receiver, at[number].tag] = at[number].message
                if receiver in at:
                    assert at[number].tag[1] - at[receiver].tag[1] <= kind.lead(plan, clients)

        for number in at:
            post(number)
        while at:
            ready = [n for n, e in at.items() if all((s, n, e.tag) in boxes for s in e.wait)]
            number = ready[int(rng.integers(len(ready)))]
            exchange = at[number]
            try:
                at[number] = members[number].send({s: boxes.pop((s, number, exchange.tag)) for s in exchange.wait})
            except StopIteration:
                del at[number]
                continue
            post(number)


def test_every_topology_of_the_table_has_a_kind():
    rows = {"none": METHODS["local"], "star": METHODS["fedavg"], "all-reduce": METHODS["frame"]}
    rows["all-gather"] = replace(METHODS["frame"], topology="all-gather")
    for topology in COLUMNS["topology"]:
        row = rows.get(topology) or on_topology(METHODS["d-psgd"], topology)
        assert row.topology == topology
        assert kind_of(planned(row, Hyper(), 4, 3, 0, edges=((0, 1), (1, 2), (2, 3))).mixing) is not None


def test_an_unknown_kind_is_an_error_and_nothing_else():
    with pytest.raises(AssertionError):
        kind_of("tree")
