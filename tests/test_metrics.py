"""Metrics against definitions written another way, and against bounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from firma.metrics import gini, jain, largest_drop, plateau_std, rounds_to, summarise, worst_fifth

VALUES = st.integers(1, 12).flatmap(lambda n: arrays(float, n, elements=st.floats(0, 1)))


@given(VALUES)
def test_gini_is_the_mean_difference_over_twice_the_mean(values):
    assert 0 <= gini(values) <= 1
    if values.sum() > 1e-6:
        differences = np.abs(values[:, None] - values[None, :]).mean()
        assert gini(values) == pytest.approx(differences / (2 * values.mean()), abs=1e-9)


@given(st.floats(0, 1), st.integers(1, 10))
def test_equals_are_fair(value, count):
    assert gini(np.full(count, value)) == pytest.approx(0, abs=1e-12)
    assert jain(np.full(count, value)) == pytest.approx(1)


def test_one_takes_all():
    assert gini(np.array([0.0, 0, 0, 1])) == pytest.approx(0.75)
    assert jain(np.array([0.0, 0, 0, 1])) == pytest.approx(0.25)


def test_worst_fifth_is_one_client_at_least():
    assert worst_fifth(np.array([0.9, 0.1, 0.5])) == 0.1
    assert worst_fifth(np.arange(10) / 10) == pytest.approx(0.05)


def test_rounds_are_counted_from_one():
    means = np.array([0.1, 0.5, 0.9])
    assert rounds_to(means, 0.5) == 2
    assert rounds_to(means, 0.05) == 1
    assert rounds_to(means, 0.95) is None


def test_half_of_final_and_fifty_percent_differ():
    """A run that never passes 43% reaches half of its final accuracy, as the paper reports it, and never 50%."""
    history = np.array([[0.1, 0.12], [0.3, 0.3], [0.42, 0.44]])
    metrics = summarise(history, [10, 20, 30], [1, 2, 3])
    assert metrics["rounds_to_50"] is None
    assert metrics["rounds_to_half_of_final"] == 2
    assert metrics["bytes_per_round"] == 20
    assert metrics["messages_per_round"] == 2
    assert metrics["worst_round"] == pytest.approx(0.11)
    assert metrics["worst_client"] == 0.42


def test_plateau_is_the_final_half():
    assert plateau_std(np.array([0.0, 0.0, 0.7, 0.9])) == pytest.approx(0.1)
    assert largest_drop(np.array([0.5, 0.9, 0.2, 0.4])) == pytest.approx(0.7)
    assert largest_drop(np.array([0.5])) == 0
