"""Claims about curves: plateaus, first rounds, what happens when the warm-up ends, and traffic.

The plateau σ is the standard deviation of the mean accuracy over the last half of the rounds.
"""

from collections.abc import Callable, Sequence
from functools import partial

from firma.paper.claim_checks import FAMILY, SIX, of_dataset, under
from firma.paper.grid import CASES, SKEW
from firma.paper.judging import (
    Answer,
    ClaimJudgement,
    ClaimVerdict,
    Judge,
    all_of,
    at_least,
    best_of,
    contrast,
    counted,
    higher,
    is_positive,
    lies,
    missing,
    positive,
    within,
)
from firma.statistics import Statistic, statistic
from firma.sweep.result_table import Case, ResultTable

_SIGMA = "plateau_std"
_AFTER, _LATER = "change_after_warmup", "change_later"
_UNORDERED = "fibfl++:order=given"
_GLOBAL_MAXIMUM = (("digits", "skew-3"), "fibfl")


def flat_plateau(table: ResultTable) -> ClaimJudgement:
    """RDFL's plateau σ is at most 0.0002 in every CIFAR-10 scenario."""
    return _largest(table, of_dataset("cifar10"), "rdfl", 0.00025)


def flat_everywhere(table: ResultTable) -> ClaimJudgement:
    """RDFL's plateau σ rounds to 0.0001 or less in every case."""
    return _largest(table, CASES, "rdfl", 0.00015)


def steady_full(table: ResultTable) -> ClaimJudgement:
    """FibFL++'s plateau σ is at most 0.012 in every digits scenario."""
    return _largest(table, of_dataset("digits"), "fibfl++", 0.0125)


def steadier_than_family(table: ResultTable) -> ClaimJudgement:
    """FibFL++'s plateau σ is below those of FibFL and FibFL+ in every digits scenario."""
    return at_least(table, of_dataset("digits"), best_of(["fibfl++"], FAMILY, _SIGMA, -1))


def steadier_tenfold(table: ResultTable) -> ClaimJudgement:
    """The largest plateau σ of FibFL and of FibFL+ over the digits scenarios is ten times that of FibFL++ or more."""
    cases = of_dataset("digits")
    ratios = {name: _ratio(table, cases, name) for name in ("fibfl", "fibfl+")}

    def ask(_: float) -> dict[str, Answer]:
        return {name: "not run" if found is None else _above(table, found, 9.5) for name, found in ratios.items()}

    known = [f"{name} {found.mean:.1f} times" for name, found in ratios.items() if found is not None]
    if not known:
        return missing(table)
    found = counted(ask, "comparisons", None, "the paper says", table.exact)
    return ClaimJudgement(found.verdict, ", ".join(known), f"{found.explained}; {', '.join(known)} that of FibFL++")


def _ratio(table: ResultTable, cases: Sequence[Case], name: str) -> Statistic | None:
    """The largest σ of a method over that of FibFL++, seed by seed; None if a case was not run."""
    if any(table.get(case, each, _SIGMA) is None for case in cases for each in (name, "fibfl++")):
        return None
    seeds = [set(table.by_seed.get((*case, each, _SIGMA), {})) for case in cases for each in (name, "fibfl++")]

    def largest(method: str, value: Callable[[Case, str], float]) -> float:
        return max(value(case, method) for case in cases)

    def of_means(case: Case, method: str) -> float:
        found = table.get(case, method, _SIGMA)
        return 0.0 if found is None else found.mean

    if common := sorted(set.intersection(*seeds)):
        values = [
            largest(name, partial(_of_seed, table, seed)) / largest("fibfl++", partial(_of_seed, table, seed))
            for seed in common
        ]
        return statistic(values)
    return Statistic(largest(name, of_means) / largest("fibfl++", of_means))


def _of_seed(table: ResultTable, seed: int, case: Case, method: str) -> float:
    return table.by_seed[(*case, method, _SIGMA)][seed]


