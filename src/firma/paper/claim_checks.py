"""Claims about who is more accurate or fairer: each is a small function of a result table, the paper's own or ours.

The first line of a docstring says how the claim is checked; the report prints it.
"""

from collections.abc import Sequence
from itertools import combinations
from math import inf

from firma.data.catalogue import SIZES
from firma.paper.grid import CASES, DATASETS, DIRICHLET, IID, SKEW
from firma.paper.judging import (
    Answer,
    ClaimJudgement,
    Judge,
    Term,
    all_of,
    at_least,
    best_of,
    between,
    both,
    counted,
    difference,
    has_intervals,
    higher,
    is_positive,
    lies,
    lower,
    minus,
    missing,
    positive,
    rank_at_most,
)
from firma.sweep.result_table import Case, ResultTable

SIX = ("fedavg", "fedrep", "rdfl", "fibfl", "fibfl+", "fibfl++")
SERVERLESS = ("rdfl", "fibfl", "fibfl+", "fibfl++")
FAMILY = ("fibfl", "fibfl+", "fibfl++")
COLLAPSE = 0.2  # a loss of accuracy that counts as a collapse: twenty points
_PEAK, _PEAK_CASE = 0.207, ("cifar10", "skew-1")
_ROUNDED = 0.0005  # a figure in percent with one decimal
_WIN = (("digits", "skew-1"), "fibfl++")


def of_dataset(dataset: str) -> tuple[Case, ...]:
    """The seven scenarios of one data set."""
    return tuple(case for case in CASES if case[0] == dataset)


def under(scenario: str) -> tuple[Case, ...]:
    """One scenario on the four data sets."""
    return tuple(case for case in CASES if case[1] == scenario)


