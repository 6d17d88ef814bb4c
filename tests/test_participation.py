"""Client sampling: who is drawn, what they do, and that the others keep everything."""

import copy
import json
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import firma
from conftest import FEATURES
from firma.engines.checkpoint import RunCheckpoints, fingerprint
from firma.engines.client_group import ClientGroup
from firma.engines.message_passing import drive
from firma.engines.simulation import Simulation
from firma.methods import METHODS, PAPER_METHODS
from firma.mixing.kind import FLOAT, NUMBER, kind_of
from firma.mixing.matrix_blocks import apply
from firma.mixing.ring_order import neighbours
from firma.models import SplitModel
from firma.privacy import Audit
from firma.protocol import SERVER, Participant
from firma.schedule import participant_count, participants
from firma.sweep.cells import label
from oracles import ALGORITHMS
from test_mixing_kinds import ELEMENTS, KINDS, plans
from test_simulation import CLOSE, finish, oracle

SERVED = [name for name, row in METHODS.items() if row.topology == "star"]
RINGS = [name for name, row in METHODS.items() if row.topology == "ring"]
NEVER_DRAWN = pytest.mark.filterwarnings("ignore:.*take part in none of the")
ORDERS = {1: (0,), 2: (0, 1), 3: (0, 2, 1), 5: (0, 3, 1, 4, 2), 6: (0, 4, 2, 5, 1, 3)}


def sampled(make_federation, method, clients, share, **changes):
    """A federation with a ring that is not in the order of the numbers, noisy clients and an active gate."""
    values = {"rounds": 6, "noisy": (1,), "threshold": 0.5, "order": ORDERS.get(clients)} | changes
    return replace(make_federation(method, clients, **values), participation=share)


def audit_of(federation):
    return Audit(neighbours(federation.order))


@pytest.mark.parametrize(
    ("share", "clients", "count"),
    [(1.0, 10, 10), (0.2, 10, 2), (0.25, 10, 3), (0.24, 10, 2), (0.29, 100, 29), (1e-9, 10, 1), (0.5, 1, 1),
     (0.5, 2, 1), (0.75, 2, 2), (0.1, 1000, 100), (0.95, 5, 5)],
)  # fmt: skip
def test_how_many_take_part(share, clients, count):
    assert participant_count(share, clients) == count
    drawn = participants(share, range(clients), 0, 0)
    assert (clients if drawn is None else len(drawn)) == count
    assert (drawn is None) == (count == clients), "without a draw, today's path"


def test_who_takes_part_depends_on_seed_and_round_alone_and_keeps_the_order_of_the_ring():
    order = np.random.default_rng(3).permutation(20).tolist()
    drawn = {(seed, number): participants(0.3, order, seed, number) for seed in range(4) for number in range(25)}
    assert len({frozenset(each) for each in drawn.values()}) > 95, "as good as never the same six of twenty"
    for (seed, number), each in drawn.items():
        assert list(each) == [client for client in order if client in each]
        assert set(each) == set(participants(0.3, range(20), seed, number)), "who sits where does not matter"
        assert set(each) < set(participants(0.6, order, seed, number)), "a larger share adds clients"


def test_everybody_is_drawn_equally_often():
    rounds, clients, share = 4000, 10, 0.3
    seen = Counter(client for number in range(rounds) for client in participants(share, range(clients), 1, number))
    deviation = (rounds * share * (1 - share)) ** 0.5
    assert all(abs(seen[client] - rounds * share) < 4 * deviation for client in range(clients))


SHARES = ((1, 0.3), (2, 0.5), (3, 0.01), (5, 0.4), (5, 0.6), (6, 0.8))


@pytest.mark.parametrize(
    ("method", "clients", "share"),
    [(method, *each) for method in ALGORITHMS for each in (SHARES if method in PAPER_METHODS else SHARES[1:4:2])],
)
def test_agrees_with_the_oracle(make_federation, method, clients, share):
    federation = sampled(make_federation, method, clients, share)
    torch.testing.assert_close(finish(federation)[0], oracle(federation), **CLOSE)


