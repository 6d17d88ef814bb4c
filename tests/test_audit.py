"""Head privacy and server-freedom, checked on what clients received; and the check can fail."""

import pytest
import torch

from firma.engines.message_passing import drive
from firma.engines.simulation import Simulation
from firma.methods import METHODS
from firma.mixing.ring_order import neighbours
from firma.privacy import Audit


class Bytes(Audit):
    """An audit that also keeps the raw bytes of every message."""

    def record(self, sender, receiver, tag, message):
        super().record(sender, receiver, tag, message)
        self.raw = [*getattr(self, "raw", []), message.state.values.detach().clone().numpy().tobytes()]


def audited(make_federation, method, **changes):
    federation = make_federation(method, 5, rounds=6, order=(0, 2, 4, 1, 3), **changes)
    audit = Bytes(neighbours(federation.order))
    simulation = Simulation(federation, audit)
    heads = []
    span = federation.models[0].layout().span("head")
    for _ in simulation.rounds():
        heads += [row.numpy().tobytes() for row in simulation.parameters[:, span].clone()]
    return audit, heads


@pytest.mark.parametrize("method", ["fibfl", "fibfl+", "fibfl++"])
def test_ring_methods_with_private_heads_receive_no_head_and_hear_neighbours_only(make_federation, method):
    audit, heads = audited(make_federation, method)
    verdict = audit.summary()
    assert verdict["head_private"]
    assert verdict["server_free"]
    assert verdict["messages"] > 0
    assert all(name.startswith("extractor.") for name in verdict["tensors"])
    for receipt in audit.receipts:
        assert receipt.sender in neighbours((0, 2, 4, 1, 3))[receipt.receiver]
    # Not even eight numbers in a row of any head at any time are in any message.
    assert not any(head[:32] in raw for raw in audit.raw for head in heads)


def test_the_same_audit_finds_heads_and_a_server_in_fedavg(make_federation):
    audit, heads = audited(make_federation, "fedavg")
    verdict = audit.summary()
    assert not verdict["head_private"]
    assert not verdict["server_free"]
    assert {"head.weight", "head.bias"} <= set(verdict["tensors"])
    assert any(head[:32] in raw for raw in audit.raw for head in heads)


def test_rdfl_is_server_free_and_shows_its_heads(make_federation):
    verdict = audited(make_federation, "rdfl")[0].summary()
    assert (verdict["head_private"], verdict["server_free"]) == (False, True)


def test_fedrep_hides_its_heads_from_a_server(make_federation):
    verdict = audited(make_federation, "fedrep")[0].summary()
    assert (verdict["head_private"], verdict["server_free"]) == (True, False)


def test_the_published_warmup_breaks_both_promises(make_federation):
    verdict = audited(make_federation, "fibfl++", warmup_shares="model")[0].summary()
    assert (verdict["head_private"], verdict["server_free"]) == (False, False)


def test_every_method_keeps_the_properties_it_claims(make_federation):
    from firma.methods import properties

    for name, row in METHODS.items():
        verdict = audited(make_federation, name)[0].summary()
        assert verdict["head_private"] == properties(row)["private head"]
        assert verdict["server_free"] == properties(row)["no central server"]


def test_audit_reads_elements_not_labels(make_federation):
    """An extractor message that is too long by one element is found out."""
    from firma.protocol import Exchange, ExtractorState, Message

    layout = make_federation("fibfl").models[0].layout()
    audit = Audit({0: (1, 1), 1: (0, 0)}, layout)

    def peer(other):
        yield Exchange((other,), (other,), Message(ExtractorState(torch.zeros(layout.extractor + 1))), (0, 0))
        return torch.zeros(1)

    drive({0: peer(1), 1: peer(0)}, audit.record)
    assert not audit.summary()["head_private"]
