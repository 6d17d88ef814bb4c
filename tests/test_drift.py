"""Drift: who holds which rows when, runs on data that change, and rings that are ordered anew."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import firma
from drifting import ROUNDS, drifting_federation, few_digits
from firma.data.drift import Drift, deal_over_rounds, parse_drift, progress, timeline
from firma.data.partition import class_counts, deal
from firma.data.scenarios import rotated, rotated_pairs
from firma.engines.checkpoint import RunCheckpoints, fingerprint
from firma.engines.simulation import Simulation
from firma.methods import METHODS
from firma.mixing.ring_order import neighbours, orders_over_rounds, similarity, total_variation, two_opt
from firma.models import SplitModel
from firma.peer.ring_file import checked
from firma.privacy import Audit
from firma.results import from_dict
from firma.settings import Split
from firma.sweep.cells import Cell, key, label
from firma.sweep.grid import expand
from reference import Numbers, epochs, parameters, sgd

SPLIT = Split()
DRIFTS = ["label-shift", "label-shift@4", "label-shift-0.4", "new-classes", "new-classes-3@4", "rotate-60"]
FAST = {"epochs": 1, "head_epochs": 1, "extractor_epochs": 1, "personal_epochs": 1}


def dealt(dataset, scenario, drift, clients=5, rounds=ROUNDS, split=SPLIT):
    return deal_over_rounds(dataset, scenario, clients, split, 0, parse_drift(drift), rounds)


def counts(dataset, found, number, half="train"):
    labels = dataset.y_train if half == "train" else dataset.y_test
    return class_counts(labels, getattr(found.at(number), half), dataset.classes)


def finish(federation, audit=None, checkpoints=None):
    engine = Simulation(federation, audit, checkpoints)
    history = np.stack([outcome.scores for outcome in engine.rounds()])
    return history, engine.parameters


# Spelling


@pytest.mark.parametrize(
    ("text", "drift"),
    [
        ("label-shift", Drift("label-shift")), ("label-shift@15", Drift("label-shift", None, 15)),
        ("label-shift-0.5@2", Drift("label-shift", 0.5, 2)), ("label-shift-0", Drift("label-shift", 0.0)),
        ("new-classes", Drift("new-classes")), ("new-classes-3@7", Drift("new-classes", 3.0, 7)),
        ("rotate-22.5", Drift("rotate", 22.5)), ("rotate-90@3", Drift("rotate", 90.0, 3)),
    ],
)  # fmt: skip
def test_spellings(text, drift):
    assert parse_drift(text) == drift


@pytest.mark.parametrize(
    "text",
    ["", "label", "label-shift-1.5", "label-shift@1", "label-shift@0", "label-shift@", "new-classes-1.5", "rotate",
     "rotate-", "rotate--90", "rotate-1e999", "rotate-90@2@3", "drift", "label-shift rotate-90"],
)  # fmt: skip
def test_other_spellings_are_refused(text):
    with pytest.raises(firma.BadInput, match=r"is invalid.*choose from label-shift"):
        parse_drift(text)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"drift": "label-shift", "scenario": "iid"}, "requires scenario dir-ALPHA or skew-K"),
        ({"drift": "label-shift", "scenario": "quantity-0.5"}, "requires scenario dir-ALPHA or skew-K"),
        ({"drift": "rotate-90", "rounds": 1}, "at least 2 rounds"),
        ({"drift": "rotate-90@7", "rounds": 6}, "@7 is after the last round; with 6 rounds it must be 2 to 6"),
        ({"drift": "rotate-90", "preset": "published"}, "tests = 'independent' cannot be combined with drift"),
        ({"drift": "new-classes-10"}, "use at most 9"),
        ({"drift": "rotate-9O"}, "is invalid"),
    ],
)
def test_what_makes_no_sense_is_refused(options, why):
    with pytest.raises(firma.BadInput, match=why):
        firma.run("digits", **({"rounds": 3} | options))


def test_real_members_do_not_drift():
    with pytest.raises(firma.BadInput, match="data of real members are their own"):
        checked({"federation": "a", "drift": "label-shift"})


# Who holds which rows when


@pytest.mark.parametrize(
    ("scenario", "drift"),
    [
        (scenario, drift)
        for scenario in ("dir-0.5", "skew-1", "skew-2", "iid", "quantity-0.5", "rotate-30")
        for drift in DRIFTS
        if scenario.startswith(("dir", "skew")) or not drift.startswith("label")
    ],
)
def test_no_row_is_in_two_places_and_tests_match_the_round(scenario, drift):
    dataset = firma.load_dataset("digits")
    found = dealt(dataset, scenario, drift)
    held = np.bincount(dataset.y_test, minlength=10)
    for number in range(ROUNDS):
        now = found.at(number)
        for parts in (now.train, now.test):
            rows = np.concatenate(parts)
            assert len(np.unique(rows)) == len(rows), "a row at two clients"
        train, test = counts(dataset, found, number), counts(dataset, found, number, "test")
        assert (test.sum(axis=0) <= held).all()
        # Matched by hand: a client's tests of a class are its share of the training data, by one scale for all.
        used = train.sum(axis=0) > 0
        if drift.startswith("label"):
            scale = (held[used] / train.sum(axis=0)[used]).min()
        else:
            scale = (held / counts(dataset, found, ROUNDS - 1).sum(axis=0)).min()  # of the split that all rounds share
        if scenario not in ("iid", "rotate-30") or drift.startswith("label"):
            assert (np.abs(test - train * scale) < 1 + 1e-9).all()
        assert (test[train == 0] == 0).all(), "a client is tested on a class that it does not have"


@pytest.mark.parametrize("scenario", ["dir-0.1", "dir-0.5", "skew-1"])
def test_proportions_move_in_a_straight_line(scenario):
    dataset, rounds = firma.load_dataset("digits"), 11
    found = dealt(dataset, scenario, "label-shift", rounds=rounds)
    first, last = counts(dataset, found, 0), counts(dataset, found, rounds - 1)
    errors = []
    for number in range(rounds):
        t = number / 10
        errors.append(counts(dataset, found, number) - ((1 - t) * first + t * last))
    worst = np.abs(errors)
    assert worst.max() <= 2 * (5 + 1), "within one row for each other client that rows come from or go to"
    assert worst.mean() < 1
    moved = total_variation(first / first.sum(1, keepdims=True), last / last.sum(1, keepdims=True))
    assert moved.min() > 0.2, "somebody stays where it was"


def test_half_of_the_strength_ends_half_way():
    dataset, rounds = firma.load_dataset("digits"), 11
    half, whole = (dealt(dataset, "dir-0.5", each, rounds=rounds) for each in ("label-shift-0.5", "label-shift"))
    for number in range(rounds):
        if number % 2 == 0:
            for mine, theirs in zip(half.at(number).train, whole.at(number // 2).train, strict=True):
                np.testing.assert_array_equal(np.sort(mine), np.sort(theirs))


def test_a_row_changes_hands_once_at_most():
    dataset = firma.load_dataset("digits")
    found = dealt(dataset, "dir-0.5", "label-shift", rounds=15)
    owners = np.full((15, len(dataset.y_train)), -1)
    for number in range(15):
        for client, rows in enumerate(found.at(number).train):
            owners[number, rows] = client
    changes = (owners[1:] != owners[:-1]).sum(axis=0)
    assert changes.max() == 1
    assert 0.5 < (changes == 1).mean() < 1, "with five clients, four of five rows go to another one"
    assert (np.abs((owners[1:] != owners[:-1]).sum(axis=1) - changes.sum() / 14) < 30).all(), "not gradual"


def test_at_a_round_label_skew_gives_every_client_anothers_classes():
    """skew-1 has no chance in its proportions: after the shift clients have exchanged their roles, and all others."""
    dataset = firma.load_dataset("digits")
    found = dealt(dataset, "skew-1", "label-shift@4")
    before, after = counts(dataset, found, 2), counts(dataset, found, 3)
    plain = class_counts(dataset.y_train, deal(dataset, "skew-1", 5, SPLIT, 0).train, 10)
    np.testing.assert_array_equal(before, plain)
    roles = [next(j for j in range(5) if (after[i] == plain[j]).all()) for i in range(5)]
    assert sorted(roles) == list(range(5))
    assert all(role != client for client, role in enumerate(roles))
    np.testing.assert_array_equal(counts(dataset, found, ROUNDS - 1), after)


def test_new_classes_appear_one_after_another_or_at_once():
    dataset, rounds = firma.load_dataset("digits"), 12
    plain = deal(dataset, "dir-0.5", 5, SPLIT, 0)
    whole = class_counts(dataset.y_train, plain.train, 10)
    for drift, expected in (
        ("new-classes-2", {0: 8, 3: 8, 4: 9, 7: 9, 8: 10, 11: 10}),  # 12 rounds in three parts
        ("new-classes-3@6", {0: 7, 4: 7, 5: 10}),
        ("new-classes@12", {0: 5, 10: 5, 11: 10}),
        ("new-classes-0", {0: 10}),
    ):
        found = dealt(dataset, "dir-0.5", drift, rounds=rounds)
        for number, classes in expected.items():
            now = counts(dataset, found, number)
            there = now.sum(axis=0) > 0
            assert there.sum() == classes, (drift, number)
            np.testing.assert_array_equal(now[:, there], whole[:, there])
            assert (counts(dataset, found, number, "test").sum(axis=0) > 0).sum() == classes
        for mine, theirs in zip(found.at(rounds - 1).train, plain.train, strict=True):
            np.testing.assert_array_equal(np.sort(mine), np.sort(theirs))


def test_who_has_too_few_samples_in_some_round_is_left_out_of_all():
    dataset = firma.load_dataset("digits")
    found = dealt(dataset, "dir-0.1", "new-classes-6@4", split=Split(min_samples=40))
    plain = deal(dataset, "dir-0.1", 5, Split(min_samples=40), 0)
    kept = [client for client in range(5) if client not in found.dropped]
    assert set(found.dropped) > set(plain.dropped), "nobody was left out, so nothing was tested"
    for number in range(ROUNDS):
        assert min(len(rows) for rows in found.at(number).train) >= 40
        assert len(found.at(number).train) == len(kept)


@pytest.mark.parametrize("drift", ["label-shift-0", "label-shift-0@3", "new-classes-0", "rotate-0", "rotate-0@2"])
def test_a_drift_of_strength_0_is_the_split_itself(drift):
    dataset = firma.load_dataset("digits")
    plain, found = deal(dataset, "dir-0.5", 5, SPLIT, 0), dealt(dataset, "dir-0.5", drift)
    for number in range(ROUNDS):
        for half in ("train", "test"):
            for mine, theirs in zip(getattr(found.at(number), half), getattr(plain, half), strict=True):
                np.testing.assert_array_equal(mine, theirs)
        assert not any(found.at(number).angles)


def test_the_split_depends_on_the_split_seed_alone():
    dataset = firma.load_dataset("digits")
    one, other = dealt(dataset, "dir-0.5", "label-shift"), dealt(dataset, "dir-0.5", "label-shift")
    free = dealt(dataset, "dir-0.5", "label-shift", split=Split(split_seed=43))
    np.testing.assert_array_equal(counts(dataset, one, 5), counts(dataset, other, 5))
    assert (counts(dataset, one, 5) != counts(dataset, free, 5)).any()


def test_named_clients_keep_their_rows_and_their_tests():
    digits = few_digits()
    owners = np.arange(len(digits.y_train)) % 3
    named = firma.natural(digits, owners, np.arange(len(digits.y_test)) % 3)
    found = deal_over_rounds(named, "natural", 3, SPLIT, 0, parse_drift("new-classes-4@3"), 4)
    for number in range(4):
        for client, (train, test) in enumerate(zip(found.at(number).train, found.at(number).test, strict=True)):
            assert (train % 3 == client).all()
            assert (test % 3 == client).all()
            assert set(named.y_test[test]) <= set(named.y_train[train])
    with pytest.raises(firma.BadInput, match="requires scenario dir-ALPHA or skew-K"):
        deal_over_rounds(named, "natural", 3, SPLIT, 0, parse_drift("label-shift"), 4)


def test_a_timeline_by_hand():
    found = timeline([(0, np.array([5, 3, 8])), (2, np.array([8, 1, 5])), (3, np.array([3, 1]))], 5)
    assert [found.at(number).tolist() for number in range(5)] == [[5, 3, 8], [5, 3, 8], [5, 8, 1], [1, 3], [1, 3]]


def test_progress_by_hand():
    assert progress(Drift("rotate", 9.0), 5) == [0, 0.25, 0.5, 0.75, 1]
    assert progress(Drift("rotate", 9.0, 3), 5) == [0, 0, 1, 1, 1]


# Inputs that are rotated


def test_images_are_rotated_further_and_further_on_top_of_the_scenario():
    dataset = few_digits()
    run = drifting_federation("fedavg", "rotate-80", "rotate-30", clients=3, rounds=5, dataset=dataset)
    for number in range(5):
        now = run.drift.partition.at(number)
        assert now.angles == tuple(15.0 * client + 20.0 * number for client in range(3))
        for client in range(3):
            data = run.drift.client(client, number)
            for inputs, stored, rows in (
                (data.inputs, dataset.x_train, now.train[client]), (data.test_inputs, dataset.x_test, now.test[client]),
            ):  # fmt: skip
                np.testing.assert_array_equal(inputs.numpy(), rotated(stored[rows], now.angles[client]))


def test_features_of_a_table_are_rotated_in_pairs():
    table = np.array([[1.0, 10.0, 7.0], [3.0, 30.0, 8.0]])
    centre, spread = np.array([1.0, 20.0, 0.0]), np.array([1.0, 10.0, 1.0])
    # z = (0, -1) and (2, 1); a quarter turn takes (a, b) to (-b, a); the third feature has no partner.
    np.testing.assert_allclose(rotated_pairs(table, 90, centre, spread), [[2, 20, 7], [0, 40, 8]], atol=1e-12)
    assert rotated_pairs(table, 0, centre, spread) is table
    np.testing.assert_allclose(rotated_pairs(table, 360, centre, spread), table)


def test_a_table_drifts_and_is_standardised_by_the_first_round():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    x = (rng.normal(size=(300, 5)) + np.eye(3, 5)[y] * 3) * [1, 50, 1, 1, 1]
    result = firma.run(
        (x[:200], y[:200], x[200:], y[200:]), "iid", "local", clients=2, rounds=3, drift="rotate-180",
        standardise="per-client", settings=FAST,
    )  # fmt: skip
    still = firma.run(
        (x[:200], y[:200], x[200:], y[200:]), "iid", "local", clients=2, rounds=3, standardise="per-client",
        settings=FAST,
    )  # fmt: skip
    for mine, theirs in zip(result.standardisers, still.standardisers, strict=True):
        np.testing.assert_array_equal(mine.mean, theirs.mean)
    np.testing.assert_array_equal(result.history[0], still.history[0])
    assert (result.history[1] < still.history[1]).any()
    with pytest.raises(firma.BadInput, match="must be images, or tables of at least two features"):
        firma.run((x[:, :1], y), "iid", "local", clients=2, rounds=3, drift="rotate-90")


# Runs


@pytest.mark.parametrize(
    ("method", "drift"),
    [*((method, "label-shift-0") for method in METHODS), ("fibfl++", "new-classes-0"), ("frame", "rotate-0")],
)
def test_without_strength_a_run_is_the_run_without_drift_bit_by_bit(method, drift):
    options = {"clients": 4, "rounds": 3, "participation": 0.5, "settings": FAST}
    plain = firma.run(few_digits(), "dir-0.5", method, **options)
    ours = firma.run(few_digits(), "dir-0.5", method, drift=drift, **options)
    np.testing.assert_array_equal(ours.history, plain.history)
    assert torch.equal(ours.parameters, plain.parameters)
    for name, curve in plain.curves.items():
        np.testing.assert_array_equal(ours.curves[name], curve)
    assert ours.config["samples"] == plain.config["samples"]
    assert ours.config["drift"] == drift
    assert "drift" not in plain.config


@pytest.mark.parametrize("method", ["fedavg", "fibfl++"])
@pytest.mark.parametrize("drift", ["label-shift@3", "new-classes@3", "rotate-90@3"])
def test_before_a_round_in_which_data_change_nothing_is_different(method, drift):
    options = {"clients": 4, "rounds": 4, "settings": FAST | {"warmup_rounds": 1}}
    ours = firma.run(few_digits(), "dir-0.5", method, drift=drift, **options).history
    plain = firma.run(few_digits(), "dir-0.5", method, **options).history
    if not drift.startswith("new"):
        np.testing.assert_array_equal(ours[:2], plain[:2])
        assert (ours[2:] != plain[2:]).any()
    else:
        assert (ours[:2] != plain[:2]).any()


def by_hand(run, rounds, averages):
    """Training and averaging by size, or blending on the ring of the round, in plain loops; (R, N) test accuracies."""
    dataset, found = run.drift.dataset, run.drift.partition
    model = run.models[0]
    hyper, clients = run.hyper, run.clients
    numbers = Numbers(lr=hyper.rate, momentum=hyper.momentum, batch=hyper.batch)
    sites = [Plain(copy.deepcopy(model.extractor), copy.deepcopy(model.head)) for _ in range(clients)]
    history = []
    for number in range(rounds):
        now = found.at(number)
        for i, site in enumerate(sites):
            site.x = seen(dataset.x_train[now.train[i]], dataset, now, i)
            site.y = torch.from_numpy(dataset.y_train[now.train[i]])
            both = [*site.extractor.parameters(), *site.head.parameters()]
            shuffle = firma.seeds.generator(run.seed, "batches", i, number)
            epochs(site, shuffle, hyper.epochs, numbers, [sgd(both, numbers)])
        flat = torch.stack([parameters(site) for site in sites])
        if averages:
            sizes = torch.tensor([float(len(rows)) for rows in now.train])
            mixed = (sizes / sizes.sum()) @ flat
            mixed = mixed.expand(clients, -1)
        else:
            order = next(order for start, order in reversed(run.orders) if start <= number)
            pairs = [pair for _, pair in sorted(neighbours(order).items())]
            mixed = torch.stack([0.5 * flat[i] + 0.25 * (flat[a] + flat[b]) for i, (a, b) in enumerate(pairs)])
        for site, values in zip(sites, mixed, strict=True):
            both = [*site.extractor.parameters(), *site.head.parameters()]
            nn.utils.vector_to_parameters(values.clone(), both)
        scores = []
        for i, site in enumerate(sites):
            x = seen(dataset.x_test[now.test[i]], dataset, now, i)
            with torch.no_grad():
                right = site.head(site.extractor(x)).argmax(1).numpy() == dataset.y_test[now.test[i]]
            scores.append(right.mean())
        history.append(scores)
    return np.array(history), torch.stack([parameters(site) for site in sites])


class Plain:
    """A site of the oracle."""

    def __init__(self, extractor, head):
        self.extractor, self.head = extractor, head


def seen(stored, dataset, partition, client):
    if partition.angles:
        stored = rotated(stored, partition.angles[client])
    return torch.from_numpy(stored.astype(np.float32)) * dataset.scale


PLAIN = {"schedule": "constant", "weight_decay": 0.0}  # as `by_hand` trains


@pytest.mark.parametrize("drift", ["label-shift", "label-shift@3", "new-classes@3", "rotate-60"])
def test_averages_use_the_data_and_sizes_of_the_round(drift):
    run = drifting_federation("fedavg", drift, rounds=4, **PLAIN)
    history, ended = finish(run)
    expected, parameters = by_hand(run, 4, averages=True)
    torch.testing.assert_close(ended, parameters, rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(history, expected, atol=0.03)  # one sample of about forty on the border
    assert (np.abs(history - expected) < 1e-12).mean() > 0.8


def test_the_ring_of_the_round_is_used_by_matrix_messages_and_audit():
    run = drifting_federation(
        "rdfl:order=2-opt", "label-shift", "dir-0.1", clients=6, rounds=5, reorder_every=2, **PLAIN
    )
    assert [start for start, _ in run.orders] == [0, 2, 4]
    assert len({order for _, order in run.orders}) > 1, "always the same ring, so nothing is tested"
    audit = Audit(neighbours(run.order))
    history, ended = finish(run)
    by_messages, messages_ended = finish(run, audit)
    torch.testing.assert_close(ended, messages_ended, rtol=2e-3, atol=2e-5)
    np.testing.assert_allclose(history, by_messages, atol=0.03)
    torch.testing.assert_close(ended, by_hand(run, 5, averages=False)[1], rtol=2e-3, atol=2e-5)
    assert audit.summary()["server_free"]
    assert audit.most_senders > 2
    for number in range(5):
        ring = neighbours(run.order_in(number))
        for receipt in audit.receipts:
            if receipt.round == number:
                assert receipt.sender in ring[receipt.receiver]
    audit.neighbours_in.clear()
    assert audit.strangers > 0, "the first ring would have done for all rounds"


def test_participants_follow_the_ring_of_the_round():
    base = drifting_federation("rdfl:order=2-opt", "label-shift@3", "dir-0.1", clients=6, rounds=4, reorder_when=0.1)
    run = replace(base, participation=0.7)
    assert [start for start, _ in run.orders] == [0, 2]
    for number in range(4):
        plan = run.plan(number)
        order = run.orders[0][1] if number < 2 else run.orders[1][1]
        assert list(plan.participants) == [client for client in order if client in plan.participants]
        assert set(plan.participants) == set(replace(base, orders=(), participation=0.7).plan(number).participants)
    finish(run, Audit(neighbours(run.order)))


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("method", ["fedavg", "fibfl++", "frame"])
def test_a_resumed_run_is_the_run_bit_by_bit(tmp_path, method, share):
    make = drifting_federation(method, "label-shift", rounds=5, reorder_every=2, personal_epochs=1)
    run = replace(make, participation=share)
    history, ended = finish(run)
    stopped = Simulation(run, None, RunCheckpoints(tmp_path, run)).rounds()
    for _ in range(3):
        next(stopped)
    stopped.close()
    again, resumed = finish(run, checkpoints=RunCheckpoints(tmp_path, run))
    np.testing.assert_array_equal(again, history)
    assert torch.equal(resumed, ended)


def test_a_checkpoint_belongs_to_one_drift_and_to_its_orders():
    plain = drifting_federation("fibfl++", "label-shift-0")
    runs = [
        replace(plain, drift=None), plain, drifting_federation("fibfl++", "label-shift@6"),
        drifting_federation("fibfl++", "label-shift@5"), drifting_federation("fibfl++", "rotate-10"),
        replace(plain, orders=((0, plain.order), (2, (0, 2, 1, 3)))),
    ]  # fmt: skip
    assert len({fingerprint(run) for run in runs}) == len(runs)
    assert fingerprint(plain) == fingerprint(drifting_federation("fibfl++", "label-shift-0"))


def test_models_that_draw_train_in_processes_on_the_data_of_the_round():
    def run(workers):
        base = drifting_federation("fibfl", "label-shift", rounds=4)
        torch.manual_seed(0)
        extractor = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Dropout(0.2), nn.ReLU())
        return replace(base, models=[SplitModel(extractor, nn.Linear(16, 10))], workers=workers)

    one, several = finish(run(1)), finish(run(3))
    np.testing.assert_array_equal(one[0], several[0])
    assert torch.equal(one[1], several[1])
    still = replace(run(1), drift=None)
    assert not torch.equal(finish(still)[1], one[1])


def test_a_derived_head_follows_the_classes_of_the_round():
    run = drifting_federation("frame", "label-shift@3", "skew-1", clients=4, rounds=3)
    engine = Simulation(run)
    list(engine.rounds())
    whole = engine._group.backend.outward(engine._group.stack)
    biases = whole[:, -10:]  # the head's weights come first
    for client in range(4):
        labels = run.drift.client(client, 2).labels
        found = torch.bincount(labels, minlength=10).double()
        torch.testing.assert_close(biases[client], torch.log((found + 0.5) / (len(labels) + 5)).float())


def test_rows_are_not_copied_for_every_round():
    dataset = few_digits()
    run = drifting_federation("fedavg", "label-shift", dataset=dataset)
    assert run.drift.dataset.x_train is dataset.x_train
    entries = sum(len(each.rows) for each in run.drift.partition.train)
    assert entries <= 2 * len(dataset.y_train), "a row is listed with its first owner and with its second"
    some = run.drift.for_clients([2, 0])
    assert len(some.dataset.y_train) < len(dataset.y_train)
    for number in range(ROUNDS):
        for client in (0, 2):
            ours, theirs = some.client(client, number), run.drift.client(client, number)
            assert torch.equal(ours.inputs, theirs.inputs)
            assert torch.equal(ours.test_labels, theirs.test_labels)


# Rings that are ordered anew


def test_total_variation_by_hand():
    one = np.array([[0.5, 0.5, 0], [1, 0, 0], [0.2, 0.3, 0.5]])
    other = np.array([[0.25, 0.5, 0.25], [0, 0, 1], [0.2, 0.3, 0.5]])
    np.testing.assert_allclose(total_variation(one, other), [0.25, 1, 0])


def test_when_the_ring_is_ordered_anew():
    rng = np.random.default_rng(1)
    first, last = (rng.dirichlet(np.full(6, 0.3), size=7) for _ in range(2))

    def proportions(number):
        return first + (last - first) * number / 9

    def best(number):
        return tuple(two_opt(similarity(proportions(number), "cosine")))

    assert orders_over_rounds(proportions, 10, "cosine") == [(0, best(0))]
    every = orders_over_rounds(proportions, 10, "cosine", every=4)
    assert every == [(0, best(0)), (4, best(4)), (8, best(8))]
    step = float(total_variation(first, last).max()) / 9
    moved = orders_over_rounds(proportions, 10, "cosine", when=2.5 * step)
    assert moved == [(number, best(number)) for number in (0, 3, 6, 9)], "after three steps, from the last ordering on"
    assert [start for start, _ in orders_over_rounds(proportions, 10, "cosine", 4, 2.5 * step)] == [0, 3, 4, 7, 8]
    assert orders_over_rounds(proportions, 10, "cosine", when=1.0) == [(0, best(0))]


def test_without_drift_ordering_anew_changes_nothing():
    options = {"clients": 6, "rounds": 5}
    plain = firma.run(few_digits(), "dir-0.1", "fibfl++", settings=FAST, **options)
    for settings in ({"reorder_every": 1}, {"reorder_every": 2, "reorder_when": 0.0}):
        again = firma.run(few_digits(), "dir-0.1", "fibfl++", settings=FAST | settings, audit=True, **options)
        assert {order for _, order in again.orders} == {plain.order}
        assert "most_senders" not in again.audit, "the ring is the same in all rounds"
        ours = firma.run(few_digits(), "dir-0.1", "fibfl++", settings=FAST | settings, **options)
        np.testing.assert_array_equal(ours.history, plain.history)
        assert torch.equal(ours.parameters, plain.parameters)
    assert plain.orders == ()


def test_a_given_order_is_never_changed():
    settings = FAST | {"reorder_every": 1}
    result = firma.run(few_digits(), "dir-0.1", "rdfl", rounds=3, drift="label-shift", settings=settings)
    assert result.orders == ()
    assert result.order == (0, 1, 2, 3, 4)


def test_results_record_the_drift_and_the_orders(tmp_path):
    settings = FAST | {"reorder_when": 0.2}
    result = firma.run(few_digits(), "dir-0.1", "fibfl++", rounds=6, drift="label-shift@4", settings=settings)
    assert [number for number, _ in result.orders] == [1, 4]
    assert result.orders[0][1] == result.order
    again = from_dict(json.loads(json.dumps(result.as_dict())))
    assert again.orders == result.orders
    assert firma.load(result.save(tmp_path / "saved")).orders == result.orders


# Studies and commands


def test_drift_is_part_of_a_key_only_where_it_is_set():
    plain = Cell("digits", "dir-0.5", "fibfl++", "recommended", 0, 5, 10)
    document = {"dataset": "digits", "scenario": "dir-0.5", "method": "fibfl++"}
    assert key(expand(document, {}).cells[0]) == key(plain)
    grid = expand(document | {"drift": ["label-shift", "rotate-90@3"], "set": {"reorder_every": [0, 2]}}, {})
    keys = {key(cell) for cell in grid.cells}
    assert len(keys) == 4
    assert key(plain) not in keys
    assert any("drift=label-shift" in cell.name for cell in grid.cells)
    with pytest.raises(firma.BadInput, match="is invalid"):
        expand(document | {"drift": "label"}, {})


def test_what_a_run_is_called_names_its_drift():
    result = firma.run("digits", "dir-0.5", "local", rounds=2, drift="label-shift", settings=FAST)
    assert label(result.config, "local").sizes["drift"] == "label-shift"
    plain = firma.run("digits", "dir-0.5", "local", rounds=2, settings=FAST)
    with pytest.raises(firma.BadInput, match=r"drift \(label-shift, none\)"):
        firma.compare([result, plain])


def test_split_shows_three_rounds(command, tmp_path):
    words = ("split", "--dataset", "digits", "--scenario", "skew-1", "--drift", "label-shift", "--rounds", "9")
    code, said, _ = command(*words, "--out", tmp_path / "drift.png")
    assert code == 0
    assert [line for line in said.splitlines() if line.startswith("Round")] == [
        "Round 1 of 9", "Round 5 of 9", "Round 9 of 9",
    ]  # fmt: skip
    assert (tmp_path / "drift.png").stat().st_size > 1000
    document = json.loads(command(*words, "--json")[1])
    assert [each["round"] for each in document["in_rounds"]] == [1, 5, 9]
    last = document["in_rounds"][-1]["clients"]
    assert sorted(tuple(each["train_classes"]) for each in last) == sorted(
        tuple(each["train_classes"]) for each in document["in_rounds"][0]["clients"]
    )
    assert all(each["moved"] > 0.5 for each in last)
    assert command(*words, "--export", tmp_path / "out")[0] != 0
    assert command("split", "--rounds", "9")[0] != 0


def test_the_page_shows_what_the_command_prints(command):
    page = (Path(__file__).parent.parent / "docs" / "drift.md").read_text()
    (block,) = (each for each in page.split("```") if each.startswith("console\n$ firma split"))
    line, _, shown = block.removeprefix("console\n").strip().partition("\n")
    code, said, _ = command(*line.removeprefix("$ firma ").split())
    assert code == 0
    assert said.split() == shown.split()


def test_the_command_runs_and_names_the_drift(command):
    code, said, _ = command(
        "run", "--dataset", "digits", "--scenario", "dir-0.5", "--drift", "label-shift@2", "--method", "local",
        "--rounds", "2", "--set", "epochs=1",
    )  # fmt: skip
    assert code == 0
    assert "drift" in said
