"""2-opt against brute force, its own promise, and the published order."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import firma
from firma.data.dataset import load_dataset
from firma.data.partition import class_proportions, deal
from firma.errors import BadInput
from firma.mixing.bandwidth import by_bandwidth, read_bandwidth, ring_links
from firma.mixing.ring_order import ring_cost, similarity, two_opt
from firma.settings import split_for

PROPORTIONS = st.integers(1, 9).flatmap(lambda n: arrays(float, (n, 4), elements=st.floats(0.01, 1)))


def naive_two_opt(alike):
    """The recipe of SPEC §4 with whole costs recomputed: slow and plain."""

    def cost(order):
        return sum(alike[order[k], order[(k + 1) % len(order)]] for k in range(len(order)))

    size = len(alike)
    order, improved = list(range(size)), True
    while improved:
        improved = False
        for i in range(size - 1):
            for j in range(i + 1, size):
                candidate = order[: i + 1] + order[i + 1 : j + 1][::-1] + order[j + 1 :]
                if (i, j) != (0, size - 1) and cost(candidate) < cost(order) - 1e-9:
                    order, improved = candidate, True
    return order


@given(PROPORTIONS, st.sampled_from(["cosine", "dot"]))
def test_two_opt_is_a_permutation_that_costs_no_more(proportions, kind):
    alike = similarity(proportions, kind)
    order = two_opt(alike)
    assert sorted(order) == list(range(len(alike)))
    assert ring_cost(alike, order) <= ring_cost(alike, range(len(alike))) + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_two_opt_is_the_naive_recipe(seed):
    alike = similarity(np.random.default_rng(seed).dirichlet(np.full(10, 0.3), size=12), "dot")
    assert two_opt(alike) == naive_two_opt(alike)


@pytest.mark.parametrize("seed", range(5))
def test_four_clients_are_solved_exactly(seed):
    alike = similarity(np.random.default_rng(seed).dirichlet(np.full(5, 0.3), size=4), "cosine")
    best = min(ring_cost(alike, order) for order in itertools.permutations(range(4)))
    assert ring_cost(alike, two_opt(alike)) == pytest.approx(best)


def test_cosine_of_a_client_with_itself_is_one():
    alike = similarity(np.array([[0.2, 0.8], [0.5, 0.5]]), "cosine")
    np.testing.assert_allclose(np.diag(alike), 1)


def test_published_saving_on_digits():
    digits = load_dataset("digits")
    partition = deal(digits, "dir-0.1", 5, split_for("published", {}), 0)
    alike = similarity(class_proportions(digits.y_train, partition.train, 10), "dot")
    saving = 1 - ring_cost(alike, two_opt(alike)) / ring_cost(alike, range(5))
    assert round(100 * saving, 1) == 70.4


def speeds(size, seed):
    table = np.random.default_rng(seed).uniform(1, 100, (size, size)).round(1)
    np.fill_diagonal(table, np.nan)
    return table


def slowest(table, order):
    """By hand: a link is as fast as its slower direction."""
    return min(min(table[a, b], table[b, a]) for a, b in zip(order, [*order[1:], order[0]], strict=True))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_by_bandwidth_has_the_best_slowest_link(size, seed):
    table = speeds(size, seed)
    order = by_bandwidth(table)
    assert sorted(order) == list(range(size))
    assert order[0] == 0
    if size > 1:
        best = max(slowest(table, each) for each in itertools.permutations(range(size)))
        assert slowest(table, order) == best
        assert ring_links(table, order).min() == best
        every = (sorted(ring_links(table, each)) for each in itertools.permutations(range(size)))
        assert sorted(ring_links(table, order)) == max(every), "the second-slowest decides between equals, and so on"


@pytest.mark.parametrize("size", [9, 12, 30])
def test_a_large_ring_by_bandwidth_is_nearly_the_best_and_far_better_than_as_given(size):
    """A ring of fast links is hidden among slow ones, in a random order: it is found."""
    rng = np.random.default_rng(size)
    hidden = rng.permutation(size)
    table = rng.uniform(1, 40, (size, size))
    for a, b in zip(hidden, np.roll(hidden, -1), strict=True):
        table[a, b] = table[b, a] = 100
    order = by_bandwidth(table)
    assert sorted(order) == list(range(size))
    assert slowest(table, order) > 2 * slowest(table, range(size))
    assert slowest(table, order) >= (100 if size == 9 else 15)


def test_bandwidths_are_read_from_a_table(tmp_path):
    file = tmp_path / "speeds.csv"
    file.write_text("# Mbit/s\n,10,20\n11,-,30\n21,31,0\n")
    np.testing.assert_array_equal(read_bandwidth(file), [[np.nan, 10, 20], [11, np.nan, 30], [21, 31, np.nan]])
    for text, says in (
        ("1,2\n3\n", "must be a square table"),
        ("0,2\n0,0\n", "from client 1 to 0 is '0'"),
        ("0,x\n1,0", "from client 0 to 1 is 'x'"),
        ("", "square"),
    ):
        file.write_text(text)
        with pytest.raises(BadInput, match=says):
            read_bandwidth(file)
    with pytest.raises(BadInput, match="cannot be read"):
        read_bandwidth(tmp_path / "none.csv")


def test_a_run_orders_its_ring_by_bandwidth(tmp_path, command):
    table = speeds(5, 2)
    file = tmp_path / "speeds.csv"
    np.savetxt(file, table, delimiter=",")
    result = firma.run(
        "digits", "iid", "fibfl:order=bandwidth", clients=5, rounds=1, bandwidth=file,
        settings={"extractor_epochs": 1, "hidden": 8, "embedding": 8},
    )  # fmt: skip
    assert list(result.order) == by_bandwidth(table)
    _, out, _ = command("topology", "--clients", "5", "--bandwidth", str(file), "--json")
    report = json.loads(out)
    assert report["order_by_bandwidth"] == by_bandwidth(table)
    assert report["slowest_identity"] == slowest(table, range(5)) <= report["slowest_by_bandwidth"]
    assert "slowest link, by bandwidth" in command("topology", "--clients", "5", "--bandwidth", str(file))[1]
    code, _, err = command("topology", "--clients", "4", "--bandwidth", str(file))
    assert (code, "a table for 5 clients, but there are 4" in err) == (2, True)
