"""Whole runs with robust combines and with dishonest clients."""

import json
import re
import shlex
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import firma
import reference_combine
from documents import ROOT
from firma.attacks import Attack, drawn_attack, lie, poisoned
from firma.engines.checkpoint import RunCheckpoints, fingerprint
from firma.engines.simulation import Simulation
from firma.errors import BadInput
from firma.method_lookup import lookup
from firma.mixing.ring_order import neighbours
from firma.models import SplitModel
from firma.privacy import Audit
from test_algorithms import same_sizes

CLOSE = {"rtol": 2e-3, "atol": 2e-5}
RING = ("fibfl:combine=clipped", "fibfl+:combine=clipped", "rdfl:combine=trimmed", "fibfl:combine=median")
ALL = (
    "frame:topology=all-gather", "frame:topology=all-gather,combine=trimmed", "frame:topology=all-gather,combine=krum",
    "frame:topology=all-gather,combine=clipped", "fedavg:combine=median", "fedrep:combine=krum",
    "scaffold:combine=trimmed",
)  # fmt: skip
COVER = ("fibfl++:combine=clipped", "fibfl++:combine=trimmed")


def finish(federation, audit=None):
    simulation = Simulation(federation, audit)
    outcomes = list(simulation.rounds())
    return simulation.parameters, outcomes


@pytest.mark.parametrize("attack", [None, Attack("sign-flip", (1, 3))])
@pytest.mark.parametrize("method", ["fibfl:combine=clipped", "rdfl:combine=trimmed", "fedavg:combine=median",
    "fedrep:combine=krum", "fedrep:topology=all-gather,combine=clipped"])  # fmt: skip
def test_a_round_is_local_training_and_then_the_reference(make_federation, method, attack):
    federation = replace(make_federation(method, 6, rounds=1, order=(0, 3, 1, 5, 4, 2), retention=0.3), attack=attack)
    row = federation.method
    alone = replace(row, topology="none", shares="nothing", combine="mean")
    trained = finish(replace(federation, method=alone, attack=None))[0]
    span = federation.models[0].layout().span("model" if row.shares == "model" else "extractor")
    theta = trained[:, span].clone()
    theta[list(attack.clients if attack else ())] *= -1
    expected = reference_combine.mixed(row.topology, row.combine, theta, federation.order, 1, None, 1, 0.3, None, None)
    golden = (5**0.5 - 1) / 2
    if row.weights == "golden":  # clipped: the reference has equal weights, so it is asked with the golden pair
        expected = np.stack([
            reference_combine.clipped(
                theta[me], theta[list(around)], [0.7 * golden, 0.7 * golden**2], 1, None
            ) for me, around in sorted(neighbours(federation.order).items())
        ])  # fmt: skip
    if attack and (row.topology == "ring" or row.combine == "clipped"):
        expected[list(attack.clients)] = trained[list(attack.clients), span]  # which do not believe their own lies
    np.testing.assert_allclose(finish(federation)[0][:, span], expected, **CLOSE)


@pytest.mark.parametrize(("participation", "attack"), [(1.0, None), (0.9, None), (1.0, "lying-accuracy")])
@pytest.mark.parametrize("method", [*RING, *ALL, *COVER])
def test_messages_give_what_the_engine_gives(make_federation, method, participation, attack):
    made = make_federation(method, 6, rounds=6 if method in COVER else 2, noisy=(1,), threshold=0.5)
    federation = replace(made, participation=participation, attack=Attack(attack, (2,)) if attack else None)
    audit = Audit(neighbours(federation.order))
    by_engine, by_messages = Simulation(federation), Simulation(federation, audit)
    for left, right in zip(by_engine.rounds(), by_messages.rounds(), strict=True):
        assert (left.messages, left.sent_bytes) == (right.messages, right.sent_bytes)
    torch.testing.assert_close(by_engine.parameters, by_messages.parameters, **CLOSE)
    assert audit.summary()["server_free"] == (federation.method.topology != "star")
    assert audit.summary()["head_private"] == (federation.method.shares == "extractor")


def test_an_all_gather_of_means_is_the_all_reduce(make_federation):
    reduced, gathered = (make_federation(f"frame:topology={kind}", 5) for kind in ("all-reduce", "all-gather"))
    torch.testing.assert_close(finish(gathered)[0], finish(reduced)[0], **CLOSE)
    by_messages = [finish(each, Audit(neighbours(each.order)))[0] for each in (reduced, gathered)]
    torch.testing.assert_close(by_messages[1], by_messages[0], **CLOSE)


