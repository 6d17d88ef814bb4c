"""Which method to take, by the paper's rules and by our own runs, and what to expect of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from firma.data.scenarios import STUDY as SCENARIOS
from firma.methods import METHODS, lookup, properties
from firma.schedule import passes
from firma.study.evidence import Evidence, Place
from firma.study.grid import DATASETS
from firma.study.profile import Profile, heterogeneity, saving
from firma.study.runner import sizes
from firma.study.verdicts import ONE_SEED

# The paper's deployment table: its best choices in each scenario.
PAPER_BEST: Mapping[str, tuple[str, ...]] = {
    "iid": ("fedavg",),
    "dir-0.8": ("fedavg",),
    "dir-0.5": ("fedavg",),
    "dir-0.1": ("fedavg",),
    "skew-1": ("fedrep", "fibfl++"),
    "skew-2": ("fedrep", "fibfl++"),
    "skew-3": ("fedavg", "fedrep"),
}
_PREFERRED = ("recommended", "paper")
_ENOUGH_FOR_HEADS, _FEW_OF_A_CLASS, _FEW_ROUNDS = 2000, 20, 10


@dataclass(frozen=True)
class Gain:
    """Accuracy of a method less another's, in points, and how many data sets it is the mean of."""

    points: float
    datasets: int


@dataclass(frozen=True)
class Advice:
    """What to do and why; a gain is None where nobody measured it."""

    method: str
    source: str  # of the choice: our runs, or the paper's rules for want of them
    private: str  # the best among those that need no server and keep the head at home
    agree: bool | None
    paper: Sequence[str]
    paper_reasons: Sequence[str]
    own_reasons: Sequence[str]
    over_local: Gain | None
    over_fedavg: Gain | None
    saving_percent: float
    bytes_per_round: int | None
    heterogeneity: float
    scenario: str
    warnings: Sequence[str]


def advise(profile: Profile, paper: Evidence, own: Mapping[str, Evidence]) -> Advice:
    """Our own runs decide where there are any for this scenario; else the paper's rules do, and the advice says so."""
    rules = paper_choice(profile)
    body = next((own[name] for name in _PREFERRED if name in own), None)
    ranked = _ranking(body, profile) if body is not None else []
    method = ranked[0][0] if ranked else rules[0]
    at_home = [name for name, _ in ranked if _private(name)]
    measured = body if ranked else None
    return Advice(
        method=method,
        source=f"our runs ({body.name})" if ranked and body is not None else "the paper's rules",
        private=at_home[0] if at_home else "fibfl++",
        agree=method in rules if ranked else None,
        paper=rules,
        paper_reasons=_paper_reasons(profile, paper),
        own_reasons=_own_reasons(ranked, body),
        over_local=_gain(measured, profile, method, "local"),
        over_fedavg=_gain(measured, profile, method, "fedavg"),
        saving_percent=saving(profile.counts),
        bytes_per_round=_traffic(method, profile),
        heterogeneity=heterogeneity(profile.counts),
        scenario=profile.scenario,
        warnings=_warnings(profile, ranked),
    )


def paper_choice(profile: Profile) -> tuple[str, ...]:
    """The paper's best for the scenario, less what its own rules warn of here."""
    choice = PAPER_BEST[profile.scenario]
    scarce = profile.dominant < _ENOUGH_FOR_HEADS
    return tuple(name for name in choice if not (scarce and _star_heads(name))) or choice


def _star_heads(name: str) -> bool:
    return lookup(name).topology == "star" and lookup(name).shares == "extractor"


def _places(profile: Profile) -> list[Place]:
    """The place itself where it is in the study, else the scenario on all data sets."""
    names = [profile.dataset] if profile.dataset in DATASETS and profile.named else list(DATASETS)
    return [(name, profile.scenario) for name in names if name is not None]


def _ranking(body: Evidence, profile: Profile) -> list[tuple[str, float]]:
    """Methods by mean accuracy, best first, over the places where all that are compared were run."""
    there = [place for place in _places(profile) if body.get(place, "local") and body.get(place, "fedavg")]
    names = [name for name in METHODS if there and all(body.get(place, name) for place in there)]
    scores = {name: mean(body.methods(place)[name].mean for place in there) for name in names}
    return sorted(scores.items(), key=lambda item: -item[1])


