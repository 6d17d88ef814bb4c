"""The protocol by itself: what it sends, to whom, and what it does with what arrives."""

import pytest
import torch

from firma.engines.message_passing import drive
from firma.methods import METHODS
from firma.mixing.kind import exchange
from firma.mixing.weights import pair
from firma.protocol import ExtractorState, Message, ModelState, Participant
from firma.schedule import Gate, RoundPlan


def ring_plan(**changes):
    values = {
        "number": 3,
        "phases": (),
        "mixing": "ring",
        "shares": "extractor",
        "weights": "golden",
        "retention": 0.5,
    }
    return RoundPlan(**(values | changes))


def run(plan, vectors, order=None, accuracies=None, sizes=None):
    count = len(vectors)
    order, accuracies = order or list(range(count)), accuracies or [1.0] * count
    peers = {
        i: exchange(plan, Participant(i, order, torch.tensor(vectors[i]), accuracies[i], (sizes or [1] * count)[i]))
        for i in range(count)
    }
    sent = []
    return drive(peers, lambda *delivery: sent.append(delivery)), sent


def test_one_pass_by_hand():
    peer = exchange(ring_plan(), Participant(1, [0, 1, 2], torch.tensor([1.0, 2.0]), 0.9, 10))
    first = next(peer)
    assert first.to == first.wait == (0, 2)
    assert first.tag == (3, 0)
    assert isinstance(first.message.state, ExtractorState)
    assert first.message.accuracy is None, "nobody asked for it"
    arrived = {j: Message(ExtractorState(torch.tensor(v))) for j, v in ((0, [10.0, 0.0]), (2, [0.0, 10.0]))}
    with pytest.raises(StopIteration) as stop:
        peer.send(arrived)
    alpha, beta = pair("golden")
    torch.testing.assert_close(stop.value.value, torch.tensor([0.5 + 5 * alpha, 1.0 + 5 * beta]))


def test_a_gated_neighbour_still_sends_and_is_waited_for():
    _, sent = run(ring_plan(gate=Gate(0.5, 0.5), passes=2), [[1.0], [2.0], [3.0]], accuracies=[0.1, 0.1, 0.9])
    assert len(sent) == 3 * 2 * 2
    told = [message.accuracy for _, _, tag, message in sent if tag[1] == 0]
    assert sorted(told) == [0.1, 0.1, 0.1, 0.1, 0.9, 0.9]
    assert all(message.accuracy is None for _, _, tag, message in sent if tag[1] == 1)


def test_only_neighbours_hear_from_a_peer():
    order = [0, 3, 1, 4, 2]
    _, sent = run(ring_plan(passes=3), [[float(i)] for i in range(5)], order)
    for sender, receiver, _, _ in sent:
        assert abs(order.index(sender) - order.index(receiver)) in (1, 4)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_all_reduce_is_the_average_by_size(size):
    plan = ring_plan(mixing="all-reduce", weights="none")
    vectors = torch.randn(size, 7, generator=torch.Generator().manual_seed(0))
    sizes = list(range(1, size + 1))
    results, sent = run(plan, vectors.tolist(), order=list(reversed(range(size))), sizes=sizes)
    weights = torch.tensor(sizes) / sum(sizes)
    for value in results.values():
        torch.testing.assert_close(value, weights @ vectors)
    assert len(sent) == 2 * (size - 1) * size


def test_full_models_travel_under_another_type():
    _, sent = run(ring_plan(shares="model"), [[1.0], [2.0]])
    assert all(isinstance(message.state, ModelState) for *_, message in sent)
    assert METHODS["rdfl"].shares == "model"


def test_a_deadlock_is_an_error():
    peers = {0: exchange(ring_plan(), Participant(0, [0, 1, 2], torch.zeros(1), 1.0, 1))}
    with pytest.raises(RuntimeError, match="wait for messages"):
        drive(peers, lambda *_: None)
