"""Peers on real sockets give what the simulation gives."""

import json
import shutil
import threading
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import firma
from firma.errors import BadInput
from firma.peer.identity import load_identity
from firma.peer.runtime import checkpoint, local_training
from firma.peer.runtime.audit_log import AuditLog, audit
from firma.peer.runtime.checkpoint import latest
from firma.peer.runtime.events import PeerLost
from firma.peer.runtime.node import Node, Outcome, Setup
from firma.training.local_step import recipe

from .conftest import accept_all, made_ring


def run_threads(made, resume=False, rounds_before_stop=None, on_notice=lambda text: None, **options):
    """Every member in a thread of its own; returns outcomes or what each raised."""
    results, nodes = {}, []
    for number in range(len(made.ring.members)):  # here, for torch's generator, which draws weights, is the process's

        def on_round(report, number=number):
            if rounds_before_stop is not None and report.number == rounds_before_stop(number):
                raise KeyboardInterrupt

        own = {name: value(number) if callable(value) else value for name, value in options.items()}
        setup = Setup(
            made.ring, load_identity(made.identity(number)), made.data(number), made.state(number), resume=resume, **own
        )
        nodes.append(Node(setup, on_round, on_notice))

    def work(number):
        try:
            results[number] = nodes[number].run()
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(len(made.ring.members))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    return results


def simulated(made, scenario, audit=False):
    ring = made.ring
    return firma.run(
        "digits", scenario, ring.method, clients=len(ring.members), rounds=ring.rounds, seed=ring.seed,
        settings=dict(ring.set), audit=audit, wire=ring.wire,
    )  # fmt: skip


def assert_same(made, outcomes, result):
    assert not [error for error in outcomes.values() if isinstance(error, BaseException)], outcomes
    for number, outcome in outcomes.items():
        np.testing.assert_allclose(outcome.history, result.history[:, number], atol=1e-12)
        torch.testing.assert_close(outcome.parameters, result.parameters[number], rtol=1e-4, atol=1e-5)
        assert outcome.order == tuple(made.ring.names[n] for n in result.order)


@pytest.mark.parametrize(
    ("method", "members", "rounds", "scenario"),
    [
        ("fibfl", 3, 2, "dir-0.5"),
        ("fibfl+", 2, 2, "skew-1"),
        ("fibfl++", 5, 7, "dir-0.1"),
        ("fibfl++:order=given,passes=one", 4, 6, "iid"),
        ("fibfl++:topology=exponential,weights=metropolis,retention=none,gate=no,order=given", 4, 7, "iid"),
        ("frame", 4, 6, "dir-0.5"),
        ("fedper:topology=all-reduce", 3, 2, "dir-0.5"),
        ("fedbabu:topology=all-reduce", 3, 2, "dir-0.5"),
        ("fedetf:topology=all-reduce", 3, 2, "dir-0.5"),
        ("fedbn:topology=all-reduce,shares=extractor", 3, 2, "dir-0.5"),
    ],
)
def test_peers_in_threads_equal_the_simulation(make_ring, method, members, rounds, scenario):
    made = make_ring(method, members, rounds, scenario)
    outcomes = run_threads(made)
    assert_same(made, outcomes, simulated(made, scenario, audit=True))
    for number in range(members):
        verdict = audit(made.state(number) / "audit.jsonl")
        assert not verdict.breaches
        assert all(name.startswith(("extractor.", "mixed.class_shares")) for name in verdict.tensors)
        assert outcomes[number].refused == {}


def test_a_limit_of_steps_follows_the_distance_also_after_a_resume(tmp_path):
    """What a site knows of the others' classes is in its checkpoint: it trains as long as in the simulation."""
    changes = {"extractor_epochs": 3, "local_steps": 4, "local_steps_for": "different", "personal_epochs": 1}
    made = made_ring(tmp_path, "frame", 3, 4, "dir-0.5", set=changes)
    run_threads(made, rounds_before_stop=lambda number: 2)
    outcomes = run_threads(made, resume=True)
    result = simulated(made, "dir-0.5", audit=True)
    assert_same(made, outcomes, result)
    alike = firma.run(
        "digits",
        "dir-0.5",
        "frame",
        clients=3,
        rounds=4,
        seed=made.ring.seed,
        settings=changes | {"local_steps_for": "all"},
    )
    assert not torch.allclose(alike.parameters, result.parameters), "no limit was reached, so nothing was tested"


