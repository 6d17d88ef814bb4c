"""Which method to use, by the paper's rules and by our own runs, and what to expect of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from firma.data.catalogue import SIZES
from firma.method_lookup import lookup
from firma.methods import DEFAULT_METHOD, METHODS, properties
from firma.mixing.kind import kind_of
from firma.paper.federation_profile import Profile, heterogeneity, saving
from firma.paper.grid import DATASETS, FULL
from firma.paper.judging import ONE_SEED
from firma.schedule import plan
from firma.settings import hyper_for
from firma.sweep.result_table import Case, ResultTable
from firma.sweep.runner import parameter_counts

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
    """By how many points a method is more accurate than another, and over how many data sets this is the mean."""

    points: float
    datasets: int


@dataclass(frozen=True)
class Advice:
    """What to use and why; a gain is None where it was not measured."""

    method: str
    source: str  # of the choice: our runs, or the paper's rules where there are no runs
    private: str  # the best of the methods that need no server and keep heads private
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


def advise(profile: Profile, paper: ResultTable, own: Mapping[str, ResultTable]) -> Advice:
    """Our own runs decide if they cover this scenario, otherwise the paper's rules do; `source` says which."""
    rules = paper_choice(profile)
    table = next((own[name] for name in _PREFERRED if name in own), None)
    cases = _covered(table, profile) if table is not None else []
    ranked = _ranking(table, cases) if table is not None else []
    method = ranked[0][0] if ranked else rules[0]
    private = [name for name, _ in ranked if _private(name)]
    measured = table if ranked else None
    return Advice(
        method=method,
        source=f"our runs ({table.name})" if ranked and table is not None else "the paper's rules",
        private=private[0] if private else FULL,
        agree=method in rules if ranked else None,
        paper=rules,
        paper_reasons=_paper_reasons(profile, paper),
        own_reasons=_own_reasons(ranked, table, cases),
        over_local=_gain(measured, cases, method, "local"),
        over_fedavg=_gain(measured, cases, method, "fedavg"),
        saving_percent=saving(profile.counts),
        bytes_per_round=_traffic(method, profile),
        heterogeneity=heterogeneity(profile.counts),
        scenario=profile.scenario,
        warnings=_warnings(profile, ranked),
    )


def paper_choice(profile: Profile) -> tuple[str, ...]:
    """The paper's best methods for the scenario, without those that its own rules advise against here."""
    choice = PAPER_BEST[profile.scenario]
    scarce = profile.dominant < _ENOUGH_FOR_HEADS
    return tuple(name for name in choice if not (scarce and _star_with_private_heads(name))) or choice


def _star_with_private_heads(name: str) -> bool:
    return lookup(name).topology == "star" and lookup(name).shares == "extractor"


def _cases(profile: Profile) -> list[Case]:
    """The case itself if it is part of the study, else the scenario on all data sets."""
    names = [profile.dataset] if profile.dataset in DATASETS and profile.named else list(DATASETS)
    return [(name, profile.scenario) for name in names if name is not None]


def _covered(table: ResultTable, profile: Profile) -> list[Case]:
    """The cases that can be compared: with runs of fedavg and of training alone, and of the default if it has any."""
    run = [case for case in _cases(profile) if table.get(case, "local") and table.get(case, "fedavg")]
    return [case for case in run if table.get(case, DEFAULT_METHOD)] or run


def _ranking(table: ResultTable, cases: Sequence[Case]) -> list[tuple[str, float]]:
    """Methods by mean accuracy, best first; those that were run in all of these cases."""
    names = [name for name in METHODS if cases and all(table.get(case, name) for case in cases)]
    scores = {name: mean(table.methods(case)[name].mean for case in cases) for name in names}
    return sorted(scores.items(), key=lambda item: -item[1])


def _gain(table: ResultTable | None, cases: Sequence[Case], method: str, than: str) -> Gain | None:
    if table is None:
        return None
    found = []
    for case in cases:
        one, other = table.get(case, method), table.get(case, than)
        if one is not None and other is not None:
            found.append(100 * (one.mean - other.mean))
    return Gain(mean(found), len(found)) if found else None


