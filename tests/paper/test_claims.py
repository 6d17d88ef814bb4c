"""Every claim is judged on tables where it must hold, where it must fail, and where it must not be decided."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from firma.methods import METHODS
from firma.paper.claims import CLAIMS
from firma.paper.grid import CASES
from firma.paper.judging import at_least, best_of, higher, positive, rank_at_most
from firma.paper.published import published
from firma.statistics import Statistic, statistic
from firma.sweep.result_table import ResultTable

BY_NAME = {claim.name: claim for claim in CLAIMS}
NOTHING = ResultTable("nothing")
EVIDENCE = Path(__file__).resolve().parents[2] / "evidence"
METRICS = {
    "mean_accuracy": 0.8, "gini": 0.1, "plateau_std": 0.01, "rounds_to_half_of_final": 1.0, "largest_drop": 0.0,
    "bytes_per_round": 1000.0,
}  # fmt: skip


def flat():
    """All methods alike everywhere."""
    statistics = {
        (*case, name, metric): Statistic(value)
        for case in CASES
        for name in METHODS
        for metric, value in METRICS.items()
    }
    return ResultTable("flat", statistics, dict.fromkeys(CASES, 50.0), exact=True)


def changed(table, method, metric, value, cases=CASES):
    return replace(
        table, statistics=dict(table.statistics) | {(*case, method, metric): Statistic(value) for case in cases}
    )


def where(scenario="", dataset=""):
    return [case for case in CASES if case[1].startswith(scenario) and case[0].startswith(dataset)]


def saved(**by_scenario):
    """Savings by scenario, written dir_0.1 as dir_01."""
    names = {
        "iid": "iid",
        "dir_08": "dir-0.8",
        "dir_05": "dir-0.5",
        "dir_01": "dir-0.1",
        "skew_1": "skew-1",
        "skew_2": "skew-2",
        "skew_3": "skew-3",
    }
    known = {names[key]: value for key, value in by_scenario.items()}
    return replace(flat(), savings={case: known.get(case[1], 50.0) for case in CASES})


ACCURATE = changed(flat(), "fibfl++", "mean_accuracy", 0.9)
FAIR = changed(flat(), "fibfl++", "gini", 0.05)
BOTH = changed(ACCURATE, "fibfl++", "gini", 0.05)
WORSE = changed(flat(), "fibfl++", "mean_accuracy", 0.7)
GROWING = saved(iid=0.1, dir_08=20, dir_05=45, dir_01=79, skew_1=70, skew_2=60, skew_3=35)
COLLAPSED = changed(flat(), "fedrep", "mean_accuracy", 0.5, where("dir-0.1"))
FLIPS = {
    "skew-wins": (ACCURATE, WORSE),
    "skew-peak": (changed(flat(), "fedavg", "mean_accuracy", 0.593, where("skew-1", "cifar10")), ACCURATE),
    "highest": (ACCURATE, flat()),
    "highest-serverless": (ACCURATE, flat()),
    "dominant-dirichlet": (BOTH, ACCURATE),
    "second-or-better": (flat(), changed(changed(WORSE, "fedavg", "mean_accuracy", 0.9), "rdfl", "mean_accuracy", 0.9)),
    "fairest-skew": (FAIR, flat()),
    "only-win": (changed(flat(), "fibfl++", "mean_accuracy", 0.9, where("skew-1", "digits")), ACCURATE),
    "fedavg-leads": (changed(flat(), "fedavg", "mean_accuracy", 0.9), ACCURATE),
    "fedrep-collapse": (COLLAPSED, flat()),
    "fedrep-scarcity": (
        changed(
            changed(flat(), "fedrep", "gini", 0.6, where(dataset="digits")),
            "fedrep",
            "gini",
            0.4,
            where(dataset="cifar"),
        ),
        flat(),
    ),
    "ring-positive": (ACCURATE, flat()),
    "ring-over-gate": (ACCURATE, changed(flat(), "fibfl+", "mean_accuracy", 0.9)),
    "hierarchy": (ACCURATE, changed(ACCURATE, "fibfl", "mean_accuracy", 0.95, where("iid", "mnist"))),
    "pareto-skew": (BOTH, ACCURATE),
    "second-fashion": (flat(), changed(changed(WORSE, "fedavg", "mean_accuracy", 0.9), "rdfl", "mean_accuracy", 0.9)),
    "second-mnist": (flat(), changed(changed(WORSE, "fedavg", "mean_accuracy", 0.9), "rdfl", "mean_accuracy", 0.9)),
    "rdfl-plateau": (changed(flat(), "rdfl", "plateau_std", 0.0001), flat()),
    "steady-full": (flat(), changed(flat(), "fibfl++", "plateau_std", 0.02)),
    "steadier": (changed(flat(), "fibfl++", "plateau_std", 0.001), flat()),
    "fibfl-drop": (changed(flat(), "fibfl", "largest_drop", 0.34), flat()),
    "warm-start": (flat(), changed(flat(), "fibfl", "rounds_to_half_of_final", 2.0)),
    "cold-start": (changed(flat(), "fibfl++", "rounds_to_half_of_final", 3.0), flat()),
    "traffic": (changed(flat(), "fibfl++", "bytes_per_round", 4000.0), flat()),
    "savings-grow": (GROWING, flat()),
    "savings-max": (replace(flat(), savings={("mnist", "dir-0.1"): 95.5}), flat()),
    "savings-iid": (GROWING, flat()),
    "savings-dir-0.8": (GROWING, flat()),
    "savings-dir-0.5": (GROWING, flat()),
    "savings-dir-0.1": (GROWING, flat()),
    "savings-skew-1": (GROWING, flat()),
    "savings-skew-3": (GROWING, flat()),
    "guide-iid": (changed(flat(), "fedavg", "mean_accuracy", 0.9), ACCURATE),
    "guide-skew-1": (ACCURATE, changed(flat(), "fedavg", "mean_accuracy", 0.9)),
    "guide-gap": (ACCURATE, changed(flat(), "fedrep", "mean_accuracy", 0.9)),
    "guide-skew-2": (ACCURATE, changed(flat(), "rdfl", "mean_accuracy", 0.9)),
    "guide-skew-3": (changed(flat(), "fedrep", "mean_accuracy", 0.9), ACCURATE),
    "guide-small": (ACCURATE, flat()),
    "guide-fairness": (FAIR, flat()),
    "guide-unknown": (flat(), changed(changed(WORSE, "fedavg", "mean_accuracy", 0.9), "rdfl", "mean_accuracy", 0.9)),
    "beats-local": (ACCURATE, flat()),
}


def test_every_claim_on_figures_has_a_flip():
    assert set(FLIPS) == {claim.name for claim in CLAIMS if not claim.computed}


@pytest.mark.parametrize("name", FLIPS)
def test_claims_flip_with_the_tables(name):
    true, false = FLIPS[name]
    assert BY_NAME[name].check(true).verdict == "holds"
    assert BY_NAME[name].check(false).verdict == "fails"
    assert BY_NAME[name].check(NOTHING).verdict == "undecided"


@pytest.mark.parametrize(
    ("name", "verdict", "numbers"),
    [
        ("skew-wins", "fails", "9 of 12"),
        ("skew-peak", "fails", "+15.3 points on cifar10, skew-1"),
        ("highest", "fails", "1 of 28"),
        ("highest-serverless", "holds", "26 of 28"),
        ("ring-positive", "holds", "28 of 28"),
        ("fairest-skew", "fails", "0 of 12"),
        ("guide-fairness", "fails", "0 of 28"),
        ("rdfl-plateau", "undecided", "not printed"),
        ("savings-dir-0.8", "fails", "35.9%"),
        ("spectral", "fails", "golden 0.9072, half 0.9045"),
        ("coverage", "holds", "48 of 48"),
        ("broadcast", "fails", "e-44"),
        ("retention", "fails", "0.2468"),
        ("gate-bounds", "holds", "0.3090 to 0.8090"),
        ("private", "fails", "5 of 30"),
        ("private-sound", "holds", "0 of 30"),
    ],
)
def test_verdicts_on_the_papers_own_tables(name, verdict, numbers):
    judged = BY_NAME[name].check(published())
    assert judged.verdict == verdict
    assert numbers in judged.numbers


def test_names_are_unique_and_every_claim_says_how_it_is_checked():
    assert len(BY_NAME) == len(CLAIMS)
    assert all(claim.how.endswith(".") and claim.statement for claim in CLAIMS)


def test_noise_leaves_a_comparison_open():
    case = ("digits", "iid")

    def table(one, other):
        statistics = {(*case, "fibfl++", "mean_accuracy"): one, (*case, "fedavg", "mean_accuracy"): other}
        return ResultTable("runs", statistics)

    judge = higher("fibfl++", "fedavg")
    assert judge(table(Statistic(0.90, 0.01, 4), Statistic(0.87, 0.01, 4)), case) is True
    assert judge(table(Statistic(0.90, 0.03, 4), Statistic(0.87, 0.03, 4)), case) == "too close"
    assert judge(table(Statistic(0.84, 0.01, 4), Statistic(0.87, 0.01, 4)), case) is False
    assert judge(table(Statistic(0.875), Statistic(0.87)), case) == "too close"  # one seed, half a point
    assert judge(table(Statistic(0.90), Statistic(0.87)), case) is True
    assert judge(ResultTable("nothing"), case) == "not run"


def seeded(**values):
    """A table of one case from values of single seeds, as it comes from runs."""
    case = ("digits", "iid")
    by_seed = {(*case, name, "mean_accuracy"): dict(enumerate(found)) for name, found in values.items()}
    statistics = {place: statistic(list(found.values())) for place, found in by_seed.items()}
    return case, ResultTable("runs", statistics, by_seed=by_seed)


@pytest.mark.parametrize("spread", [0.001, 0.004, 0.006, 0.02])
def test_differences_are_paired_by_seed(spread):
    """Against SciPy's paired t-test; the seeds differ by far more than the methods do."""
    rng = np.random.default_rng(3)
    level = rng.normal(0.8, 0.05, 5)
    one, other = level + 0.005 + rng.normal(0, spread, 5), level
    case, table = seeded(fibfl=one, fedavg=other)
    p = ttest_rel(one, other).pvalue
    assert higher("fibfl", "fedavg")(table, case) == (True if p < 0.05 else "too close")
    assert higher("fedavg", "fibfl")(table, case) == (False if p < 0.05 else "too close")
    unpaired = replace(table, by_seed={})
    assert higher("fibfl", "fedavg")(unpaired, case) == "too close"


