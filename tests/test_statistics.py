"""Intervals and paired tests, against SciPy's."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from firma.statistics import (
    Statistic,
    holm,
    independent_sum,
    is_clear,
    paired_sum,
    paired_t_p,
    paired_test,
    seeds_for_flips,
    sign_flip_p,
    statistic,
)

DIFFERENCES = {count: np.random.default_rng(count).normal(0.3, 1, count).tolist() for count in (2, 3, 5, 6, 9, 20, 25)}


@pytest.mark.parametrize("values", [each for each in DIFFERENCES.values() if len(each) > 2], ids=str)
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_the_interval_is_scipys(values, level):
    theirs = stats.t.interval(level, len(values) - 1, np.mean(values), stats.sem(values))
    assert statistic(values).interval(level) == pytest.approx(theirs)


def test_one_seed_has_neither_deviation_nor_interval():
    found = statistic([0.5])
    assert (found.mean, found.deviation, found.standard_error, found.interval()) == (0.5, None, None, None)


def test_two_seeds_have_no_interval_and_are_judged_by_the_convention():
    found = statistic([15.2, 12.7])
    assert found.deviation is not None
    assert (found.interval(), found.half()) == (None, None)
    assert is_clear(found, 1.0)
    assert not is_clear(statistic([2.5, -0.6]), 1.0)


def test_a_difference_is_taken_over_the_seeds_that_both_have():
    assert paired_sum([{0: 1.0, 1: 3.0, 2: 5.0}, {1: 1.0, 2: 2.0, 9: 7.0}], [1, -1]) == statistic([2.0, 3.0])
    assert paired_sum([{0: 1.0}, {1: 1.0}], [1, -1]) is None


def test_errors_of_what_is_independent_add_up_as_squares():
    found = independent_sum([Statistic(0.90, 0.03, 9), Statistic(0.80, 0.04, 16)], [1, -1])
    assert (found.mean, found.standard_error, found.seeds) == pytest.approx((0.1, 2**0.5 * 0.01, 9))
    assert independent_sum([Statistic(0.90, 0.03, 9), Statistic(0.80)], [1, -1]).standard_error is None


def test_a_value_that_is_missing_is_not_averaged_away():
    found = statistic([3.0, None])
    assert math.isnan(found.mean)
    assert (found.deviation, found.seeds) == (None, 2)


@pytest.mark.parametrize("values", DIFFERENCES.values(), ids=str)
def test_the_paired_t_test_is_scipys(values):
    a = np.random.default_rng(1).normal(size=len(values))
    theirs = stats.ttest_rel(a + values, a)
    assert paired_t_p(values) == pytest.approx(theirs.pvalue)


@pytest.mark.parametrize("count", [2, 5, 6, 9])
def test_the_sign_flip_test_is_scipys_exact_permutation_test(count):
    values = np.array(DIFFERENCES[count])
    theirs = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert sign_flip_p(values) == pytest.approx(theirs.pvalue)


@given(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=7))
def test_sign_flips_are_counted_one_by_one_ties_included(values):
    observed = abs(sum(values))
    patterns = list(product((1, -1), repeat=len(values)))
    extreme = sum(abs(sum(s * v for s, v in zip(signs, values, strict=True))) >= observed for signs in patterns)
    assert sign_flip_p(values) == extreme / len(patterns)


def test_rounding_does_not_break_ties():
    assert sign_flip_p([0.1, 0.2, 0.3, -0.6]) == 1.0  # the sum is 5.6e-17 instead of 0


@pytest.mark.parametrize(
    ("count", "test"),
    [(1, "none"), (2, "paired t"), (5, "paired t"), (6, "sign-flip"), (20, "sign-flip"), (25, "paired t")],
)
def test_which_test_is_used_depends_on_the_number_of_seeds(count, test):
    values = np.random.default_rng(0).normal(size=count)
    found = paired_test(values)
    assert found.test == test
    assert found.mean == pytest.approx(values.mean())
    if test != "none":
        assert found.p_value == {"paired t": paired_t_p, "sign-flip": sign_flip_p}[test](values)
        assert found.interval == statistic(values).interval()


def test_an_exact_test_of_five_seeds_could_never_decide_and_of_six_can():
    assert sign_flip_p([1.0, 1.1, 1.2, 1.3, 1.4]) == 2 / 32
    assert paired_test([1.0, 1.1, 1.2, 1.3, 1.4, 1.5]).p_value == 2 / 64


@pytest.mark.parametrize("comparisons", [1, 2, 6, 21, 300])
def test_the_exact_test_decides_only_where_it_could_still_after_the_adjustment(comparisons):
    needed = seeds_for_flips(comparisons)
    for count, test in ((needed - 1, "paired t"), (needed, "sign-flip")):
        found = paired_test(np.linspace(1, 2, count), comparisons)
        assert found.test == test
        adjusted = holm([found.p_sign_flip] * comparisons)
        assert (adjusted[0] < 0.05) == (test == "sign-flip")
    assert seeds_for_flips(1) == 6


def test_what_cannot_be_judged_has_no_p_value():
    for values in ([0.1], [0.1, 0.1], [0.1 + 0.2, 0.3]):  # one seed; no spread, but for rounding
        found = paired_test(values)
        assert (found.test, found.p_value, found.interval) == ("none", None, None)
    assert paired_test([0.0, 0.0]).p_value == 1.0
    assert paired_test([0.1] * 6).p_value == 2 / 64  # signs need no spread


def test_holms_adjustment():
    """Worked by hand: 4 x .005, 3 x .01, 2 x .03, then .04, which may not be below the one before."""
    assert holm([0.01, 0.04, None, 0.03, 0.005]) == pytest.approx([0.03, 0.06, None, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_true_null_hypotheses_are_rejected_as_often_as_they_should_be():
    rng = np.random.default_rng(0)
    for count in (4, 8):
        p_values = [paired_test(rng.normal(size=count)).p_value for _ in range(400)]
        assert 0.02 < np.mean([p < 0.05 for p in p_values]) < 0.08


def test_a_statistic_of_a_table_keeps_its_shape():
    assert Statistic(0.5, 0.1, 4).standard_error == 0.05
    assert Statistic(0.5, 0.1, 1).interval() is None
