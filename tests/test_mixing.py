"""Mixing against its algebra: stochastic rows, bounds, powers, eigenvalues known in closed form."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firma.mixing.kind import Average
from firma.mixing.ring import one_pass
from firma.mixing.ring_order import neighbours
from firma.mixing.spectrum import min_influence, power, spectral_radius
from firma.mixing.weights import by_size, pair, ring_row
from firma.schedule import Gate

ALPHA, BETA = pair("golden")
SHARE = st.floats(0, 1)
ACCURACIES = st.lists(SHARE, min_size=1, max_size=8)


def matrix_of(accuracies, retention, threshold, posterior=0.5):
    gate = Gate(threshold, posterior)
    order = list(range(len(accuracies)))
    rows = [
        ring_row((ALPHA, BETA), retention, gate, accuracies[left], accuracies[right])
        for _, (left, right) in sorted(neighbours(order).items())
    ]
    return one_pass(order, rows)


def test_golden_pair_is_the_golden_ratio():
    assert pytest.approx(1) == ALPHA + BETA
    assert pytest.approx((1 + math.sqrt(5)) / 2) == ALPHA / BETA


@given(ACCURACIES, SHARE, SHARE, SHARE)
def test_rows_sum_to_one_and_nothing_is_negative(accuracies, retention, threshold, posterior):
    matrix = matrix_of(accuracies, retention, threshold, posterior)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-12)
    assert (matrix >= 0).all()


@given(SHARE, SHARE, SHARE)
def test_gated_weights_stay_within_corollary_5_2(left, right, threshold):
    row = ring_row((ALPHA, BETA), 0.0, Gate(threshold, 0.5), left, right)
    if row.own == 1.0:  # both gated
        assert max(left, right) < threshold or left == right == 0
        return
    assert ALPHA / 2 - 1e-12 <= row.left <= (ALPHA + 1) / 2 + 1e-12
    assert BETA / 2 - 1e-12 <= row.right <= (BETA + 1) / 2 + 1e-12


@given(st.floats(0.35, 1))
def test_equal_accuracies_give_half_the_prior_and_a_quarter(accuracy):
    row = ring_row((ALPHA, BETA), 0.0, Gate(0.35, 0.5), accuracy, accuracy)
    assert row.left == pytest.approx(ALPHA / 2 + 0.25)
    assert row.right == pytest.approx(BETA / 2 + 0.25)


def test_a_vanishing_accuracy_gives_no_negative_weight():
    """A member may claim any number from 0 to 1, the smallest that there is among them."""
    tiny = 5e-324
    for left, right in ((tiny, 0.0), (0.0, tiny), (tiny, tiny)):
        row = ring_row((ALPHA, BETA), 0.5, Gate(0.0, 0.75), left, right)
        assert min(row) >= 0
        assert sum(row) == pytest.approx(1)


def test_the_threshold_itself_passes():
    row = ring_row((ALPHA, BETA), 0.0, Gate(0.35, 0.5), 0.35, 0.0)
    assert (row.left, row.right) == (pytest.approx((ALPHA + 1) / 2), pytest.approx(BETA / 2))


@given(ACCURACIES, SHARE, SHARE, st.integers(1, 6))
def test_a_power_is_that_many_passes(accuracies, retention, threshold, passes):
    matrix = matrix_of(accuracies, retention, threshold)
    theta = np.random.default_rng(0).normal(size=(len(accuracies), 5))
    step_by_step = theta
    for _ in range(passes):
        step_by_step = matrix @ step_by_step
    np.testing.assert_allclose(power(matrix, passes) @ theta, step_by_step, atol=1e-12)


@given(st.integers(1, 7), st.randoms(use_true_random=False))
def test_consensus_is_a_fixed_point_on_any_ring(size, random):
    order = list(range(size))
    random.shuffle(order)
    matrix = one_pass(order, [ring_row((ALPHA, BETA), 0.5)] * size)
    np.testing.assert_allclose(matrix @ np.ones(size), np.ones(size))


def test_neighbours_of_two_and_of_one():
    assert one_pass([0, 1], [ring_row((ALPHA, BETA), 0.5)] * 2).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert one_pass([0], [ring_row((ALPHA, BETA), 0.5)]).tolist() == [[1.0]]
    assert neighbours([2, 0, 1]) == {2: (1, 0), 0: (2, 1), 1: (0, 2)}


@pytest.mark.parametrize(("size", "retention"), [(5, 0.5), (10, 0.5), (10, 0.9), (50, 0.2)])
@pytest.mark.parametrize("weights", ["golden", "half"])
def test_spectral_radius_is_the_circulant_formula(size, retention, weights):
    left, right = pair(weights)
    matrix = one_pass(list(range(size)), [ring_row((left, right), retention)] * size)
    turn = np.exp(2j * np.pi * np.arange(1, size) / size)
    known = np.abs(retention + (1 - retention) * (left * turn + right / turn)).max()
    assert spectral_radius(matrix) == pytest.approx(known)


def test_the_golden_pair_mixes_slower_than_halves():
    """The paper's Lemma 5.1 says the reverse; the figures are those of SPEC §3."""
    golden, half = (one_pass(list(range(10)), [ring_row(pair(w), 0.5)] * 10) for w in ("golden", "half"))
    assert spectral_radius(golden) == pytest.approx(0.9072, abs=5e-5)
    assert spectral_radius(half) == pytest.approx(0.9045, abs=5e-5)


def test_coverage_is_a_pattern_and_hardly_a_number():
    size, passes = 50, 25
    row = ring_row((ALPHA, BETA), 0.05 ** (1 / passes), Gate(0.35, 0.5))
    whole = power(one_pass(list(range(size)), [row] * size), passes)
    assert 0 < min_influence(whole) < 1e-20


def test_star_is_an_average_by_size():
    matrix = Average(by_size([1, 3])).matrix()
    assert matrix.tolist() == [[0.25, 0.75], [0.25, 0.75]]
    assert by_size([1, 3]).tolist() == [0.25, 0.75]
    assert spectral_radius(matrix) == pytest.approx(0)
