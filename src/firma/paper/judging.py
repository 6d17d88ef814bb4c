"""How a claim is judged: case by case, with the noise of the seeds, and never beyond what was run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from firma.statistics import noise
from firma.sweep.result_table import Case, ResultTable

Open = Literal["not run", "too close"]  # why a case decides nothing
Answer = bool | Open
Judge = Callable[[ResultTable, Case], Answer]
ONE_SEED = 0.01  # with a single seed, a difference of less than a point is not clear


ClaimVerdict = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True, slots=True)
class ClaimJudgement:
    """What results say about a claim, and the numbers that say it."""

    verdict: ClaimVerdict
    numbers: str  # a few words
    explained: str = ""  # the same for a reader of the paper; without it, the numbers

    @property
    def sentence(self) -> str:
        """The verdict as a sentence that begins with it."""
        return f"{self.verdict.capitalize()}: {self.explained or self.numbers}."


NOT_RUN = ClaimJudgement("undecided", "not run", "we have not run what it is about")


def higher(method: str, than: str, metric: str = "mean_accuracy") -> Judge:
    """Whether one method's metric is above the other's, by more than the noise of the seeds."""

    def judge(table: ResultTable, case: Case) -> Answer:
        one, other = table.get(case, method, metric), table.get(case, than, metric)
        if one is None or other is None:
            return "not run"
        difference, unclear = one.mean - other.mean, 0.0 if table.exact else noise(one, other, ONE_SEED)
        return "too close" if 0 < unclear >= abs(difference) else difference > 0

    return judge


def lower(method: str, than: str, metric: str) -> Judge:
    """`higher` with the two methods exchanged."""
    return higher(than, method, metric)


def both(first: Judge, second: Judge) -> Judge:
    """Whether two things are true."""
    return lambda table, case: _all([first(table, case), second(table, case)])


def best_of(names: Sequence[str], among: Sequence[str], metric: str = "mean_accuracy", sign: int = 1) -> Judge:
    """Whether the best among the methods is one of `names`; `sign` -1 where less is better."""
    better = higher if sign > 0 else lower

    def beaten(other: str, table: ResultTable, case: Case) -> Answer:
        answers = [better(name, other, metric)(table, case) for name in names]
        return True if True in answers else _why_open(answers) or False

    others = [method for method in among if method not in names]
    return lambda table, case: _all([beaten(other, table, case) for other in others])


def rank_at_most(method: str, rank: int, among: Sequence[str]) -> Judge:
    """Whether fewer than `rank` methods are more accurate."""

    def judge(table: ResultTable, case: Case) -> Answer:
        above = [higher(other, method)(table, case) for other in among if other != method]
        if above.count(True) >= rank:
            return False
        undecided = len(above) - above.count(True) - above.count(False)
        return True if above.count(True) + undecided < rank else _why_open(above) or False

    return judge


def within(method: str, metric: str, low: float, high: float) -> Judge:
    """Whether a metric lies between two bounds, bounds included."""

    def judge(table: ResultTable, case: Case) -> Answer:
        found = table.get(case, method, metric)
        return "not run" if found is None else low <= found.mean <= high

    return judge


def saves(low: float, high: float) -> Judge:
    """Whether 2-opt saves between `low` and `high` percent, rounded as they are printed."""

    def judge(table: ResultTable, case: Case) -> Answer:
        saving = table.savings.get(case)
        return "not run" if saving is None else low <= round(saving, 1) <= high

    return judge


def at_least(
    table: ResultTable, cases: Sequence[Case], judge: Judge, wanted: int | None = None, asked: str = "the paper says"
) -> ClaimJudgement:
    """Whether something is true in `wanted` of the cases, by default in all; open cases can decide it either way."""
    return counted([judge(table, case) for case in cases], "cases", wanted, asked, table.exact)


def counted(
    answers: Sequence[Answer], what: str, wanted: int | None, asked: str = "the paper says", printed: bool = False
) -> ClaimJudgement:
    """The judgement of a claim that is true in `wanted` of the answers, by default in all of them.

    `printed` answers are those of the paper's own tables, where what is missing was not printed.
    """
    count, yes, no = len(answers), answers.count(True), answers.count(False)
    need = count if wanted is None else wanted
    numbers = f"{yes} of {count}" + (f", {count - yes - no} open" if yes + no < count else "")
    missing = "not printed" if printed else "not run"
    reasons = ((answers.count("not run"), missing), (answers.count("too close"), "too close to call"))
    undecided = "".join(f", {number} {why}" for number, why in reasons if number)
    claimed = f"{asked} all {count}" if need == count else f"{asked} {need}"
    if yes + no == 0:
        return ClaimJudgement("undecided", numbers, f"none of the {count} {what} can be judged{undecided}; {claimed}")
    explained = f"true in {yes} of {count} {what}{undecided}"
    if yes >= need:
        return ClaimJudgement(
            "holds", numbers, f"true in all {count} {what}" if yes == count else f"{explained}; {claimed}"
        )
    verdict: ClaimVerdict = "fails" if no > count - need else "undecided"
    return ClaimJudgement(verdict, numbers, f"{explained}; {claimed}")


def difference(table: ResultTable, case: Case, method: str, than: str) -> float | None:
    """By how much one method is more accurate than another; None if one of them was not run."""
    one, other = table.get(case, method), table.get(case, than)
    return None if one is None or other is None else one.mean - other.mean


def _all(answers: Iterable[Answer]) -> Answer:
    """Whether all are true: one that is not decides it, and so does one that is open where none is false."""
    found = list(answers)
    return False if False in found else _why_open(found) or True


def _why_open(answers: Sequence[Answer]) -> Open | None:
    """Why some answer is open; None if none is."""
    if "not run" in answers:
        return "not run"
    return "too close" if "too close" in answers else None
