"""compare(), better() and to_frame(): what may be averaged, what is a pair, and what a user is told."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import firma
from firma.comparison import compare_pairs, facts, lower_is_better
from firma.errors import BadInput
from firma.method_lookup import lookup
from firma.methods import METHODS
from firma.results import Result
from firma.run_facts import own_tuning
from firma.settings import changed_settings, given_settings, hyper_for, split_for

SEEDS = range(7)


def model(name, **settings):
    """What a result records of its model."""
    return {"name": name, "kind": "built-in", "settings": settings, "head": None, "inputs": {"shape": [8, 8]},
            "outputs": 10, "files": {}, "tensors": {}, "modules": ""}  # fmt: skip


def result(method="fedavg", seed=0, final=0.5, dataset="digits", scenario="iid", clients=2, rounds=3, preset="paper",
           settings=None, **options):  # fmt: skip
    hyper, split = hyper_for(method, preset, settings or {}), split_for(preset, settings or {})
    config = {
        "dataset": dataset, "scenario": scenario, "clients": clients, "dropped": [], "samples": [10] * clients,
        "rounds": rounds, "preset": preset, "settings": changed_settings(method, preset, hyper, split),
        "set": given_settings(settings or {}, hyper, split), "hyper": hyper.model_dump(), "split": split.model_dump(),
        "device": "cpu", "wire": "float32", "versions": {"firma": "0", "torch": "0", "python": "3"}, **options,
    }  # fmt: skip
    history = np.linspace(0.1, 1, rounds)[:, None] * (final + np.linspace(-0.1, 0.1, clients))
    return Result(method, seed, config, history, tuple(range(clients)), (100,) * rounds, (4,) * rounds, 1.0)


def noisy(method, shift, seeds=SEEDS, **options):
    """Runs whose seeds are good or bad for every method alike: only pairs can tell methods apart."""
    ups = np.random.default_rng(5).normal(0, 0.05, 50)
    own = np.random.default_rng(list(method.encode())).normal(0, 0.004, 50)
    return [result(method, seed, 0.5 + ups[seed] + own[seed] + shift, **options) for seed in seeds]


def test_every_method_over_its_seeds():
    found = firma.compare([*noisy("fedavg", 0), result("local")])
    values = [run.metrics["mean_accuracy"] for run in noisy("fedavg", 0)]
    assert found["fedavg"]["mean_accuracy"].mean == pytest.approx(np.mean(values))
    assert found["fedavg"]["mean_accuracy"].deviation == pytest.approx(np.std(values, ddof=1))
    assert found["fedavg"]["mean_accuracy"].seeds == len(SEEDS)
    assert found["local"]["mean_accuracy"].deviation is None
    assert math.isnan(firma.compare([result(final=0.2)])["fedavg"]["rounds_to_50"].mean)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"dataset": "mnist"}, r"dataset \(digits, mnist\)"),
        ({"scenario": "dir-0.1"}, r"scenario \(iid, dir-0.1\)"),
        ({"clients": 3}, r"clients \(2, 3\)"),
        ({"rounds": 4}, r"rounds \(3, 4\)"),
        ({"settings": {"rate": 0.5}}, r"rate \(0.01, 0.5\)"),
        ({"settings": {"tests": "independent"}}, r"tests \(matched, independent\)"),
        ({"wire": "int8"}, r"wire \(float32, int8\)"),
        ({"model": model("cnn", width=9)}, r"model.width \(8, 9\)"),
        ({"model": model("resnet", width=8)}, r"model \(cnn, resnet\)"),
        ({"model": model("cnn", width=8) | {"files": {"own.py": "ab12"}}}, r"model.code"),
        ({"participation": 0.5}, r"participation \(1.0, 0.5\)"),
        ({"preset": "recommended"}, r".*epochs \(5, 10\)"),
        ({"samples": [9, 9]}, r"samples per client"),
        ({"columns": {"gate": "yes"}}, r"column gate \(no, yes\)"),
        ({"backend": "autograd"}, r"backend \(auto, autograd\)"),
        ({"order": "1,0"}, r"order \(default, 1,0\)"),
        ({"bandwidth": "speeds.csv"}, r"bandwidth \(default, speeds.csv\)"),
    ],
)
def test_unlike_runs_are_not_averaged(change, names):
    usual = {"model": model("cnn", width=8) | {"files": {"own.py": "cd34"}}, "columns": {"gate": "no"}}
    with pytest.raises(BadInput, match=rf"2 results of fedavg differ in {names}.*seed only"):
        firma.compare([result(seed=0, **usual), result(**{**usual, "seed": 1, **change})])


def test_a_number_that_is_stated_as_it_is_anyway_makes_no_difference():
    assert firma.compare([result(seed=0), result(seed=1, settings={"rate": 0.01})])["fedavg"]["gini"].seeds == 2


def test_splits_drawn_per_seed_may_have_other_sizes():
    own = {"settings": {"split_seed": None}}
    assert firma.compare([result(seed=0, samples=[5, 5], **own), result(seed=1, samples=[4, 6], **own)])


def test_results_of_an_earlier_version_record_less():
    older = result(seed=1)
    config = {name: value for name, value in older.config.items() if name not in ("set", "wire")}
    assert firma.compare([result(seed=0), replace(older, config=config)])["fedavg"]["mean_accuracy"].seeds == 2
    assert firma.better([result("local", seed=1)], [replace(older, config=config)]).cases == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (result(), r"compare: takes a list of results, not a single one; pass \[result\]"),
        ("results/run", "not str"),
        ({"fedavg": result()}, "not dict"),
        (7, "not int"),
        ([result(), "fedavg"], "not the text 'fedavg'"),
        ([0.5], "not float"),
        ([], "at least one result"),
    ],
)
def test_wrong_types_get_a_sentence(wrong, says):
    with pytest.raises(BadInput, match=says):
        firma.compare(wrong)


def test_pairs_show_what_averages_hide():
    """The spread between seeds is five times the difference, which is the same for every seed."""
    a, b = noisy("fibfl", 0.02), noisy("fedavg", 0)
    found = firma.better(a, b)
    ours, theirs = ([run.metrics["mean_accuracy"] for run in runs] for runs in (a, b))
    assert stats.ttest_ind(ours, theirs).pvalue > 0.3
    assert (found.verdict, found.test, found.seeds, found.cases) == ("better", "sign-flip", 7, 1)
    assert found.difference == pytest.approx(np.mean(ours) - np.mean(theirs))
    low, high = stats.ttest_rel(ours, theirs).confidence_interval()
    assert found.interval == pytest.approx((low, high))
    assert (found.wins, found.losses, found.ties) == (7, 0, 0)
    assert firma.better(b, a).verdict == "worse"
    assert "fibfl against fedavg, mean_accuracy: +0.0" in str(found)


def test_few_seeds_are_judged_by_the_t_test_and_one_seed_not_at_all():
    a, b = noisy("fibfl", 0.02, range(4)), noisy("fedavg", 0, range(4))
    found = firma.better(a, b, metric="worst_client")
    ours, theirs = ([run.metrics["worst_client"] for run in runs] for runs in (a, b))
    assert found.test == "paired t"
    assert found.p_value == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    alone = firma.better(a[0], b[0])
    assert (alone.verdict, alone.p_value, alone.interval, alone.wins) == ("cannot be judged", None, None, 1)


def test_only_seeds_that_both_have_are_pairs():
    assert firma.better(noisy("fibfl", 0.02, range(4)), noisy("fedavg", 0, range(2, 9))).seeds == 2


def test_lower_is_better_for_some_metrics():
    a = [replace(run, sent_bytes=(50 + run.seed,) * 3) for run in noisy("fibfl", 0)]
    found = firma.better(a, noisy("fedavg", 0), metric="bytes_per_round")
    assert found.difference < 0
    assert (found.verdict, found.wins) == ("better", 7)
    assert [name for name in result().metrics if lower_is_better(name)] == [
        "gini", "rounds_to_50", "rounds_to_half_of_final", "plateau_std", "largest_drop", "bytes_per_round",
        "messages_per_round",
    ]  # fmt: skip


def test_several_cases_are_averaged_within_each_seed():
    """Replication is the seed: twice as many scenarios are not twice as many independent observations."""
    cases = ("iid", "dir-0.1", "skew-1")
    a = [run for case in cases for run in noisy("fibfl", 0.02, scenario=case)]
    b = [run for case in cases for run in noisy("fedavg", 0, scenario=case)]
    found, single = firma.better(a, b), firma.better(a[:7], b[:7])
    assert (found.seeds, found.cases, found.wins) == (7, 3, 21)
    assert found.p_value == single.p_value
    assert found.interval == pytest.approx(single.interval)


def test_an_unfinished_study_is_judged_by_what_there_is():
    a = noisy("fibfl", 0.02, range(4), scenario="iid") + noisy("fibfl", 0.02, range(2, 6), scenario="dir-0.1")
    b = noisy("fedavg", 0, range(4), scenario="iid") + noisy("fedavg", 0, range(2, 6), scenario="dir-0.1")
    found = firma.better(a, b)
    assert (found.seeds, found.cases, found.wins, found.verdict) == (4, 1, 4, "better")
    assert "; 1 of 2 cases are left out, as they lack some of these seeds (mean difference there: +0.0" in found.reason


def test_cases_with_fewer_seeds_do_not_turn_a_verdict():
    """Ten seeds of one case and one of three others: the mean of seed 0 would be that of other cases."""
    others = ("dir-0.1", "skew-1", "skew-2")
    a = noisy("fibfl", 0.02, range(10)) + [run for case in others for run in noisy("fibfl", -0.3, [0], scenario=case)]
    b = noisy("fedavg", 0, range(10)) + [run for case in others for run in noisy("fedavg", 0, [0], scenario=case)]
    found, alone = firma.better(a, b), firma.better(a[:10], b[:10])
    assert (found.seeds, found.cases, found.wins, found.losses) == (10, 1, 10, 0)
    assert (found.difference, found.p_value, found.verdict) == (alone.difference, alone.p_value, "better")
    assert "3 of 4 cases are left out" in found.reason
    assert "mean difference there: -0.3" in found.reason


def test_cases_with_more_seeds_than_others_are_judged_by_those_that_all_have():
    a = [*noisy("fibfl", 0.02, range(10)), *noisy("fibfl", 0.02, range(7), scenario="dir-0.1")]
    b = [*noisy("fedavg", 0, range(10)), *noisy("fedavg", 0, range(7), scenario="dir-0.1")]
    found = firma.better(a, b)
    assert (found.seeds, found.cases) == (7, 2)
    assert "left out" not in found.reason


def test_two_seeds_can_hardly_decide_and_it_is_said():
    found = firma.better(noisy("fibfl", 0.02, range(2)), noisy("fedavg", 0, range(2)))
    assert (found.test, found.interval, found.seeds) == ("paired t", None, 2)
    assert found.reason == "2 seeds can hardly decide: an exact test requires 6 to reach p < 0.05"


def test_a_metric_without_a_value_cannot_be_judged():
    a, b = noisy("fibfl", 0, range(3)), noisy("fedavg", -0.4, range(3))  # never above one half
    found = firma.better(a, b, "rounds_to_50")
    assert (found.verdict, found.reason) == ("cannot be judged", "some seeds have no value")
    assert math.isnan(found.difference)


def test_a_method_may_have_settings_of_its_own():
    found = firma.better(noisy("fibfl", 0.02, settings={"rate": 0.001}), noisy("fedavg", 0, settings={"rate": 0.1}))
    assert (found.a, found.b, found.verdict) == ("fibfl", "fedavg", "better")


def test_settings_that_are_varied_are_paired_as_they_were_stated():
    """0.01 is the paper's rate of both; what was not stated and what was are not the same case."""
    a = [run for rate in (0.01, 0.1) for run in noisy("fibfl", 0.02, settings={"rate": rate})]
    b = [run for rate in (0.01, 0.1) for run in noisy("fedavg", 0, settings={"rate": rate})]
    assert firma.better(a, b).cases == 2