def test_a_gain_is_compared_with_another_gain_seed_by_seed():
    gate, ring = np.array([0.01, 0.02, 0.03]), np.array([0.05, 0.06, 0.08])
    base = np.array([0.5, 0.7, 0.6])
    case, table = seeded(**{"fibfl": base, "fibfl+": base + gate, "fibfl++": base + gate + ring})
    judge = positive({"fibfl++": 1.0, "fibfl+": -2.0, "fibfl": 1.0})
    assert judge(table, case) is True
    assert table.combined(case, {"fibfl++": 1.0, "fibfl+": -2.0, "fibfl": 1.0}).mean == pytest.approx(
        (ring - gate).mean()
    )
    case, table = seeded(**{"fibfl": base, "fibfl+": base + gate, "fibfl++": base + gate + [0.0, 0.06, 0.0]})
    assert judge(table, case) == "too close"


def test_a_verdict_is_a_sentence():
    sentences = {claim.name: claim.check(published()).sentence for claim in CLAIMS}
    assert sentences["skew-wins"] == "Fails: true in 9 of 12 cases; the paper says all 12."
    assert sentences["ring-positive"] == "Holds: true in all 28 cases."
    assert sentences["highest-serverless"] == "Holds: true in 26 of 28 cases; the paper says 17."
    assert sentences["rdfl-plateau"] == "Undecided: the paper's tables do not have what it is about."
    assert BY_NAME["rdfl-plateau"].check(NOTHING).sentence == "Undecided: we have not run what it is about."
    half = ResultTable("half", {k: v for k, v in ACCURATE.statistics.items() if k[0] == "digits"})
    assert BY_NAME["skew-wins"].check(half).sentence == (
        "Undecided: true in 3 of 12 cases, 9 not run; the paper says all 12."
    )
    one = changed(half, "fibfl++", "mean_accuracy", 0.7, [("digits", "skew-2")])
    assert BY_NAME["skew-wins"].check(one).sentence == (
        "Fails: true in 2 of 12 cases, false in 1 (digits, skew-2), 9 not run; the paper says all 12."
    )
    close = BY_NAME["skew-wins"].check(changed(half, "fibfl++", "mean_accuracy", 0.805))
    judged = "none of the 12 cases can be judged, 9 not run, 3 too close to call"
    assert close.sentence == f"Undecided: {judged}; the paper says all 12."