@pytest.mark.parametrize(
    ("method", "plain", "settings"),
    [
        ("fibfl+:combine=clipped", "fibfl+", {"clip_radius": float("inf")}),
        ("fibfl++:combine=clipped", "fibfl++", {"clip_radius": 1e6, "warmup_rounds": 0}),
        ("fibfl:combine=clipped", "fibfl", {"byzantine": 0}),
        ("fedavg:combine=trimmed", "fedavg:weights=equal", {"byzantine": 0}),
        ("frame:topology=all-gather,combine=trimmed", "frame:weights=equal", {"byzantine": 0}),
    ],
)
def test_nothing_to_withstand_is_the_mean(make_federation, method, plain, settings):
    ours, linear = (
        make_federation(each, 5, rounds=4, noisy=(1,), threshold=0.5, **settings) for each in (method, plain)
    )
    torch.testing.assert_close(finish(ours)[0], finish(linear)[0], **CLOSE)


def test_everybody_has_the_same_after_an_all_gather_to_a_bit(make_federation):
    federation = make_federation("frame:topology=all-gather,combine=trimmed,personal=none", 5, rounds=2)
    span = federation.models[0].layout().span("extractor")
    extractors = finish(federation, Audit(neighbours(federation.order)))[0][:, span]
    assert all(torch.equal(each, extractors[0]) for each in extractors)


def test_the_warm_up_before_a_robust_ring_sees_single_clients(make_federation):
    federation = make_federation("fibfl++:combine=clipped", 5, rounds=6)
    assert federation.plan(0).mixing == "all-gather"
    assert federation.plan(1).mixing == "ring"
    assert make_federation("fibfl++", 5, rounds=6).plan(0).mixing == "all-reduce"


def test_what_attackers_send():
    draw = np.random.default_rng(0)
    trained, start = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, 0.0, 1.0])
    assert lie("sign-flip", trained, start, draw).tolist() == [-1, 2, -3]
    assert lie("lying-accuracy", trained, start, draw).tolist() == [-1, 2, -3]
    assert lie("scaled", trained, start, draw).tolist() == [1, -20, 21]
    many = torch.full((100_000,), 0.5)
    noise = lie("noise", many, many, draw) - many
    assert abs(float(noise.std()) - 5.0) < 0.05
    assert abs(float(noise.mean())) < 0.1


def test_flipped_labels_are_those_of_the_training_data_only(make_federation):
    data = make_federation("fedavg", 1).data[0]
    wrong = poisoned(data, 4)
    assert wrong.labels.tolist() == [3 - label for label in data.labels.tolist()]
    assert torch.equal(wrong.test_labels, data.test_labels)
    assert torch.equal(wrong.inputs, data.inputs)


def test_attackers_are_drawn_by_the_seed_and_more_of_them_are_the_same_and_others():
    few, more = drawn_attack("noise", 2, 10, 3), drawn_attack("noise", 5, 10, 3)
    assert set(few.clients) < set(more.clients)
    assert list(more.clients) == sorted(set(more.clients))
    assert len(more.clients) == 5
    assert drawn_attack("none", 0, 10, 3) is None
    assert len({drawn_attack("noise", 1, 10, seed).clients for seed in range(20)}) > 3


def test_an_attack_changes_nothing_but_what_attackers_send(make_federation):
    honest = make_federation("fibfl+", 5, rounds=1)
    for kind in ("sign-flip", "noise", "scaled", "lying-accuracy"):
        attacked = replace(honest, attack=Attack(kind, (2,)))
        ours, theirs = finish(attacked)[0], finish(honest)[0]
        same = [torch.equal(one, other) for one, other in zip(ours, theirs, strict=True)]
        assert same == [True, False, False, False, True], kind  # the attacker and its neighbours


@pytest.mark.parametrize("method", ["fedavg", "fednova", "fednova:topology=all-reduce"])
def test_a_scaled_update_is_ten_times_the_update_whatever_is_sent(make_federation, method):
    """With clients of the same size FedNova is FedAvg: one liar of five moves the mean by nine fifths of its update."""
    honest = same_sizes(make_federation(method, 5, rounds=1, backend="autograd"))
    start = honest.models[0].flat()
    alone = finish(same_sizes(make_federation("local", 5, rounds=1, backend="autograd")))[0] - start
    for kind, factor in (("scaled", 10), ("label-flip", 1)):
        mean = (alone.sum(0) + (factor - 1) * alone[2]) / 5
        found = finish(replace(honest, attack=Attack(kind, (2,))))[0] - start
        torch.testing.assert_close(found, mean.expand_as(found), rtol=1e-3, atol=1e-5)