def test_models_and_settings_can_be_compared_too():
    wide, narrow = noisy("fibfl", 0.02, model=model("cnn", width=64)), noisy("fibfl", 0, model=model("resnet"))
    found = firma.better(wide, [replace(run, history=run.history - 0.03) for run in narrow])
    assert (found.a, found.verdict) == ("model=cnn model.width=64", "better")
    found = firma.better(noisy("fibfl", 0.02, settings={"rate": 0.1}), noisy("fibfl", 0.02))
    assert (found.a, found.b, found.ties, found.verdict) == ("rate=0.1", "rate=default", 7, "no difference shown")


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (noisy("fibfl", 0), noisy("fibfl", 0), "do not differ in one thing; both contain fibfl"),
        (
            noisy("fibfl", 0),
            noisy("fedavg", 0, scenario="dir-0.1"),
            "differ in method .* scenario .* one of these only",
        ),
        (noisy("fibfl", 0), noisy("fedavg", 0, seeds=range(8, 10)), r"differ in seed \("),
        (
            noisy("fibfl", 0),
            noisy("fedavg", 0, scenario="dir-0.1") + noisy("fedavg", 0, scenario="skew-1"),
            r"differ in scenario \(iid, dir-0.1, skew-1\)",
        ),
        ([], noisy("fedavg", 0), "better: takes at least one result"),
        (
            [*noisy("fibfl", 0), replace(noisy("fibfl", 0)[0], history=np.ones((3, 2)))],
            noisy("fedavg", 0),
            "two runs of",
        ),
    ],
)
def test_what_is_no_comparison_is_refused(a, b, says):
    with pytest.raises(BadInput, match=says):
        firma.better(a, b)


