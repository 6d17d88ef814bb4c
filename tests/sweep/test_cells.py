"""Cells: their keys never move once they were run, and their labels are what was recorded."""

import hashlib
import json
from dataclasses import fields, make_dataclass, replace
from pathlib import Path

import pytest

from firma import methods
from firma.data.catalogue import PUBLIC, SIZES
from firma.data.dataset import load_dataset
from firma.method_lookup import lookup
from firma.methods import COLUMNS, METHODS, NEUTRAL_COLUMNS, Method, stable_columns
from firma.run_facts import conditions, unlike
from firma.settings import NEUTRAL_SETTINGS, Hyper, Split, changed_settings, hyper_for, split_for
from firma.sweep import cells
from firma.sweep.cells import (
    COLUMNS_OF_0_1,
    NEUTRAL,
    SETTINGS_OF_0_1,
    Cell,
    configuration,
    decisive,
    decisive_split,
    digest,
    key,
    label,
)
from firma.sweep.store import read_cells

EVIDENCE = Path(__file__).parents[2] / "evidence"
CELL = Cell("digits", "iid", "fedavg", "paper", 0, 5, 10)


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "mnist"}, {"scenario": "dir-0.1"}, {"method": "rdfl"}, {"preset": "published"}, {"seed": 1},
        {"clients": 4}, {"rounds": 9}, {"settings": {"rate": 0.5}}, {"settings": {"split_seed": 1}},
        {"method": "fedavg:optimiser=adam"},
    ],
)  # fmt: skip
def test_everything_that_decides_results_is_in_the_key(change):
    assert key(replace(CELL, **change)) != key(CELL)


def test_the_key_is_of_the_configuration_not_of_the_words():
    assert key(Cell("digits", "iid", "fedavg", "paper", 0, 5, 10, {"rate": 0.01})) == key(CELL)
    assert key(Cell("digits", "iid", "fedavg", "paper", 0, 5, 10, {"lr": "0.010"})) == key(CELL)


def test_another_version_of_the_results_is_another_key(monkeypatch):
    before = key(CELL)
    monkeypatch.setattr(cells, "RESULTS_VERSION", cells.RESULTS_VERSION + 1)
    assert key(CELL) != before


def test_the_key_is_stable_over_processes_and_releases():
    text = json.dumps(configuration(CELL), sort_keys=True)
    assert json.loads(text)["columns"]["topology"] == "star"
    # If this fails, every stored cell would be run again.
    assert key(CELL) == "8d144f420f90f6d40fea3199ed71c869087914a874349eeb4693ae6b9bd39168"


def test_every_column_and_setting_has_a_neutral_value():
    assert set(COLUMNS) - set(COLUMNS_OF_0_1) == set(NEUTRAL_COLUMNS), (
        "add the neutral value of the new column to methods.NEUTRAL_COLUMNS"
    )
    settings = {*Hyper.model_fields, *Split.model_fields} - set(SETTINGS_OF_0_1)
    assert settings == set(NEUTRAL_SETTINGS), "add the neutral value of the new setting to settings.NEUTRAL_SETTINGS"


def test_neutral_values_are_frozen():
    of_0_1 = (sorted(COLUMNS_OF_0_1), {name: SETTINGS_OF_0_1[name] for name in sorted(SETTINGS_OF_0_1)})
    found = hashlib.sha256(json.dumps(of_0_1).encode()).hexdigest()
    assert found == "f69935977fbaba96884857d8138aaf94dcb564906d3bd29508e8691e3419bd3f", "neutral values never change"
    since = {"proximal": 0.0, "clip": None}
    assert since.items() <= NEUTRAL_SETTINGS.items(), "neutral values never change"


def test_a_new_column_moves_a_key_only_where_it_is_not_neutral(monkeypatch):
    row = METHODS["fibfl++"]
    before = stable_columns(row)
    values = {field.name: getattr(row, field.name) for field in fields(Method)}
    wider = make_dataclass("Wider", [*((name, str) for name in values), ("sampling", str)], frozen=True)
    monkeypatch.setattr(methods, "COLUMNS", {**COLUMNS, "sampling": ("all", "half")})
    monkeypatch.setattr(methods, "NEUTRAL_COLUMNS", {**NEUTRAL_COLUMNS, "sampling": "all"})
    assert stable_columns(wider(**values, sampling="all")) == before
    assert stable_columns(wider(**values, sampling="half")) == before | {"sampling": "half"}