def test_a_scaled_update_of_shared_statistics_starts_from_theirs(make_federation):
    """FedNova sends differences of parameters, but statistics as they are: the lie is then FedAvg's."""
    found = []
    for method in ("fedavg", "fednova"):
        federation = same_sizes(make_federation(method, 5, rounds=1))
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(16)
        norm.shared_buffers = True
        model = SplitModel(nn.Sequential(nn.Linear(12, 16), norm, nn.ReLU()), nn.Linear(16, 4))
        found.append(finish(replace(federation, models=[model], attack=Attack("scaled", (2,))))[0])
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("method", ["fibfl", "fibfl++", "rdfl:combine=median", "fedavg:combine=median"])
@pytest.mark.parametrize("kind", ["noise", "scaled"])
def test_lies_do_not_grow_from_round_to_round(make_federation, method, kind):
    federation = replace(make_federation(method, 5, rounds=9), attack=Attack(kind, (2,)))
    assert finish(federation)[0][2].abs().max() < 100


def test_a_gate_sees_the_accuracy_of_what_is_sent_unless_that_is_a_lie(make_federation):
    """An attacker whose parameters are bad is kept out; one that says they are perfect is let in."""
    federation = make_federation(
        "fibfl+", 3, rounds=1, threshold=0.8, extractor_epochs=30, head_epochs=30, posterior=1.0
    )
    claims = {}
    for kind in ("sign-flip", "lying-accuracy"):
        simulation = Simulation(replace(federation, attack=Attack(kind, (2,))))
        claims[kind] = simulation._group.train(federation.plan(0))
    assert claims["lying-accuracy"][2] == 1.0
    assert claims["sign-flip"][2] < 0.8
    assert claims["sign-flip"][0] == claims["lying-accuracy"][0] > 0.8


@pytest.mark.parametrize("method", ["frame:topology=all-gather,combine=clipped", "fibfl++:combine=clipped"])
def test_a_resumed_run_is_the_run_bit_by_bit(make_federation, tmp_path, method):
    federation = replace(make_federation(method, 4, rounds=4), attack=Attack("noise", (1,)))
    whole = finish(federation)[0]
    first = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds()
    for _ in range(2):
        next(first)
    first.close()
    again = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation))
    assert len(list(again.rounds())) == 4
    assert torch.equal(again.parameters, whole)


def test_an_attack_is_part_of_what_identifies_a_run(make_federation):
    honest = make_federation("fibfl", 4)
    prints = [fingerprint(replace(honest, attack=attack)) for attack in
              (None, Attack("noise", (1,)), Attack("noise", (2,)), Attack("scaled", (1,)))]  # fmt: skip
    assert len(set(prints)) == 4
    assert fingerprint(make_federation("fibfl", 4, byzantine=1)) == prints[0]


LIED_TO = {"rounds": 4, "settings": {"extractor_epochs": 5}, "attack": "noise", "attackers": 1}


def test_one_liar_of_five_ruins_a_mean_and_not_a_robust_combine():
    truthful = firma.run("digits", "iid", "frame", **{**LIED_TO, "attack": "none", "attackers": 0})
    ruined = firma.run("digits", "iid", "frame", **LIED_TO)
    assert ruined.metrics["honest_mean_accuracy"] < truthful.metrics["mean_accuracy"] - 0.2
    for combine in ("trimmed", "clipped"):
        result = firma.run("digits", "iid", f"frame:topology=all-gather,combine={combine}", **LIED_TO)
        assert result.metrics["honest_mean_accuracy"] > truthful.metrics["mean_accuracy"] - 0.02, combine
    (liar,) = result.config["dishonest"]
    honest = np.delete(result.history[-1], liar)
    assert result.metrics["honest_mean_accuracy"] == honest.mean()
    assert result.metrics["honest_worst_client"] == honest.min()
    assert (result.config["attack"], result.config["attackers"]) == ("noise", 1)


def test_honest_runs_record_no_attack():
    result = firma.run("digits", "iid", "fedavg", rounds=1, settings={"epochs": 1})
    assert not {"attack", "attackers", "dishonest"} & set(result.config)
    assert not [name for name in result.metrics if name.startswith("honest")]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"attack": "noise"}, "an attack requires --attackers 1 or more"),
        ({"attackers": 2}, "attackers require --attack"),
        ({"attack": "noise", "attackers": 5}, "must be less than the number of clients, 5"),
        ({"attack": "nose", "attackers": 1}, "did you mean 'noise'"),
        ({"method": "fedavg:combine=krum", "clients": 4}, "requires at least 5 clients"),
        ({"method": "frame:topology=all-gather", "wire": "int8"}, "use float32"),
        ({"method": "fedavg:combine=median", "participation": 0.4}, "requires at least 3 clients"),
        ({"method": "fedavg:combine=krum", "participation": 0.2}, "and there are 1 of 5 in a round"),
    ],
)
def test_what_cannot_be_is_refused(options, says):
    with pytest.raises(BadInput, match=says):
        firma.run("digits", "iid", **options)