@pytest.mark.parametrize(
    "method", ["fedbn:topology=all-reduce,shares=extractor", "fedavg-ft:topology=all-reduce,shares=extractor"]
)
def test_a_sites_state_holds_the_model_that_was_tested(make_ring, method):
    """Private parameters in their places, and the personal model in place of the mixed one; also after a resume."""
    made = make_ring(method, 3, 3, "dir-0.5")
    run_threads(made, rounds_before_stop=lambda number: 2)
    outcomes = run_threads(made, resume=True)
    result = simulated(made, "dir-0.5", audit=True)
    for number in range(3):
        ours, theirs = firma.load(made.state(number)).model(0), result.model(number)
        assert dict(ours.named_parameters()).keys() == dict(theirs.named_parameters()).keys()
        for (name, one), (_, two) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5, msg=f"{name} of site {number}")
        np.testing.assert_allclose(outcomes[number].history, result.history[:, number], atol=1e-12)


@pytest.mark.parametrize("method", ["fedetf:topology=all-reduce", "fedbabu:topology=all-reduce"])
def test_a_new_ring_has_a_fixed_head_of_its_own(make_ring, tmp_path, method):
    """Of another seed, so that members that begin with an old state have the head of those that do not."""
    old = make_ring(method, 2, 1, "iid")
    run_threads(old)
    (tmp_path / "second").mkdir()
    made = made_ring(tmp_path / "second", method, 2, 1, "iid", seed=7, set=dict(old.ring.set) | {"extractor_epochs": 0})
    run_threads(made, begin_with=lambda number: old.state(number) if number == 0 else None)
    heads, extractors = [], []
    for number in range(2):
        tensors = checkpoint.read(made.state(number), 0, made.ring.digest).tensors
        heads.append(tensors["parameters"][-10 * 17 : -10])  # weights of ten classes, without the bias
        extractors.append(tensors["parameters"][: -10 * 17])
    assert torch.equal(*heads)
    assert not torch.equal(*extractors)


def test_a_state_with_other_private_parameters_is_another_model(make_ring, tmp_path):
    """Their order in the flat buffer differs, although names and shapes do not."""
    old = make_ring("fedper:topology=all-reduce", 2, 1, "iid")
    run_threads(old)
    (tmp_path / "second").mkdir()
    made = made_ring(
        tmp_path / "second", "fedper:topology=all-reduce,private=norm", 2, 1, "iid", set=dict(old.ring.set)
    )
    setup = Setup(made.ring, load_identity(made.identity(0)), made.data(0), made.state(0), begin_with=old.state(0))
    with pytest.raises(BadInput, match="holds another model or another method"):
        Node(setup, print)


@pytest.mark.parametrize("wire", ["bfloat16", "int8"])
@pytest.mark.parametrize(("method", "members"), [("fibfl++", 4), ("fibfl", 2), ("frame", 3)])
def test_a_narrow_wire_gives_the_simulations_bits_and_an_honest_count(make_ring, wire, method, members):
    made = make_ring(method, members, 6, "dir-0.5", wire=wire)
    outcomes = run_threads(made)
    result = simulated(made, "dir-0.5", audit=True)
    for number, outcome in outcomes.items():
        assert torch.equal(outcome.parameters, result.parameters[number])
    verdict = audit(made.state(0) / "audit.jsonl")
    assert not verdict.breaches
    assert verdict.size == outcomes[0].sent
    content = sum(result.sent_bytes) / members
    assert content < verdict.size < content + 1200 * verdict.messages, "heads and nothing else on top"


