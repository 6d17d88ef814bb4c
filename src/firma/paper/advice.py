"""Which method to use, by the paper's rules and by our own runs, and what to expect of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from firma.data.catalogue import SIZES
from firma.method_lookup import lookup
from firma.methods import DEFAULT_METHOD, LEADING_METHODS, METHODS, properties
from firma.mixing.kind import kind_of
from firma.paper.federation_profile import Profile, heterogeneity, saving
from firma.paper.grid import DATASETS
from firma.report.measures import measure_of
from firma.report.tables import from_to
from firma.schedule import plan
from firma.settings import hyper_for
from firma.statistics import Statistic, independent_sum
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
_ACCURACY = measure_of("mean_accuracy", "accuracy")
_PREFERRED = ("recommended", "paper")
_ENOUGH_FOR_HEADS, _FEW_OF_A_CLASS, _FEW_ROUNDS = 2000, 20, 10


@dataclass(frozen=True)
class Gain:
    """By how many points a method is more accurate than another: the mean over those data sets that have both.

    `half` is half of the 95 % interval of the difference, paired by seed; None with one or two seeds.
    """

    points: float
    datasets: int
    of: int  # the data sets that the advice rests on
    half: float | None
    seeds: int  # the fewest of a data set
    clear: bool


@dataclass(frozen=True)
class Advice:
    """What to use and why; a gain is None where it was not measured."""

    method: str
    source: str  # of the choice: our runs, or the paper's rules where there are no runs
    level: Sequence[str]  # other methods that are not clearly below the best
    seeds: tuple[int, int] | None  # fewest and most of the runs behind the choice
    private: str | None  # the best of the methods that need no server and keep heads private, where it was measured
    agree: bool | None  # with the paper; None where none of its choices was measured
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


@dataclass(frozen=True)
class _Evidence:
    """The runs that decide: methods by mean accuracy over the cases, best first, and those level with the best."""

    table: ResultTable
    cases: Sequence[Case]
    scores: Mapping[str, float]

    def difference(self, one: str, other: str) -> tuple[Statistic | None, int]:
        """By how much one method is more accurate: the mean over those cases that have both, and their number."""
        weights = {one: 1.0, other: -1.0}
        found = [each for case in self.cases if (each := self.table.combined(case, weights)) is not None]
        return (independent_sum(found, [1 / len(found)] * len(found)) if found else None), len(found)

    def level(self, names: Sequence[str]) -> list[str]:
        """Those of some ranked methods that are not clearly below the first of them."""
        differences = {name: self.difference(names[0], name)[0] for name in names[1:]}
        below = [name for name, each in differences.items() if each and each.mean > 0 and _ACCURACY.clear(each)]
        return [name for name in names if name not in below]

    def seeds(self) -> tuple[int, int]:
        """The fewest and the most seeds."""
        counts = [found.seeds for case in self.cases for name in self.scores if (found := self.table.get(case, name))]
        return min(counts), max(counts)


def advise(profile: Profile, paper: ResultTable, own: Mapping[str, ResultTable]) -> Advice:
    """Our own runs decide if they cover this scenario, otherwise the paper's rules do; `source` says which."""
    rules, ours = paper_choice(profile), _evidence(profile, own)
    level = ours.level(list(ours.scores)) if ours is not None else []
    method = _preferred(level) if level else rules[0]
    private = [name for name in ours.scores if _private(name)] if ours is not None else []
    return Advice(
        method=method,
        source=f"our runs ({ours.table.name})" if ours is not None else "the paper's rules",
        level=[name for name in level if name != method],
        seeds=ours.seeds() if ours is not None else None,
        private=_preferred(ours.level(private)) if ours is not None and private else None,
        agree=bool({*level} & {*rules}) if ours is not None and {*ours.scores} & {*rules} else None,
        paper=rules,
        paper_reasons=_paper_reasons(profile, paper),
        own_reasons=_own_reasons(ours, own),
        over_local=_gain(ours, method, "local"),
        over_fedavg=_gain(ours, method, "fedavg"),
        saving_percent=saving(profile.counts),
        bytes_per_round=_traffic(method, profile),
        heterogeneity=heterogeneity(profile.counts),
        scenario=profile.scenario,
        warnings=_warnings(profile, ours, level),
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


def _evidence(profile: Profile, own: Mapping[str, ResultTable]) -> _Evidence | None:
    """The first preset that covers the federation; one without the default method only if none has it."""
    tables = [own[name] for name in _PREFERRED if name in own]
    for needed in ([DEFAULT_METHOD], []):
        for table in tables:
            if cases := _covered(table, profile, needed):
                names = [name for name in METHODS if all(table.get(case, name) for case in cases)]
                means = [table.side_by_side(case, names) for case in cases]
                scores = {name: mean(each[name].mean for each in means) for name in names}
                ranked = sorted(scores, key=lambda name: -scores[name])
                return _Evidence(table, cases, {name: scores[name] for name in ranked})
    return None


def _covered(table: ResultTable, profile: Profile, needed: Sequence[str]) -> list[Case]:
    """The cases that have the needed methods, and two at least that are the same in all of them."""
    there = {case: {name for name in METHODS if table.get(case, name)} for case in _cases(profile)}
    common = list(needed)
    while len(common) < 2:
        others = Counter(name for names in there.values() if names.issuperset(common) for name in names - {*common})
        if not others:
            return []
        common.append(min(others, key=lambda name: (-others[name], list(METHODS).index(name))))
    return [case for case, names in there.items() if names.issuperset(common)]


def _preferred(level: Sequence[str]) -> str:
    """Among methods that cannot be told apart: the default, else one without a server and with private heads."""
    if DEFAULT_METHOD in level:
        return DEFAULT_METHOD
    return next((name for name in level if _private(name)), level[0])


def _gain(ours: _Evidence | None, method: str, than: str) -> Gain | None:
    if ours is None or method == than:
        return None
    found, datasets = ours.difference(method, than)
    if found is None:
        return None
    half = found.half()
    scaled = None if half is None else 100 * half
    return Gain(100 * found.mean, datasets, len(ours.cases), scaled, found.seeds, _ACCURACY.clear(found))


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


def _own_reasons(ours: _Evidence | None, own: Mapping[str, ResultTable]) -> list[str]:
    """The ranking, and what is missing in it."""
    if not any(name in own for name in _PREFERRED):
        return ["there are no runs with the recommended or the paper's numbers"]
    if ours is None:
        return ["our runs do not cover this scenario"]
    datasets = ", ".join(dataset for dataset, _ in ours.cases)
    scores = ", ".join(f"{name} {100 * score:.1f}%" for name, score in ours.scores.items())
    missing = [name for name in LEADING_METHODS if name not in ours.scores]
    where = "here" if len(ours.cases) == 1 else "on all of these data sets"
    named = ", ".join(f"{name}, the default" if name == DEFAULT_METHOD else name for name in missing)
    return [f"accuracy in our runs ({datasets}): {scores}", *([f"not run {where}: {named}"] if missing else [])]


def _sizes(profile: Profile, ours: _Evidence) -> list[str]:
    """That our runs had other numbers of clients or rounds, where these differ by a factor of two or more."""
    clients, rounds = ([getattr(SIZES[name], what) for name, _ in ours.cases] for what in ("clients", "rounds"))
    asked = ((profile.clients, clients), (profile.rounds, rounds))
    if not any(all(number >= 2 * each or each >= 2 * number for each in ran) for number, ran in asked):
        return []
    ran = f"our runs had {from_to(clients)} clients and {from_to(rounds)} rounds"
    return [f"{ran}; with {profile.clients} clients and {profile.rounds} rounds the ranking may differ"]


def _warnings(profile: Profile, ours: _Evidence | None, level: Sequence[str]) -> list[str]:
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
    if ours is None and profile.scenario.startswith("dir"):
        found.append(
            "the paper tests clients here on classes that they never saw; with matched test data the ranking differs"
        )
    if ours is not None:
        found += _sizes(profile, ours)
    if "local" in level:
        found.append("training alone is the best or level with it: a federation may not be worth it here")
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
