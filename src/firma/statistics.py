"""Statistics over seeds: mean, deviation, confidence interval, and paired tests of whether one thing beats another.

The unit of replication is the seed. A paired test looks at one difference per seed, a - b under equal conditions. Two
tests are computed:

- The paired t-test, from two seeds on. It assumes normally distributed differences.
- The exact sign-flip permutation test: if a and b do not differ, every difference is as likely with the opposite sign.
  p is the share of the 2ⁿ sign patterns whose mean is at least as far from zero. It assumes nothing about the
  distribution, but no p-value can be below 2 / 2ⁿ, so it needs enough seeds.

The exact test decides where it can reach p < 0.05: from 6 seeds on for one comparison; for m comparisons, whose
p-values are adjusted, where 2m / 2ⁿ < 0.05 (8 seeds for six of them). Elsewhere the t-test decides. With more than 20
seeds it does too: 2ⁿ patterns are too many to count, and the mean is close to normal. With one seed nothing can be
judged, and two can hardly decide: Student's t of one degree of freedom is 12.7. There is no interval of fewer than
three seeds.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, inf, isfinite, isnan, nan, sqrt
from statistics import mean, stdev
from typing import Literal, TypeVar

import numpy as np

Series = Mapping[int, float]  # one value per seed
Name = TypeVar("Name")
Test = Literal["paired t", "sign-flip", "none"]
LEVEL = 0.95  # of confidence intervals; a test decides at 1 - LEVEL
FEWEST = 3  # seeds of an interval
MOST_FLIPS = 20  # seeds for which all sign patterns are counted: a million of them


@dataclass(frozen=True, slots=True)
class Statistic:
    """A metric over seeds; the deviation is None with a single seed, or where it was not reported.

    The mean is NaN where some seed has no value, such as a level that was never reached.
    """

    mean: float
    deviation: float | None = None
    seeds: int = 1

    @property
    def standard_error(self) -> float | None:
        """Deviation over the root of the number of seeds; None where there is no deviation."""
        return None if self.deviation is None else self.deviation / sqrt(self.seeds)

    def interval(self, level: float = LEVEL) -> tuple[float, float] | None:
        """Confidence interval of the mean by Student's t; None with one or two seeds."""
        half = self.half(level)
        return None if half is None else (self.mean - half, self.mean + half)

    def half(self, level: float = LEVEL) -> float | None:
        """Half of the width of the interval: what stands behind ±."""
        if self.standard_error is None or self.seeds < FEWEST:
            return None
        return t_quantile(level, self.seeds - 1) * self.standard_error


def statistic(values: Sequence[float | None]) -> Statistic:
    """Mean and sample standard deviation of one value per seed; NaN if there is no finite value for some seed."""
    numbers = [float(value) for value in values if value is not None and isfinite(value)]
    if len(numbers) < len(values):
        return Statistic(nan, None, len(values))
    return Statistic(mean(numbers), stdev(numbers) if len(numbers) > 1 else None, len(numbers))


def shared_seeds(series: Iterable[Series]) -> list[int]:
    """The seeds that all series have."""
    known = [set(each) for each in series]
    return sorted(set.intersection(*known)) if known else []


def paired_sum(series: Sequence[Series], weights: Sequence[float]) -> Statistic | None:
    """The weighted sum over the seeds that all series have: 1 and -1 give a difference; None if they share none."""
    seeds = shared_seeds(series)
    sums = [sum(weight * each[seed] for weight, each in zip(weights, series, strict=True)) for seed in seeds]
    return statistic(sums) if sums else None


def side_by_side(series: Mapping[Name, Series]) -> dict[Name, Statistic]:
    """The statistics of several series over the seeds that all share; over all seeds of each if they share none."""
    seeds = shared_seeds(series.values())
    return {name: statistic([each[seed] for seed in seeds or each]) for name, each in series.items()}


def independent_sum(found: Sequence[Statistic], weights: Sequence[float]) -> Statistic:
    """The weighted sum of independent statistics; its seeds are the fewest of theirs.

    The deviation is that of as many seeds with the error of the sum; None where one of them has none.
    """
    total = sum(weight * each.mean for weight, each in zip(weights, found, strict=True))
    seeds, errors = min(each.seeds for each in found), [each.standard_error for each in found]
    known = [weight * error for weight, error in zip(weights, errors, strict=True) if error is not None]
    return Statistic(total, hypot(*known) * sqrt(seeds) if len(known) == len(found) else None, seeds)


