"""Graphs: their links against networkx, their weights against the formula, their spectra against published ones."""

import json
import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch

import firma
from firma.engines.checkpoint import RunCheckpoints, fingerprint
from firma.engines.message_passing import drive
from firma.engines.simulation import Simulation
from firma.errors import BadInput
from firma.graphs import Graph, check_graph, degree, every_sender, reach, read_edges, receivers, senders, torus_rows
from firma.method_lookup import lookup, on_topology
from firma.methods import GRAPHS, METHODS
from firma.mixing import graph as gossip
from firma.mixing.kind import FLOAT, kind_of, partners
from firma.mixing.matrix_blocks import apply
from firma.mixing.ring_order import neighbours
from firma.privacy import Audit
from firma.protocol import ExtractorState, Message, Participant
from firma.schedule import Phase, RoundPlan, plan
from firma.settings import Hyper
from firma.sweep.grid import expand
from firma.topologies import COMPARED, topology_report
from reference import epochs, make_sites, parameters, sgd
from test_mixing_kinds import ELEMENTS, PLACED
from test_simulation import CLOSE, finish

PATH = ((0, 1), (1, 2), (2, 3), (3, 4))
WHEEL = ((0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (3, 4))
UNDIRECTED = ("ring", "complete", "torus", "regular")


def known(topology, size):
    """The same graph by networkx; the exponential ones by their definition, node by node."""
    if topology in ("ring", "complete"):
        return nx.cycle_graph(size) if topology == "ring" else nx.complete_graph(size)
    if topology == "torus":
        rows = torus_rows(size)
        found = nx.grid_2d_graph(rows, size // rows, periodic=True)
        return nx.relabel_nodes(found, {(row, column): row * (size // rows) + column for row, column in found})
    found = nx.DiGraph()
    found.add_nodes_from(range(size))
    for node in range(size):
        offset = 1
        while offset < size:
            found.add_edge(node, (node + offset) % size)
            offset *= 2
    return found


def as_networkx(graph, size, turn=0):
    found = nx.DiGraph()
    found.add_nodes_from(range(size))
    found.add_edges_from((s, me) for me, heard in senders(graph, range(size), turn).items() for s in heard)
    return found


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 25, 30])
@pytest.mark.parametrize("topology", ["ring", "complete", "torus", "exponential"])
def test_links_are_those_of_networkx(topology, size):
    ours, theirs = as_networkx(Graph(topology), size), known(topology, size)
    theirs.remove_edges_from(list(nx.selfloop_edges(theirs)))
    assert set(ours.edges) == set(theirs.to_directed().edges)
    assert reach(Graph(topology), size) == nx.diameter(ours)


@pytest.mark.parametrize(("size", "wanted"), [(2, 1), (6, 2), (6, 3), (8, 3), (10, 4), (9, 8), (40, 3), (200, 4)])
def test_a_random_regular_graph_is_regular_connected_and_drawn_by_its_seed(size, wanted):
    found = [as_networkx(Graph("regular", wanted, seed), size) for seed in range(3)]
    for each in found:
        assert {degree for _, degree in each.in_degree} == {wanted}
        assert set(each.edges) == set(each.reverse().edges)
        assert nx.is_strongly_connected(each)
        assert reach(Graph("regular", wanted, found.index(each)), size) == nx.diameter(each)
    if 2 < wanted < size - 1 and size > 8:
        assert len({frozenset(each.edges) for each in found}) == 3
    assert set(found[0].edges) == set(as_networkx(Graph("regular", wanted, 0), size).edges)


def test_random_regular_graphs_mix_as_well_as_almost_all_do():
    """Friedman 2008: the second eigenvalue of the adjacency matrix is close to 2√(d-1) for almost all of them."""
    for wanted in (3, 5):
        radii = [
            np.sort(np.abs(np.linalg.eigvalsh(nx.to_numpy_array(as_networkx(Graph("regular", wanted, seed), 200)))))[-2]
            for seed in range(2)
        ]
        assert np.mean(radii) == pytest.approx(2 * math.sqrt(wanted - 1), rel=0.05)


@pytest.mark.parametrize("topology", PLACED)
def test_links_follow_the_order_and_receivers_are_the_other_end(topology):
    order = [7, 3, 9, 1, 4, 12]
    graph = Graph(topology, 3, 1)
    for turn in range(4):
        by_place, heard = senders(graph, range(6), turn), senders(graph, order, turn)
        told = receivers(graph, order, turn)
        for place, member in enumerate(order):
            assert set(heard[member]) == {order[other] for other in by_place[place]}
            assert list(heard[member]) == sorted(heard[member])
            for other in order:
                assert (other in heard[member]) == (member in told[other])
        if topology in UNDIRECTED:
            assert heard == told


def test_one_peer_at_a_time_has_the_offsets_of_the_exponential_graph_in_turn():
    graph = Graph("one-peer-exponential")
    for size, offsets in ((2, [1]), (5, [1, 2, 4]), (8, [1, 2, 4]), (9, [1, 2, 4, 8])):
        for turn in range(10):
            offset = offsets[turn % len(offsets)]
            assert senders(graph, range(size), turn) == {me: ((me - offset) % size,) for me in range(size)}
        everybody = every_sender(graph, range(size), range(len(offsets)))
        assert everybody == senders(Graph("exponential"), range(size))


@pytest.mark.parametrize("size", [1, 2, 3, 6, 8, 13])
@pytest.mark.parametrize("topology", PLACED)
def test_weights_are_those_of_metropolis_and_hastings_and_keep_the_mean(topology, size):
    graph = Graph(topology, 2, 4)
    for turn in range(3):
        matrix = gossip.one_pass(graph, range(size), turn)
        np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-12)
        np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-12)
        assert (matrix >= -1e-15).all()
        degrees = dict(as_networkx(graph, size, turn).in_degree)
        for me in range(size):
            for other in range(size):
                if me != other:
                    linked = other in senders(graph, range(size), turn)[me]
                    assert matrix[me, other] == (1 / (1 + max(degrees[me], degrees[other])) if linked else 0)
    if topology in UNDIRECTED:
        np.testing.assert_array_equal(matrix, matrix.T)
    if topology == "one-peer-exponential" and size > 1:
        assert sorted(set(matrix.ravel())) == ([0, 0.5] if size > 2 else [0.5])


def radius(topology, size, **changes):
    row = on_topology(METHODS["d-psgd"], topology)
    (found,) = topology_report(row, [topology], Hyper(**changes), size, 5, 0, 10)
    return found["spectral_radius_pass"]


@pytest.mark.parametrize("size", [2, 4, 6, 8, 10, 16, 32, 50, 64, 100])
def test_spectra_are_the_published_ones(size):
    """Static exponential graphs of even size, Ying et al. 2021, Prop. 1: 1 - 2/(⌈log₂ n⌉ + 1); the others by hand."""
    assert radius("exponential", size) == pytest.approx(1 - 2 / (math.ceil(math.log2(size)) + 1), abs=1e-9)
    assert radius("complete", size) == pytest.approx(0, abs=1e-9)
    if size > 2:
        by_hand = [abs(1 + 2 * math.cos(2 * math.pi * k / size)) / 3 for k in range(1, size)]
        assert radius("ring", size) == pytest.approx(max(by_hand), abs=1e-9)
    rows, columns = torus_rows(size), size // torus_rows(size)
    if rows > 2:
        turns = [
            (1 + 2 * math.cos(2 * math.pi * i / rows) + 2 * math.cos(2 * math.pi * j / columns)) / 5
            for i in range(rows)
            for j in range(columns)
        ]
        assert radius("torus", size) == pytest.approx(sorted(map(abs, turns))[-2], abs=1e-9)


@pytest.mark.parametrize("size", [2, 4, 8, 16, 64])
def test_one_peer_at_a_time_averages_exactly_after_log2_n_passes(size):
    """Ying et al. 2021, Lemma 1, from whichever round on; for other numbers of clients it does not."""
    graph = Graph("one-peer-exponential")
    passes = int(math.log2(size))
    for first in range(4):
        np.testing.assert_array_equal(
            gossip.all_passes(graph, range(size), passes, first), np.full((size, size), 1 / size)
        )
    assert radius("one-peer-exponential", size) == 0
    assert gossip.all_passes(graph, range(size + 1), passes + 1).std() > 1e-3 or size == 2
    assert radius("one-peer-exponential", 6) > 0.1


@pytest.mark.parametrize("topology", PLACED)
def test_cover_is_the_fewest_passes_after_which_everybody_has_a_weight(topology):
    for size in (2, 3, 5, 8, 12):
        graph = Graph(topology, 2, 4)
        passes = plan(replace(on_topology(METHODS["d-psgd"], topology), passes="cover"), Hyper(degree=2), size, 3, 0, 4)
        expected = reach(graph, size) if topology != "ring" else math.ceil(size / 2)
        assert passes.passes == expected
        assert (gossip.all_passes(graph, range(size), reach(graph, size)) > 0).all()
        if reach(graph, size) > 1:
            assert (gossip.all_passes(graph, range(size), reach(graph, size) - 1) == 0).any()
    wheel = plan(lookup("d-psgd:topology=edges,passes=cover"), Hyper(), 5, 3, 0, edges=WHEEL)
    assert wheel.passes == 2


def test_a_stalled_member_is_overtaken_by_as_many_exchanges_as_the_bound_says():
    """The bound holds for every graph while one member stalls, and on the exponential graph of eight it is attained."""
    attained = {}
    for topology in PLACED:
        for size in (2, 5, 6, 8):
            planned = RoundPlan(1, (), "graph", "extractor", 12, "metropolis", graph=Graph(topology, 2, 0))
            bound, furthest = gossip.lead(planned, size), 0
            for seed in range(5):
                rng = np.random.default_rng(seed)
                order = rng.permutation(size).tolist()
                members = {n: gossip.exchange(planned, Participant(n, order, torch.zeros(3), 1, 5)) for n in order}
                boxes, at, stalled = set(), {n: next(member) for n, member in members.items()}, order[0]

                def post(number, at=at, boxes=boxes):
                    boxes.update((number, to, at[number].tag) for to in at[number].to)
                    return max((at[number].tag[1] - at[to].tag[1] for to in at[number].to if to in at), default=0)

                furthest = max(furthest, *(post(number) for number in order))
                while at:
                    ready = [n for n, e in at.items() if all((s, n, e.tag) in boxes for s in e.wait)]
                    number = sorted(ready, key=lambda n: (n == stalled, rng.random()))[0]
                    try:
                        at[number] = members[number].send(
                            {s: Message(ExtractorState(torch.zeros(3))) for s in at[number].wait}
                        )
                    except StopIteration:
                        del at[number]
                        continue
                    furthest = max(furthest, post(number))
            assert furthest <= bound, (topology, size)
            attained[topology, size] = (furthest, bound)
    assert attained["exponential", 8] == (3, 3)
    assert attained["complete", 8] == attained["torus", 8] == (1, 1)


@pytest.mark.parametrize("edges", [PATH, WHEEL])
def test_own_edges_matrix_exchange_expectation_and_cost_agree_also_with_few_of_the_clients(edges):
    rng, size = np.random.default_rng(1), 5
    theta = torch.from_numpy(rng.normal(size=(size, ELEMENTS))).float()
    for drawn in (None, (0, 1, 2, 3), (4, 1, 0), (2, 4), (3,)):
        order = drawn or tuple(range(size))
        for passes in (1, 2):
            planned = RoundPlan(
                2, (), "graph", "model", passes, "metropolis", graph=Graph("edges", edges=edges), participants=drawn
            )
            sent = []
            members = {n: gossip.exchange(planned, Participant(n, order, theta[n].clone(), 0.5, 3)) for n in order}
            results = drive(members, lambda *delivery, to=sent: to.append(delivery))
            whole = nx.Graph(edges).subgraph(order)
            matrix = np.eye(len(order))
            here = sorted(order)
            for a, b in whole.edges:
                weight = 1 / (1 + max(whole.degree[a], whole.degree[b]))
                for one, other in ((a, b), (b, a)):
                    matrix[here.index(one), here.index(other)] = weight
                    matrix[here.index(one), here.index(one)] -= weight
            expected = torch.from_numpy(np.linalg.matrix_power(matrix, passes)).float() @ theta[here]
            torch.testing.assert_close(torch.stack([results[n] for n in here]), expected, rtol=1e-5, atol=1e-6)
            found = gossip.mixture(planned, order, [], []).matrix()
            np.testing.assert_allclose(found, np.linalg.matrix_power(matrix, passes), atol=1e-6)
            cost = gossip.cost(planned, len(order), ELEMENTS)
            assert cost == (len(sent), len(sent) * ELEMENTS * FLOAT)
            assert len(sent) == 2 * whole.number_of_edges() * passes
            for me in range(size):
                for other in range(size):
                    due = gossip.expected(planned, order, me, other, 0, ELEMENTS)
                    assert (due is not None) == whole.has_edge(me, other)


@pytest.mark.parametrize("topology", ["exponential", "regular", "torus", "one-peer-exponential", "edges"])
def test_a_thousand_clients_mix_alike_whole_and_in_groups(topology):
    """What Ray does: every group computes its rows from those that it reads, and gets the same bits."""
    size = 1000
    rng = np.random.default_rng(0)
    edges = tuple((int(rng.integers(at)), at) for at in range(1, size)) if topology == "edges" else ()
    order = rng.permutation(size).tolist()
    planned = RoundPlan(3, (), "graph", "model", 1, "metropolis", graph=Graph(topology, 4, 0, edges))
    blocks = kind_of("graph").mixture(planned, order, [], [])
    before = torch.from_numpy(rng.normal(size=(size, 70))).float()
    whole = before.clone()
    apply(blocks, whole, range(size))
    by_hand = torch.stack(
        [sum(w * before[n] for n, w in gossip.row(planned.graph, order, me, 3).items()) for me in range(0, size, 97)]
    )
    torch.testing.assert_close(whole[::97], by_hand, rtol=1e-5, atol=1e-6)
    assert sum(block.weights.size for block in blocks.blocks) < size * size / 4, "far fewer products than N²"
    read = 0
    for seats in (order[:10], order[10:400], order[400:]):
        part, own = blocks.for_group(seats), before[seats].clone()
        apply(part, own, seats, {client: before[client] for client in set(part.sources.tolist()) - set(seats)})
        assert torch.equal(own, whole[seats])
        read += len(part.sources)
    assert read < 3 * size, "a group reads what it needs"


ON_GRAPHS = {
    "d-psgd:topology=complete": {},
    "d-psgd:topology=torus,passes=cover": {},
    "fibfl:topology=exponential,weights=metropolis,retention=none": {},
    "fibfl++:topology=exponential,weights=metropolis,retention=none,gate=no,order=given": {},
    "d-psgd:topology=one-peer-exponential": {},
    "scaffold:topology=regular,weights=metropolis": {"degree": 2},
    "d-psgd:topology=edges,shares=head": {},
    "gradient-tracking:topology=exponential,weights=metropolis,retention=none": {},
}


def on_graph(make_federation, method, clients=5, **changes):
    federation = make_federation(method, clients, rounds=changes.pop("rounds", 6), **ON_GRAPHS[method], **changes)
    return replace(federation, edges=WHEEL if federation.method.topology == "edges" else ())


@pytest.mark.parametrize("share", [1.0, 0.6])
@pytest.mark.parametrize("method", ON_GRAPHS)
def test_messages_give_what_the_matrix_gives_and_reach_neighbours_only(make_federation, method, share):
    federation = replace(on_graph(make_federation, method, order=(3, 0, 4, 1, 2)), participation=share)
    audit = Audit(neighbours(federation.order))
    by_matrix, by_messages = Simulation(federation), Simulation(federation, audit)
    for left, right in zip(by_matrix.rounds(), by_messages.rounds(), strict=True):
        assert (left.messages, left.sent_bytes) == (right.messages, right.sent_bytes)
    torch.testing.assert_close(by_matrix.parameters, by_messages.parameters, **CLOSE)
    summary = audit.summary()
    assert summary["server_free"]
    assert summary["messages"] > 0
    if share == 1.0:
        planned = federation.plan(5)
        expected = max(len(heard) for heard in gossip_links(planned, federation.order).values())
        assert summary["degree"] == max(expected, 2 if federation.method.warmup == "yes" else 0)
    stranger = Message(ExtractorState(torch.zeros(1)))
    if federation.method.topology == "edges" and share == 1.0:
        audit.record(1, 4, (0, 0), stranger)  # no edge between them
        assert not audit.summary()["server_free"]


def gossip_links(planned, order):
    turns = range(planned.number * planned.passes, (planned.number + 1) * planned.passes)
    return every_sender(planned.graph, order, turns)


def test_an_audit_of_one_peer_at_a_time_tells_degree_and_all_senders(make_federation):
    federation = make_federation("d-psgd:topology=one-peer-exponential", 5, rounds=4)
    audit = Audit(neighbours(federation.order))
    finish(federation, audit)
    assert (audit.summary()["degree"], audit.summary()["most_senders"]) == (1, 3)
    audit.record(1, 0, (0, 0), Message(ExtractorState(torch.zeros(1))))  # in the first round 0 hears of 4 alone
    assert audit.strangers == 1


def test_on_the_complete_graph_of_equal_weights_d_psgd_is_fedavg(make_federation):
    gossiping = finish(make_federation("d-psgd:topology=complete", 4))[0]
    served = finish(make_federation("fedavg:weights=equal", 4))[0]
    torch.testing.assert_close(gossiping, served, rtol=0, atol=0)
    assert not torch.equal(gossiping, finish(make_federation("d-psgd", 4))[0]), "a ring of four is not complete"
    torch.testing.assert_close(
        finish(make_federation("d-psgd", 3))[0], finish(make_federation("fedavg:weights=equal", 3))[0], **CLOSE
    )


def test_one_peer_at_a_time_with_all_passes_is_an_exact_average(make_federation):
    gossiping = finish(make_federation("d-psgd:topology=one-peer-exponential,passes=cover", 4))[0]
    torch.testing.assert_close(gossiping, finish(make_federation("fedavg:weights=equal", 4))[0], **CLOSE)


def oracle(federation, weights):
    """Local SGD, then the weighted sum over neighbours, client by client."""
    hyper, model = federation.hyper, federation.models[0]
    sites = make_sites([(each.inputs, each.labels) for each in federation.data], model.extractor, model.head)
    for number in range(federation.rounds):
        for site in sites:
            both = [*site.extractor.parameters(), *site.head.parameters()]
            shuffle = firma.seeds.generator(federation.seed, "batches", site.number, number)
            if hyper.local_steps is None:
                epochs(site, shuffle, hyper.epochs, hyper, [sgd(both, Numbers(hyper))])
            else:
                stepwise(site, shuffle, hyper, sgd(both, Numbers(hyper)))
        theta = torch.stack([parameters(site) for site in sites])
        mixed = weights(number) @ theta
        for site, row in zip(sites, mixed, strict=True):
            at = 0
            for each in (*site.extractor.parameters(), *site.head.parameters()):
                each.data, at = row[at : at + each.numel()].view_as(each).clone(), at + each.numel()
    return torch.stack([parameters(site) for site in sites])


class Numbers:
    def __init__(self, hyper):
        self.lr, self.momentum, self.batch = hyper.rate, hyper.momentum, hyper.batch


def stepwise(site, shuffle, hyper, optimiser):
    """The same one batch after the other, until enough were taken."""
    taken = 0
    for _ in range(hyper.epochs):
        if taken == hyper.local_steps:
            return
        permutation = shuffle.permutation(len(site.y))
        for start in range(0, len(permutation), hyper.batch):
            if taken == hyper.local_steps:
                return
            rows = torch.from_numpy(permutation[start : start + hyper.batch])
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(site.head(site.extractor(site.x[rows])), site.y[rows]).backward()
            optimiser.step()
            taken += 1


def metropolis(graph):
    """By networkx, for an undirected graph."""
    matrix = torch.zeros(len(graph), len(graph))
    for a, b in graph.edges:
        matrix[a, b] = matrix[b, a] = 1 / (1 + max(graph.degree[a], graph.degree[b]))
    return matrix + torch.diag(1 - matrix.sum(1))


@pytest.mark.parametrize("steps", [None, 1, 4, 7])
@pytest.mark.parametrize("topology", ["torus", "edges", "one-peer-exponential"])
def test_agrees_with_a_naive_loop(make_federation, topology, steps):
    changes = {} if steps is None else {"local_steps": steps}
    federation = replace(
        make_federation(f"d-psgd:topology={topology}", 5 if topology == "edges" else 6, rounds=4, **changes),
        edges=WHEEL if topology == "edges" else (),
    )
    if topology == "one-peer-exponential":
        shift = torch.eye(6)
        weights = [(shift + shift.roll(offset, 0)) / 2 for offset in (1, 2, 4)]
        expected = oracle(federation, lambda number: weights[number % 3])
    else:
        graph = nx.Graph(WHEEL) if topology == "edges" else nx.circular_ladder_graph(3)
        expected = oracle(federation, lambda _: metropolis(graph))
    torch.testing.assert_close(finish(federation)[0], expected, **CLOSE)


@pytest.mark.parametrize("method", ["fedavg", "fedrep", "fibfl++", "scaffold"])
def test_as_many_local_steps_as_an_epoch_has_are_whole_epochs_and_backends_agree(make_federation, method):
    whole = make_federation(method, 3)
    plenty = make_federation(method, 3, local_steps=10_000)
    assert torch.equal(finish(whole)[0], finish(plenty)[0])
    few = [finish(make_federation(method, 3, local_steps=3, backend=backend))[0] for backend in ("auto", "autograd")]
    torch.testing.assert_close(*few, **CLOSE)
    assert not torch.allclose(few[0], finish(whole)[0])
    phases = plan(lookup(method), Hyper(local_steps=3), 3, 6, 5).phases
    assert {phase.steps for phase in phases} == {3}
    assert fingerprint(whole) != fingerprint(make_federation(method, 3, local_steps=3))


def test_a_phase_ends_after_its_steps():
    from firma.training.local_step import batches, phase_orders, phase_steps

    for size, batch, smallest in ((37, 8, 1), (33, 8, 2), (5, 8, 1), (16, 8, 1)):
        for steps in (None, 1, 2, 5, 9, 100):
            phase = Phase("model", 3, steps)
            parts = phase_orders(size, phase, batch, np.random.default_rng(0), smallest)
            taken = [rows.tolist() for part in parts for rows in batches(part, batch, smallest)]
            drawn = np.random.default_rng(0)
            every = [list(rows) for _ in range(3) for rows in batches(drawn.permutation(size)[None], batch, smallest)]
            assert taken == (every if steps is None else every[:steps])
            assert len(taken) == phase_steps(size, phase, batch, smallest)


def test_an_interrupted_run_on_a_graph_continues(make_federation, tmp_path):
    federation = on_graph(make_federation, "d-psgd:topology=edges,shares=head")
    whole = finish(federation)[0]
    rounds = Simulation(federation, None, RunCheckpoints(tmp_path, federation)).rounds()
    for _ in range(3):
        next(rounds)
    rounds.close()
    resumed = Simulation(federation, None, RunCheckpoints(tmp_path, federation))
    assert len(list(resumed.rounds())) == 6
    assert torch.equal(resumed.parameters, whole)
    assert fingerprint(federation) != fingerprint(replace(federation, edges=PATH)), "another graph is another run"


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("fibfl:topology=torus", "requires weights = 'metropolis' and retention = 'none'; add weights=metropolis,ret"),
        ("gradient-tracking:topology=torus", "requires weights = 'metropolis' and retention = 'none'; add weights=met"),
        ("fibfl++:topology=torus", "add weights=metropolis,retention=none,gate=no,order=given,warmup=no"),
        ("fibfl:topology=complete,weights=metropolis", "requires retention = 'none'"),
        ("fibfl:weights=metropolis", "requires retention = 'none'"),
        ("fibfl:retention=none", "unless weights = 'metropolis'"),
        ("fibfl+:weights=metropolis,retention=none", "gate = 'yes' requires topology = 'ring' with"),
        ("fibfl+:topology=torus,weights=metropolis,retention=none", "gate = 'yes' requires"),
        ("fedavg:weights=metropolis", "requires weights = 'size' or 'equal'"),
        ("d-psgd:topology=torus,order=2-opt", "order = '2-opt' requires a ring"),
        ("fedavg:order=bandwidth", "requires topology = 'ring' or 'all-reduce'"),
        ("d-psgd:topology=torus,warmup=yes", "does not have its links"),
        ("d-psgd:topology=moon", "topology = 'moon'; must be one of"),
    ],
)
def test_columns_that_do_not_fit_are_refused(method, says):
    with pytest.raises(BadInput, match=says.replace("(", r"\(")):
        lookup(method)


