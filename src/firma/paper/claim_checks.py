"""Claims about results: each is a small function of a result table, the paper's own or that of our runs.

The first line of a docstring says how the claim is checked; the report prints it.
"""

from collections.abc import Sequence
from itertools import combinations, pairwise

from firma.data.catalogue import SIZES
from firma.paper.grid import CASES, DATASETS, DIRICHLET, IID, SKEW
from firma.paper.judging import (
    Answer,
    ClaimJudgement,
    Judge,
    at_least,
    best_of,
    both,
    counted,
    difference,
    higher,
    lower,
    missing,
    positive,
    rank_at_most,
    saves,
    within,
)
from firma.sweep.result_table import Case, ResultTable

SIX = ("fedavg", "fedrep", "rdfl", "fibfl", "fibfl+", "fibfl++")
SERVERLESS = ("rdfl", "fibfl", "fibfl+", "fibfl++")
FAMILY = ("fibfl", "fibfl+", "fibfl++")
COLLAPSE = 0.2  # a loss of accuracy that counts as a collapse: twenty points


def of_dataset(dataset: str) -> tuple[Case, ...]:
    """The seven scenarios of one data set."""
    return tuple(case for case in CASES if case[0] == dataset)


def under(scenario: str) -> tuple[Case, ...]:
    """One scenario on the four data sets."""
    return tuple(case for case in CASES if case[1] == scenario)


# Accuracy and fairness.


