"""How a claim is judged: place by place, with the noise of the seeds, and never beyond what was run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Literal

from firma.study.evidence import Evidence, Figure, Place

Outcome = Literal["holds", "fails", "undecided"]
# True or False where the evidence is clear, None where it is missing or too close to call.
Judge = Callable[[Evidence, Place], bool | None]
ONE_SEED = 0.01


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the evidence says of a claim, and the figure that says it."""

    outcome: Outcome
    figure: str


def higher(method: str, than: str, metric: str = "mean_accuracy") -> Judge:
    """Whether one method's figure is above the other's, by more than the noise of the seeds."""

    def judge(evidence: Evidence, place: Place) -> bool | None:
        one, other = evidence.get(place, method, metric), evidence.get(place, than, metric)
        if one is None or other is None:
            return None
        difference, noise = one.mean - other.mean, 0.0 if evidence.exact else _noise(one, other)
        return None if 0 < noise >= abs(difference) else difference > 0

    return judge


def _noise(one: Figure, other: Figure) -> float:
    """Two standard errors of a difference; a point where one seed alone does not tell."""
    if one.error is None or other.error is None:
        return ONE_SEED
    return 2 * hypot(one.error, other.error)


def lower(method: str, than: str, metric: str) -> Judge:
    """`higher` with the roles exchanged."""
    return higher(than, method, metric)


def both(first: Judge, second: Judge) -> Judge:
    """Whether two things are so."""
    return lambda evidence, place: _all([first(evidence, place), second(evidence, place)])


def best_of(names: Sequence[str], among: Sequence[str], metric: str = "mean_accuracy", sign: int = 1) -> Judge:
    """Whether the best among the methods is one of `names`; `sign` -1 where less is better."""
    better = higher if sign > 0 else lower

    def beaten(other: str, evidence: Evidence, place: Place) -> bool | None:
        answers = [better(name, other, metric)(evidence, place) for name in names]
        if True in answers:
            return True
        return None if None in answers else False

    others = [method for method in among if method not in names]
    return lambda evidence, place: _all([beaten(other, evidence, place) for other in others])


def rank_at_most(method: str, rank: int, among: Sequence[str]) -> Judge:
    """Whether fewer than `rank` methods are more accurate."""

    def judge(evidence: Evidence, place: Place) -> bool | None:
        above = [higher(other, method)(evidence, place) for other in among if other != method]
        if above.count(True) >= rank:
            return False
        return True if above.count(True) + above.count(None) < rank else None

    return judge


def within(method: str, metric: str, low: float, high: float) -> Judge:
    """Whether a figure lies between two bounds, these included."""

    def judge(evidence: Evidence, place: Place) -> bool | None:
        figure = evidence.get(place, method, metric)
        return None if figure is None else low <= figure.mean <= high

    return judge


def saves(low: float, high: float) -> Judge:
    """Whether 2-opt saves between `low` and `high` percent, rounded as they are printed."""

    def judge(evidence: Evidence, place: Place) -> bool | None:
        saving = evidence.savings.get(place)
        return None if saving is None else low <= round(saving, 1) <= high

    return judge


def at_least(evidence: Evidence, places: Sequence[Place], judge: Judge, wanted: int | None = None) -> Verdict:
    """Whether something is so in `wanted` of the places, or in all; what is open can decide it either way."""
    answers = [judge(evidence, place) for place in places]
    yes, unclear = answers.count(True), answers.count(None)
    need = len(places) if wanted is None else wanted
    figure = f"{yes} of {len(places)}" + (f", {unclear} open" if unclear else "")
    if yes >= need:
        return Verdict("holds", figure)
    return Verdict("undecided" if yes + unclear >= need else "fails", figure)


def difference(evidence: Evidence, place: Place, method: str, than: str) -> float | None:
    """By how much one method is more accurate than another; None where one of them was not run."""
    one, other = evidence.get(place, method), evidence.get(place, than)
    return None if one is None or other is None else one.mean - other.mean


def _all(answers: Iterable[bool | None]) -> bool | None:
    found = list(answers)
    if False in found:
        return False
    return None if None in found else True