def is_clear(difference: Statistic, alone: float) -> bool:
    """Whether differences, one per seed, are more than noise: their 95 % interval is on one side of zero.

    With one or two seeds there is no interval; then the mean difference must exceed `alone`.
    """
    interval = difference.interval()
    return abs(difference.mean) > alone if interval is None else interval[0] > 0 or interval[1] < 0


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Whether the mean of differences is zero: the test that decides and why, its two-sided p-value, the interval.

    The p-value of either test is there where it can be computed; `p_value` is that of the one that decides, None where
    nothing can be judged. The interval is Student's, whichever test decides.
    """

    test: Test
    reason: str
    p_value: float | None
    mean: float
    interval: tuple[float, float] | None = None
    p_paired_t: float | None = None
    p_sign_flip: float | None = None


def paired_test(differences: Sequence[float], comparisons: int = 1) -> PairedTest:
    """Test one difference per seed; `comparisons` is how many such tests are judged together."""
    count = len(differences)
    if count == 0:
        raise ValueError("no differences")
    summary = statistic(differences)
    if not isfinite(summary.mean):
        return PairedTest("none", "some seeds have no value", None, summary.mean)
    if count == 1:
        return PairedTest("none", "one seed; run more", None, summary.mean)
    if not any(differences):
        return PairedTest("none", "all differences are zero", 1.0, 0.0, (0.0, 0.0), 1.0, 1.0)
    constant = _constant(differences)
    interval = None if constant else summary.interval()
    by_t = None if constant else paired_t_p(differences)
    by_flips = sign_flip_p(differences) if count <= MOST_FLIPS else None
    needed = seeds_for_flips(comparisons)
    many = f" for {comparisons} comparisons" if comparisons > 1 else ""
    if needed <= count <= MOST_FLIPS:
        why = f"{count} seeds{many}: an exact test can decide"
        return PairedTest("sign-flip", why, by_flips, summary.mean, interval, by_t, by_flips)
    if by_t is None:
        why = f"all {count} differences are equal: the t-test cannot judge them; run {needed} seeds or more"
        return PairedTest("none", why, None, summary.mean, None, None, by_flips)
    can = " can hardly decide" if count < FEWEST else ""
    few = f"{count} seeds{many}{can}: an exact test requires {needed} to reach p < {1 - LEVEL:.2f}"
    why = few if count <= MOST_FLIPS else f"{count} seeds: too many for an exact test"
    return PairedTest("paired t", why, by_t, summary.mean, interval, by_t, by_flips)


def seeds_for_flips(comparisons: int) -> int:
    """The number of seeds from which the sign-flip test can reach significance among so many comparisons."""
    return next(count for count in range(1, 64) if 2 * comparisons / 2**count < 1 - LEVEL)


def paired_t_p(differences: Sequence[float]) -> float:
    """Two-sided p-value of Student's t-test that the mean of n ≥ 2 differences is zero, on n - 1 degrees of freedom."""
    from scipy.special import stdtr

    found = statistic(differences)
    error = found.standard_error or 0.0
    t = found.mean / error if error > 0 else inf if found.mean else 0.0
    return float(2 * stdtr(found.seeds - 1, -abs(t)))


def sign_flip_p(differences: Sequence[float]) -> float:
    """Two-sided p-value of the exact sign-flip test: the share of 2ⁿ sign patterns at least as extreme as this one.

    The first sign stays as it is: a pattern and its opposite are equally extreme.
    """
    values = np.asarray(differences, dtype=np.float64)
    sums = values[:1].copy()
    for value in values[1:]:
        sums = np.concatenate([sums + value, sums - value])
    # Sums of the same numbers in another order differ by rounding: they count as equal.
    close = 1e-12 * float(np.abs(values).sum())
    return float(np.mean(np.abs(sums) >= abs(float(values.sum())) - close))


def t_quantile(level: float, freedom: int) -> float:
    """The t of a two-sided interval: 12.7 for one degree of freedom at 95 %, 1.96 for many."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + level / 2))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values adjusted by Holm's method for being several; None stays None and is not counted.

    The k-th smallest of m is multiplied by m - k + 1, and none may be smaller than the one before it.
    """
    known = sorted((value, place) for place, value in enumerate(p_values) if value is not None and not isnan(value))
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (value, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * value))
        adjusted[place] = largest
    return adjusted


def _constant(differences: Sequence[float]) -> bool:
    """Whether all differences are equal up to rounding, so that their deviation says nothing."""
    spread = max(differences) - min(differences)
    return spread <= 1e-12 * max(abs(value) for value in differences)