def test_a_new_setting_moves_a_key_only_where_it_is_not_neutral():
    hyper, neutral = Hyper().model_dump(), {**NEUTRAL, "decay": 0.0}
    assert decisive(hyper | {"decay": 0.0}, neutral) == decisive(hyper, neutral) == {}
    assert decisive(hyper | {"decay": 0.1}, neutral) == {"decay": 0.1}
    assert key(replace(CELL, settings={"proximal": 0.1})) != key(CELL)


def test_a_changed_default_moves_no_key():
    """A value is compared with its neutral value, whatever the default is today."""
    assert decisive({"momentum": 0.9}) == {}
    assert decisive({"momentum": 0.5}) == {"momentum": 0.5}


def test_every_stored_cell_has_the_key_of_its_configuration():
    stored = read_cells(EVIDENCE)
    assert len(stored) >= 1005
    for cell in stored:
        config, result = cell.result.config, cell.result
        facts = {
            "figures": cells.RESULTS_VERSION,
            "dataset": cell.dataset,
            "scenario": cell.scenario,
            "columns": stable_columns(lookup(result.method)),
            "hyper": decisive(config["hyper"]),
            "split": decisive_split(config["split"], cell.scenario, cell.dataset),
            "clients": config["clients"] + len(config["dropped"]),
            "rounds": config["rounds"],
            "seed": result.seed,
        }
        assert digest(facts) == cell.key


def asked(stored):
    """The cell whose result was stored, with the settings in which it differs from its preset as it is today."""
    config = stored.result.config
    settings = label(config, stored.result.method).settings
    return Cell(
        stored.dataset, stored.scenario, stored.result.method, stored.preset, stored.result.seed,
        config["clients"] + len(config["dropped"]), config["rounds"], settings,
    )  # fmt: skip


def test_every_stored_cell_is_found_by_its_preset_as_it_is_today():
    for stored in read_cells(EVIDENCE):
        assert key(asked(stored)) == stored.key, stored.preset


@pytest.mark.parametrize("scenario", ["iid", "dir-0.1", "skew-1", "quantity-0.5", "rotate-60", "natural"])
def test_where_a_reduced_quota_splits_as_a_sequential_one_the_key_is_the_same(scenario):
    cell = replace(CELL, scenario=scenario, preset="published")
    sequential, fair = (replace(cell, settings={"quota": quota}) for quota in ("sequential", "fair"))
    assert configuration(cell)["split"] == {"tests": "independent", "quota": "sequential", "min_samples": 64}
    assert key(cell) == key(sequential) != key(fair)


def test_constants_change_the_key_only_where_there_are_any():
    for preset, other in (("published", "none"), ("paper", "constants")):
        digits, mnist = (Cell(name, "iid", "fibfl", preset, 0, 10, 30) for name in ("digits", "mnist"))
        assert key(replace(digits, settings={"standardise": other})) == key(digits)
        assert key(replace(mnist, settings={"standardise": other})) != key(mnist)


def test_runs_of_the_published_preset_before_it_standardised_inputs():
    """Of data that have constants they are labelled by the inputs that they had; of other data they stay its runs."""
    published = [cell for cell in read_cells(EVIDENCE) if cell.preset == "published"]
    older = [cell for cell in published if cell.result.config["split"].get("standardise", "none") == "none"]
    assert {"digits", "mnist"} <= {cell.dataset for cell in older}
    for cell in older:
        recorded, has_constants = cell.result.config, cell.dataset in PUBLIC
        called = "published standardise=none" if has_constants else "published"
        assert str(label(recorded, cell.result.method)) == called
        assert conditions(recorded)["standardise"] == ("none" if has_constants else "constants")
    mine = config("fedavg", "published") | {"dataset": "mine.csv", "clients": 5, "settings": {}}
    mine["split"] = split_for("published", {"standardise": "none"}).model_dump()
    stated = mine | {"settings": {"standardise": "none"}}
    called = [str(label(each, "fedavg")) for each in (mine, stated)]
    assert called == [f"published{each} clients=6 rounds=10" for each in ("", " standardise=none")]


def test_where_a_reduced_quota_splits_otherwise_the_key_is_another():
    cell = replace(CELL, scenario="skew-2", preset="published")
    keys = {key(replace(cell, settings={"quota": quota})) for quota in ("sequential", "reduced", "fair")}
    assert len(keys) == 3
    assert key(cell) == key(replace(cell, settings={"quota": "reduced"}))