def test_an_unknown_metric_is_refused():
    with pytest.raises(BadInput, match="did you mean 'mean_accuracy'"):
        firma.better(noisy("fibfl", 0), noisy("fedavg", 0), metric="mean_acuracy")


def test_a_run_that_is_there_twice_counts_once():
    a, b = noisy("fibfl", 0.02, range(3)), noisy("fedavg", 0, range(3))
    assert firma.better([*a, *a], b) == firma.better(a, b)


def test_all_pairs_are_adjusted_for_being_several():
    runs = noisy("fibfl", 0.02) + noisy("fedavg", 0) + noisy("local", -0.02)

    def pairs(against=None):
        known = [facts(run) for run in runs]
        return compare_pairs(runs, [run.method for run in runs], known, ["method"], against=against).overall

    assert [(each.a, each.b) for each in pairs()] == [("fibfl", "fedavg"), ("fibfl", "local"), ("fedavg", "local")]
    assert all(each.adjusted_p == pytest.approx(3 * 2 / 128) for each in pairs())  # all have the least p
    assert {each.test for each in pairs()} == {"sign-flip"}
    assert [(each.a, each.b) for each in pairs("fedavg")] == [("fibfl", "fedavg"), ("local", "fedavg")]
    with pytest.raises(BadInput, match="did you mean 'fedavg'"):
        pairs("fedavgg")