@pytest.mark.parametrize("topology", ["ring", *GRAPHS])
def test_every_gossip_method_goes_on_every_graph(topology):
    for row in METHODS.values():
        if row.algorithm == "normalised-steps":
            with pytest.raises(BadInput, match="would never bring them together"):
                on_topology(row, topology)
            continue
        found = on_topology(row, topology)
        assert found.topology == topology
        assert found == row or (found.weights, found.base) == ("metropolis", row.base)


@pytest.mark.parametrize(
    ("graph", "size", "says"),
    [
        (Graph("regular", 3), 5, "degree = 3: no graph of 5 clients"),
        (Graph("regular", 5), 5, "degree = 5.*from 1 to 4"),
        (Graph("regular", 1), 4, "would fall into pairs"),
        (Graph("edges"), 3, "pass --graph FILE"),
        (Graph("edges", edges=((0, 1), (1, 5))), 3, "there is no client 5; clients are 0 to 2"),
        (Graph("edges", edges=((0, 1), (1, 1))), 3, "joins a client to itself"),
        (Graph("edges", edges=((0, 1), (2, 3))), 4, "no path from client 0 to 2, 3"),
    ],
)
def test_graphs_that_do_not_exist_are_refused(graph, size, says):
    with pytest.raises(BadInput, match=says):
        check_graph(graph, size)