def _gain(body: Evidence | None, profile: Profile, method: str, than: str) -> Gain | None:
    if body is None:
        return None
    found = []
    for place in _places(profile):
        one, other = body.get(place, method), body.get(place, than)
        if one is not None and other is not None:
            found.append(100 * (one.mean - other.mean))
    return Gain(mean(found), len(found)) if found else None


def _private(name: str) -> bool:
    kept = properties(lookup(name))
    return kept["no central server"] and kept["private head"] and kept["ring topology"]


def _paper_reasons(profile: Profile, paper: Evidence) -> list[str]:
    """The paper's table and rules that apply here, with the figures behind them."""
    best = " or ".join(PAPER_BEST[profile.scenario])
    reasons = [f"its deployment table names {best} for {profile.scenario}"]
    strong = profile.scenario in ("dir-0.5", "dir-0.1", "skew-1", "skew-2")
    if strong and 5 <= profile.clients <= 20:
        reasons.append("its rule of thumb names fibfl++ for moderate to strong heterogeneity with 5 to 20 clients")
    if profile.clients <= 5:
        reasons.append("its deployment table names fibfl++ for up to 5 clients")
    if profile.dominant < _ENOUGH_FOR_HEADS:
        reasons.append(f"it warns of fedrep below {_ENOUGH_FOR_HEADS} samples of a client's largest class")
    if profile.rounds < _FEW_ROUNDS:
        reasons.append(f"it warns of fibfl++ below {_FEW_ROUNDS} rounds")
    found = [paper.methods(place) for place in _places(profile)]
    gaps = [100 * (each["fibfl++"].mean - each["fedavg"].mean) for each in found if each]
    if gaps:
        where = "there" if len(gaps) == 1 else f"over {len(gaps)} data sets"
        reasons.append(f"its tables put fibfl++ {mean(gaps):+.1f} points from fedavg {where}")
    return reasons


def _own_reasons(ranked: Sequence[tuple[str, float]], body: Evidence | None) -> list[str]:
    if body is None:
        return ["no runs of our own come with this version yet"]
    if not ranked:
        return ["our runs do not cover this scenario"]
    return ["accuracy in our runs: " + ", ".join(f"{name} {100 * score:.1f}%" for name, score in ranked)]


def _warnings(profile: Profile, ranked: Sequence[tuple[str, float]]) -> list[str]:
    counts, found = profile.counts, []
    few = int(((counts > 0) & (counts < _FEW_OF_A_CLASS)).any(axis=1).sum())
    if few:
        found.append(f"{few} of {profile.clients} clients hold a class with fewer than {_FEW_OF_A_CLASS} samples")
    if profile.rounds < _FEW_ROUNDS:
        found.append(
            f"{profile.rounds} rounds are few: the warm-up and the retention schedule are made for ten or more"
        )
    if SCENARIOS.index(profile.scenario) == 0:
        found.append("the data look IID: ordering the ring saves next to nothing, and one model serves all")
    if profile.clients < 3:
        found.append("with fewer than three clients a ring is a pair: what one sends, the other can subtract")
    if int(np.max(counts.sum(axis=1))) > 20 * int(np.min(counts.sum(axis=1))):
        found.append("the largest client has over twenty times the samples of the smallest; a ring weighs both alike")
    if not ranked and profile.scenario.startswith("dir"):
        found.append(
            "the paper tests clients on classes that they never saw here; with matched tests the order changes"
        )
    scores = dict(ranked)
    lead = max(scores.values()) - scores["local"] if scores else 1.0
    if lead < ONE_SEED:
        found.append("training alone is the best or within a point of it: a federation may not be worth it here")
    return found


def _traffic(method: str, profile: Profile) -> int | None:
    """2·N·K·p bytes of four-byte weights of the built-in model; None where its inputs are not known."""
    if profile.dataset not in DATASETS or profile.dataset is None:
        return None
    row = lookup(method)
    extractor, head = sizes(profile.dataset)
    shared = {"nothing": 0, "extractor": extractor, "model": extractor + head}[row.shares]
    return 8 * profile.clients * passes(row, profile.clients) * shared
