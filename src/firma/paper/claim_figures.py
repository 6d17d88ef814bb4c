"""Figures that the paper's text states, judged on its own tables and on ours."""

from collections.abc import Sequence

from firma.paper.claim_checks import SIX, of_dataset
from firma.paper.grid import CASES, IID
from firma.paper.judging import (
    Answer,
    ClaimJudgement,
    ClaimVerdict,
    Judge,
    Term,
    all_of,
    at_least,
    between,
    contrast,
    counted,
    difference,
    has_intervals,
    higher,
    is_positive,
    lies,
    minus,
    missing,
    rank_at_most,
)
from firma.sweep.result_table import Case, ResultTable

_SIMPLE = ("fibfl", "fibfl+")


def trail_fedavg(table: ResultTable) -> ClaimJudgement:
    """FibFL and FibFL+ are 13 to 19 points below FedAvg on CIFAR-10, in the IID and the three Dirichlet cases."""
    cases = [case for case in of_dataset("cifar10") if not case[1].startswith("skew")]
    return _gaps(table, cases, "fedavg", 0.125, 0.195)


def trail_full(table: ResultTable) -> ClaimJudgement:
    """FibFL and FibFL+ are 2 to 10 points below FibFL++ in all 24 cases that are not IID."""
    return _gaps(table, [case for case in CASES if case not in IID], "fibfl++", 0.015, 0.105)


def _gaps(table: ResultTable, cases: Sequence[Case], leader: str, low: float, high: float) -> ClaimJudgement:
    """Whether the gaps of FibFL and FibFL+ to a method lie between two bounds, and which gaps there are."""
    weights = [{leader: 1.0, name: -1.0} for name in _SIMPLE]

    def judge(table: ResultTable, case: Case, level: float) -> Answer:
        return all_of(between(each, low, high)(table, case, level) for each in weights)

    found = at_least(table, cases, Judge(judge, 2))
    gaps = [
        100 * gap.mean
        for case in cases
        for name in _SIMPLE
        if (gap := difference(table, case, leader, name)) is not None
    ]
    if not gaps:
        return missing(table)
    text = f"{found.explained}; the gaps are {min(gaps):.1f} to {max(gaps):.1f} points"
    return ClaimJudgement(found.verdict, found.numbers, text)


def fedavg_fifth(table: ResultTable) -> ClaimJudgement:
    """Four of the six methods are more accurate than FedAvg on CIFAR-10 at K = 1 and at K = 2, and one is less so."""
    cases = [("cifar10", "skew-1"), ("cifar10", "skew-2")]

    def judge(table: ResultTable, case: Case, level: float) -> Answer:
        above = [higher(other, "fedavg")(table, case, level) for other in SIX if other != "fedavg"]
        if above.count(True) > 4 or above.count(False) > 1:
            return False
        return True if (above.count(True), above.count(False)) == (4, 1) else _open(above)

    found = at_least(table, cases, Judge(judge, 5))
    known = [f"{' at '.join(case)}, {1 + above}" for case in cases if (above := _above(table, case)) is not None]
    if not known:
        return missing(table)
    text = f"{found.explained}; FedAvg's rank by the means: {'; '.join(known)}"
    return ClaimJudgement(found.verdict, found.numbers, text)


def _above(table: ResultTable, case: Case) -> int | None:
    """How many of the six have a higher mean than FedAvg; None if one was not run."""
    means = {name: found.mean for name in SIX if (found := table.get(case, name)) is not None}
    return sum(mean > means["fedavg"] for mean in means.values()) if len(means) == len(SIX) else None


