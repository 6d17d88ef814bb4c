"""The table against the paper's design table and SPEC §1."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import firma
from firma.errors import BadInput
from firma.method_descriptions import ABOUT, group, private_parts
from firma.method_lookup import ablations, lookup
from firma.methods import (
    COLUMNS,
    METHODS,
    NEUTRAL_COLUMNS,
    PAPER_METHODS,
    WORDS,
    columns,
    properties,
    spelled_out,
    stable_columns,
)
from firma.settings import Hyper, hyper_for, split_for


def test_properties_are_those_of_the_papers_table():
    met = {name: sum(list(properties(row).values())[:-1]) for name, row in METHODS.items() if name in PAPER_METHODS}
    assert met == {"local": 2, "fedavg": 0, "fedrep": 2, "rdfl": 2, "fibfl": 6, "fibfl+": 7, "fibfl++": 11}
    assert [name for name in PAPER_METHODS if properties(METHODS[name])["all four core"]] == [
        "fibfl",
        "fibfl+",
        "fibfl++",
    ]


def test_each_variant_adds_one_thing():
    assert [row.name for row in ablations(METHODS["fibfl+"], METHODS["fibfl"])] == ["fibfl+:gate=no"]
    names = [row.name for row in ablations(METHODS["fibfl++"], METHODS["fibfl"])]
    changes = ["gate=no", "order=given", "passes=one", "retention=constant", "warmup=no"]
    assert names == [f"fibfl++:{change}" for change in changes]


def test_a_changed_row_keeps_the_rest_and_the_numbers():
    row = lookup("fibfl++:order=given,gate=no")
    assert (row.order, row.gate, row.passes) == ("given", "no", "cover")
    assert hyper_for("fibfl++:order=given", "paper", {}).extractor_epochs == 20


def test_the_base_is_not_a_column():
    """What identifies a run, the README's table and ablations know nothing of it."""
    assert "base" not in COLUMNS
    for name, row in METHODS.items():
        assert row.base == name
        assert list(columns(row)) == list(COLUMNS)
        neutral = {column for column, value in NEUTRAL_COLUMNS.items() if getattr(row, column) == value}
        assert list(stable_columns(row)) == [column for column in COLUMNS if column not in neutral]
    row = replace(lookup("fibfl++:order=given"), name="mine", gate="no")
    assert row.base == "fibfl++"
    assert hyper_for(row, "paper", {}) == hyper_for("fibfl++", "paper", {})


def test_recommended_is_sound_and_has_numbers_for_every_method():
    assert split_for("recommended", {}) == split_for("paper", {})
    for name in METHODS:
        chosen, paper = (hyper_for(name, preset, {}).model_dump() for preset in ("recommended", "paper"))
        differ = {key for key in chosen if chosen[key] != paper[key]}
        assert differ <= {
            "rate", "epochs", "head_epochs", "extractor_epochs", "retention", "schedule", "local_steps", "weight_decay"
        }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "epochs"),
    [
        ("fedper:training=two-phase", {"head_epochs": 5, "extractor_epochs": 5}),
        ("fedrep:training=joint", {"epochs": 10}),
        ("fibfl++:training=joint", {"epochs": 10}),
        ("fedper:training=extractor,head=random", {"extractor_epochs": 10}),
        ("frame:training=two-phase,head=learnt,personal=none", {"head_epochs": 1, "extractor_epochs": 10}),
    ],
)
def test_a_row_that_trains_otherwise_has_recommended_epochs_too(name, epochs):
    base = name.partition(":")[0]
    for row in (name, lookup(name), replace(lookup(name), name="mine")):
        found = hyper_for(row, "recommended", {})
        assert found == hyper_for(base, "recommended", epochs)
    assert hyper_for(name, "paper", {}) == hyper_for(base, "paper", {})
    assert hyper_for(name, "recommended", {"epochs": 3, "extractor_epochs": 4}).extractor_epochs == 4


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fedavg:rate=0.1", "'rate' is a setting, not a column; use --set rate=0.1"),
        ("frame:local_steps=5", "'local_steps' is a setting, not a column; use --set local_steps=5"),
        ("fedavg:momentum=0.5", "column 'momentum' is unknown; choose from .*; settings are changed with --set"),
        ("fedavg:shape=head", "did you mean 'shares'"),
    ],
)
def test_a_column_that_does_not_exist_may_be_a_setting(name, says):
    with pytest.raises(BadInput, match=says):
        lookup(name)


@pytest.mark.parametrize(
    "name", ["fib", "fibfl:colour=red", "fibfl:gate=maybe", "fibfl:", "fedavg:weights=golden", "rdfl:shares=nothing"]
)
def test_rows_that_make_no_sense_are_refused(name):
    with pytest.raises(BadInput):
        lookup(name)


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("fedavg:gate=yes", "'ring'"), ("fedavg:retention=cosine", "'ring'"), ("frame:retention=cosine", "'ring'"),
        ("fedavg:passes=cover", "'ring' or another graph"), ("frame:passes=cover", "'ring' or another graph"),
        ("fedavg:order=2-opt", "'ring' or 'all-reduce'"), ("local:weights=size", "any but 'none'"),
        ("fibfl++:topology=star,weights=size,gate=yes", "'ring'"),
    ],
)  # fmt: skip
def test_a_column_that_is_stated_without_effect_is_refused(name, needs):
    with pytest.raises(BadInput, match=rf"has no effect with topology = '[a-z-]+'; it requires topology = {needs}$"):
        lookup(name)
    row = lookup(name.partition(":")[0])
    changes = dict(each.split("=") for each in name.partition(":")[2].split(","))
    if row.topology == changes.get("topology", row.topology):
        with pytest.raises(BadInput, match="has no effect"):
            firma.run("digits", method=replace(row, name="mine", **changes))