def test_agrees_with_the_oracle_in_the_published_warmup(make_federation):
    federation = sampled(make_federation, "fibfl++", 5, 0.4, rounds=13, warmup_shares="model")
    torch.testing.assert_close(finish(federation)[0], oracle(federation, warmup_model=True), **CLOSE)


@pytest.mark.parametrize("mixing", KINDS)
def test_matrix_exchange_and_cost_agree_on_a_ring_that_closed_up(mixing):
    """Every kind, every choice of it, 1 to 8 clients, several shares and seeds: messages against the matrix."""
    kind = kind_of(mixing)
    for plan in (each for each in plans(mixing) if each.combine == "mean"):  # the others have no matrix
        for clients in range(1, 9):
            for seed in range(3):
                rng = np.random.default_rng([seed, clients])
                everybody = rng.permutation(clients).tolist()
                ring = participants((0.01, 0.4, 0.7)[seed], everybody, seed, 4) or tuple(everybody)
                sizes, accuracies = rng.integers(1, 100, clients).tolist(), rng.uniform(0, 1, clients).tolist()
                heard = {client: accuracies[client] for client in ring}  # nobody else's may matter
                theta = torch.from_numpy(rng.normal(size=(clients, ELEMENTS))).float()
                members = {
                    n: kind.exchange(plan, Participant(n, ring, theta[n].clone(), heard[n], sizes[n])) for n in ring
                }
                hub = kind.server(plan, Participant(SERVER, sorted(ring), torch.zeros(ELEMENTS), 0.0, 0))
                sent = []
                results = drive(
                    members | ({} if hub is None else {SERVER: hub}), lambda *each, to=sent: to.append(each)
                )
                mixture = kind.mixture(plan, ring, sizes, heard)
                matrix = np.eye(len(ring)) if mixture is None else mixture.matrix()
                np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-6)
                blended = torch.from_numpy(matrix).float() @ theta[sorted(ring)]
                for n, row in zip(sorted(ring), blended, strict=True):
                    torch.testing.assert_close(results[n], row, rtol=1e-4, atol=1e-5)
                size = sum(
                    FLOAT * m.state.values.numel() + NUMBER * ((m.accuracy, m.weight) != (None, None)) for *_, m in sent
                )
                size += sum(len(digest) for *_, message in sent for digest in message.digests)
                assert kind.cost(plan, len(ring), ELEMENTS) == (len(sent), size)
                assert {n for sender, receiver, *_ in sent for n in (sender, receiver)} <= {*ring, SERVER}