def skew_wins(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is more accurate than FedAvg in all twelve label-skew cases."""
    return at_least(table, SKEW, higher("fibfl++", "fedavg"))


def skew_peak(table: ResultTable) -> ClaimJudgement:
    """The largest lead of FibFL++ over FedAvg under label skew, compared with the stated 20.7 points."""
    leads = {case: difference(table, case, "fibfl++", "fedavg") for case in SKEW}
    known = {case: 100 * lead for case, lead in leads.items() if lead is not None}
    if not known:
        return missing(table)
    case = max(known, key=lambda each: known[each])
    numbers = f"{known[case]:+.1f} points on {case[0]}, {case[1]}"
    if known[case] >= 20.65:
        return ClaimJudgement("holds", numbers)
    if ("cifar10", "skew-1") in known:
        return ClaimJudgement("fails", numbers, f"the largest lead is {numbers}; the paper says 20.7")
    return ClaimJudgement("undecided", numbers, f"{numbers} so far, and CIFAR-10 at K = 1 was not run")


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
    """FibFL++ is more accurate and fairer than FedAvg in all label-skew cases."""
    return at_least(table, SKEW, both(higher("fibfl++", "fedavg"), lower("fibfl++", "fedavg", "gini")))


def ring_always_helps(table: ResultTable) -> ClaimJudgement:
    """Δ_ring > 0: FibFL++ is more accurate than FibFL+ in every case."""
    return at_least(table, CASES, higher("fibfl++", "fibfl+"))


def ring_beats_gate(table: ResultTable) -> ClaimJudgement:
    """Δ_ring > Δ_sel in 27 of 28 cases."""
    return at_least(table, CASES, positive({"fibfl++": 1.0, "fibfl+": -2.0, "fibfl": 1.0}), 27)


def family_hierarchy(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is more accurate than FibFL and FibFL+ in every case."""
    return at_least(table, CASES, best_of(["fibfl++"], FAMILY))


def fedavg_leads(table: ResultTable) -> ClaimJudgement:
    """FedAvg is the most accurate of the six in all 16 IID and Dirichlet cases."""
    return at_least(table, IID + DIRICHLET, best_of(["fedavg"], SIX))


def fairest_in_skew(table: ResultTable) -> ClaimJudgement:
    """FibFL++ has the lowest Gini of the six in at least 7 of the 12 label-skew cases."""
    return at_least(table, SKEW, best_of(["fibfl++"], SIX, "gini", -1), 7)


def fairest_often(table: ResultTable) -> ClaimJudgement:
    """FibFL++ has the lowest Gini of the six in more than 40% of all cases."""
    return at_least(table, CASES, best_of(["fibfl++"], SIX, "gini", -1), 12, "more than 40% means")


def second_or_better(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is first or second in accuracy in most cases."""
    return at_least(table, CASES, rank_at_most("fibfl++", 2, SIX), 15, "most means")


def always_second(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is first or second in accuracy in every case: the argument for it if the distribution is unknown."""
    return at_least(table, CASES, rank_at_most("fibfl++", 2, SIX))


def second_on(dataset: str, table: ResultTable) -> ClaimJudgement:
    """FibFL++ is first or second in accuracy in all seven scenarios of the data set."""
    return at_least(table, of_dataset(dataset), rank_at_most("fibfl++", 2, SIX))


def only_win(table: ResultTable) -> ClaimJudgement:
    """FibFL++ on digits at K = 1 is the only comparison in which FibFL, FibFL+ or FibFL++ beats FedAvg."""
    pairs = [(case, name) for case in CASES for name in FAMILY]
    run = [(case, name) for case, name in pairs if table.get(case, name) and table.get(case, "fedavg")]
    judged = {(case, name): higher(name, "fedavg")(table, case) for case, name in run}
    wins = {pair for pair, won in judged.items() if won is True}
    numbers = f"{len(wins)} of {len(run)} comparisons won by the proposed methods"
    explained = f"{numbers}; the paper says one, and {len(pairs) - len(run)} of {len(pairs)} were not run"
    if wins - {(("digits", "skew-1"), "fibfl++")}:
        return ClaimJudgement("fails", numbers, f"{numbers}; the paper says one")
    clear = len(run) == len(pairs) and "too close" not in judged.values()
    return ClaimJudgement("holds" if wins and clear else "undecided", numbers, explained)


def collapse(table: ResultTable) -> ClaimJudgement:
    """FedRep loses at least twenty points from IID to Dir 0.1 on every data set."""

    def judge(table: ResultTable, case: Case) -> Answer:
        iid, dirichlet = table.get((case[0], "iid"), "fedrep"), table.get(case, "fedrep")
        return "not run" if iid is None or dirichlet is None else iid.mean - dirichlet.mean >= COLLAPSE

    return at_least(table, under("dir-0.1"), judge)


def scarcity(table: ResultTable) -> ClaimJudgement:
    """FedRep's Gini at Dir 0.1 falls with the samples per client; one pair of data sets may differ ("nearly")."""
    found = {name: table.get((name, "dir-0.1"), "fedrep", "gini") for name in DATASETS}
    per_client = {name: SIZES[name].train // SIZES[name].clients for name in DATASETS}
    pairs = [sorted(two, key=per_client.__getitem__) for two in combinations(DATASETS, 2)]
    judged: dict[str, Answer] = {}
    for less, more in [two for two in pairs if per_client[two[0]] != per_client[two[1]]]:
        fewer, richer = found[less], found[more]
        judged[f"{less}, {more}"] = "not run" if fewer is None or richer is None else fewer.mean > richer.mean
    return counted(judged, "pairs of data sets", len(judged) - 1, "nearly all means", table.exact)


def best_under(scenario: str, names: Sequence[str], table: ResultTable) -> ClaimJudgement:
    """The most accurate of the six methods is one of those named, on all four data sets."""
    return at_least(table, under(scenario), best_of(names, SIX))


def small_federation(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is the most accurate of the six in all scenarios of digits, which has five clients."""
    return at_least(table, of_dataset("digits"), best_of(["fibfl++"], SIX))


def close_to_fedrep(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is at most 1.5 points below FedRep at K = 1, on all data sets."""

    def judge(table: ResultTable, case: Case) -> Answer:
        gap = difference(table, case, "fedrep", "fibfl++")
        return "not run" if gap is None else gap <= 0.0155

    return at_least(table, under("skew-1"), judge)


def helps_at_all(table: ResultTable) -> ClaimJudgement:
    """FibFL++ is more accurate than training alone in every case: as published, RDFL never mixes, and is just that."""
    same = "rdfl" if table.exact or table.name == "published" else "local"

    def judge(table: ResultTable, case: Case) -> Answer:
        return higher("fibfl++", "local" if table.get(case, "local") else same)(table, case)

    return at_least(table, CASES, judge, asked="the question is about")


# Plateaus, first rounds and traffic.


def flat_plateau(table: ResultTable) -> ClaimJudgement:
    """RDFL's plateau σ is at most 0.0002 in every CIFAR-10 scenario."""
    return _largest(table, of_dataset("cifar10"), "rdfl", "plateau_std", 0.00025)


def steady_full(table: ResultTable) -> ClaimJudgement:
    """FibFL++'s plateau σ is at most 0.012 in every digits scenario."""
    return _largest(table, of_dataset("digits"), "fibfl++", "plateau_std", 0.0125)


def steadier_than_family(table: ResultTable) -> ClaimJudgement:
    """FibFL++'s plateau σ is below those of FibFL and FibFL+ in every digits scenario."""
    return at_least(table, of_dataset("digits"), best_of(["fibfl++"], FAMILY, "plateau_std", -1))


def unstable_plain(table: ResultTable) -> ClaimJudgement:
    """FibFL loses 34 points from one round to the next on digits at K = 3."""
    drop = table.get(("digits", "skew-3"), "fibfl", "largest_drop")
    if drop is None:
        return missing(table)
    most = max(table.by_seed.get(("digits", "skew-3", "fibfl", "largest_drop"), {0: drop.mean}).values())
    numbers = f"largest loss {100 * drop.mean:.1f} points on average over seeds, {100 * most:.1f} at most"
    return ClaimJudgement("holds" if drop.mean >= 0.335 else "fails", numbers, f"{numbers}; the paper says 34")


def warm_start(table: ResultTable) -> ClaimJudgement:
    """RDFL, FibFL and FibFL+ have half of their final accuracy after round 1, in every case."""
    rings: Sequence[Judge] = [within(name, "rounds_to_half_of_final", 1, 1) for name in ("rdfl", "fibfl", "fibfl+")]
    return at_least(table, CASES, both(both(rings[0], rings[1]), rings[2]))


def cold_start(table: ResultTable) -> ClaimJudgement:
    """FibFL++ needs more rounds than FibFL to half of its final accuracy, in most cases."""
    return at_least(table, CASES, higher("fibfl++", "fibfl", "rounds_to_half_of_final"), 15, "most means")


def traffic_counted(table: ResultTable) -> ClaimJudgement:
    """Bytes per round of FibFL++ over those of FedAvg, rounded, are between 3 and 5 in every case."""

    def judge(table: ResultTable, case: Case) -> Answer:
        full, star = (table.get(case, name, "bytes_per_round") for name in ("fibfl++", "fedavg"))
        return "not run" if full is None or star is None else 3 <= round(full.mean / star.mean) <= 5

    return at_least(table, CASES, judge)


def _largest(table: ResultTable, cases: Sequence[Case], method: str, metric: str, bound: float) -> ClaimJudgement:
    """Whether a metric stays below a bound, and the largest value that was seen."""
    found = at_least(table, cases, within(method, metric, 0, bound))
    seen = [value.mean for case in cases if (value := table.get(case, method, metric)) is not None]
    if not seen:
        return missing(table)
    largest = f"largest {max(seen):.4f}"
    return ClaimJudgement(found.verdict, f"{found.numbers}; {largest}", f"{found.explained}; {largest}")


# What 2-opt saves of the ring's cost.


def savings_grow(table: ResultTable) -> ClaimJudgement:
    """Savings on Fashion-MNIST rise from IID over Dir 0.8 and 0.5 to Dir 0.1, and fall from K = 1 to K = 3."""
    rising = (("iid", "dir-0.8", "dir-0.5", "dir-0.1"), ("skew-3", "skew-2", "skew-1"))
    known = {case[1]: table.savings[case] for case in of_dataset("fashion-mnist") if case in table.savings}
    pairs = [pair for names in rising for pair in pairwise(name for name in names if name in known)]
    ordered = all(known[one] < known[other] for one, other in pairs)
    numbers = ", ".join(f"{name} {saving:.1f}%" for name, saving in known.items()) or "not run"
    if not ordered:
        return ClaimJudgement("fails", numbers)
    return ClaimJudgement("holds" if len(known) == 7 else "undecided", numbers)


def savings_vanish(table: ResultTable) -> ClaimJudgement:
    """2-opt saves less than 5% on IID data, on every data set."""
    return at_least(table, under("iid"), saves(0, 5))


def savings_between(scenario: str, low: float, high: float, table: ResultTable) -> ClaimJudgement:
    """Savings of a scenario lie between two bounds on every data set; those known are listed."""
    found = at_least(table, under(scenario), saves(low, high))
    known = [f"{table.savings[case]:.1f}%" for case in under(scenario) if case in table.savings]
    listed = ", ".join(known) or "none known"
    return ClaimJudgement(found.verdict, f"{found.numbers}: {listed}", f"{found.explained} (savings: {listed})")


def largest_saving(table: ResultTable) -> ClaimJudgement:
    """2-opt saves 95.5% on MNIST at Dir 0.1."""
    saving = table.savings.get(("mnist", "dir-0.1"))
    if saving is None:
        return missing(table)
    return ClaimJudgement("holds" if abs(saving - 95.5) < 0.1 else "fails", f"{saving:.1f}%")
