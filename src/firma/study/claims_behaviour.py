"""Claims on how runs behave: plateaus, first rounds, traffic, and what 2-opt saves."""

from collections.abc import Sequence
from itertools import pairwise

from firma.study.claims_tables import FAMILY, places, under
from firma.study.evidence import PLACES, Evidence, Place
from firma.study.verdicts import Judge, Verdict, at_least, best_of, both, higher, saves, within


def flat_plateau(evidence: Evidence) -> Verdict:
    """Plateau σ of the equal-weight ring at most 0.0002 in every CIFAR-10 scenario."""
    return _largest(evidence, places("cifar10"), "rdfl", "plateau_std", 0.00025)


def steady_full(evidence: Evidence) -> Verdict:
    """Plateau σ of the full method at most 0.012 in every digits scenario."""
    return _largest(evidence, places("digits"), "fibfl++", "plateau_std", 0.0125)


def steadier_than_family(evidence: Evidence) -> Verdict:
    """Plateau σ below both relatives' in every digits scenario."""
    return at_least(evidence, places("digits"), best_of(["fibfl++"], FAMILY, "plateau_std", -1))


def unstable_plain(evidence: Evidence) -> Verdict:
    """The plain ring falls by 34 points in one round on digits with three classes a client."""
    figure = evidence.get(("digits", "skew-3"), "fibfl", "largest_drop")
    if figure is None:
        return Verdict("undecided", "not in this evidence")
    return Verdict("holds" if figure.mean >= 0.335 else "fails", f"largest fall {100 * figure.mean:.1f} pp")


def warm_start(evidence: Evidence) -> Verdict:
    """The three one-pass rings are at half of their final accuracy after round 1, everywhere."""
    rings: Sequence[Judge] = [within(name, "rounds_to_half_of_final", 1, 1) for name in ("rdfl", "fibfl", "fibfl+")]
    return at_least(evidence, PLACES, both(both(rings[0], rings[1]), rings[2]))


def cold_start(evidence: Evidence) -> Verdict:
    """The full method needs more rounds to half of its final accuracy than the plain ring, in most cells."""
    return at_least(evidence, PLACES, higher("fibfl++", "fibfl", "rounds_to_half_of_final"), 15)


def traffic_counted(evidence: Evidence) -> Verdict:
    """Bytes a round of the full method over those of averaging, rounded, between 3 and 5 everywhere."""

    def judge(body: Evidence, place: Place) -> bool | None:
        full, star = (body.get(place, name, "bytes_per_round") for name in ("fibfl++", "fedavg"))
        return None if full is None or star is None else 3 <= round(full.mean / star.mean) <= 5

    return at_least(evidence, PLACES, judge)


def savings_grow(evidence: Evidence) -> Verdict:
    """Savings on Fashion-MNIST rise from IID over Dir 0.8 and 0.5 to Dir 0.1, and fall from one class to three."""
    dealt = [evidence.savings.get(("fashion-mnist", name)) for name in ("iid", "dir-0.8", "dir-0.5", "dir-0.1")]
    skewed = [evidence.savings.get(("fashion-mnist", name)) for name in ("skew-3", "skew-2", "skew-1")]
    known, ordered = [each for each in dealt + skewed if each is not None], True
    for one, other in [*pairwise(dealt), *pairwise(skewed)]:
        ordered = ordered and (one is None or other is None or one < other)
    figure = ", ".join(f"{saving:.1f}%" for saving in known) or "not in this evidence"
    if not ordered:
        return Verdict("fails", figure)
    return Verdict("holds" if len(known) == 7 else "undecided", figure)


def savings_vanish(evidence: Evidence) -> Verdict:
    """Less than 5% saved under IID, on every data set that is known."""
    return at_least(evidence, under("iid"), saves(0, 5))


def savings_between(scenario: str, low: float, high: float, evidence: Evidence) -> Verdict:
    """Savings in a scenario between two bounds on every data set; the figure shows those known."""
    verdict = at_least(evidence, under(scenario), saves(low, high))
    known = [f"{evidence.savings[place]:.1f}%" for place in under(scenario) if place in evidence.savings]
    return Verdict(verdict.outcome, f"{verdict.figure}: {', '.join(known) or 'none known'}")


def largest_saving(evidence: Evidence) -> Verdict:
    """95.5% saved on MNIST at Dir 0.1."""
    saving = evidence.savings.get(("mnist", "dir-0.1"))
    if saving is None:
        return Verdict("undecided", "not in this evidence")
    return Verdict("holds" if abs(saving - 95.5) < 0.1 else "fails", f"{saving:.1f}%")


def _largest(evidence: Evidence, where: Sequence[Place], method: str, metric: str, bound: float) -> Verdict:
    """Whether a figure stays under a bound, and the largest one that was seen."""
    verdict = at_least(evidence, where, within(method, metric, 0, bound))
    seen = [figure.mean for place in where if (figure := evidence.get(place, method, metric)) is not None]
    return Verdict(verdict.outcome, f"{verdict.figure}; largest {max(seen):.4f}" if seen else "not in this evidence")