def test_more_comparisons_need_more_seeds_for_an_exact_test():
    shifts = {"fibfl": 0.02, "fedavg": 0, "local": -0.02, "rdfl": -0.04}
    runs = [run for method, shift in shifts.items() for run in noisy(method, shift)]
    found = compare_pairs(runs, [run.method for run in runs], [facts(run) for run in runs], ["method"]).overall
    assert {each.test for each in found} == {"paired t"}  # seven seeds, six comparisons
    assert {each.p_sign_flip for each in found} == {2 / 128}
    assert {each.verdict for each in found} == {"better"}


def test_tuning_belongs_to_a_method_where_others_have_none_of_its_values():
    grid = [("fedavg", 0.1), ("fibfl", 0.001), ("fibfl", 0.003)]
    known = [{"method": method, "rate": rate, "preset": "paper"} for method, rate in grid]
    assert own_tuning(known, "method", ["rate", "preset"]) == ["rate"]
    product = [{"method": method, "rate": rate} for method in ("fedavg", "fibfl") for rate in (0.1, 0.001)]
    assert own_tuning(product, "method", ["rate"]) == []
    assert own_tuning(product, "rate", ["rate"]) == []


def test_real_runs_record_what_was_set():
    own = replace(METHODS["fedavg"], name="mine")
    run = firma.run("digits", "iid", own, clients=2, rounds=1, settings={"E": "1", "min_samples": 5})
    assert run.config["set"] == {"epochs": 1, "min_samples": 5}
    assert run.config["columns"]["topology"] == "star"
    assert "columns" not in firma.run("digits", "iid", "local", clients=2, rounds=1, settings={"epochs": 1}).config


