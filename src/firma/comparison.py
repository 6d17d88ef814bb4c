"""Comparing results: every metric over seeds, and whether one method (model, setting, …) is better than another."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isnan, nan
from statistics import mean
from typing import Any, Literal

from firma.errors import BadInput, unknown
from firma.results import Result, checked
from firma.run_facts import ABSENT, Facts, conditions, distinct, in_words, tuning, unlike
from firma.statistics import FEWEST, LEVEL, Statistic, Test, holm, paired_test, statistic

Verdict = Literal["better", "worse", "no difference shown", "cannot be judged"]
_LOWER_IS_BETTER = (
    "gini", "rounds", "plateau_std", "largest_drop", "bytes", "messages", "seconds", "loss", "mae", "mse", "rmse",
    "error",
)  # fmt: skip


def compare(results: Iterable[Result]) -> dict[str, dict[str, Statistic]]:
    """Every metric of every method over its seeds; its mean is NaN if some seed has no value.

    Results of one method that differ in anything but the seed are refused: their average would mean nothing.
    """
    groups: dict[str, list[Result]] = {}
    for result in checked(results, "compare"):
        groups.setdefault(result.method, []).append(result)
    for method, runs in groups.items():
        if found := unlike([run.config for run in runs], method):
            raise BadInput(
                f"compare: the {len(runs)} results of {method} differ in {in_words(found)}; results of one method may "
                "differ in the seed only, so compare each group by itself, or see firma.to_frame"
            )
    return {
        method: {name: statistic([run.metrics.get(name) for run in runs]) for name in runs[0].metrics}
        for method, runs in groups.items()
    }


@dataclass(frozen=True)
class Comparison:
    """A against B in one metric, over pairs of runs that share everything else, seed included.

    `difference` is the mean of a - b with its 95 % confidence `interval`. With several cases (data sets, scenarios, …)
    the differences of a seed are averaged over the cases, and the test looks at one number per seed. `cases` have all
    of the `seeds`; others are left out, and `reason` says how many and what they differ by. `p_value` is that of
    `test`, which `reason` explains; see `firma.statistics`. `wins`, `losses` and `ties` count pairs; in a win, A is
    better. `adjusted_p` is Holm's, if this is one of several comparisons.
    """

    a: str
    b: str
    metric: str
    difference: float
    interval: tuple[float, float] | None
    p_value: float | None
    test: Test
    reason: str
    seeds: int
    cases: int
    wins: int
    losses: int
    ties: int
    p_paired_t: float | None = None
    p_sign_flip: float | None = None
    adjusted_p: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Whether A is better than B, at p < 0.05; adjusted for the number of comparisons if there are several."""
        p = self.p_value if self.adjusted_p is None else self.adjusted_p
        if p is None:
            return "cannot be judged"
        if p >= 1 - LEVEL:
            return "no difference shown"
        return "better" if (self.difference < 0) == lower_is_better(self.metric) else "worse"

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {name: value for name, value in vars(self).items() if name != "interval"} | {
            "interval": None if self.interval is None else list(self.interval),
            "verdict": self.verdict,
        }

    def __str__(self) -> str:
        between = "" if self.interval is None else f" [{self.interval[0]:+.4f}, {self.interval[1]:+.4f}]"
        p = f"p = {self.p_value:.3g} by {self.test}, " if self.p_value is not None else ""
        return (
            f"{self.a} against {self.b}, {self.metric}: {self.difference:+.4f}{between}, {p}wins, losses "
            f"and ties {self.wins}/{self.losses}/{self.ties}: {self.verdict} ({self.reason})"
        )


def better(a: Result | Iterable[Result], b: Result | Iterable[Result], metric: str | None = None) -> Comparison:
    """Whether runs `a` are better than runs `b`, by a test over pairs with the same seed and equal conditions.

    All of `a` share one method (or model, or setting, …) and all of `b` another; hyperparameters may differ with the
    method. The metric is the first one of `Result.metrics` unless it is named.
    """
    first, second = (checked([runs] if isinstance(runs, Result) else runs, "better") for runs in (a, b))
    measure = metric_of([*first, *second], metric)
    ours, theirs = [facts(run) for run in first], [facts(run) for run in second]
    differ = _compared(ours, theirs)
    families = distinct(name.partition(".")[0] for name in differ if name not in _tuning_names([*first, *second]))
    if not differ:
        raise BadInput(f"better: a and b do not differ in one thing; both contain {_one_name(ours)}")
    if len(families) > 1:
        values = {name: [ours[0].get(name, ABSENT), theirs[0].get(name, ABSENT)] for name in differ}
        raise BadInput(f"better: a and b differ in {in_words(values)}; compare runs that differ in one of these only")
    named = [name for name in differ if name.partition(".")[0] in families] or differ
    names = [" ".join(_words(name, each[0].get(name, ABSENT)) for name in named) for each in (ours, theirs)]
    pairs = _pairs((first, ours), (second, theirs), differ, measure)
    if not pairs:
        raise BadInput(
            f"better: no run of {names[0]} and run of {names[1]} share everything else, seed included; they differ in "
            f"{in_words(_mismatch(ours, theirs, differ, first, second))}"
        )
    return _judged(names[0], names[1], measure, pairs)