def test_runs_of_the_published_preset_before_it_reduced_the_quota():
    """At K = 2 and 3 they are labelled by the quota and retention that they had; elsewhere they are its runs."""
    older = read_cells(EVIDENCE / "sequential")
    assert {(cell.dataset, cell.scenario) for cell in older} == {("digits", "skew-2"), ("digits", "skew-3")}
    for cell in older:
        called = label(cell.result.config, cell.result.method)
        kept = " retention=0.5" if cell.result.method in ("fibfl", "fibfl+") else ""
        assert str(called) == f"published{kept} quota=sequential"
        assert key(asked(cell)) == cell.key != key(replace(asked(cell), settings={}))
    recorded = next(
        cell
        for cell in read_cells(EVIDENCE)
        if (cell.dataset, cell.scenario, cell.result.method) == ("digits", "iid", "fedavg")
        and cell.preset == "published"
    )
    config, method = recorded.result.config, recorded.result.method
    assert config["split"]["quota"] == "sequential"
    today = config | {"split": config["split"] | {"quota": "reduced", "standardise": "constants"}}
    assert str(label(config, method)) == str(label(today, method)) == "published"
    assert conditions(config) == conditions(today)
    assert unlike([config, today]) == {}
    chosen = config | {"set": {"quota": "sequential"}, "settings": {"quota": "sequential"}}
    assert str(label(chosen, method)) == "published quota=sequential"
    published = [cell.result.config for cell in read_cells(EVIDENCE) if cell.preset == "published"]
    assert {conditions(each)["quota"] for each in published} == {"reduced"}
    skewed = {"scenario": "skew-2"}
    assert unlike([config | skewed, today | skewed]) == {"quota": ["sequential", "reduced"]}


def test_sizes_are_those_of_the_data_sets():
    digits = load_dataset("digits")
    size = SIZES["digits"]
    assert (size.clients, size.rounds, size.train) == (digits.clients, digits.rounds, len(digits.y_train))
    assert (size.shape, size.classes) == (digits.shape, digits.classes)
    assert all((SIZES[name].shape, SIZES[name].train) == (known.shape, known.train) for name, known in PUBLIC.items())


def config(method="fedavg", preset="paper", **changes):
    hyper, split = hyper_for(method, preset, changes), Split()
    return {
        "dataset": "digits", "clients": 4, "dropped": [3], "rounds": 10, "preset": preset,
        "settings": changed_settings(method, preset, hyper, split), "hyper": hyper.model_dump(),
        "split": split.model_dump(),
    }  # fmt: skip


def test_a_label_is_the_recorded_preset_and_the_recorded_changes():
    assert str(label(config(), "fedavg")) == "paper"
    assert str(label(config(rate=0.1, tau=0.35), "fedavg")) == "paper rate=0.1"  # τ is 0.35 anyway
    assert str(label(config() | {"rounds": 2, "clients": 3}, "fedavg")) == "paper clients=4 rounds=2"
    assert str(label(config() | {"dataset": "mine.csv"}, "fedavg")) == "paper clients=5 rounds=10"


def test_a_label_does_not_guess_another_preset_from_the_numbers():
    numbers = hyper_for("local", "recommended", {}).model_dump()
    found = config("local", epochs=numbers["epochs"])
    assert found["hyper"] == numbers
    assert str(label(found, "local")) == "paper epochs=10"


def test_a_label_states_the_numbers_of_a_preset_that_has_changed_since():
    older = config() | {"hyper": {**config()["hyper"], "epochs": 7}}
    assert str(label(older, "fedavg")) == "paper epochs=7"


def test_version_0_1_recorded_no_changes_and_is_labelled_by_its_preset():
    older = {name: value for name, value in config(rate=0.1).items() if name != "settings"}
    assert str(label(older, "fedavg")) == "paper rate=0.1"
    for cell in read_cells(EVIDENCE):
        if cell.result.config["versions"]["firma"] == "0.1.0":
            older = (cell.dataset, cell.preset) == ("mnist", "published")  # the preset has standardised inputs since
            expected = f"{cell.preset} standardise=none" if older else cell.preset
            assert str(label(cell.result.config, cell.result.method)) == expected