@pytest.mark.parametrize(("clients", "share"), [(150, 0.2), (700, 0.9)])
def test_blocks_of_a_large_ring_that_closed_up_give_every_group_its_part(clients, share):
    """Also above 512 clients, where the matrix is sparse; a group without participants has nothing to do."""
    rng = np.random.default_rng(1)
    order = rng.permutation(clients).tolist()
    ring = participants(share, order, 0, 0)
    plan = next(each for each in plans("ring") if each.combine == "mean")
    plan = replace(plan, passes=len(ring) // 2)
    blocks = kind_of("ring").mixture(plan, ring, [1] * clients, dict.fromkeys(ring, 1.0))
    before = torch.from_numpy(rng.normal(size=(clients, 300))).float()
    whole = before.clone()
    apply(blocks, whole, range(clients))
    expected = torch.from_numpy(blocks.matrix()).float() @ before[sorted(ring)]
    torch.testing.assert_close(whole[sorted(ring)], expected, rtol=1e-5, atol=1e-6)
    outside = sorted(set(range(clients)) - set(ring))
    assert torch.equal(whole[outside], before[outside])
    at = max(range(clients - 1), key=lambda place: order[place] not in ring and order[place + 1] not in ring)
    for seats in (order[:at], order[at : at + 2], order[at + 2 :]):
        part, own = blocks.for_group(seats), before[seats].clone()
        apply(part, own, seats, {client: before[client] for client in set(part.sources.tolist()) - set(seats)})
        assert torch.equal(own, whole[seats])
    assert not blocks.for_group(order[at : at + 2]).blocks


@pytest.mark.parametrize(("clients", "share"), [(2, 0.5), (3, 0.7), (6, 0.5)])
@pytest.mark.parametrize("method", METHODS)
def test_messages_give_what_the_matrix_gives(make_federation, method, clients, share):
    federation = sampled(make_federation, method, clients, share)
    by_matrix, by_messages = Simulation(federation), Simulation(federation, audit_of(federation))
    for left, right in zip(by_matrix.rounds(), by_messages.rounds(), strict=True):
        assert (left.messages, left.sent_bytes) == (right.messages, right.sent_bytes)
    torch.testing.assert_close(by_matrix.parameters, by_messages.parameters, **CLOSE)


def test_traffic_is_that_of_those_who_take_part(make_federation):
    """Counted by hand: 3 of 5 clients, of which each has two neighbours; with a server, each downloads and uploads."""
    layout = make_federation("fibfl", 5).models[0].layout()
    for method, messages, sent in (
        ("local", 0, 0), ("fibfl", 6, 6 * 4 * layout.extractor), ("fibfl+", 6, 6 * (4 * layout.extractor + 8)),
        ("fedavg", 6, 6 * 4 * layout.size + 3 * 8),
    ):  # fmt: skip
        for outcome in Simulation(sampled(make_federation, method, 5, 0.6)).rounds():
            assert (outcome.messages, outcome.sent_bytes) == (messages, sent)


def memories(simulation):
    return [{name: tensor.clone() for name, tensor in each.memory.items()} for each in simulation._group.clients]


@pytest.mark.parametrize("messages", [False, True])
@pytest.mark.parametrize("method", PAPER_METHODS)
def test_the_others_keep_everything(make_federation, method, messages):
    """Parameters, optimiser state, buffers; with a server they keep what is theirs, and share the server's model."""
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.2))
    federation = sampled(make_federation, method, 5, 0.4)
    federation = replace(federation, models=[SplitModel(extractor, nn.Linear(16, 4))])
    simulation = Simulation(federation, audit_of(federation) if messages else None)
    before, remembered, tested = simulation.parameters.clone(), memories(simulation), None
    for outcome in simulation.rounds():
        plan, after, memory = federation.plan(outcome.number), simulation.parameters, memories(simulation)
        assert len(plan.participants) == 2
        others = sorted(set(range(5)) - set(plan.participants))
        assert not any(torch.equal(after[client], before[client]) for client in plan.participants)
        span = simulation.layout.span(plan.part)
        if plan.mixing == "star":
            assert all(torch.equal(row, after[0, span]) for row in after[:, span])
            before[:, span] = after[:, span]
        elif tested is not None:
            np.testing.assert_array_equal(outcome.accuracies[others], tested[others])
        assert torch.equal(after[others], before[others])
        for client in range(5):
            same = all(torch.equal(memory[client][name], remembered[client][name]) for name in memory[client])
            assert same == (client in others), "a client that trains remembers something new, at least its buffers"
        before, remembered, tested = after.clone(), memory, outcome.accuracies


@pytest.mark.parametrize("method", ["fedrep", "fibfl", "fibfl++"])
def test_accuracies_are_those_of_everybodys_current_model(make_federation, method):
    """Not testing again who did not change must not show: against plain modules, in every round."""
    federation = sampled(make_federation, method, 6, 0.34)
    simulation, template = Simulation(federation), federation.models[0]
    for outcome in simulation.rounds():
        for client, data in enumerate(federation.data):
            model = template.filled(simulation.parameters[client])
            found = model.head(model.extractor(data.test_inputs)).argmax(1)
            assert outcome.accuracies[client] == pytest.approx((found == data.test_labels).double().mean().item())