def _above(table: ResultTable, found: Statistic, bound: float) -> Answer:
    """Whether a ratio is above a bound: by its interval or, where there is none, by a factor of two."""
    interval = None if table.exact else found.interval()
    low, high = interval or ((found.mean, found.mean) if table.exact else (found.mean / 2, found.mean * 2))
    return low > bound if low > bound or high < bound else "too close"


def unstable_plain(table: ResultTable) -> ClaimJudgement:
    """FibFL loses 34 points from one round to the next on digits at K = 3, in some seed."""
    place = ("digits", "skew-3", "fibfl", "largest_drop")
    drop = table.get(place[:2], "fibfl", "largest_drop")
    if drop is None:
        return missing(table)
    values = list(table.by_seed.get(place, {0: drop.mean}).values())
    most = max(values)
    numbers = f"at most {100 * most:.1f} points in {len(values)} seed{'s' if len(values) > 1 else ''}"
    said = f"FibFL's largest loss in one round is {100 * drop.mean:.1f} points on average over seeds, {numbers}"
    return ClaimJudgement("holds" if most >= 0.335 else "fails", numbers, f"{said} (the paper says 34)")


def largest_sigma(table: ResultTable) -> ClaimJudgement:
    """FibFL's plateau σ on digits at K = 3 is 0.140, and no method has a larger one in any case."""
    case, name = _GLOBAL_MAXIMUM
    own = table.get(case, name, _SIGMA)
    if own is None:
        return missing(table)

    def ask(level: float) -> dict[str, Answer]:
        others = [(there, method) for there in CASES for method in SIX if (there, method) != _GLOBAL_MAXIMUM]
        return {
            f"{method} on {' at '.join(there)}": is_positive(
                table, [(1.0, case, name, _SIGMA), (-1.0, there, method, _SIGMA)], level
            )
            for there, method in others
        }

    seen = {
        (there, method): each.mean for there in CASES for method in SIX if (each := table.get(there, method, _SIGMA))
    }
    (where, which), tested = max(seen, key=lambda each: seen[each]), len(seen) - 1
    found = counted(ask, "other pairs of a case and a method", None, "the paper says", table.exact, tested)
    largest = (
        f"the largest is {seen[where, which]:.4f}, {which} on {' at '.join(where)}; FibFL at K = 3 has {own.mean:.4f}"
    )
    as_stated = lies(table, [(1.0, case, name, _SIGMA)], 0.1395, 0.1405)
    verdict: ClaimVerdict = "fails" if as_stated is False else found.verdict
    return ClaimJudgement(verdict, f"{own.mean:.4f}", f"{largest} (the paper says 0.140); {found.explained}")


def _needed(case: Case) -> tuple[str, ...]:
    """The methods that the paper says to have half of the accuracy after round 1: RDFL on CIFAR-10 only."""
    return ("rdfl", "fibfl", "fibfl+") if case[0] == "cifar10" else ("fibfl", "fibfl+")


def warm_start(table: ResultTable) -> ClaimJudgement:
    """The mean accuracy is at least 50 % after round 1: of FibFL and FibFL+ in every case, of RDFL on CIFAR-10."""
    found = _first_round(table, "rounds_to_50")
    if not table.exact:
        return found
    pairs = [(case, name) for case in CASES for name in _needed(case)]
    below = sum(each.mean < 0.5 for case, name in pairs if (each := table.get(case, name)) is not None)
    text = (
        f"{found.explained}; of the {len(pairs)} final accuracies that are printed, {below} are themselves below 50 %"
    )
    return ClaimJudgement(found.verdict, found.numbers, text)


def warm_start_half(table: ResultTable) -> ClaimJudgement:
    """Half of the final accuracy is reached in round 1: by FibFL and FibFL+ in every case, by RDFL on CIFAR-10."""
    return _first_round(table, "rounds_to_half_of_final")