def best_overall(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is the most accurate of the six on CIFAR-10 at K = 2."""
    case = ("cifar10", "skew-2")
    return _with_two(table, case, at_least(table, [case], rank_at_most("fibfl++", 1, SIX)))


def fedrep_third(table: ResultTable) -> ClaimJudgement:
    """FedRep is above FibFL++ on CIFAR-10 at Dir 0.8, and below it at Dir 0.5."""
    mild, moderate = ("cifar10", "dir-0.8"), ("cifar10", "dir-0.5")

    def judge(table: ResultTable, case: Case, level: float) -> Answer:
        first, second = ("fedrep", "fibfl++") if case == mild else ("fibfl++", "fedrep")
        return higher(first, second)(table, case, level)

    return _with_two(table, moderate, at_least(table, [mild, moderate], Judge(judge)))


def mnist_gap(table: ResultTable) -> ClaimJudgement:
    """FibFL++ and FedRep are within 1.1 points of each other on MNIST at K = 1."""
    case = ("mnist", "skew-1")
    judge = between({"fedrep": 1.0, "fibfl++": -1.0}, -0.0115, 0.0115)
    return _with_two(table, case, at_least(table, [case], judge))


def _with_two(table: ResultTable, case: Case, found: ClaimJudgement) -> ClaimJudgement:
    """The judgement, and the accuracies of FedRep and FibFL++ in one case."""
    one, other = table.get(case, "fedrep"), table.get(case, "fibfl++")
    if one is None or other is None:
        return missing(table) if found.verdict == "undecided" else found
    gap = 100 * (one.mean - other.mean)
    text = f"on {' at '.join(case)} FedRep has {100 * one.mean:.2f} % and FibFL++ {100 * other.mean:.2f} %"
    text += f", {abs(gap):.2f} points {'less' if gap > 0 else 'more'}"
    return ClaimJudgement(found.verdict, f"{-gap:+.2f} points", f"{found.explained}; {text}")


def tightest_iid(table: ResultTable) -> ClaimJudgement:
    """The gap of FedAvg to FibFL++ on IID data is smaller on Fashion-MNIST than on digits and CIFAR-10."""

    def ask(level: float) -> dict[str, Answer]:
        return {
            name: is_positive(table, [*_iid_gap(name), *minus(_iid_gap("fashion-mnist"))], level)
            for name in ("digits", "cifar10")
        }

    tested = sum(has_intervals(table, case) for case in IID)
    found = counted(ask, "data sets other than MNIST", None, "the paper says", table.exact, tested)
    known = [f"{name} {100 * gap.mean:.2f}" for name, _ in IID if (gap := contrast(table, _iid_gap(name))) is not None]
    if not known:
        return missing(table)
    return ClaimJudgement(found.verdict, found.numbers, f"{found.explained}; gaps in points: {', '.join(known)}")


def _iid_gap(dataset: str) -> list[Term]:
    case = (dataset, "iid")
    return [(1.0, case, "fedavg", "mean_accuracy"), (-1.0, case, "fibfl++", "mean_accuracy")]


def mnist_span(table: ResultTable) -> ClaimJudgement:
    """The most accurate of the six is 4.7 points above the least accurate on MNIST at K = 3."""
    case = ("mnist", "skew-3")
    means = {name: found.mean for name in SIX if (found := table.get(case, name)) is not None}
    if len(means) < len(SIX):
        return missing(table)
    best, worst = max(means, key=lambda name: means[name]), min(means, key=lambda name: means[name])
    terms: list[Term] = [(1.0, case, best, "mean_accuracy"), (-1.0, case, worst, "mean_accuracy")]
    span = means[best] - means[worst]
    answer = lies(table, terms, 0.0465, 0.0475)
    numbers = f"{100 * span:.2f} points"
    said = f"the span is {numbers}, from {worst} ({100 * means[worst]:.2f} %) to {best} ({100 * means[best]:.2f} %)"
    agrees = answer is True or (answer == "too close" and 0.0465 <= span <= 0.0475)
    verdict: ClaimVerdict = "holds" if agrees else "fails" if answer is False else "undecided"
    return ClaimJudgement(verdict, numbers, f"{said} (the paper says 4.7)")


def mnist_above(table: ResultTable) -> ClaimJudgement:
    """The final mean accuracy on MNIST is above 85 % for all six in all scenarios, but for FedRep at Dir 0.1."""
    pairs = [(case, name) for case in of_dataset("mnist") for name in SIX if (case[1], name) != ("dir-0.1", "fedrep")]

    def ask(level: float) -> dict[str, Answer]:
        return {
            f"{name} at {case[1]}": is_positive(table, [(1.0, case, name, "mean_accuracy")], level, 0.85)
            for case, name in pairs
        }

    tested = sum(has_intervals(table, case) for case, _ in pairs)
    return counted(ask, "pairs of a scenario and a method", None, "the paper says", table.exact, tested)


def _open(answers: Sequence[Answer]) -> Answer:
    return "not run" if "not run" in answers else "too close"