@pytest.mark.parametrize("method", METHODS)
def test_a_share_that_rounds_to_everybody_gives_the_bits_of_1(make_federation, method):
    full, nearly = sampled(make_federation, method, 5, 1.0), sampled(make_federation, method, 5, 0.95)
    assert torch.equal(finish(nearly)[0], finish(full)[0])
    assert not torch.equal(finish(sampled(make_federation, method, 5, 0.8))[0], finish(full)[0])


@pytest.mark.parametrize("method", RINGS)
def test_one_participant_of_a_ring_trains_alone(make_federation, method):
    """An engine can do it, and nothing is mixed; `firma run` refuses it, see below."""
    ring = sampled(make_federation, method, 5, 0.2, warmup_rounds=0)
    alone = replace(ring, method=replace(ring.method, topology="none", shares="nothing", warmup="no"))
    assert torch.equal(finish(ring)[0], finish(alone)[0])


def test_each_client_may_start_from_weights_of_its_own(make_federation):
    """Who never took part still has them, except where a server's model is everybody's."""
    for method in ("fibfl", "fedavg"):
        base = sampled(make_federation, method, 6, 0.34, rounds=1)
        models = [base.models[0].filled(torch.randn(base.models[0].layout().size)) for _ in range(6)]
        federation = replace(base, models=models)
        after = finish(federation)[0]
        for client in set(range(6)) - set(federation.plan(0).participants):
            assert torch.equal(after[client], models[client].flat()) == (method == "fibfl")
        assert (len(after.unique(dim=0)) == 1) == (method == "fedavg")


@pytest.mark.parametrize("method", ["fedavg", "fibfl++"])
def test_any_number_of_workers_and_any_encoding(make_federation, method):
    federation = replace(sampled(make_federation, method, 6, 0.5), workers=1)
    parameters, _ = finish(federation)
    for workers in (2, 5):
        assert torch.equal(finish(replace(federation, workers=workers))[0], parameters)
    narrow = Simulation(replace(federation, wire="int8"))
    sent = [outcome.sent_bytes for outcome in narrow.rounds()]
    assert 0.2 < sum(sent) / sum(outcome.sent_bytes for outcome in Simulation(federation).rounds()) < 0.3
    torch.testing.assert_close(narrow.parameters, parameters, rtol=0, atol=0.1)
    assert (len(narrow.parameters.unique(dim=0)) == 1) == (method == "fedavg")


@pytest.mark.parametrize("share", [0.2, 0.6])
def test_models_with_memory_and_chance_give_the_same_with_any_number_of_workers(make_federation, share):
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.2))
    base = sampled(make_federation, "fibfl+", 5, share, rounds=4)
    federation = replace(base, models=[SplitModel(extractor, nn.Linear(16, 4))])
    (one, before), (three, after) = (finish(replace(federation, workers=workers)) for workers in (1, 3))
    assert torch.equal(one, three)
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("method", ["local", "fedrep", "fibfl++"])
def test_a_checkpoint_is_resumed_bit_by_bit(make_federation, tmp_path, method):
    federation = sampled(make_federation, method, 5, 0.4)
    whole, history = finish(federation)
    rounds = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds()
    for _ in range(3):
        next(rounds)
    rounds.close()
    again = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))
    np.testing.assert_array_equal([outcome.accuracies for outcome in again.rounds()], history)
    assert torch.equal(again.parameters, whole)
    prints = {share: fingerprint(replace(federation, participation=share)) for share in (0.4, 0.6, 1.0)}
    assert len(set(prints.values())) == 3


