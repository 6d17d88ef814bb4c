"""Every claim is judged on tables where it must hold, where it must fail, and where it must not be decided."""

from dataclasses import replace

import pytest

from firma.methods import METHODS
from firma.study.claims import CLAIMS
from firma.study.evidence import PLACES, Evidence, Figure, published
from firma.study.verdicts import at_least, best_of, higher, rank_at_most

BY_NAME = {claim.name: claim for claim in CLAIMS}
NOTHING = Evidence("nothing")
METRICS = {
    "mean_accuracy": 0.8, "gini": 0.1, "plateau_std": 0.01, "rounds_to_half_of_final": 1.0, "largest_drop": 0.0,
    "bytes_per_round": 1000.0,
}  # fmt: skip


def flat():
    """All methods alike everywhere."""
    figures = {
        (*place, name, metric): Figure(value)
        for place in PLACES
        for name in METHODS
        for metric, value in METRICS.items()
    }
    return Evidence("flat", figures, dict.fromkeys(PLACES, 50.0), exact=True)


def changed(body, method, metric, value, places=PLACES):
    return replace(body, figures=dict(body.figures) | {(*place, method, metric): Figure(value) for place in places})


def where(scenario="", dataset=""):
    return [place for place in PLACES if place[1].startswith(scenario) and place[0].startswith(dataset)]


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
    table = {names[key]: value for key, value in by_scenario.items()}
    return replace(flat(), savings={place: table.get(place[1], 50.0) for place in PLACES})


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
    assert BY_NAME[name].check(true).outcome == "holds"
    assert BY_NAME[name].check(false).outcome == "fails"
    assert BY_NAME[name].check(NOTHING).outcome == "undecided"


@pytest.mark.parametrize(
    ("name", "outcome", "figure"),
    [
        ("skew-wins", "fails", "9 of 12"),
        ("skew-peak", "fails", "+15.3 pp on cifar10, skew-1"),
        ("highest", "fails", "1 of 28"),
        ("highest-serverless", "holds", "26 of 28"),
        ("ring-positive", "holds", "28 of 28"),
        ("fairest-skew", "fails", "0 of 12"),
        ("guide-fairness", "fails", "0 of 28"),
        ("rdfl-plateau", "undecided", "not in this evidence"),
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
def test_verdicts_on_the_papers_own_tables(name, outcome, figure):
    verdict = BY_NAME[name].check(published())
    assert verdict.outcome == outcome
    assert figure in verdict.figure


def test_names_are_unique_and_every_claim_says_how_it_is_checked():
    assert len(BY_NAME) == len(CLAIMS)
    assert all(claim.how.endswith(".") and claim.says for claim in CLAIMS)


def test_noise_leaves_a_comparison_open():
    place = ("digits", "iid")

    def body(one, other):
        figures = {(*place, "fibfl++", "mean_accuracy"): one, (*place, "fedavg", "mean_accuracy"): other}
        return Evidence("runs", figures)

    judge = higher("fibfl++", "fedavg")
    assert judge(body(Figure(0.90, 0.01, 4), Figure(0.87, 0.01, 4)), place) is True
    assert judge(body(Figure(0.90, 0.03, 4), Figure(0.87, 0.03, 4)), place) is None
    assert judge(body(Figure(0.84, 0.01, 4), Figure(0.87, 0.01, 4)), place) is False
    assert judge(body(Figure(0.875), Figure(0.87)), place) is None  # one seed, half a point
    assert judge(body(Figure(0.90), Figure(0.87)), place) is True


def test_what_is_open_can_decide_either_way():
    half = Evidence("half", {k: v for k, v in ACCURATE.figures.items() if k[0] == "digits"}, exact=True)
    assert at_least(half, PLACES, higher("fibfl++", "fedavg"), 7).outcome == "holds"
    assert at_least(half, PLACES, higher("fibfl++", "fedavg"), 8).outcome == "undecided"
    assert at_least(half, PLACES, higher("fedavg", "fibfl++"), 22).outcome == "fails"


def test_ranks_and_bests():
    names = list(METHODS)
    place = PLACES[0]
    assert rank_at_most("fibfl++", 1, names)(ACCURATE, place) is True
    assert rank_at_most("local", 1, names)(ACCURATE, place) is False
    assert best_of(["local", "fibfl++"], names)(ACCURATE, place) is True
    assert best_of(["local"], names)(ACCURATE, place) is False


def test_only_comparisons_that_were_run_are_counted():
    figures = {
        (*PLACES[0], name, "mean_accuracy"): Figure(value) for name, value in (("fedavg", 0.8), ("fibfl++", 0.9))
    }
    verdict = BY_NAME["only-win"].check(Evidence("one place", figures, exact=True))
    assert verdict.figure.startswith("1 of 1 ")