def facts(run: Result) -> Facts:
    """All that decides a run and that a user can vary, but the seed: method, conditions and tuning."""
    return {"method": run.method} | conditions(run.config) | tuning(run.config)


def metric_of(runs: Sequence[Result], asked: str | None) -> str:
    """The metric that runs are compared in: the one asked for, else the first, which all of them must have."""
    mains = distinct(next(iter(run.metrics)) for run in runs)
    if asked is None and len(mains) > 1:
        names = ", ".join(map(str, mains))
        raise BadInput(f"metric: the runs have different main metrics ({names}); compare those of one task at a time")
    wanted = asked or str(mains[0])
    for run in runs:
        if wanted not in run.metrics:
            raise unknown("metric", wanted, run.metrics)
    return wanted


def lower_is_better(metric: str) -> bool:
    """Whether a lower value of this metric is better, by its name."""
    return any(metric.startswith(word) or metric.endswith(f"_{word}") for word in _LOWER_IS_BETTER)


@dataclass(frozen=True)
class ComparisonTable:
    """Every pair of variants, such as methods: over all cases, and case by case; adjusted for several within each."""

    metric: str
    overall: Sequence[Comparison]
    by_case: Sequence[tuple[Facts, Comparison]]


def compare_pairs(
    runs: Sequence[Result], variants: Sequence[str], known: Sequence[Facts], may_differ: Iterable[str],
    metric: str | None = None, against: str | None = None,
) -> ComparisonTable:  # fmt: skip
    """Every two variants that have pairs of runs in common; with `against`, every one against that one.

    `variants` and `known` are the name and the facts of each run; runs are a pair if all facts are equal but those that
    may differ. The variant whose mean is better comes first.
    """
    measure, differ = metric_of(runs, metric), set(may_differ)
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(variants):
        groups.setdefault(name, []).append(place)
    if against is not None and against not in groups:
        raise unknown("--against", against, groups)
    sign = 1 if lower_is_better(measure) else -1
    means = {each: statistic([runs[place].metrics[measure] for place in group]).mean for each, group in groups.items()}
    ranked = sorted(groups, key=lambda name: (sign * means[name], name))
    found: list[tuple[str, str, Pairs]] = []
    for first, second in combinations(ranked, 2):
        if against in (None, first, second):
            names = (second, first) if against == first else (first, second)
            one, other = (([runs[at] for at in groups[name]], [known[at] for at in groups[name]]) for name in names)
            if pairs := _pairs(one, other, differ, measure):
                found.append((*names, pairs))
    alone = [(a, b, case, seeds) for a, b, pairs in found for case, seeds in pairs.items()]
    overall = _adjusted([_judged(a, b, measure, pairs, len(found)) for a, b, pairs in found])
    cases = _adjusted([_judged(a, b, measure, {case: seeds}, len(alone)) for a, b, case, seeds in alone])
    return ComparisonTable(
        measure, overall, [(dict(case), each) for (_, _, case, _), each in zip(alone, cases, strict=True)]
    )


Case = tuple[tuple[str, Hashable], ...]
Pairs = dict[Case, dict[int, float | None]]  # case, then seed: the difference, None where a metric has no value


Side = tuple[Sequence[Result], Sequence[Facts]]  # runs of one variant, and the facts of each


def _pairs(first: Side, second: Side, differ: Iterable[str], metric: str) -> Pairs:
    """Differences by case and seed of runs that share all facts but those that may differ."""
    left, right = (_by_case(*side, set(differ), metric) for side in (first, second))
    found: Pairs = {}
    for (case, seed), value in left.items():
        if (case, seed) in right:
            other = right[case, seed]
            found.setdefault(case, {})[seed] = None if value is None or other is None else value - other
    return found


