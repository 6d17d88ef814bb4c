"""How a claim is judged: case by case, with the noise of the seeds, and never beyond what was run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Literal

from firma.statistics import Statistic
from firma.sweep.result_table import Case, ResultTable

# True or False where the results are clear, None where they are missing or too close to call.
Judge = Callable[[ResultTable, Case], bool | None]
ONE_SEED = 0.01  # with a single seed, a difference of less than a point is not clear


ClaimVerdict = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True, slots=True)
class ClaimJudgement:
    """What results say about a claim, and the numbers that say it."""

    verdict: ClaimVerdict
    numbers: str


NOT_RUN = ClaimJudgement("undecided", "not run")


def higher(method: str, than: str, metric: str = "mean_accuracy") -> Judge:
    """Whether one method's metric is above the other's, by more than the noise of the seeds."""

    def judge(table: ResultTable, case: Case) -> bool | None:
        one, other = table.get(case, method, metric), table.get(case, than, metric)
        if one is None or other is None:
            return None
        difference, noise = one.mean - other.mean, 0.0 if table.exact else _noise(one, other)
        return None if 0 < noise >= abs(difference) else difference > 0

    return judge


def _noise(one: Statistic, other: Statistic) -> float:
    """Two standard errors of a difference; a point where there is a single seed."""
    if one.standard_error is None or other.standard_error is None:
        return ONE_SEED
    return 2 * hypot(one.standard_error, other.standard_error)


def lower(method: str, than: str, metric: str) -> Judge:
    """`higher` with the two methods exchanged."""
    return higher(than, method, metric)


def both(first: Judge, second: Judge) -> Judge:
    """Whether two things are true."""
    return lambda table, case: _all([first(table, case), second(table, case)])


def best_of(names: Sequence[str], among: Sequence[str], metric: str = "mean_accuracy", sign: int = 1) -> Judge:
    """Whether the best among the methods is one of `names`; `sign` -1 where less is better."""
    better = higher if sign > 0 else lower

    def beaten(other: str, table: ResultTable, case: Case) -> bool | None:
        answers = [better(name, other, metric)(table, case) for name in names]
        if True in answers:
            return True
        return None if None in answers else False

    others = [method for method in among if method not in names]
    return lambda table, case: _all([beaten(other, table, case) for other in others])


def rank_at_most(method: str, rank: int, among: Sequence[str]) -> Judge:
    """Whether fewer than `rank` methods are more accurate."""

    def judge(table: ResultTable, case: Case) -> bool | None:
        above = [higher(other, method)(table, case) for other in among if other != method]
        if above.count(True) >= rank:
            return False
        return True if above.count(True) + above.count(None) < rank else None

    return judge


def within(method: str, metric: str, low: float, high: float) -> Judge:
    """Whether a metric lies between two bounds, bounds included."""

    def judge(table: ResultTable, case: Case) -> bool | None:
        found = table.get(case, method, metric)
        return None if found is None else low <= found.mean <= high

    return judge


def saves(low: float, high: float) -> Judge:
    """Whether 2-opt saves between `low` and `high` percent, rounded as they are printed."""

    def judge(table: ResultTable, case: Case) -> bool | None:
        saving = table.savings.get(case)
        return None if saving is None else low <= round(saving, 1) <= high

    return judge


def at_least(table: ResultTable, cases: Sequence[Case], judge: Judge, wanted: int | None = None) -> ClaimJudgement:
    """Whether something is true in `wanted` of the cases, by default in all; open cases can decide it either way."""
    answers = [judge(table, case) for case in cases]
    yes, unclear = answers.count(True), answers.count(None)
    need = len(cases) if wanted is None else wanted
    numbers = f"{yes} of {len(cases)}" + (f", {unclear} open" if unclear else "")
    if yes >= need:
        return ClaimJudgement("holds", numbers)
    return ClaimJudgement("undecided" if yes + unclear >= need else "fails", numbers)


def difference(table: ResultTable, case: Case, method: str, than: str) -> float | None:
    """By how much one method is more accurate than another; None if one of them was not run."""
    one, other = table.get(case, method), table.get(case, than)
    return None if one is None or other is None else one.mean - other.mean


def _all(answers: Iterable[bool | None]) -> bool | None:
    found = list(answers)
    if False in found:
        return False
    return None if None in found else True
