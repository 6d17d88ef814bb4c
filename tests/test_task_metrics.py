"""Metrics of every task: against scikit-learn, over clients, and as results and checkpoints keep them."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

import firma
from firma.comparison import compare
from firma.engines.checkpoint import RunCheckpoints
from firma.engines.simulation import Simulation
from firma.metrics import gini, jain, summarise
from firma.results import from_dict
from firma.tasks.scores import classification, gate_score, multi_label, regression, scores
from firma.tasks.task import CLASSIFICATION, METRICS, Task
from tests.task_data import PRICE, SMALL, X

sk = pytest.importorskip("sklearn.metrics")


@pytest.mark.parametrize(("size", "classes"), [(200, 4), (37, 10), (50, 2), (9, 3), (4, 12)])
@pytest.mark.parametrize("ties", [False, True])
def test_classification_is_scikit_learns(size, classes, ties):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        logits, labels = rng.normal(size=(size, classes)), rng.integers(0, classes, size)
        if ties:
            logits = np.round(logits)
        found = classification(logits, labels)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = powers / powers.sum(axis=1, keepdims=True)
        predicted, present = logits.argmax(axis=1), np.unique(labels)
        areas = [sk.roc_auc_score(labels == each, probabilities[:, each]) for each in present]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes that are predicted and do not occur
            expected = {
                "loss": sk.log_loss(labels, probabilities, labels=np.arange(classes)),
                "accuracy": sk.accuracy_score(labels, predicted),
                "balanced_accuracy": sk.balanced_accuracy_score(labels, predicted),
                "f1_macro": sk.f1_score(labels, predicted, average="macro", zero_division=0),
                "roc_auc": np.mean(areas),
            }
        assert found.keys() == expected.keys() == set(METRICS["classification"])
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, abs=1e-9), name


def test_auc_of_all_classes_is_scikit_learns_one_versus_rest():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(90, 4)), np.arange(90) % 4
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = sk.roc_auc_score(labels, probabilities, multi_class="ovr", average="macro")
    assert classification(logits, labels)["roc_auc"] == pytest.approx(expected, abs=1e-9)


def test_one_class_in_the_test_data():
    found = classification(np.array([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]]), np.array([1, 1, 1]))
    assert np.isnan(found["roc_auc"]), "there is nothing to rank"
    assert found["balanced_accuracy"] == found["accuracy"] == pytest.approx(2 / 3)
    assert found["f1_macro"] == pytest.approx(0.4), "class 0, which was predicted, has F1 0"


@pytest.mark.parametrize("share", [0.5, 0.1, 0.02])
def test_multi_label_is_scikit_learns(share):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        logits, truth = np.round(rng.normal(size=(40, 6)), 1) + 0.05, (rng.random((40, 6)) < share).astype(int)
        found, predicted = multi_label(logits, truth), (logits > 0).astype(int)
        both = [k for k in range(6) if 0 < truth[:, k].sum() < 40]
        expected = {
            "loss": np.mean(
                [sk.log_loss(truth[:, k], 1 / (1 + np.exp(-logits[:, k])), labels=[0, 1]) for k in range(6)]
            ),
            "f1_micro": sk.f1_score(truth, predicted, average="micro"),
            "f1_macro": sk.f1_score(truth, predicted, average="macro", zero_division=np.nan),
            "exact_match": sk.accuracy_score(truth, predicted),
            "roc_auc": np.mean([sk.roc_auc_score(truth[:, k], logits[:, k]) for k in both]),
        }
        assert found.keys() == expected.keys() == set(METRICS["multi-label"])
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, abs=1e-9), name


def test_no_label_there_and_none_predicted():
    found = multi_label(np.full((3, 2), -1.0), np.zeros((3, 2)))
    assert (found["f1_micro"], found["f1_macro"], found["exact_match"]) == (1, 1, 1)
    assert np.isnan(found["roc_auc"])


@pytest.mark.parametrize("columns", [1, 3])
def test_regression_is_scikit_learns(columns):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=(30, columns)) * 7 + 2
        outputs = truth + rng.normal(size=truth.shape) * rng.choice([0.1, 20.0])
        found = regression(outputs, truth)
        expected = {
            "loss": sk.mean_squared_error(truth, outputs), "r2": sk.r2_score(truth, outputs),
            "mae": sk.mean_absolute_error(truth, outputs), "rmse": sk.root_mean_squared_error(truth, outputs),
        }  # fmt: skip
        assert found.keys() == expected.keys() == set(METRICS["regression"])
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, abs=1e-9), name


@pytest.mark.parametrize("off", [0.0, 1.0])
def test_a_constant_target_has_scikit_learns_r2(off):
    truth = np.full((5, 1), 3.0)
    assert regression(truth + off, truth)["r2"] == sk.r2_score(truth, truth + off) == 1 - off
    assert regression(truth[:1] + off, truth[:1])["r2"] == 1 - off, "of one sample scikit-learn has NaN"


def test_outputs_that_are_not_finite_give_no_numbers_and_no_warning():
    for bad in (np.nan, np.inf):
        outputs = torch.full((4, 2), bad)
        assert gate_score(Task("regression"), outputs, torch.zeros(4, 2)) == 0
        for task in ("multi-label", "regression"):
            assert not np.isfinite(scores(Task(task), outputs, torch.eye(4)[:, :2])["loss"])
        assert np.isnan(scores(CLASSIFICATION, outputs, torch.tensor([0, 1, 1, 0]))["roc_auc"])


def test_the_gate_sees_numbers_from_0_to_1():
    truth = torch.tensor([[1.0], [2.0], [4.0]])
    assert gate_score(Task("regression"), truth, truth) == 1
    assert gate_score(Task("regression"), -9 * truth, truth) == 0, "R² is far below 0"
    assert gate_score(Task("multi-label"), truth - 1.5, (truth > 1.5).float()) == 1
    assert gate_score(CLASSIFICATION, torch.eye(3), torch.tensor([0, 1, 0])) == pytest.approx(2 / 3)


def test_fairness_follows_the_main_metric():
    history = np.array([[-2.0, 0.5, 0.9], [-1.0, 0.6, 0.8]])
    found = summarise(history, [1, 1], [1, 1], "r2", {"mae": np.array([[1.0, 2, 3], [4, 5, np.nan]])})
    assert found["mean_r2"] == pytest.approx(0.4 / 3)
    assert found["worst_client"] == -1
    assert found["gini"] == gini(np.array([0, 0.6, 0.8]))
    assert found["jain"] == jain(np.array([0, 0.6, 0.8]))
    assert found["mean_mae"] == 4.5, "of the clients that have it"
    lost = summarise(history - 9, [1, 1], [1, 1], "r2")
    assert lost["rounds_to_half_of_final"] is None, "half of a negative R² would be better than it"
    nothing = summarise(np.full((1, 2), np.nan), [1], [1], "r2", {"roc_auc": np.full((1, 2), np.nan)})
    assert [nothing[name] for name in ("mean_r2", "gini", "worst_client", "mean_roc_auc")] == [None] * 4


def test_metrics_of_classification_keep_their_names():
    result = firma.run("digits", "iid", "fedavg", clients=2, rounds=2, settings=SMALL)
    assert {"mean_accuracy", "worst_client", "gini", "rounds_to_half_of_final"} <= result.metrics.keys()
    assert {"mean_loss", "mean_balanced_accuracy", "mean_f1_macro", "mean_roc_auc"} <= result.metrics.keys()
    assert {name: rows.shape for name, rows in result.curves.items()} == dict.fromkeys(
        ("loss", "balanced_accuracy", "f1_macro", "roc_auc"), (2, 2)
    )


def test_curves_are_saved_and_results_of_earlier_versions_are_read(tmp_path):
    result = firma.run((X, PRICE), "iid", "fedavg", clients=2, rounds=2, task="regression", settings=SMALL)
    holes = replace(result, curves=dict(result.curves) | {"hole": np.array([[np.nan, 1.0], [np.inf, 2.0]])})
    back = firma.load(holes.save(tmp_path / "r"))
    for name, rows in result.curves.items():
        assert_array_equal(back.curves[name], rows)
    assert_array_equal(back.curves["hole"], [[np.nan, 1.0], [np.nan, 2.0]])
    assert back.metrics == from_dict(json.loads(json.dumps(holes.as_dict(), allow_nan=False))).metrics
    assert (back.task, back.main) == ("regression", "r2")
    old = {key: value for key, value in result.as_dict().items() if key != "curves"}
    old["config"] = {key: value for key, value in old["config"].items() if key not in ("task", "loss")}
    earlier = from_dict(old)
    assert (earlier.task, earlier.curves) == ("classification", {})
    assert "mean_accuracy" in earlier.metrics
    assert compare([earlier, earlier])[earlier.method]["mean_accuracy"].mean == earlier.metrics["mean_accuracy"]


def test_a_resumed_run_has_the_curves_of_all_rounds(make_federation, tmp_path):
    federation = make_federation("fibfl", 3, rounds=3)
    whole = [outcome.metrics for outcome in Simulation(federation).rounds()]
    rounds = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds()
    next(rounds)
    rounds.close()
    resumed = list(Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds())
    for expected, outcome in zip(whole, resumed, strict=True):
        for name, values in expected.items():
            assert_array_equal(outcome.metrics[name], values)


def test_checkpoints_of_version_0_2_have_no_curves(make_federation, tmp_path):
    federation = make_federation("fibfl", 3, rounds=2)
    rounds = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds()
    next(rounds)
    rounds.close()
    (facts,) = tmp_path.glob("*/round-*/state.json")
    document = json.loads(facts.read_text())
    for outcome in document["outcomes"]:
        del outcome["metrics"]
    facts.write_text(json.dumps(document))
    first, second = Simulation(federation, checkpoints=RunCheckpoints(tmp_path, federation)).rounds()
    assert not first.metrics
    assert second.metrics
