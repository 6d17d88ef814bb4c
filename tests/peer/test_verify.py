"""A member that lies about its accuracy, and a gate that looks for itself."""

import json
import threading

import pytest
import torch

from firma.errors import BadInput
from firma.mixing.kind import exchange
from firma.peer.identity import load_identity
from firma.peer.runtime.local_training import LocalSite
from firma.peer.runtime.node import Node, Setup
from firma.protocol import ExtractorState, Message, Participant
from firma.schedule import Gate, RoundPlan

from .test_node import assert_exact, run_threads, simulated

LIAR = 1


class Ruined(LocalSite):
    """Says that it is perfect and sends noise; what it trains for itself stays as it is."""

    @property
    def shared(self):
        noise = torch.randn(self.layout.extractor, generator=torch.Generator().manual_seed(1))
        return noise * (super().shared.norm() / noise.norm())  # no larger than honest ones: bounds do not see it

    def train(self, plan):
        super().train(plan)
        return 1.0


def run_with_a_liar(made, verify_gate):
    nodes, outcomes = [], {}
    for number in range(len(made.ring.members)):
        own = load_identity(made.identity(number))
        setup = Setup(made.ring, own, made.data(number), made.state(number), verify_gate=verify_gate)
        nodes.append(Node(setup, lambda report: None))
    nodes[LIAR].site.__class__ = Ruined

    def work(number):
        outcomes[number] = nodes[number].run()

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(nodes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    return outcomes


def events(made, number, name):
    lines = [json.loads(line) for line in (made.state(number) / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == name]


@pytest.mark.parametrize("method", ["fibfl+", "fibfl++:warmup=no"])
def test_a_liar_is_gated_by_who_looks_and_not_by_who_believes(make_ring, method):
    changes = {"extractor_epochs": 5, "hidden": 32, "embedding": 16, "posterior": 1.0, "schedule": "constant"}
    made = make_ring(method, 3, 5, "iid", set=changes)
    honest = {}
    for verify in (False, True):
        for number in range(3):
            made.state(number).rename(made.state(number).with_name("before")) if verify else None
        outcomes = run_with_a_liar(made, verify)
        honest[verify] = [outcomes[number].history[-1] for number in (0, 2)]
        for number in (0, 2):
            weights = [line["weights"]["bee"] for line in events(made, number, "round")]
            assert all(weight == 0 for weight in weights) if verify else all(weight > 0.1 for weight in weights)
            gated = [line["round"] for line in events(made, number, "gated") if line["member"] == "bee"]
            assert set(gated) == (set(range(1, 6)) if verify else set())
    assert max(honest[False]) < 0.5, "the lie works where it is believed"
    assert min(honest[True]) > 0.8, "and does no harm where it is not"


def test_honest_members_train_as_well_with_it(make_ring):
    made = make_ring("fibfl++", 5, 6, "dir-0.1", set={"extractor_epochs": 5, "hidden": 32, "embedding": 16})
    outcomes = run_threads(made, verify_gate=True)
    believed = simulated(made, "dir-0.1", audit=True)
    for number, outcome in outcomes.items():
        assert outcome.history[-1] > believed.history[-1, number] - 0.1
        assert outcome.refused == {}


def test_scoring_leaves_no_trace(make_ring):
    """One posterior for all: where everybody passes and accuracies do not count, both ways end in the same bits."""
    changes = {"extractor_epochs": 2, "hidden": 32, "embedding": 16, "posterior": 0.0, "threshold": 0.0}
    made = make_ring("fibfl+", 3, 3, "iid", set=changes)
    believed = run_threads(made)
    for number in range(3):
        made.state(number).rename(made.state(number).with_name("before"))
    assert_exact(believed, run_threads(made, verify_gate=True))


def test_a_method_without_a_gate_cannot_verify_one(make_ring):
    made = make_ring("fibfl", 2, 1, "iid")
    setup = Setup(made.ring, load_identity(made.identity(0)), made.data(0), made.state(0), verify_gate=True)
    with pytest.raises(BadInput, match="has no gate to verify"):
        Node(setup, print)


def test_the_protocol_asks_for_a_score_in_every_pass_and_only_for_a_gate():
    asked = []

    def score(sender, values):
        asked.append((sender, values.tolist()))
        return 0.9 if sender == 2 else 0.1

    plan = RoundPlan(0, (), "ring", "extractor", 2, "half", 0.5, Gate(0.5, 1.0))
    said = {0: Message(ExtractorState(torch.tensor([10.0])), 1.0), 2: Message(ExtractorState(torch.tensor([4.0])), 0.0)}
    for gate, expected, questions in (
        (plan.gate, 3.25, [(0, [10.0]), (2, [4.0]), (0, [10.0]), (2, [4.0])]),
        (None, 5.5, []),
    ):
        asked.clear()
        planned = RoundPlan(0, (), "ring", "extractor", 2, "half", 0.5, gate)
        peer = exchange(planned, Participant(1, [0, 1, 2], torch.tensor([1.0]), 1.0, 1, "float32", score))
        next(peer)
        peer.send(said)
        with pytest.raises(StopIteration) as stop:
            peer.send(said)
        assert stop.value.value.item() == expected
        assert asked == questions


def test_rubbish_from_the_second_pass_on_is_found_too():
    plan = RoundPlan(0, (), "ring", "extractor", 2, "half", 0.5, Gate(0.5, 1.0))

    def score(sender, values):
        return 0.9 if values.abs().max() < 100 else 0.0

    good, bad = (Message(ExtractorState(torch.tensor([value])), 1.0) for value in (1.0, 1e6))
    results = {}
    for judge in (None, score):
        peer = exchange(plan, Participant(1, [0, 1, 2], torch.tensor([1.0]), 1.0, 1, score=judge))
        next(peer)
        peer.send({0: good, 2: good})
        with pytest.raises(StopIteration) as stop:
            peer.send({0: bad, 2: good})
        results[judge] = stop.value.value.item()
    assert results[score] == 1.0
    assert results[None] > 1e5