def test_a_group_that_returns_to_an_earlier_state_is_tested_anew(make_federation):
    """Accuracies of clients that a round does not change are kept, but not those of a state that was given up."""
    federation = sampled(make_federation, "fibfl", 6, 0.34, rate=0.1)
    group = ClientGroup(federation, range(6), federation.data)
    start, plans_ = copy.deepcopy(group.state()), [federation.plan(number) for number in range(3)]
    first = group.test(plans_[0])["loss"].tolist()
    for plan in plans_:
        group.train(plan)
        group.test(plan)
    assert group.test(plans_[2])["loss"].tolist() != first
    group.restore(start)
    assert group.test(plans_[2])["loss"].tolist() == first
    group.close()


def test_the_fingerprint_without_sampling_is_that_of_earlier_versions(make_federation, monkeypatch):
    """Checkpoints are named by it. What was hashed before there was a choice did not mention participation."""
    seen = []
    dumps = json.dumps
    monkeypatch.setattr("firma.engines.checkpoint.json.dumps", lambda *a, **k: seen.append(a[0]) or dumps(*a, **k))
    federation = make_federation("fibfl", 3)
    fingerprint(federation)
    fingerprint(replace(federation, participation=0.7))
    assert [facts.get("participation") for facts in seen] == [None, 0.7]
    assert set(seen[0]) == {"method", "hyper", "rounds", "seed", "order", "wire", "path", "pieces"}


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_the_audit_knows_the_neighbours_of_each_round(make_federation, method):
    federation = sampled(make_federation, method, 6, 0.5, rounds=12)
    audit = audit_of(federation)
    finish(federation, audit)
    verdict = audit.summary()
    assert verdict["server_free"] == (method not in SERVED)
    assert verdict["most_senders"] == (5 if method in RINGS else 0)
    for receipt in audit.receipts:
        taking = federation.plan(receipt.round).participants
        assert {receipt.sender, receipt.receiver} <= {*taking, SERVER}
    if method in RINGS:
        audit.neighbours_in.clear()
        assert audit.strangers > 0, "on the ring of all clients these are no neighbours"


def digits(command, *words):
    """Two rounds of digits; that some clients never take part is a warning, which has a test of its own."""
    task = ["run", "--dataset", "digits", "--rounds", "2", "--set", "epochs=1", "--set", "extractor_epochs=1"]
    return command(*task, *words)


@NEVER_DRAWN
def test_the_option_the_toml_key_and_the_parameter(command, tmp_path):
    words = ("--method", "fibfl", "--method", "fedavg", "--clients", "10")
    code, text, _ = digits(command, *words, "--participation", "0.3", "--json")
    assert code == 0
    document = json.loads(text)
    assert document["config"]["participation"] == 0.3
    assert [each["config"]["participation"] for each in document["results"]] == [0.3, 0.3]
    assert [each["messages"] for each in document["results"]] == [[6, 6], [6, 6]]
    (tmp_path / "run.toml").write_text("participation = 0.3\n")
    code, text, _ = digits(command, tmp_path / "run.toml", *words, "--json")
    assert [each["history"] for each in json.loads(text)["results"]] == [
        each["history"] for each in document["results"]
    ]
    settings = {"epochs": 1, "extractor_epochs": 1}
    result = firma.run("digits", method="fibfl", clients=10, rounds=2, participation=0.3, settings=settings)
    assert result.history.tolist() == document["results"][0]["history"]
    code, text, _ = digits(command, *words, "--participation", "0.3", "--audit", "--rounds", "6")
    assert "10 clients (3 per round)" in " ".join(text.split())
    assert "all between ring neighbours of the round (a client received from up to" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--participation", "0"], "participation = 0.0: must be greater than 0"),
        (["--participation", "1.5"], "participation = 1.5: must be at most 1"),
        (["--participation", "0.1", "--clients", "10", "--method", "all"], "requires at least 2; use 0.2, for example"),
        (["--participation", "0.5", "--clients", "2", "--method", "rdfl"], "1 of 2 clients would take part"),
    ],
)  # fmt: skip
def test_what_is_refused(command, words, says):
    code, _, err = digits(command, *words)
    assert code == 2
    assert says in " ".join(err.split())