def _private(name: str) -> bool:
    has = properties(lookup(name))
    return has["no central server"] and has["private head"] and lookup(name).shares != "nothing"


def _paper_reasons(profile: Profile, paper: ResultTable) -> list[str]:
    """The paper's rules that apply here, with the numbers behind them."""
    best = " or ".join(PAPER_BEST[profile.scenario])
    reasons = [f"its deployment table recommends {best} for {profile.scenario}"]
    strong = profile.scenario in ("dir-0.5", "dir-0.1", "skew-1", "skew-2")
    if strong and 5 <= profile.clients <= 20:
        reasons.append("its rule of thumb recommends fibfl++ for moderate to strong heterogeneity with 5 to 20 clients")
    if profile.clients <= 5:
        reasons.append("its deployment table recommends fibfl++ for up to 5 clients")
    if profile.dominant < _ENOUGH_FOR_HEADS:
        reasons.append(f"it advises against fedrep below {_ENOUGH_FOR_HEADS} samples of a client's largest class")
    if profile.rounds < _FEW_ROUNDS:
        reasons.append(f"it advises against fibfl++ below {_FEW_ROUNDS} rounds")
    found = [paper.methods(case) for case in _cases(profile)]
    gaps = [100 * (each["fibfl++"].mean - each["fedavg"].mean) for each in found if each]
    if gaps:
        where = "in this case" if len(gaps) == 1 else f"on average over {len(gaps)} data sets"
        reasons.append(f"in its tables fibfl++ differs from fedavg by {mean(gaps):+.1f} points {where}")
    return reasons


def _own_reasons(ranked: Sequence[tuple[str, float]], table: ResultTable | None, cases: Sequence[Case]) -> list[str]:
    if table is None:
        return ["there are no runs with the recommended or the paper's numbers"]
    if not ranked:
        return ["our runs do not cover this scenario"]
    where = ", ".join(dataset for dataset, _ in cases)
    scores = ", ".join(f"{name} {100 * score:.1f}%" for name, score in ranked)
    missing = [] if DEFAULT_METHOD in dict(ranked) else [f"{DEFAULT_METHOD}, the default, has not been run here"]
    return [f"accuracy in our runs ({where}): {scores}", *missing]


def _warnings(profile: Profile, ranked: Sequence[tuple[str, float]]) -> list[str]:
    counts, found = profile.counts, []
    few = int(((counts > 0) & (counts < _FEW_OF_A_CLASS)).any(axis=1).sum())
    if few:
        found.append(f"{few} of {profile.clients} clients have a class with fewer than {_FEW_OF_A_CLASS} samples")
    if profile.rounds < _FEW_ROUNDS:
        found.append(
            f"{profile.rounds} rounds are few: the warm-up and the retention schedule are designed for ten or more"
        )
    if profile.scenario == "iid":
        found.append("the data look IID: ordering the ring saves almost nothing, and one model fits all clients")
    if profile.clients < 3:
        found.append(
            "with fewer than three clients a ring is a pair: each can compute the other's parameters from any average"
        )
    if int(np.max(counts.sum(axis=1))) > 20 * int(np.min(counts.sum(axis=1))):
        found.append(
            "the largest client has over twenty times the samples of the smallest; a ring weights them equally"
        )
    if not ranked and profile.scenario.startswith("dir"):
        found.append(
            "the paper tests clients here on classes that they never saw; with matched test data the ranking differs"
        )
    scores = dict(ranked)
    lead = max(scores.values()) - scores["local"] if scores else 1.0
    if lead < ONE_SEED:
        found.append("training alone is the best or within a point of the best: a federation may not be worth it here")
    return found


def _traffic(method: str, profile: Profile) -> int | None:
    """Bytes per round, all clients together, of the built-in model; None if the size of its inputs is not known."""
    if profile.dataset is None or profile.dataset not in SIZES:
        return None
    row = lookup(method)
    extractor, head = parameter_counts(profile.dataset)
    shared = {"nothing": 0, "extractor": extractor, "model": extractor + head, "head": head}[row.shares]
    usual = plan(row, hyper_for(row, "recommended", {}), profile.clients, profile.rounds, profile.rounds - 1)
    return kind_of(usual.mixing).cost(usual, profile.clients, shared).bytes