def _first_round(table: ResultTable, metric: str) -> ClaimJudgement:
    recorded = any(each[3] == metric for each in table.statistics)

    def judge(table: ResultTable, case: Case, level: float) -> Answer:
        answers: list[Answer] = []
        for name in _needed(case):
            never = recorded and table.get(case, name) is not None and table.get(case, name, metric) is None
            answers.append(False if never else within(name, metric, 1, 1)(table, case, level))
        return all_of(answers)

    return at_least(table, CASES, Judge(judge, 2))


def cold_start(table: ResultTable) -> ClaimJudgement:
    """FibFL++ requires more rounds than FibFL to half of its final accuracy, in at least 15 of 28 cases."""
    return at_least(table, CASES, higher("fibfl++", "fibfl", "rounds_to_half_of_final"), 15, "most means")


def jump(table: ResultTable) -> ClaimJudgement:
    """In label skew the mean accuracy of FibFL++ rises in the first round after the warm-up, the sixth of thirty."""
    found = at_least(table, SKEW, positive({"fibfl++": 1.0}, _AFTER))
    return _with_changes(table, SKEW, found)


def jump_of_order(table: ResultTable) -> ClaimJudgement:
    """In label skew, the rise after the warm-up is less than half as large on a ring that 2-opt did not order."""
    return at_least(table, SKEW, positive({"fibfl++": 0.5, _UNORDERED: -1.0}, _AFTER))


def decay(table: ResultTable) -> ClaimJudgement:
    """At Dir 0.1 FibFL++ loses accuracy after the warm-up, and more of it later than in the first round on the ring."""

    def judge(table: ResultTable, case: Case, level: float) -> Answer:
        whole = is_positive(table, [(-1.0, case, "fibfl++", _AFTER), (-1.0, case, "fibfl++", _LATER)], level)
        later = is_positive(table, [(1.0, case, "fibfl++", _AFTER), (-1.0, case, "fibfl++", _LATER)], level)
        return all_of([whole, later])

    return _with_changes(table, under("dir-0.1"), at_least(table, under("dir-0.1"), Judge(judge, 2)))


def _with_changes(table: ResultTable, cases: Sequence[Case], found: ClaimJudgement) -> ClaimJudgement:
    """The judgement, and by how many points accuracy changes in the first round after the warm-up and after that."""
    known = []
    for case in cases:
        first = contrast(table, [(1.0, case, "fibfl++", _AFTER)])
        later = contrast(table, [(1.0, case, "fibfl++", _LATER)])
        if first is not None and later is not None:
            known.append(f"{' '.join(case)} {100 * first.mean:+.1f}, later {100 * later.mean:+.1f}")
    if not known:
        return missing(table)
    text = f"{found.explained}; points in the first round after the warm-up: {'; '.join(known)}"
    return ClaimJudgement(found.verdict, found.numbers, text)


def traffic_counted(table: ResultTable) -> ClaimJudgement:
    """Bytes per round of FibFL++ over those of FedAvg, rounded, are between 3 and 5 in every case."""

    def judge(table: ResultTable, case: Case, _: float) -> Answer:
        full, star = (table.get(case, name, "bytes_per_round") for name in ("fibfl++", "fedavg"))
        return "not run" if full is None or star is None else 3 <= round(full.mean / star.mean) <= 5

    return at_least(table, CASES, Judge(judge, 0))


def _largest(table: ResultTable, cases: Sequence[Case], method: str, bound: float) -> ClaimJudgement:
    """Whether a method's plateau σ stays below a bound, and the largest value that was seen."""
    found = at_least(table, cases, within(method, _SIGMA, 0, bound))
    seen = [value.mean for case in cases if (value := table.get(case, method, _SIGMA)) is not None]
    if not seen:
        return missing(table)
    largest = f"the largest σ is {max(seen):.4f}"
    return ClaimJudgement(found.verdict, f"{found.numbers}; {largest}", f"{found.explained}; {largest}")