def _by_case(
    runs: Sequence[Result], known: Sequence[Facts], differ: set[str], metric: str
) -> dict[tuple[Case, int], float | None]:
    """One value per case and seed; a run that is there twice with the same outcome counts once."""
    found: dict[tuple[Case, int], float | None] = {}
    for run, each in zip(runs, known, strict=True):
        case = tuple((name, each[name]) for name in sorted(each) if name not in differ)
        value = run.metrics[metric]
        number = None if value is None else float(value)
        if found.setdefault((case, run.seed), number) != number:
            raise BadInput(
                f"two runs of {run.method} with seed {run.seed} have the same configuration but different results "
                f"({found[case, run.seed]} and {number}); leave one of them out"
            )
    return found


def _judged(a: str, b: str, metric: str, pairs: Pairs, comparisons: int = 1) -> Comparison:
    """The comparison over the cases that have all of the seeds used; one difference per seed, averaged over them."""
    lower = lower_is_better(metric)
    seeds, cases = _even(pairs)
    by_seed = [[nan if (value := case[seed]) is None else value for case in cases] for seed in seeds]
    gains = [-value if lower else value for values in by_seed for value in values]
    wins, losses = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    found = paired_test([mean(values) for values in by_seed], comparisons)
    left = [list(case.values()) for case in pairs.values() if not set(seeds) <= set(case)]
    return Comparison(
        a, b, metric, found.mean, found.interval, found.p_value, found.test, found.reason + _left_out(left, len(pairs)),
        len(seeds), len(cases), wins, losses, sum(gain == 0 for gain in gains), found.p_paired_t, found.p_sign_flip,
    )  # fmt: skip


def _even(pairs: Pairs) -> tuple[list[int], list[Mapping[int, float | None]]]:
    """Seeds, and the cases that have all of them: enough seeds for an interval if possible, then the most pairs."""
    known = {frozenset(case) for case in pairs.values()}
    choices = known | {one & other for one in known for other in known}

    def cases(seeds: frozenset[int]) -> list[Mapping[int, float | None]]:
        return [case for case in pairs.values() if seeds <= set(case)]

    def worth(seeds: frozenset[int]) -> tuple[int, int, int, list[int]]:
        several = min(len(seeds), FEWEST)
        return several, len(seeds) * len(cases(seeds)), len(seeds), [-seed for seed in sorted(seeds)]

    best = max(choices, key=worth)
    return sorted(best), cases(best)


def _left_out(cases: Sequence[Sequence[float | None]], count: int) -> str:
    """How many cases lack some of the seeds, and their mean difference."""
    if not cases:
        return ""
    means = [mean([nan if value is None else value for value in case]) for case in cases]
    there = mean(means)
    said = "" if isnan(there) else f" (mean difference there: {there:+.4f})"
    return f"; {len(cases)} of {count} cases are left out, as they lack some of these seeds{said}"


def _adjusted(found: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with Holm's p-values."""
    p_values = holm([each.p_value for each in found])
    return [replace(each, adjusted_p=p) for each, p in zip(found, p_values, strict=True)]


def _compared(ours: Sequence[Facts], theirs: Sequence[Facts]) -> list[str]:
    """The facts that are one value in all of `ours` and another in all of `theirs`."""
    names = dict.fromkeys(name for each in (*ours, *theirs) for name in each)
    return [
        name
        for name in names
        if len(mine := distinct(each.get(name, ABSENT) for each in ours)) == 1
        and len(other := distinct(each.get(name, ABSENT) for each in theirs)) == 1
        and mine != other
    ]


def _tuning_names(runs: Sequence[Result]) -> set[str]:
    return {name for run in runs for name in tuning(run.config)}


def _mismatch(
    ours: Sequence[Facts], theirs: Sequence[Facts], differ: Sequence[str], first: Sequence[Result],
    second: Sequence[Result],
) -> dict[str, list[Hashable]]:  # fmt: skip
    """What keeps the runs from being pairs: facts, else seeds, that the two sides do not share."""
    found: dict[str, list[Hashable]] = {}
    for name in dict.fromkeys(name for each in (*ours, *theirs) for name in each):
        mine, other = ([each.get(name, ABSENT) for each in side] for side in (ours, theirs))
        if name not in differ and not set(mine) & set(other):
            found[name] = distinct([*mine, *other])
    return found or {"seed": distinct(run.seed for run in (*first, *second))}


def _words(name: str, value: Hashable) -> str:
    """What a value is called: a method by its name, any other as option=value."""
    return str(value) if name == "method" else f"{name}={value}"


def _one_name(known: Sequence[Facts]) -> str:
    return " and ".join(str(value) for value in distinct(each["method"] for each in known))