@NEVER_DRAWN
@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("fibfl", "untrained models"), ("local", "untrained models"), ("fedrep", "untrained heads"),
        ("ditto", "personal models"), ("apfl", "personal models"), ("pfedme", "personal models"),
    ],
)  # fmt: skip
def test_clients_that_never_take_part_are_announced(method, what):
    """Counted by hand from the draws; where a server provides the whole model there is nothing to announce."""
    values = {"rounds": 2, "participation": 0.3, "settings": {"epochs": 1, "extractor_epochs": 1, "head_epochs": 1}}
    never = set(range(10)) - {client for number in (0, 1) for client in participants(0.3, range(10), 0, number)}
    says = f"{len(never)} of 10 clients take part in none of the 2 rounds .seed 0.; {method} tests them with {what}"
    with pytest.warns(UserWarning, match=says):
        firma.run("digits", "iid", method, clients=10, **values)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for whole in ("fedavg", "fedavg-ft", "feddbe"):
            firma.run("digits", "iid", whole, clients=10, **values)
        firma.run("digits", "iid", method, clients=2, **(values | {"participation": 1.0}))


@NEVER_DRAWN
def test_one_client_at_a_time_works_with_a_server_and_alone(command):
    for method in ("fedavg", "local"):
        code, text, _ = digits(command, "--method", method, "--participation", "0.1", "--clients", "5", "--json")
        assert code == 0
        assert json.loads(text)["results"][0]["messages"] == ([2, 2] if method == "fedavg" else [0, 0])
    assert digits(command, "--method", "fibfl++", "--participation", "0.1", "--clients", "1")[0] == 0


def test_firma_ring_shows_the_mixing_of_those_who_take_part(command):
    """Twelve clients of which six take part mix as six clients do; the order and its cost are those of all twelve."""
    reports = []
    for words in (["--clients", "12"], ["--clients", "12", "--participation", "0.5"], ["--clients", "6"]):
        reports.append(json.loads(command("ring", *words, "--json")[1]))
    twelve, half, six = reports
    assert half["participants"] == 6
    assert (half["order"], half["cost_optimised"]) == (twelve["order"], twelve["cost_optimised"])
    for name in ("passes", "retention", "spectral_radius_pass", "spectral_radius_round", "min_influence"):
        assert half[name] == pytest.approx(six[name], abs=1e-12)
        assert half[name] != twelve[name]
    assert "clients per round" in command("ring", "--participation", "0.5")[1]
    code, _, err = command("ring", "--participation", "0")
    assert (code, err) == (2, "firma: participation = 0.0: must be greater than 0 and at most 1\n")


@NEVER_DRAWN
def test_runs_with_and_without_sampling_have_different_labels(command):
    """Tables of a study never average the two, and the command in them repeats the run."""
    labels = {}
    for share in (0.4, 1.0):
        _, text, _ = digits(command, "--method", "fibfl", "--participation", share, "--json")
        (result,) = json.loads(text)["results"]
        labels[share] = str(label(result["config"], "fibfl"))
        if share == 1.0:
            del result["config"]["participation"]  # as results of earlier versions are
            assert str(label(result["config"], "fibfl")) == labels[share]
    assert labels[0.4] == f"{labels[1.0]} participation=0.4"


@NEVER_DRAWN
def test_the_command_in_the_documentation_works(command):
    """docs/scale.md, with fewer and smaller clients."""
    page = (Path(__file__).parents[1] / "docs" / "scale.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("$ firma run") and "--participation" in line]
    words = line.removeprefix("$ firma ").partition("#")[0].split()
    changed = {"--dataset": "digits", "--clients": "30", "--rounds": "2"}
    words = [changed.get(before, word) for before, word in zip(["", *words], words, strict=False)]
    code, text, err = command(*words, "--set", "extractor_epochs=1", "--set", "epochs=1", "--json")
    assert code == 0, err
    assert all(each["config"]["participation"] < 1 for each in json.loads(text)["results"])