@pytest.mark.parametrize("wire", ["float32", pytest.param("int8", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("topology", "members", "degree"),
    [
        ("complete", 4, 3),
        ("exponential", 5, 3),
        pytest.param("one-peer-exponential", 4, 1, marks=pytest.mark.slow),
        pytest.param("torus", 4, 2, marks=pytest.mark.slow),
        pytest.param("ring", 5, 2, marks=pytest.mark.slow),
    ],
)
def test_peers_on_a_graph_give_the_simulations_bits_and_send_to_its_neighbours_only(
    make_ring, wire, topology, members, degree
):
    method = f"fibfl:topology={topology},weights=metropolis,retention=none"
    made = make_ring(method, members, 3, "dir-0.5", wire=wire)
    outcomes, result = run_threads(made), simulated(made, "dir-0.5", audit=True)
    assert (result.audit["server_free"], result.audit["degree"]) == (True, degree)
    for number, outcome in outcomes.items():
        assert torch.equal(outcome.parameters, result.parameters[number])
        assert outcome.refused == {}
        lines = [json.loads(line) for line in (made.state(number) / "audit.jsonl").read_text().splitlines()]
        sent = {(line["turn"], line["to"]) for line in lines if line.get("tensors")}
        assert len(sent) == 3 * degree
        assert not audit(made.state(number) / "audit.jsonl").breaches


def test_each_site_may_send_as_it_likes(make_ring):
    made = make_ring("fibfl+", 3, 3, "iid")
    wires = ("float32", "bfloat16", "int8")
    outcomes = run_threads(made, wire=lambda number: wires[number])
    full, half, quarter = (outcomes[number].sent for number in range(3))
    assert full > half > quarter
    result = simulated(made, "iid", audit=True)
    for number, outcome in outcomes.items():
        assert outcome.refused == {}
        torch.testing.assert_close(outcome.parameters, result.parameters[number], rtol=0.1, atol=0.1)
        assert not torch.equal(outcome.parameters, result.parameters[number])


@pytest.mark.parametrize(
    ("method", "vectors"),
    [
        ("gradient-tracking:shares=extractor", {"mixed.tracking.mean"}),
        ("ditto:topology=all-reduce,shares=extractor", set()),
        ("fednova:topology=all-reduce,shares=extractor", {"mixed.normalised.steps"}),
        ("feddbe:topology=all-reduce,shares=extractor", {"mixed.bias.sent"}),
    ],
)
def test_algorithms_run_at_peers_with_the_simulations_bits(make_ring, method, vectors):
    """Memory, personal models and vectors that travel along; the audit names them, and nothing is refused."""
    made = make_ring(method, 3, 3, "dir-0.5", set={"epochs": 2, "hidden": 32, "embedding": 16})
    outcomes, result = run_threads(made), simulated(made, "dir-0.5", audit=True)
    assert_same(made, outcomes, result)
    for number, outcome in outcomes.items():
        assert torch.equal(outcome.parameters, result.parameters[number])
        assert outcome.refused == {}
        verdict = audit(made.state(number) / "audit.jsonl")
        assert not verdict.breaches
        assert {name for name in verdict.tensors if not name.startswith("extractor.")} == vectors
    content = sum(result.sent_bytes) / 3
    assert content < outcomes[0].sent < content + 1200 * verdict.messages


def test_a_tracked_gradient_survives_a_stop(make_ring):
    made = make_ring(
        "gradient-tracking:shares=extractor", 3, 4, "iid", patience=3.0, quorum=3, set=SMALL | {"epochs": 1}
    )
    stopped = run_threads(made, rounds_before_stop=lambda number: 2, on_notice=stop_when_paused)
    assert all(isinstance(error, KeyboardInterrupt) for error in stopped.values())
    saved = checkpoint.read(made.state(0), checkpoint.latest(made.state(0)), made.ring.digest)
    assert saved.tensors["tracking.correction"].abs().sum() > 0
    assert_exact(run_threads(made, resume=True), run_threads(make_again(made)))


def stop_when_paused(text):
    if text.startswith("paused"):
        raise KeyboardInterrupt


SMALL = {"extractor_epochs": 2, "hidden": 32, "embedding": 16}


def test_parts_of_a_local_step_run_at_peers_too(make_ring):
    made = make_ring("fibfl+", 3, 2, "dir-0.5", set=SMALL | {"proximal": 0.5, "clip": 0.5})
    outcomes, result = run_threads(made), simulated(made, "dir-0.5", audit=True)
    assert "proximal" in result.backend
    assert_same(made, outcomes, result)


@dataclass(frozen=True)
class Summing:
    """A transform that remembers the sum of all gradients between rounds, and uses it."""

    name: str = "summing"

    def memory(self, size):
        return {"summing.total": torch.zeros(size)}

    def __call__(self, gradients, step):
        total = step.memory["summing.total"][step.span]
        gradients.add_(total.add_(gradients), alpha=0.01)


def test_a_peers_checkpoint_holds_whatever_a_transform_remembers(make_ring, monkeypatch):
    def summing(method, hyper, task, *others):
        return replace(recipe(method, hyper, task, *others), transforms=(Summing(),))

    monkeypatch.setattr(local_training, "recipe", summing)
    made = make_ring("fibfl", 3, 4, "iid", patience=3.0, quorum=3)
    stopped = run_threads(made, rounds_before_stop=lambda number: 2, on_notice=stop_when_paused)
    assert all(isinstance(error, KeyboardInterrupt) for error in stopped.values())
    saved = checkpoint.read(made.state(0), checkpoint.latest(made.state(0)), made.ring.digest)
    assert saved.tensors["summing.total"].abs().sum() > 0
    assert_exact(run_threads(made, resume=True), run_threads(make_again(made)))


def test_stopped_and_resumed_members_end_where_an_uninterrupted_run_ends(make_ring):
    made = make_ring("fibfl++", 3, 6, "dir-0.5", patience=3.0, quorum=3)
    stopped = run_threads(made, rounds_before_stop=lambda number: 2 + (number == 1), on_notice=stop_when_paused)
    assert all(isinstance(error, KeyboardInterrupt) for error in stopped.values())
    outcomes = run_threads(made, resume=True)
    assert_same(made, outcomes, simulated(made, "dir-0.5", audit=True))
    assert_exact(outcomes, run_threads(make_again(made)))


def make_again(made):
    for number in range(len(made.ring.members)):
        shutil.rmtree(made.state(number))
    return made


def assert_exact(outcomes, again):
    for number, outcome in outcomes.items():
        assert torch.equal(outcome.parameters, again[number].parameters)
        assert outcome.history == again[number].history


def test_a_member_that_stops_is_left_out_at_once(make_ring):
    made = make_ring("fibfl", 3, 8, "iid", patience=20.0)
    notices = []
    began = time.monotonic()
    results = run_threads(
        made, rounds_before_stop=lambda number: 2 if number == 1 else None, on_notice=notices.append
    )  # fmt: skip
    assert time.monotonic() - began < 15, "a goodbye is not waited for"
    assert isinstance(results[1], KeyboardInterrupt)
    assert latest(made.state(1)) == 2
    for number in (0, 2):
        assert results[number].order == ("ant", "cat")
        assert len(results[number].history) == 8
    assert any("bee has stopped" in text for text in notices)


def test_members_that_never_come_end_the_run_with_a_clear_word(make_ring):
    made = make_ring("fibfl", 3, 2, "iid", patience=1.0, gathering=2.0)
    setup = Setup(made.ring, load_identity(made.identity(0)), made.data(0), made.state(0))
    with pytest.raises(PeerLost, match=r"bee, cat did not appear within 2 s") as told:
        Node(setup, print).run()
    assert "--begin-with" not in str(told.value)


def test_a_site_that_comes_back_to_nobody_is_told_that_the_ring_may_be_over(make_ring):
    made = make_ring("fibfl", 2, 3, "iid", patience=1.0, gathering=2.0)
    run_threads(made, rounds_before_stop=lambda number: 1)
    setup = Setup(made.ring, load_identity(made.identity(0)), made.data(0), made.state(0), resume=True)
    with pytest.raises(
        PeerLost, match=r"bee did not appear within 2 s .* finished the ring without this site, .* --begin-with"
    ):
        Node(setup, print).run()


def test_a_state_is_not_overwritten_and_belongs_to_its_ring(make_ring):
    made = make_ring("fibfl", 2, 1, "iid")
    run_threads(made)
    own = load_identity(made.identity(0))
    with pytest.raises(BadInput, match="--resume"):
        Node(Setup(made.ring, own, made.data(0), made.state(0)), print)
    other = made.ring.model_copy(update={"seed": 9})
    accept_all(made, other)
    with pytest.raises(BadInput, match="another ring file"):
        Node(Setup(other, own, made.data(0), made.state(0), resume=True), print)


@pytest.mark.parametrize(("change", "says"), [({"shape": (4, 4)}, "shape"), ({"labels": ("0", "1")}, "label")])
def test_wrong_data_are_refused_before_anything_is_sent(make_ring, change, says):
    made = make_ring("fibfl", 2, 1, "iid")
    ring = made.ring.model_copy(update={"task": made.ring.task.model_copy(update=change)})
    accept_all(made, ring)
    with pytest.raises(BadInput, match=says):
        Node(Setup(ring, load_identity(made.identity(0)), made.data(0), made.state(0)), print)


@pytest.mark.parametrize("what", ["record_message", "record_control"])
def test_what_cannot_be_recorded_is_not_sent(make_ring, monkeypatch, what):
    made = make_ring("fibfl", 2, 2, "iid", patience=2.0, gathering=4.0)

    def full(self, *_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(AuditLog, what, full)
    results = run_threads(made, on_notice=stop_when_paused)
    assert any(isinstance(error, BadInput) and "No space left" in str(error) for error in results.values())
    assert not any(isinstance(each, Outcome) for each in results.values())
    assert not audit(made.state(0) / "audit.jsonl").tensors


def test_a_new_ring_file_begins_with_what_the_old_ring_learnt(make_ring, tmp_path):
    made = make_ring("fibfl++:warmup=no", 2, 2, "iid")
    old = run_threads(made)
    (tmp_path / "second").mkdir()
    again = made_ring(tmp_path / "second", "fibfl++:warmup=no", 3, 1, "iid", set=dict(made.ring.set) | {"rate": 1e-9})
    run_threads(again, begin_with=lambda number: made.state(number) if number < 2 else None)
    for number in range(3):
        first = checkpoint.read(again.state(number), 0, again.ring.digest)
        assert first.history == ()
        if number < 2:
            torch.testing.assert_close(first.tensors["parameters"], old[number].parameters, rtol=0, atol=0)
            before = checkpoint.read(made.state(number), 2, None)
            assert before.tensors["optimiser.steps"].min() > 0
            for name in ("optimiser.steps", "optimiser.second"):
                torch.testing.assert_close(first.tensors[name], before.tensors[name], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("method", "changes", "says"),
    [
        ("fibfl++", {}, "no checkpoint"),
        ("fibfl++", {"hidden": 31}, "another model"),
        ("fibfl++:persistent=no", {}, "another model"),
    ],
)
def test_what_cannot_be_begun_with_is_said(make_ring, tmp_path, method, changes, says):
    old = make_ring("fibfl++", 2, 1, "iid")
    if says != "no checkpoint":
        run_threads(old)
    (tmp_path / "second").mkdir()
    sizes = {"hidden": 32, "embedding": 16} | changes
    made = made_ring(tmp_path / "second", method, 2, 1, "iid", set=sizes)
    setup = Setup(made.ring, load_identity(made.identity(0)), made.data(0), made.state(0), begin_with=old.state(0))
    with pytest.raises(BadInput, match=says):
        Node(setup, print)
    assert not list(made.state(0).glob("round-*"))
