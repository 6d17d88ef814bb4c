"""How a claim is judged: case by case, with the noise of the seeds, and never beyond what was run.

A comparison is clear where the 95 % interval of the difference, paired by seed, is on one side of zero. With one or
two seeds there is no interval, and a convention decides: an accuracy or a Gini coefficient must differ by more than
0.01, a number of rounds by more than one, a plateau σ by more than a factor of two; traffic is counted and has no
noise. A bound is judged in the same way, by the interval of the value.

Of many comparisons, some are beyond noise by chance. What is false therefore counts against a claim only if it survives
Holm's method over all comparisons of the claim that have an interval. What is true needs no correction: to hold, a
claim must be true in as many cases as it names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot, sqrt
from typing import Literal

from firma.statistics import FEWEST, LEVEL, Statistic, is_clear, statistic, t_quantile
from firma.sweep.result_table import Case, ResultTable

Open = Literal["not run", "too close"]  # why a case decides nothing
Answer = bool | Open
ONE_SEED = 0.01  # with one or two seeds, a difference of less than a point is not clear
_NAMED = 3  # cases that a sentence names
_ROUNDS = ("rounds_to_50", "rounds_to_half_of_final")
RULES = (
    "Too close to call: the 95 % interval of the difference, paired by seed, holds zero; with one or two seeds, an "
    "accuracy or a Gini coefficient differs by no more than 0.01, a number of rounds by no more than one, a plateau σ "
    "by no more than a factor of two. A claim fails by what survives Holm's correction over all of its comparisons."
)
ClaimVerdict = Literal["holds", "fails", "undecided", "does not apply"]


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

    @property
    def brief(self) -> str:
        """The verdict and the numbers, for a table."""
        return f"{self.verdict.capitalize()}, {self.numbers}" if self.numbers else self.verdict.capitalize()


@dataclass(frozen=True)
class Judge:
    """Whether something is true in a case, at a level of confidence; `comparisons` is how many differences it tests."""

    ask: Callable[[ResultTable, Case, float], Answer]
    comparisons: int = 1

    def __call__(self, table: ResultTable, case: Case, level: float = LEVEL) -> Answer:
        """The answer for one case."""
        return self.ask(table, case, level)


Term = tuple[float, Case, str, str]  # weight, case, method, metric


def minus(terms: Sequence[Term]) -> list[Term]:
    """The terms with the opposite signs."""
    return [(-weight, case, method, metric) for weight, case, method, metric in terms]


def missing(table: ResultTable) -> ClaimJudgement:
    """The judgement where a table has nothing of what a claim is about."""
    why = "the paper's tables do not contain what it is about" if table.exact else "what it is about was not run"
    return ClaimJudgement("undecided", "not printed" if table.exact else "not run", why)


def convention(metric: str, *values: float) -> float:
    """By how much a metric must differ to be clear with one or two seeds."""
    if metric == "plateau_std":
        return max(map(abs, values), default=0.0) / 2
    if metric in _ROUNDS:
        return 1.0
    return 0.0 if metric == "bytes_per_round" else ONE_SEED


def is_certain(difference: Statistic, alone: float, level: float = LEVEL) -> bool:
    """`is_clear` at another level: the interval is as much wider as its t is larger."""
    if difference.deviation is not None and difference.seeds >= FEWEST and level != LEVEL:
        wider = t_quantile(level, difference.seeds - 1) / t_quantile(LEVEL, difference.seeds - 1)
        difference = replace(difference, deviation=difference.deviation * wider)
    return is_clear(difference, alone)


def contrast(table: ResultTable, terms: Sequence[Term]) -> Statistic | None:
    """A weighted sum of metrics; None if one was not run.

    Within one case the values are paired by seed; different cases are taken as independent.
    """
    found = [table.get(case, method, metric) for _, case, method, metric in terms]
    known = [each for each in found if each is not None]
    if len(known) < len(terms):
        return None
    if len({case for _, case, _, _ in terms}) == 1:
        series = [table.by_seed.get((*case, method, metric), {}) for _, case, method, metric in terms]
        if common := sorted(set(series[0]).intersection(*series[1:])):
            weights = [weight for weight, *_ in terms]
            return statistic(
                [sum(w * values[seed] for w, values in zip(weights, series, strict=True)) for seed in common]
            )
    total = sum(term[0] * each.mean for term, each in zip(terms, known, strict=True))
    errors = [each.standard_error for each in known]
    if None in errors:
        return Statistic(total)
    seeds = min(each.seeds for each in known)
    error = hypot(*(term[0] * (each or 0.0) for term, each in zip(terms, errors, strict=True)))
    return Statistic(total, error * sqrt(seeds), seeds)


def is_positive(table: ResultTable, terms: Sequence[Term], level: float = LEVEL, above: float = 0.0) -> Answer:
    """Whether a weighted sum of metrics is above a value, by more than noise."""
    found = contrast(table, terms)
    if found is None:
        return "not run"
    over = replace(found, mean=found.mean - above)
    if table.exact:
        return over.mean > 0
    metric = terms[0][3]
    known = [each.mean for _, case, method, name in terms if (each := table.get(case, method, name)) is not None]
    scale = sum(abs(weight) for weight, *_ in terms) / 2 if len(terms) > 1 else 1.0
    alone = convention(metric, *known) * (1.0 if metric == "plateau_std" else scale)
    return over.mean > 0 if is_certain(over, alone, level) else "too close"


def positive(weights: Mapping[str, float], metric: str = "mean_accuracy", above: float = 0.0) -> Judge:
    """Whether a weighted sum of methods, paired by seed, is above a value by more than noise."""
    return Judge(
        lambda table, case, level: is_positive(
            table, [(weight, case, method, metric) for method, weight in weights.items()], level, above
        )
    )


def higher(method: str, than: str, metric: str = "mean_accuracy") -> Judge:
    """Whether one method's metric is above the other's, by more than the noise of the seeds."""
    return positive({method: 1.0, than: -1.0}, metric)


def lower(method: str, than: str, metric: str) -> Judge:
    """`higher` with the two methods exchanged."""
    return higher(than, method, metric)


def both(*judges: Judge) -> Judge:
    """Whether several things are true."""
    return Judge(
        lambda table, case, level: all_of(each(table, case, level) for each in judges),
        sum(each.comparisons for each in judges),
    )


def best_of(names: Sequence[str], among: Sequence[str], metric: str = "mean_accuracy", sign: int = 1) -> Judge:
    """Whether the best among the methods is one of `names`; `sign` -1 where less is better."""
    better = higher if sign > 0 else lower
    others = [method for method in among if method not in names]

    def beaten(other: str, table: ResultTable, case: Case, level: float) -> Answer:
        answers = [better(name, other, metric)(table, case, level) for name in names]
        return True if True in answers else _why_open(answers) or False

    return Judge(
        lambda table, case, level: all_of([beaten(other, table, case, level) for other in others]),
        len(others) * len(names),
    )


def rank_at_most(method: str, rank: int, among: Sequence[str]) -> Judge:
    """Whether fewer than `rank` methods are more accurate."""
    others = [other for other in among if other != method]

    def judge(table: ResultTable, case: Case, level: float) -> Answer:
        above = [higher(other, method)(table, case, level) for other in others]
        if above.count(True) >= rank:
            return False
        undecided = len(above) - above.count(True) - above.count(False)
        return True if above.count(True) + undecided < rank else _why_open(above) or False

    return Judge(judge, len(others))


def within(method: str, metric: str, low: float, high: float) -> Judge:
    """Whether a metric lies between two bounds, bounds included; its interval must, where it has one."""
    return between({method: 1.0}, low, high, metric)


def between(weights: Mapping[str, float], low: float, high: float, metric: str = "mean_accuracy") -> Judge:
    """Whether a weighted sum of methods lies between two bounds, bounds included."""

    def judge(table: ResultTable, case: Case, level: float) -> Answer:
        terms = [(weight, case, method, metric) for method, weight in weights.items()]
        return lies(table, terms, low, high, level)

    return Judge(judge)


def lies(table: ResultTable, terms: Sequence[Term], low: float, high: float, level: float = LEVEL) -> Answer:
    """Whether a weighted sum of metrics lies between two bounds, by more than noise."""
    found = contrast(table, terms)
    if found is None:
        return "not run"
    inside = low <= found.mean <= high
    if table.exact:
        return inside
    metric = terms[0][3]
    near = [bound for bound in (low, high) if abs(bound) < float("inf")]
    if metric == "plateau_std":
        near = [bound for bound in near if bound > 0]  # nothing is below zero
    if inside and metric in _ROUNDS:  # nothing comes before the first round
        near = [bound for bound in near if bound > 1]
    certain = [
        is_certain(replace(found, mean=found.mean - bound), convention(metric, found.mean, bound), level)
        for bound in near
    ]
    return inside if all(certain) else "too close"


def saves(low: float, high: float) -> Judge:
    """Whether 2-opt saves between `low` and `high` percent, rounded as they are printed."""

    def judge(table: ResultTable, case: Case, _: float) -> Answer:
        saving = table.savings.get(case)
        return "not run" if saving is None else low <= round(saving, 1) <= high

    return Judge(judge, 0)


def at_least(
    table: ResultTable, cases: Sequence[Case], judge: Judge, wanted: int | None = None, asked: str = "the paper says"
) -> ClaimJudgement:
    """Whether something is true in `wanted` of the cases, by default in all; open cases can decide it either way."""

    def ask(level: float) -> dict[str, Answer]:
        return {" at ".join(case): judge(table, case, level) for case in cases}

    tested = judge.comparisons * sum(has_intervals(table, case) for case in cases)
    return counted(ask, "cases", wanted, asked, table.exact, tested)


def has_intervals(table: ResultTable, case: Case) -> bool:
    """Whether some method of a case has enough seeds for an interval."""
    return not table.exact and any(each.seeds >= FEWEST for each in table.methods(case).values())


def counted(
    ask: Callable[[float], Mapping[str, Answer]],
    what: str,
    wanted: int | None,
    asked: str = "the paper says",
    printed: bool = False,
    tested: int = 0,
) -> ClaimJudgement:
    """The judgement of a claim that is true in `wanted` of the answers, by default in all of them.

    `ask` answers at a level of confidence, `tested` is the number of comparisons with an interval. `printed` answers
    are those of the paper's own tables, where what is missing was not printed.
    """
    judged = ask(LEVEL)
    answers = list(judged.values())
    count, yes, no = len(answers), answers.count(True), answers.count(False)
    need = count if wanted is None else wanted
    numbers = f"{yes} of {count}" + (f", {count - yes - no} open" if yes + no < count else "")
    claimed = f" ({asked} {'both' if count == 2 else f'all {count}'})" if need == count else f" ({asked} {need})"
    said = _counts(judged, what, "not printed" if printed else "not run") + ("" if count in (yes, 1) else claimed)
    refuted = [name for name, answer in judged.items() if answer is False]
    if refuted and no < count:
        said += f"; false for {listed(refuted[:_NAMED])}" + (" among others" if no > _NAMED else "")
    if yes >= need:
        return ClaimJudgement("holds", numbers, said)
    if no <= count - need:
        return ClaimJudgement("undecided", numbers, said)
    if _surviving(ask, tested) > count - need:
        return ClaimJudgement("fails", numbers, said)
    few = f"{said}; that does not survive Holm's correction for {tested} comparisons"
    return ClaimJudgement("undecided", numbers, few)


def _surviving(ask: Callable[[float], Mapping[str, Answer]], tested: int) -> int:
    """How many answers are false after Holm's correction: the k-th of m comparisons at level 1 - α / (m - k + 1)."""
    rejected = 0
    while True:
        level = 1 - (1 - LEVEL) / max(1, tested - rejected)
        found = list(ask(level).values()).count(False)
        if found <= rejected:
            return rejected
        rejected = found


