"""What every split promises, whatever the data, the number of clients and the seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firma.data.dataset import Dataset, load_dataset
from firma.data.partition import (
    class_counts,
    class_proportions,
    client_inputs,
    deal,
    overview,
    rows_of_all,
    split_by_label,
)
from firma.data.scenarios import parse, rotated
from firma.data.user_arrays import natural
from firma.errors import BadInput
from firma.settings import Split, budget_is_reduced

ALL = Split(min_samples=1)
SCENARIOS = ("iid", "dir-0.1", "dir-0.8", "skew-1", "skew-2", "quantity-0.5", "rotate-60")
COVERING = ("iid", "dir-0.1", "dir-0.8", "quantity-0.5", "rotate-60")  # those that deal every training row


def labelled(sizes, seed):
    """A data set of the given class sizes to train and about a fifth of each to test."""
    rng = np.random.default_rng(seed)
    train = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    test = rng.permutation(np.repeat(np.arange(len(sizes)), [max(1, size // 5) for size in sizes]))
    images = np.zeros((len(train), 2, 2), np.uint8), np.zeros((len(test), 2, 2), np.uint8)
    return Dataset("made", images[0], train, images[1], test, len(sizes))


made = st.builds(labelled, st.lists(st.integers(20, 90), min_size=5, max_size=8), st.integers(0, 99))
fast = settings(max_examples=60, deadline=None)


@fast
@given(made, st.sampled_from(SCENARIOS), st.integers(1, 8), st.integers(0, 9))
def test_rows_are_disjoint_and_covered_as_said(data, scenario, clients, seed):
    found = deal(data, scenario, clients, Split(min_samples=1, split_seed=None), seed)
    for parts, rows in ((found.train, len(data.y_train)), (found.test, len(data.y_test))):
        dealt = np.concatenate(parts)
        assert len(np.unique(dealt)) == len(dealt)
        assert dealt.min() >= 0
        assert dealt.max() < rows
    assert len(found.train) + len(found.dropped) == clients
    if scenario in COVERING and not found.dropped:
        assert len(np.concatenate(found.train)) == len(data.y_train)


@fast
@given(made, st.sampled_from(SCENARIOS), st.sampled_from(["matched", "independent"]), st.integers(0, 9))
def test_equal_seeds_give_equal_splits(data, scenario, tests, seed):
    split = Split(min_samples=1, split_seed=None, tests=tests)
    first, second, other = (deal(data, scenario, 4, split, number) for number in (seed, seed, seed + 1))
    for mine, yours in zip(first.train + first.test, second.train + second.test, strict=True):
        assert np.array_equal(mine, yours)
    assert any(
        not np.array_equal(mine, yours) for mine, yours in zip(first.train, other.train, strict=False)
    )  # another seed, another split


@fast
@given(made, st.integers(1, 2), st.integers(1, 8))
def test_fair_skew_gives_everyone_the_same_number(data, primary, clients):
    found = deal(data, f"skew-{primary}", clients, ALL, 0)
    assert not found.dropped
    assert len({len(rows) for rows in found.train}) == 1
    favourites = class_counts(data.y_train, found.train, data.classes).argmax(axis=1)
    wanted = [{(client * primary + k) % data.classes for k in range(primary)} for client in range(clients)]
    assert all(favourite in mine for favourite, mine in zip(favourites, wanted, strict=True))


def counted_by_hand(held, primary, clients, budget):
    """Samples of each class that each client gets: what it asks for, in hundredths of a budget, or what is left."""
    left, rows = list(held), []
    for client in range(clients):
        row = []
        for label in range(len(held)):
            place = (label - client * primary) % len(held)  # primary classes first, then secondary ones
            percent = 55 if place < primary else 20 if place <= 2 * primary else 3
            row.append(min(percent * budget // 100, left[label]))
            left[label] -= row[-1]
        rows.append(row)
    return rows


@fast
@given(made, st.integers(1, 2), st.integers(1, 8))
def test_a_sequential_quota_is_a_budget_by_hand(data, primary, clients):
    held, samples = np.bincount(data.y_train).tolist(), len(data.y_train)
    budgets = {"sequential": samples / clients, "reduced": 2 * samples / (clients * (primary + 1))}
    for quota, budget in budgets.items():
        parts = split_by_label(
            data.y_train, data.classes, parse(f"skew-{primary}"), clients, Split(quota=quota, min_samples=1), 0
        )
        expected = counted_by_hand(held, primary, clients, max(20, int(budget)))
        assert class_counts(data.y_train, parts, data.classes).tolist() == expected


@fast
@given(made, st.sampled_from(["iid", "dir-0.1", "quantity-0.5", "rotate-60", "skew-1"]), st.integers(1, 8))
def test_a_reduced_quota_changes_only_skew_with_several_primary_classes(data, scenario, clients):
    splits = [Split(quota=quota, tests="independent", min_samples=1) for quota in ("sequential", "reduced")]
    one, other = (rows_of_all(data, parse(scenario), clients, split, 7) for split in splits)
    for mine, yours in zip([*one[0], *one[1]], [*other[0], *other[1]], strict=True):
        assert np.array_equal(mine, yours)
    assert not budget_is_reduced(scenario)


def test_a_reduced_quota_gives_digits_the_sizes_that_the_paper_states():
    """At K = 3 its fifth client has 78 samples; by a budget of n/N the last two have too few to take part."""
    digits = load_dataset("digits")
    reduced = overview(digits, "skew-3", 5, "published", {}, 0)
    assert reduced.train.sum(axis=1).tolist() == [358, 358, 358, 283, 78]
    assert not reduced.dropped
    sequential = overview(digits, "skew-3", 5, "published", {"quota": "sequential"}, 0)
    assert len(sequential.dropped) == 2
    assert budget_is_reduced("skew-3")


@fast
@given(made, st.sampled_from(SCENARIOS), st.integers(1, 6))
def test_matched_tests_have_the_proportions_of_training(data, scenario, clients):
    found = deal(data, scenario, clients, ALL, 0)
    train = class_proportions(data.y_train, found.train, data.classes)
    tests = class_counts(data.y_test, found.test, data.classes)
    # Whole numbers: no class is off by more than one sample, and whoever never saw a class is not tested on it.
    assert (np.abs(tests - train * tests.sum(axis=1, keepdims=True)) <= 1 + 1e-9 + train).all()
    assert (tests[train == 0] == 0).all()


@fast
@given(made, st.floats(0.1, 5), st.integers(1, 8))
def test_quantity_differs_in_size_alone(data, alpha, clients):
    found = deal(data, f"quantity-{alpha:.3f}", clients, ALL, 0)
    counts = class_counts(data.y_train, found.train, data.classes)
    held = np.bincount(data.y_train)
    assert (np.abs(counts - counts.sum(axis=1, keepdims=True) * held / held.sum()) <= 2).all()


@fast
@given(st.lists(st.integers(0, 3), min_size=40, max_size=80), st.integers(0, 5))
def test_natural_is_taken_as_it_is(owners, seed):
    data = labelled([8] * 5, seed)
    owners = np.resize(owners, len(data.y_train))
    mine = natural(data, owners)
    found = deal(mine, "natural", mine.clients, ALL, seed)
    kept = [client for client in range(mine.clients) if client not in found.dropped]
    for client, rows in zip(kept, found.train, strict=True):
        assert np.array_equal(rows, np.flatnonzero(owners == int(mine.client_names[client])))


def test_natural_tests_are_taken_as_they_are():
    data = labelled([20] * 5, 0)
    mine = natural(data, np.arange(100) % 2, np.arange(20) // 10)
    found = deal(mine, "natural", 2, ALL, 0)
    assert found.test[0].tolist() == list(range(10))
    with pytest.raises(BadInput, match="names 2 clients"):
        deal(mine, "natural", 3, ALL, 0)
    with pytest.raises(BadInput, match="does not name the client of each row"):
        deal(data, "natural", 2, ALL, 0)
    with pytest.raises(BadInput, match=r"client has shape \(3,\)"):
        natural(data, np.arange(3))


def test_rotation_turns_train_and_test_alike():
    digits = load_dataset("digits")
    found = deal(digits, "rotate-90", 4, ALL, 0)
    assert found.angles == (0, 30, 60, 90)
    for client, quarter in ((0, 0), (3, 1)):
        train, test = client_inputs(digits, found, client)
        assert np.array_equal(train, np.rot90(digits.x_train[found.train[client]], quarter, axes=(1, 2)))
        assert np.array_equal(test, np.rot90(digits.x_test[found.test[client]], quarter, axes=(1, 2)))
    assert deal(digits, "rotate-90", 1, ALL, 0).angles == (0,)


@pytest.mark.parametrize("shape", [(6, 6), (3, 5, 5), (1, 4, 4)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_quarter_turns_are_exact(shape, dtype):
    images = np.random.default_rng(0).integers(0, 256, (5, *shape)).astype(dtype)
    for quarters in (1, 2, 3, 4):
        turned = rotated(images, 90 * quarters)
        assert turned.dtype == dtype
        assert np.allclose(turned, np.rot90(images, quarters, axes=(-2, -1)), atol=1e-2)
    assert rotated(images, 0) is images


def test_a_picture_that_is_not_square_keeps_its_middle():
    image = np.zeros((1, 3, 9), np.uint8)
    image[0, 1, 4] = 200
    assert rotated(image, 90)[0, 1, 4] == 200
    line = np.zeros((1, 5, 9), np.uint8)
    line[0, 2, 2:7] = 100
    assert rotated(line, 90)[0, :, 4].tolist() == [100] * 5


def test_only_images_turn():
    data = load_dataset((np.random.default_rng(0).normal(size=(50, 6)), np.arange(50) % 2))
    with pytest.raises(BadInput, match=r"rotate-.*shape \(6,\); they must be images"):
        deal(data, "rotate-45", 2, ALL, 0)


@pytest.mark.parametrize(
    "text", ["", "dir", "dir-0", "dir--1", "skew-1.5", "skew-0", "rotate-", "Natural", "dir-1e999"]
)
def test_scenarios_that_are_none(text):
    with pytest.raises(BadInput, match="choose from iid, dir-ALPHA"):
        parse(text)


def test_skew_by_first_come_first_served_starves_late_clients():
    digits = load_dataset("digits")
    sequential = overview(digits, "skew-2", 10, "published", {"quota": "sequential"}, 0)
    published = overview(digits, "skew-2", 10, "published", {}, 0)
    assert len(sequential.dropped) > len(published.dropped)
    assert published.train.sum(axis=1).min() < 0.8 * published.train.sum(axis=1).max()
    fair = overview(digits, "skew-2", 10, "paper", {}, 0)
    assert not fair.dropped
    assert len(set(fair.train.sum(axis=1))) == 1