TRIMMED = "fedavg:combine=trimmed"
PATH = ((0, 1), (1, 2), (2, 3), (3, 4))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"method": "d-psgd:topology=edges,combine=trimmed", "graph": PATH},
            r"requires 2 neighbours, and 2 of 5 clients have fewer \(0, 4\): they keep their own parameters in every",
        ),
        ({"method": TRIMMED, "attack": "noise", "attackers": 2}, "2 dishonest clients are combined at a time, but "),
        (
            {"method": "fibfl:combine=trimmed", "attack": "label-flip", "attackers": 3},
            "2 dishonest clients are combined at a time",
        ),
        (
            {"method": "d-psgd:topology=exponential,combine=clipped", "attack": "noise", "attackers": 4},
            "3 dishonest clients .* withstands byzantine = 1; use fewer attackers, or a larger byzantine",
        ),
        (
            {"clients": 10, "participation": 0.1, "attack": "noise", "attackers": 1},
            r"fedavg: 1 of 1 dishonest clients \(\d\) take part in none of the 2 rounds, so nobody attacks",
        ),
    ],
)
def test_what_may_not_be_meant_is_warned_of(options, says):
    with pytest.warns(UserWarning, match=says):
        firma.run("digits", "iid", **{"method": "fedavg", "rounds": 2, "settings": {"local_steps": 1}} | options)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "d-psgd:topology=edges,combine=trimmed", "graph": (*PATH, (0, 4))},
        {"method": "d-psgd:topology=edges", "graph": PATH},
        {"method": TRIMMED, "attack": "noise", "attackers": 1, "participation": 0.6},
        {"method": "fedavg", "attack": "noise", "attackers": 4},
        {"method": "fibfl:combine=trimmed", "attack": "noise", "attackers": 4, "clients": 20, "seed": 1},
    ],
)
def test_nothing_else_is(options):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*(dishonest|keep their own)")
        firma.run("digits", "iid", **{"rounds": 2, "settings": {"local_steps": 1}} | options)


def test_flipping_labels_needs_classes():
    rng = np.random.default_rng(0)
    numbers = (rng.normal(size=(200, 3)), rng.normal(size=200))
    with pytest.raises(BadInput, match="label-flip requires a classification task, and this is regression"):
        firma.run(numbers, task="regression", clients=4, attack="label-flip", attackers=1)


def test_the_command_shows_honest_clients(command):
    words = ["run", "--dataset", "digits", "--scenario", "iid", "--method", "fedavg:combine=median", "--rounds", 1,
             "--set", "epochs=1", "--attack", "label-flip", "--attackers", 1, "-q"]  # fmt: skip
    code, out, _ = command(*words)
    assert code == 0
    assert "honest mean" in out
    assert "1 dishonest: label-flip" in out
    result = json.loads(command(*words, "--json")[1])["results"][0]
    assert result["config"]["attack"] == "label-flip"
    assert len(result["config"]["dishonest"]) == 1
    assert result["metrics"]["honest_worst_client"] <= result["metrics"]["honest_mean_accuracy"]


def test_seeds_with_other_attackers_may_be_averaged():
    runs = [
        firma.run("digits", "iid", "fedavg", rounds=1, seed=seed, settings={"epochs": 1}, attack="noise", attackers=1)
        for seed in range(4)
    ]
    assert len({tuple(each.config["dishonest"]) for each in runs}) > 1
    mean = np.mean([each.metrics["honest_mean_accuracy"] for each in runs])
    assert firma.compare(runs)["fedavg"]["honest_mean_accuracy"].mean == pytest.approx(mean)


def test_rows_keep_their_keys():
    from firma.methods import stable_columns

    assert "combine" not in stable_columns(lookup("fibfl++"))
    assert stable_columns(lookup("fedavg:combine=median"))["combine"] == "median"


def test_the_commands_of_the_documentation(command):
    text = (ROOT / "docs/robustness.md").read_text().replace("\\\n", "")
    run, ring_file = (
        shlex.split(line)[1:] for line in text.splitlines() if line.startswith(("    firma run", "    firma ring-file"))
    )
    code, out, _ = command(*run)
    assert code == 0
    assert "honest worst" in out
    assert lookup(ring_file[ring_file.index("--method") + 1]).combine == "trimmed"
    for method in re.findall(r"`((?:fedavg|fibfl\+\+|frame):[^`]*)`", text):
        lookup(method)