def _counts(judged: Mapping[str, Answer], what: str, missing: str) -> str:
    """How many answers are true, false and open, as a clause."""
    answers = list(judged.values())
    count, yes, no = len(answers), answers.count(True), answers.count(False)
    if count == 1:
        return {
            True: "it is true",
            False: "it is false",
            "not run": f"it was {missing}",
            "too close": "it is too close to call",
        }[answers[0]]
    if count in (yes, no):
        return f"it is {'true' if yes else 'false'} in {'both' if count == 2 else f'all {count}'} {what}"
    parts = []
    if yes:
        parts.append(f"it is true in {yes} of the {count} {what}")
    if no:
        parts.append(f"false in {no}" if yes else f"it is false in {no} of the {count} {what}")
    if not parts:
        parts.append(f"none of the {count} {what} can be judged")
    one_or_more = ((answers.count("not run"), missing), (answers.count("too close"), "too close to call"))
    parts += [f"{number} {_be(number, text)} {text}" for number, text in one_or_more if number]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def listed(names: Sequence[str]) -> str:
    """Names as a text lists them: a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _be(number: int, text: str) -> str:
    past = text == "not run"
    return ("was" if past else "is") if number == 1 else ("were" if past else "are")


def difference(table: ResultTable, case: Case, method: str, than: str) -> Statistic | None:
    """By how much one method is more accurate than another; None if one of them was not run."""
    return contrast(table, [(1.0, case, method, "mean_accuracy"), (-1.0, case, than, "mean_accuracy")])


def all_of(answers: Iterable[Answer]) -> Answer:
    """Whether all are true: one that is not decides it, and so does one that is open where none is false."""
    found = list(answers)
    return False if False in found else _why_open(found) or True


def _why_open(answers: Sequence[Answer]) -> Open | None:
    """Why some answer is open; None if none is."""
    if "not run" in answers:
        return "not run"
    return "too close" if "too close" in answers else None
