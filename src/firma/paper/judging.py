"""How a claim is judged: case by case, with the noise of the seeds, and never beyond what was run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from firma.statistics import is_clear
from firma.sweep.result_table import Case, ResultTable

Open = Literal["not run", "too close"]  # why a case decides nothing
Answer = bool | Open
Judge = Callable[[ResultTable, Case], Answer]
ONE_SEED = 0.01  # with a single seed, a difference of less than a point is not clear
_NAMED = 3  # cases that a sentence names


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


def missing(table: ResultTable) -> ClaimJudgement:
    """The judgement where a table has nothing of what a claim is about."""
    why = "the paper's tables do not have what it is about" if table.exact else "we have not run what it is about"
    return ClaimJudgement("undecided", "not printed" if table.exact else "not run", why)


def higher(method: str, than: str, metric: str = "mean_accuracy") -> Judge:
    """Whether one method's metric is above the other's, by more than the noise of the seeds."""
    return positive({method: 1.0, than: -1.0}, metric)


def positive(weights: Mapping[str, float], metric: str = "mean_accuracy") -> Judge:
    """Whether a weighted sum of methods, paired by seed, is above zero by more than noise."""
    alone = ONE_SEED * sum(abs(weight) for weight in weights.values()) / 2

    def judge(table: ResultTable, case: Case) -> Answer:
        found = table.combined(case, weights, metric)
        if found is None:
            return "not run"
        return found.mean > 0 if table.exact or is_clear(found, alone) else "too close"

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
    answers = {", ".join(case): judge(table, case) for case in cases}
    return counted(answers, "cases", wanted, asked, table.exact)


def counted(
    judged: Mapping[str, Answer], what: str, wanted: int | None, asked: str = "the paper says", printed: bool = False
) -> ClaimJudgement:
    """The judgement of a claim that is true in `wanted` of the answers, by default in all of them.

    `printed` answers are those of the paper's own tables, where what is missing was not printed.
    """
    answers = list(judged.values())
    count, yes, no = len(answers), answers.count(True), answers.count(False)
    need = count if wanted is None else wanted
    numbers = f"{yes} of {count}" + (f", {count - yes - no} open" if yes + no < count else "")
    missing = "not printed" if printed else "not run"
    reasons = ((answers.count("not run"), missing), (answers.count("too close"), "too close to call"))
    undecided = "".join(f", {number} {why}" for number, why in reasons if number)
    claimed = f"{asked} all {count}" if need == count else f"{asked} {need}"
    if yes + no == 0:
        return ClaimJudgement("undecided", numbers, f"none of the {count} {what} can be judged{undecided}; {claimed}")
    refuted = [name for name, answer in judged.items() if answer is False]
    against = f", false in {no}" + (f" ({'; '.join(refuted)})" if no <= _NAMED else "") if no and undecided else ""
    explained = f"true in {yes} of {count} {what}{against}{undecided}"
    if yes >= need:
        return ClaimJudgement(
            "holds", numbers, f"true in all {count} {what}" if yes == count else f"{explained}; {claimed}"
        )
    verdict: ClaimVerdict = "fails" if no > count - need else "undecided"
    return ClaimJudgement(verdict, numbers, f"{explained}; {claimed}")


def difference(table: ResultTable, case: Case, method: str, than: str) -> float | None:
    """By how much one method is more accurate than another; None if one of them was not run."""
    found = table.combined(case, {method: 1.0, than: -1.0})
    return None if found is None else found.mean


def _all(answers: Iterable[Answer]) -> Answer:
    """Whether all are true: one that is not decides it, and so does one that is open where none is false."""
    found = list(answers)
    return False if False in found else _why_open(found) or True


def _why_open(answers: Sequence[Answer]) -> Open | None:
    """Why some answer is open; None if none is."""
    if "not run" in answers:
        return "not run"
    return "too close" if "too close" in answers else None