def test_edges_are_read_from_text_and_tables(tmp_path):
    file = tmp_path / "graph"
    for text in ("0 1\n1 2\n", "a,b\n1,0\n2,1\n1,2\n", "# mine\n\n0\t1\n 1 , 2 \n", "from;to\n0;1\n2;1"):
        file.write_text(text)
        assert read_edges(file) == ((0, 1), (1, 2))
    for text, says in (("0 1\n1 2 3\n", "line 2 is '1 2 3'"), ("0 1\nx y\n", "line 2"), ("0 -1", "line 1")):
        file.write_text(text)
        with pytest.raises(BadInput, match=says):
            read_edges(file)
    with pytest.raises(BadInput, match="cannot be read"):
        read_edges(tmp_path / "none")


SMALL = {"hidden": 16, "embedding": 8, "epochs": 1}


def small(**options):
    return firma.run("digits", "iid", rounds=2, settings=SMALL | options.pop("set", {}), **options)


def test_a_run_on_own_edges_from_a_file_and_from_python(tmp_path):
    file = tmp_path / "graph.csv"
    file.write_text("a,b\n" + "\n".join(f"{a},{b}" for a, b in WHEEL))
    method = "d-psgd:topology=edges"
    found = [small(method=method, clients=5, graph=each) for each in (file, str(file), [list(e) for e in WHEEL])]
    assert all(torch.equal(each.parameters, found[0].parameters) for each in found)
    assert found[0].config["edges"] == sorted(map(list, WHEEL))
    assert found[0].messages == (12, 12)
    path = small(method=method, clients=5, graph=PATH)
    assert not torch.equal(path.parameters, found[0].parameters)
    audited = small(method=method, clients=5, graph=WHEEL, audit=True)
    assert (audited.audit["server_free"], audited.audit["degree"]) == (True, 4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "d-psgd:topology=edges"}, "requires --graph FILE"),
        ({"method": "d-psgd", "graph": PATH}, "--graph requires a method with topology = 'edges'"),
        ({"method": "d-psgd:topology=edges", "graph": PATH, "clients": 4}, "there is no client 4"),
        ({"method": "d-psgd:topology=edges", "graph": PATH, "clients": 6}, "no path from client 0 to 5"),
        ({"method": "d-psgd:topology=regular", "set": {"degree": 3}}, "degree = 3: no graph of 5"),
        ({"method": "d-psgd:topology=regular", "participation": 0.6}, "degree = 4.*with the 3 of 5 clients in a round"),
        ({"method": "d-psgd:topology=complete", "participation": 0.2}, "requires at least 2"),
        ({"method": "fibfl", "order": "0,1,2"}, "must name each of the clients 0 to 4 once"),
        ({"method": "fibfl", "order": "0,1,2,3,3"}, "must name each of the clients 0 to 4 once"),
        ({"method": "fibfl++", "order": "4,3,2,1,0"}, "which has order = '2-opt'"),
        ({"method": "fedavg", "order": "4,3,2,1,0"}, "method 'fedavg' has topology = 'star', which has no order"),
        ({"method": "frame:topology=all-gather", "order": "4,3,2,1,0"}, "topology = 'all-gather', which has no order"),
        ({"method": "fibfl", "order": "nowhere.txt"}, "such as 3,1,0,2, or a file"),
        ({"method": "fibfl:order=bandwidth"}, "requires --bandwidth FILE"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_training(options, says):
    with pytest.raises(BadInput, match=says):
        small(**{"clients": 5} | options)


def test_a_given_order_is_the_ring(tmp_path):
    file = tmp_path / "order.txt"
    file.write_text("3 1\n0, 2\n")
    found = [small(method="d-psgd", clients=4, order=each) for each in ("3,1,0,2", [3, 1, 0, 2], file, str(file))]
    assert {each.order for each in found} == {(3, 1, 0, 2)}
    assert all(torch.equal(each.parameters, found[0].parameters) for each in found)
    assert not torch.equal(found[0].parameters, small(method="d-psgd", clients=4).parameters)


def test_sweeps_know_the_content_of_a_graph(tmp_path):
    file = tmp_path / "graph.txt"
    file.write_text("0 1\n1 2\n")
    document = {"dataset": "digits", "clients": 3, "method": "d-psgd:topology=edges", "graph": str(file)}
    from firma.sweep.cells import key

    first = key(expand(document, {}).cells[0])
    assert first == key(expand(document, {}).cells[0])
    file.write_text("0 1\n1 2\n0 2\n")
    assert first != key(expand(document, {}).cells[0])


def test_the_command_compares_topologies(command, tmp_path):
    file = tmp_path / "graph.txt"
    file.write_text("\n".join(f"{a} {b}" for a, b in PATH))
    words = ["--topology", "all", "--topology", "edges", "--graph", str(file), "--clients", "5", "--set", "degree=2"]
    code, out, _ = command("topology", *words, "--json")
    report = json.loads(out)
    assert code == 0
    found = {each["topology"]: each for each in report["topologies"]}
    assert set(found) == {"ring", *GRAPHS}
    for each in found.values():
        assert each["bytes"] == each["messages"] * report["elements"] * FLOAT
    assert (found["complete"]["degree"], found["complete"]["messages"]) == (4, 20)
    assert found["ring"]["spectral_radius_pass"] == pytest.approx((1 + 2 * math.cos(2 * math.pi / 5)) / 3)
    assert (found["edges"]["degree"], found["edges"]["messages"], found["edges"]["min_influence"]) == (2, 8, 0)
    code, out, _ = command("topology", "--topology", "ring", "--topology", "exponential", "--method", "fibfl++")
    assert code == 0
    assert "ring (golden)" in out
    assert "exponential" in out
    assert command("ring", "--json") == command("topology", "--json"), "the old name is an alias"
    _, shown, _ = command("topology", "--method", "d-psgd:topology=torus", "--json")
    assert [each["topology"] for each in json.loads(shown)["topologies"]] == ["torus"]
    code, _, err = command("topology", "--topology", "moon")
    assert (code, "choose from ring, complete" in err) == (2, True)


@pytest.mark.parametrize("clients", [2, 3, 4])
def test_all_topologies_are_those_that_exist_for_so_many_clients(command, clients):
    words = ["topology", "--topology", "all", "--clients", clients]
    code, out, _ = command(*words, "--json")
    report = json.loads(out)
    assert code == 0
    assert [each["topology"] for each in report["topologies"]] == [each for each in COMPARED if each != "regular"]
    assert list(report["left_out"]) == ["regular"]
    assert "Left out: regular (degree = 4: topology = 'regular' with" in command(*words)[1]
    code, _, err = command(*words, "--topology", "regular")
    assert (code, "degree = 4: topology = 'regular'" in err) == (2, True), "what is asked for by name is refused"
    code, _, err = command("topology", "--topology", "all", "--clients", 4, "--participation", 2)
    assert (code, "participation = 2.0: must be" in err) == (2, True)


@pytest.mark.parametrize(
    "method",
    [
        "gradient-tracking",
        "fedbn:topology=ring,weights=metropolis",
        "frame:topology=complete,weights=metropolis",
        "d-psgd:algorithm=debiased",
    ],
)
def test_the_command_counts_what_a_run_sends(command, method):
    words = ["--dataset", "digits", "--clients", 3, "--method", method, "--json"]
    code, out, err = command("topology", *words, "--topology", lookup(method).topology)
    assert code == 0, err
    (found,) = json.loads(out)["topologies"]
    code, out, err = command("run", *words, "--rounds", 1, "--set", "local_steps=1", "--scenario", "iid")
    assert code == 0, err
    result = json.loads(out)["results"][0]
    assert (found["messages"], found["bytes"]) == (result["messages"][0], result["bytes"][0])


def test_the_command_says_how_to_see_a_method_without_a_ring(command):
    code, _, err = command("topology", "--method", "frame")
    assert (code, "choose a method on a ring, such as fibfl++, or see" in err) == (2, True)


def test_degree_and_partners():
    assert degree(Graph("exponential"), range(8)) == 3
    assert degree(Graph("edges", edges=WHEEL), range(5)) == 4
    planned = RoundPlan(0, (), "graph", "extractor", 1, "metropolis", graph=Graph("one-peer-exponential"))
    assert partners(planned, range(8), 0) == (1, 2, 4, 6, 7)
    assert partners(RoundPlan(0, (), "ring", "extractor"), (3, 1, 2), 1) == (2, 3)
