"""Evidence: what is read, what is grouped with what, what comes back from a file."""

import csv
from io import StringIO

import pytest

from firma import hyper
from firma.settings import hyper_for
from firma.study.evidence import Evidence, Figure, from_rows, gathered, labels, published, shipped, to_csv
from firma.study.grid import Choice, cells
from firma.study.runner import run_cells
from firma.study.store import Study, at_work, read_all


def run(folder, **choice):
    base = {"datasets": ["digits"], "scenarios": ["iid"], "methods": ["fedavg"], "rounds": 1}
    with at_work(folder):
        list(run_cells(cells(Choice(**(base | choice))), folder, lambda _: None, lambda *_: None))
    return read_all(folder)


def test_the_paper_printed_336_figures():
    paper = published()
    assert len(paper.figures) == 336
    assert paper.get(("mnist", "dir-0.1"), "fibfl++").mean == 0.651
    assert paper.savings["mnist", "dir-0.1"] == 95.5


def test_seeds_are_one_figure_and_other_settings_another_body(tmp_path):
    run(tmp_path, seeds=2, presets=["paper"])
    stored = run(tmp_path, seeds=1, presets=["paper"], settings={"rate": 0.1, "tau": 0.35})
    bodies = gathered(Study(stored))
    assert list(bodies) == ["paper rate=0.1 rounds=1", "paper rounds=1"]
    figure = bodies["paper rounds=1"].get(("digits", "iid"), "fedavg")
    assert figure.seeds == 2
    assert figure.deviation is not None
    assert bodies["paper rounds=1"].savings["digits", "iid"] < 5


def test_a_label_is_of_the_configuration_not_of_the_words(tmp_path):
    switches = {"tests": "independent", "quota": "sequential", "min_samples": 64, "initial": "per-client"}
    switches |= {"warmup_shares": "model", "ring_cost": "dot"}
    (stored,) = run(tmp_path, seeds=1, presets=["paper"], settings=switches)
    assert labels(stored.result.config, "fedavg") == ["published rounds=1"]


def test_a_run_belongs_to_every_preset_with_its_numbers(tmp_path):
    (stored,) = run(tmp_path, seeds=1, presets=["paper"])
    settings = dict(hyper_for("fedavg", "recommended", {}))
    same = dict(stored.result.config) | {"hyper": settings}
    assert labels(same, "fedavg") == ["recommended rounds=1"]
    assert labels(same, "fedrep") != labels(same, "fedavg")
    shared = dict(stored.result.config) | {"hyper": hyper_for("fedavg", "paper", {}).model_dump()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hyper, "RECOMMENDED_NUMBERS", hyper.PAPER_NUMBERS)
        assert labels(shared, "fedavg") == ["recommended rounds=1", "paper rounds=1"]
        assert list(gathered(Study([stored]))) == ["paper rounds=1", "recommended rounds=1"]


def test_csv_there_and_back():
    body = Evidence("paper", {("digits", "iid", "fedavg", "gini"): Figure(0.25, 0.5, 3)}, {("digits", "iid"): 12.5})
    text = to_csv({"paper": body}, ["gini"])
    assert from_rows(csv.DictReader(StringIO(text))) == {"paper": body}


def test_shipped_evidence_is_readable_or_absent():
    assert all(body.figures for body in shipped().values())