def skew_wins(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is more accurate than FedAvg in all twelve label-skew cases."""
    return at_least(table, SKEW, higher("fibfl++", "fedavg"))


def skew_peak(table: ResultTable) -> ClaimJudgement:
    """The lead of FibFL++ over FedAvg is 20.7 points on CIFAR-10 at K = 1, and no larger in another label-skew case."""
    leads = {case: found for case in SKEW if (found := difference(table, case, "fibfl++", "fedavg")) is not None}
    if not leads:
        return missing(table)
    terms: list[Term] = [(1.0, _PEAK_CASE, "fibfl++", "mean_accuracy"), (-1.0, _PEAK_CASE, "fedavg", "mean_accuracy")]
    as_stated = lies(table, terms, _PEAK - _ROUNDED, _PEAK + _ROUNDED)
    above = [case for case in leads if case != _PEAK_CASE and _exceeds(table, case)]
    largest = max(leads, key=lambda case: leads[case].mean)
    numbers = f"{100 * leads[largest].mean:+.1f} points on {' at '.join(largest)}"
    open_cases = len(SKEW) - len(leads)
    unrun = (
        f"; {open_cases} of the {len(SKEW)} cases {'was' if open_cases == 1 else 'were'} not run" if open_cases else ""
    )
    said = []
    if _PEAK_CASE in leads:
        said.append(f"the lead is {100 * leads[_PEAK_CASE].mean:+.1f} points on CIFAR-10 at K = 1")
    if largest != _PEAK_CASE:
        said.append(f"the largest lead that was found is {numbers}")
    text = f"{'; '.join(said)}{unrun} (the paper says 20.7)"
    if as_stated is False or above:
        return ClaimJudgement("fails", numbers, text)
    agrees = as_stated is True or (as_stated == "too close" and abs(leads[_PEAK_CASE].mean - _PEAK) <= _ROUNDED)
    return ClaimJudgement("holds" if agrees and not open_cases else "undecided", numbers, text)


def _exceeds(table: ResultTable, case: Case) -> bool:
    return positive({"fibfl++": 1.0, "fedavg": -1.0}, above=_PEAK + _ROUNDED)(table, case) is True


def highest(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is the most accurate of the six methods in at least 17 of 28 cases."""
    return at_least(table, CASES, best_of(["fibfl++"], SIX), 17)


def highest_serverless(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is the most accurate of the server-free methods in at least 17 of 28 cases."""
    return at_least(table, CASES, best_of(["fibfl++"], SERVERLESS), 17)


def dominant_dirichlet(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is the most accurate and the fairest of the server-free methods in all twelve Dirichlet cases."""
    fairest = best_of(["fibfl++"], SERVERLESS, "gini", -1)
    return at_least(table, DIRICHLET, both(best_of(["fibfl++"], SERVERLESS), fairest))


def pareto_skew(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is more accurate and has a lower Gini coefficient than FedAvg in all label-skew cases."""
    return at_least(table, SKEW, both(higher("fibfl++", "fedavg"), lower("fibfl++", "fedavg", "gini")))


def ring_always_helps(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is more accurate than FibFL+ in every case."""
    return at_least(table, CASES, higher("fibfl++", "fibfl+"))


def ring_beats_gate(table: ResultTable) -> ClaimJudgement:
    """FibFL++ minus FibFL+ is more than FibFL+ minus FibFL in at least 27 of 28 cases."""
    return at_least(table, CASES, positive({"fibfl++": 1.0, "fibfl+": -2.0, "fibfl": 1.0}), 27)


def family_hierarchy(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is more accurate than FibFL and FibFL+ in every case."""
    return at_least(table, CASES, best_of(["fibfl++"], FAMILY))


def gate_helps(table: ResultTable) -> ClaimJudgement:
    """FibFL+ is more accurate than FibFL in every case: the other step of a monotone hierarchy."""
    return at_least(table, CASES, higher("fibfl+", "fibfl"))


def fedavg_leads(table: ResultTable) -> ClaimJudgement:
    """FedAvg is the most accurate of the six in all 16 IID and Dirichlet cases."""
    return at_least(table, IID + DIRICHLET, best_of(["fedavg"], SIX))


def fairest_in_skew(table: ResultTable) -> ClaimJudgement:
    """FibFL++ has the lowest Gini coefficient of the six in at least 7 of the 12 label-skew cases."""
    return at_least(table, SKEW, best_of(["fibfl++"], SIX, "gini", -1), 7)


def fairest_often(table: ResultTable) -> ClaimJudgement:
    """FibFL++ has the lowest Gini coefficient of the six in more than 40 % of all cases: in 12 of 28."""
    return at_least(table, CASES, best_of(["fibfl++"], SIX, "gini", -1), 12, "more than 40 % means")


def fairest_at_two(table: ResultTable) -> ClaimJudgement:
    """FibFL++ has the lowest Gini coefficient of the six at K = 2, on all data sets."""
    return at_least(table, under("skew-2"), best_of(["fibfl++"], SIX, "gini", -1))


def second_or_better(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is first or second in accuracy in at least 15 of 28 cases."""
    return at_least(table, CASES, rank_at_most("fibfl++", 2, SIX), 15, "most means")


def always_second(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is first or second in accuracy in every case."""
    return at_least(table, CASES, rank_at_most("fibfl++", 2, SIX))


def second_on(dataset: str, table: ResultTable) -> ClaimJudgement:
    """FibFL++ is first or second in accuracy in all seven scenarios of the data set."""
    return at_least(table, of_dataset(dataset), rank_at_most("fibfl++", 2, SIX))


def only_win(table: ResultTable) -> ClaimJudgement:
    """Of FibFL, FibFL+ and FibFL++ in 28 cases, FibFL++ on digits at K = 1 alone is more accurate than FedAvg."""
    pairs = [(case, name) for case in CASES for name in FAMILY]

    def ask(level: float) -> dict[str, Answer]:
        won = {pair: higher(pair[1], "fedavg")(table, pair[0], level) for pair in pairs}
        return {
            f"{name} on {' at '.join(case)}": not found if isinstance(found, bool) and (case, name) != _WIN else found
            for (case, name), found in won.items()
        }

    tested = sum(has_intervals(table, case) for case, _ in pairs)
    found = counted(ask, "comparisons", None, "as the paper says of", table.exact, tested)
    judged = [higher(name, "fedavg")(table, case) for case, name in pairs]
    wins, run = judged.count(True), len(judged) - judged.count("not run")
    if not run:
        return missing(table)
    said = f"the proposed methods win {wins} of the {run} comparisons"
    said += "" if run == len(pairs) else f" that were run, of {len(pairs)}"
    named = higher(_WIN[1], "fedavg")(table, _WIN[0])
    state = {True: "is one of them", False: "is not one of them", "too close": "is too close to call"}
    state_said = "was not run" if named == "not run" else state[named]
    text = f"{said}; FibFL++ on digits at K = 1, which the paper says is the only one, {state_said}"
    return ClaimJudgement(found.verdict, f"{wins} of {run} won", text)


def fedrep_spares_mnist(table: ResultTable) -> ClaimJudgement:
    """From IID to Dir 0.1, FedRep loses accuracy on each other data set, and more than it does on MNIST."""
    others = [name for name in DATASETS if name != "mnist"]

    def answer(name: str, level: float) -> Answer:
        here = loss(name)
        return all_of(
            [is_positive(table, here, level), is_positive(table, [*here, *minus(loss("mnist"))], level)],
        )

    def ask(level: float) -> dict[str, Answer]:
        return {name: answer(name, level) for name in others}

    tested = 2 * sum(has_intervals(table, (name, "dir-0.1")) for name in others)
    return _with_losses(table, counted(ask, "other data sets", None, "the paper says", table.exact, tested))


def heads_lose(table: ResultTable) -> ClaimJudgement:
    """FedRep loses at least twenty points from IID to Dir 0.1 on every data set."""

    def ask(level: float) -> dict[str, Answer]:
        return {name: is_positive(table, loss(name), level, COLLAPSE) for name in DATASETS}

    tested = sum(has_intervals(table, (name, "dir-0.1")) for name in DATASETS)
    return _with_losses(table, counted(ask, "data sets", None, "the question is about", table.exact, tested))


def loss(dataset: str) -> list[Term]:
    """What FedRep loses on a data set from IID to Dir 0.1."""
    return [(1.0, (dataset, "iid"), "fedrep", "mean_accuracy"), (-1.0, (dataset, "dir-0.1"), "fedrep", "mean_accuracy")]


def _with_losses(table: ResultTable, found: ClaimJudgement) -> ClaimJudgement:
    """The judgement, and what FedRep loses on each data set from IID to Dir 0.1."""
    known = [
        f"{name} {100 * (iid.mean - dirichlet.mean):.1f}"
        for name in DATASETS
        if (iid := table.get((name, "iid"), "fedrep")) and (dirichlet := table.get((name, "dir-0.1"), "fedrep"))
    ]
    if not known:
        return found
    text = f"{found.explained}; points lost: {', '.join(known)}"
    return ClaimJudgement(found.verdict, found.numbers, text)


def scarcity(table: ResultTable) -> ClaimJudgement:
    """FedRep's Gini coefficient at Dir 0.1 falls with the samples per client, and is alike where these are; one of six
    pairs of data sets may differ ("near-monotone").
    """
    per_client = {name: SIZES[name].train // SIZES[name].clients for name in DATASETS}
    pairs = [sorted(two, key=per_client.__getitem__) for two in combinations(DATASETS, 2)]

    def answer(pair: Sequence[str], level: float) -> Answer:
        less, more = pair
        terms: list[Term] = [(1.0, (less, "dir-0.1"), "fedrep", "gini"), (-1.0, (more, "dir-0.1"), "fedrep", "gini")]
        falls = is_positive(table, terms, level)
        if per_client[less] != per_client[more] or falls in ("not run", "too close"):
            return falls
        return False  # equally much data, and a clear difference: it is not the volume

    def ask(level: float) -> dict[str, Answer]:
        return {" with ".join(pair): answer(pair, level) for pair in pairs}

    tested = sum(all(has_intervals(table, (name, "dir-0.1")) for name in pair) for pair in pairs)
    found = counted(ask, "pairs of data sets", len(pairs) - 1, "nearly all means", table.exact, tested)
    same = [table.get((name, "dir-0.1"), "fedrep", "gini") for name in ("fashion-mnist", "mnist")]
    if None in same:
        return found
    alike = " and ".join(f"{each.mean:.3f}" for each in same if each is not None)
    text = f"Fashion-MNIST and MNIST have equally many samples per client, but Gini coefficients of {alike}"
    return ClaimJudgement(found.verdict, found.numbers, f"{found.explained}; {text}")


def best_under(scenario: str, names: tuple[str, ...], table: ResultTable) -> ClaimJudgement:
    """The most accurate of the six methods is one of those named, on all four data sets."""
    return at_least(table, under(scenario), best_of(names, SIX))


def small_federation(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is the most accurate of the six in all scenarios of digits, which has five clients."""
    return at_least(table, of_dataset("digits"), best_of(["fibfl++"], SIX))


def close_to_fedrep(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is at most 1.5 points below FedRep at K = 1, on all data sets."""
    return at_least(table, under("skew-1"), between({"fedrep": 1.0, "fibfl++": -1.0}, -inf, 0.0155))


def helps_at_all(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is more accurate than training alone in every case: as published, RDFL never mixes, and is just that."""
    same = "rdfl" if table.exact or table.name == "published" else "local"

    def judge(table: ResultTable, case: Case, level: float) -> Answer:
        return higher("fibfl++", "local" if table.get(case, "local") else same)(table, case, level)

    return at_least(table, CASES, Judge(judge), asked="the question is about")
