"""Statistics: what is grouped with what, and what comes back from a file."""

from importlib.resources import files

from firma.paper.grid import Choice, cells
from firma.paper.published import published, shipped
from firma.statistics import Statistic, statistic
from firma.sweep.result_table import ResultTable, from_csv, result_tables, to_csv
from firma.sweep.runner import run_cells
from firma.sweep.store import SweepResults, read_cells, writing


def run(folder, **choice):
    base = {"datasets": ["digits"], "scenarios": ["iid"], "methods": ["fedavg"], "rounds": 1}
    with writing(folder):
        list(run_cells(cells(Choice(**(base | choice))), folder, lambda _: None, lambda *_: None))
    return read_cells(folder)


def test_the_paper_printed_336_numbers():
    paper = published()
    assert len(paper.statistics) == 336
    assert paper.get(("mnist", "dir-0.1"), "fibfl++").mean == 0.651
    assert paper.savings["mnist", "dir-0.1"] == 95.5


def test_seeds_are_one_statistic_and_other_settings_another_table(tmp_path):
    run(tmp_path, seeds=2, presets=["paper"])
    stored = run(tmp_path, seeds=1, presets=["paper"], settings={"rate": 0.1, "tau": 0.35})
    tables = result_tables(SweepResults(stored))
    assert list(tables) == ["paper rate=0.1 rounds=1", "paper rounds=1"]
    found = tables["paper rounds=1"].get(("digits", "iid"), "fedavg")
    assert found.seeds == 2
    assert found.deviation is not None
    assert found.standard_error == found.deviation / 2**0.5
    assert tables["paper rounds=1"].savings["digits", "iid"] < 5


def test_a_table_is_named_by_what_was_recorded_not_by_its_numbers(tmp_path):
    switches = {"tests": "independent", "quota": "sequential", "min_samples": 64, "initial": "per-client"}
    switches |= {"warmup_shares": "model", "ring_cost": "dot"}
    (stored,) = run(tmp_path, seeds=1, presets=["paper"], settings=switches)
    assert stored.result.config["settings"] == switches
    (name,) = result_tables(SweepResults([stored]))
    assert name.startswith("paper ")
    assert all(f"{switch}={value}" in name.split() for switch, value in switches.items())


def test_data_sets_and_scenarios_are_in_a_fixed_order():
    names = [("mnist", "skew-1"), ("b.csv", "natural"), ("a.csv", "iid"), ("digits", "dir-0.1"), ("digits", "dir-0.8")]
    table = ResultTable("x", {(*case, "fedavg", "gini"): Statistic(0.1) for case in names})
    assert table.datasets() == ["digits", "mnist", "a.csv", "b.csv"]
    assert table.scenarios() == ["iid", "dir-0.8", "dir-0.1", "skew-1", "natural"]
    assert table.scenarios("digits") == ["dir-0.8", "dir-0.1"]


PLACES = [("digits", "iid", method, "gini") for method in ("fedavg", "local")]


def seeded(*values):
    """A table of two methods from their values by seed."""
    statistics = {place: statistic(list(each.values())) for place, each in zip(PLACES, values, strict=True)}
    return ResultTable("paper", statistics, by_seed=dict(zip(PLACES, values, strict=True)))


def test_without_a_common_seed_there_is_no_difference():
    weights = {"fedavg": 1.0, "local": -1.0}
    assert seeded({0: 0.5, 1: 0.7}, {2: 0.1}).combined(("digits", "iid"), weights, "gini") is None
    found = seeded({0: 0.5, 1: 0.75}, {1: 0.25, 2: 0.1}).combined(("digits", "iid"), weights, "gini")
    assert found == Statistic(0.5)


def test_means_side_by_side_are_those_of_the_seeds_that_all_share():
    found = seeded({0: 0.5, 1: 0.7}, {1: 0.1, 2: 0.3}).side_by_side(("digits", "iid"), ["fedavg", "local", "x"], "gini")
    assert {name: each.mean for name, each in found.items()} == {"fedavg": 0.7, "local": 0.1}
    apart = seeded({0: 0.5}, {2: 0.3, 3: 0.5})
    assert apart.side_by_side(("digits", "iid"), ["fedavg", "local"], "gini")["local"].mean == 0.4
    assert apart.shared_seeds(("digits", "iid"), ["fedavg", "local"], "gini") == []


def test_csv_keeps_the_values_of_single_seeds():
    table = seeded({0: 0.5, 1: 0.75}, {1: 0.25})
    assert from_csv(to_csv({"paper": table}, ["gini"]))["paper"].by_seed == table.by_seed


def test_csv_there_and_back():
    statistics = {("digits", "iid", "fedavg", "gini"): Statistic(0.25, 0.5, 3)}
    table = ResultTable("paper", statistics, {("digits", "iid"): 12.5})
    assert from_csv(to_csv({"paper": table}, ["gini"])) == {"paper": table}


def test_shipped_values_can_be_paired_and_are_small():
    assert all(set(table.by_seed) == set(table.statistics) for table in shipped().values())
    assert len((files("firma.paper") / "evidence.csv").read_text()) < 1_000_000


def test_shipped_statistics_are_readable():
    assert list(shipped())[:3] == ["published", "paper", "recommended"]  # and runs with inputs of their own
    assert all(table.statistics for table in shipped().values())