@pytest.mark.parametrize(
    "name",
    ["fibfl++:topology=star,weights=size", "frame:order=2-opt", "fedavg:warmup=yes,order=2-opt", "fedavg:gate=no",
     "d-psgd:topology=torus,passes=cover"],
)  # fmt: skip
def test_columns_that_are_inherited_or_used_are_not_refused(name):
    assert lookup(name).name == name


def test_nobody_warms_up_alone():
    for name in ("local:warmup=yes", "fibfl++:topology=none,shares=nothing,weights=none"):
        with pytest.raises(BadInput, match="warmup = 'yes' averages over all clients, but with topology = 'none'"):
            lookup(name)


def test_a_column_is_stated_once():
    with pytest.raises(BadInput, match="order is stated twice, as 'given' and '2-opt'; state it once"):
        lookup("fibfl++:order=given,order=2-opt")
    assert [row.name for row in ablations("fibfl+:order=2-opt", "fibfl+")] == ["fibfl+:order=given"]


def test_commas_within_brackets_separate_no_columns():
    row = lookup("fedavg:algorithm=bad:Two(a=0.5,b=(1,2),c=[3,4]),optimiser=adam")
    assert (row.algorithm, row.optimiser) == ("bad:Two(a=0.5,b=(1,2),c=[3,4])", "adam")


def test_presets_are_those_of_the_spec():
    assert hyper_for("rdfl", "paper", {}).retention == 0.5
    published = hyper_for("rdfl", "published", {})
    assert (published.retention, published.initial, published.ring_cost) == (1.0, "per-client", "dot")
    assert [hyper_for(each, "published", {}).retention for each in ("fibfl", "fibfl+", "fibfl++")] == [0.7, 0.7, 0.5]
    assert [hyper_for(each, "paper", {}).retention for each in ("fibfl", "fibfl+", "fibfl++")] == [0.5, 0.5, 0.5]
    assert (split_for("published", {}).tests, split_for("published", {}).quota) == ("independent", "reduced")
    assert (split_for("paper", {}).tests, split_for("paper", {}).quota) == ("matched", "fair")
    paper = hyper_for("fedrep", "paper", {})
    assert (paper.head_epochs, paper.extractor_epochs, paper.rate, paper.batch) == (2, 2, 0.01, 64)


def test_settings_come_as_text_and_by_the_papers_symbols():
    hyper = hyper_for("fibfl++", "paper", {"tau": "0.5", "Ee": "3", "warmup_rounds": "none", "lr": "1e-3"})
    assert hyper == Hyper(threshold=0.5, extractor_epochs=3, rate=1e-3)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("tau", "1.5", ["threshold", "1.5", "at most 1"]),
        ("epochs", "-1", ["epochs", "-1", "at least 0"]),
        ("rate", "fast", ["rate", "fast", "number"]),
        ("ring_cost", "l2", ["ring_cost", "l2", "'cosine' or 'dot'"]),
        ("colour", "red", ["colour", "unknown", "threshold", "split_seed"]),
        ("rate", "nan", ["rate", "nan"]),
    ],
)
def test_bad_settings_name_field_value_and_what_is_allowed(key, value, words):
    with pytest.raises(BadInput) as caught:
        hyper_for("fibfl++", "paper", {key: value})
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_method_is_described_for_people():
    """In one line that fits `firma methods`, with an equation, a reference, and an entry in docs/methods.md."""
    page = (Path(__file__).parents[1] / "docs" / "methods.md").read_text()
    entries = " ".join(re.findall(r"^\*\*(.*?)\*\*", page, re.MULTILINE))
    for name in METHODS:
        about = ABOUT[name]
        assert len(about.does) <= 58, name
        assert about.equation, name
        assert f"`{name}`" in entries, f"docs/methods.md has no entry for {name}"
        authors = about.reference.partition(" (")[0]
        assert "FIRMA" in authors or "project" in authors or "baseline" in authors or authors in page, authors


def test_what_stays_private_is_read_off_the_columns():
    parts = {name: private_parts(row) for name, row in METHODS.items()}
    assert parts["fedavg"] == parts["fedprox"] == parts["rdfl"] == ""
    assert parts["local"] == "everything"
    assert parts["fedper"] == parts["fibfl++"] == "head"
    assert parts["lg-fedavg"] == "extractor"
    assert parts["fedbn"] == "normalisation layers"
    assert parts["frame"] == "head, personal head"
    assert {group(row)[0] for row in METHODS.values()} == {
        "With a server", "Without a server", "Without communication",
    }  # fmt: skip


def test_words_for_several_methods():
    assert spelled_out(["paper", "fedbn", "local"]) == (*PAPER_METHODS, "fedbn")
    assert spelled_out(["all"]) == tuple(METHODS)
    assert set(WORDS) & set(METHODS) == set()