def short(method, seed=0, **options):
    return firma.run("digits", "iid", method, clients=3, rounds=1, seed=seed, **options)


def test_a_column_and_a_setting_of_the_same_name_are_told_apart():
    mine = replace(METHODS["rdfl"], name="mine", optimiser="adam")
    runs = [short(mine, seed, settings={"epochs": 1, "retention": share}) for seed, share in enumerate((0.1, 0.9))]
    with pytest.raises(BadInput, match=r"2 results of mine differ in retention \(0\.1, 0\.9\); results of one method"):
        firma.compare(runs)
    changed = replace(METHODS["fedavg"], optimiser="adam")
    runs = [short(method, settings={"epochs": 1}) for method in ("fedavg", changed)]
    with pytest.raises(BadInput, match=r"2 results of fedavg differ in column optimiser \(sgd, adam\); results of one"):
        firma.compare(runs)


def test_an_order_that_was_stated_is_a_methods_own():
    ordered = {order: noisy("rdfl", shift, order=order) for order, shift in {"0,1": 0, "1,0": 0.02}.items()}
    found = firma.better(ordered["1,0"], ordered["0,1"])
    assert (found.a, found.b, found.cases, found.seeds) == ("order=1,0", "order=0,1", 1, len(SEEDS))
    assert firma.better(ordered["1,0"], noisy("fedavg", 0)).cases == 1


def test_ablations_of_names_and_of_rows_of_your_own():
    assert [row.name for row in firma.ablations("fibfl+", "fibfl")] == ["fibfl+:gate=no"]
    mine = replace(METHODS["fibfl++"], name="mine", weights="half")
    rows = list(firma.ablations(mine, METHODS["fibfl"]))
    assert [row.name for row in rows][:2] == ["mine:weights=golden", "mine:gate=no"]
    assert {row.base for row in rows} == {"fibfl++"}
    assert (rows[1].weights, rows[1].gate) == ("half", "no")
    (twice,) = firma.ablations("fibfl+:order=2-opt", "fibfl:order=2-opt")
    assert twice == lookup("fibfl+:order=2-opt,gate=no")
    with pytest.raises(BadInput, match="did you mean"):
        list(firma.ablations("fibfll", "fibfl"))


def test_a_frame_has_a_row_per_round_client_and_metric():
    pandas = pytest.importorskip("pandas")
    run = result(seed=3)
    frame = run.to_frame()
    assert list(frame.columns) == ["method", "seed", "round", "client", "metric", "value"]
    assert len(frame) == run.history.size
    last = frame[(frame["round"] == 3) & (frame["client"] == 1)]
    assert last["value"].item() == run.history[2, 1]
    wide = frame.pivot_table(index="round", columns="client", values="value")
    assert np.array_equal(wide.to_numpy(), run.history)
    runs = [result("local"), result("fedavg", scenario="dir-0.1", settings={"rate": 0.1}), result("fedavg")]
    frame = firma.to_frame(runs)
    assert list(frame.columns)[:3] == ["scenario", "rate", "method"]
    summary = firma.to_frame(runs, summary=True)
    assert isinstance(summary, pandas.DataFrame)
    assert summary["mean_accuracy"].tolist() == [run.metrics["mean_accuracy"] for run in runs]
    assert summary["scenario"].tolist() == ["iid", "dir-0.1", "iid"]


def test_without_pandas_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match="requires pandas; install it with: pip install pandas"):
        result().to_frame()
