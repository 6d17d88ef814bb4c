"""2-opt against brute force, its own promise, and the published order."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from firma.data.dataset import load_dataset
from firma.data.partition import class_proportions, deal
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