def test_as_published_rdfl_stands_for_training_alone():
    """It never mixes: on digits, where both were run, every client has the same accuracy in every round."""
    cells = [json.loads(line) for line in (EVIDENCE / "digits-published.jsonl").read_text().splitlines()]
    histories = {(cell["config"]["scenario"], cell["seed"], cell["method"]): cell["history"] for cell in cells}
    alone = {each: found for each, found in histories.items() if each[2] == "local"}
    assert len(alone) == 35
    assert all(histories[scenario, seed, "rdfl"] == found for (scenario, seed, _), found in alone.items())

    without = {k: v for k, v in ACCURATE.statistics.items() if k[2] != "local"}
    check = BY_NAME["beats-local"].check
    assert check(ResultTable("published", without)).verdict == "holds"
    assert check(ResultTable("recommended", without)).verdict == "undecided"  # there, rdfl mixes
    assert check(published()).sentence == "Fails: true in 26 of 28 cases; the question is about all 28."


def test_what_is_open_can_decide_either_way():
    half = ResultTable("half", {k: v for k, v in ACCURATE.statistics.items() if k[0] == "digits"}, exact=True)
    assert at_least(half, CASES, higher("fibfl++", "fedavg"), 7).verdict == "holds"
    assert at_least(half, CASES, higher("fibfl++", "fedavg"), 8).verdict == "undecided"
    assert at_least(half, CASES, higher("fedavg", "fibfl++"), 22).verdict == "fails"


def test_ranks_and_bests():
    names = list(METHODS)
    case = CASES[0]
    assert rank_at_most("fibfl++", 1, names)(ACCURATE, case) is True
    assert rank_at_most("local", 1, names)(ACCURATE, case) is False
    assert best_of(["local", "fibfl++"], names)(ACCURATE, case) is True
    assert best_of(["local"], names)(ACCURATE, case) is False


def test_only_comparisons_that_were_run_are_counted():
    statistics = {
        (*CASES[0], name, "mean_accuracy"): Statistic(value) for name, value in (("fedavg", 0.8), ("fibfl++", 0.9))
    }
    judged = BY_NAME["only-win"].check(ResultTable("one case", statistics, exact=True))
    assert judged.numbers.startswith("1 of 1 ")
