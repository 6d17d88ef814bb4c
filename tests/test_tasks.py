"""Tasks: which one targets call for, metrics against scikit-learn, losses against plain torch, and warnings."""

import json
import re
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

import firma
from firma.comparison import compare
from firma.data.dataset import Dataset, load_dataset, with_classes
from firma.data.partition import default_scenario, label_proportions
from firma.engines.checkpoint import RunCheckpoints, fingerprint
from firma.engines.engine import RoundOutcome
from firma.engines.shipped_code import code_of
from firma.engines.simulation import Simulation
from firma.errors import BadInput
from firma.metrics import gini, jain, summarise
from firma.results import from_dict
from firma.seeds import generator
from firma.sweep.grid import expand
from firma.tasks.diagnosis import at_chance, diverged, flattered, label_balance
from firma.tasks.losses import own_function, own_metrics
from firma.tasks.scores import classification, gate_score, multi_label, regression, scores
from firma.tasks.targets import QUANTILES, bins, classes_of, label_shares, task_of
from firma.tasks.task import CLASSIFICATION, METRICS, OwnFunction, Task
from firma.tracking import curves
from firma.training.local_step import epoch_orders

sk = pytest.importorskip("sklearn.metrics")
RNG = np.random.default_rng(3)
X = RNG.normal(size=(240, 5)).astype(np.float32)
PRICE = (2 * X[:, 0] - X[:, 1] + 0.05 * RNG.normal(size=240)).astype(np.float32)
TAGS = np.stack([X[:, 0] > 0, X[:, 1] > 0.8, X[:, 2] + X[:, 0] > 0], axis=1).astype(np.int64)


# Metrics, against scikit-learn.


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


# Targets.


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (["b", "a", "b"], "classification"),
        ([1, 2, 1], "classification"),
        ([1.0, 2.0, 2.0], "classification"),
        ([True, False, True], "classification"),
        ([[1], [2], [1]], "classification"),
        ([[1, 0], [1, 1], [0, 0]], "multi-label"),
        ([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], "multi-label"),
        ([[True, False], [True, True], [True, True]], "multi-label"),
    ],
)
def test_what_targets_look_like(y, task):
    assert task_of(np.array(y), "auto", "d") == task


@pytest.mark.parametrize("y", [[0.5, 1.5, 2.0], [[0.5], [1.0], [2.0]], [[0.5, 1], [1, 2], [2, 3]]])
def test_numbers_with_fractions_are_a_regression_target_and_it_says_so(y):
    with pytest.warns(UserWarning, match="such as 0.5, so the task is regression; pass --task regression to confirm"):
        assert task_of(np.array(y), "auto", "d") == "regression"
    assert task_of(np.array(y), "regression", "d") == "regression"


def test_one_hot_rows_are_pointed_out():
    with pytest.warns(UserWarning, match=r"exactly one 1; if that is a one-hot class, pass y.argmax"):
        assert task_of(np.eye(3), "auto", "d") == "multi-label"
    assert task_of(np.eye(3), "multi-label", "d") == "multi-label"


@pytest.mark.parametrize(
    ("y", "asked", "words"),
    [
        (np.arange(9) / 2, "classification", "y contains 0.5, which is not a class; it looks like a regression target"),
        (np.eye(3), "classification", r"y has shape \(3, 3\).*multi-label"),
        (np.array(["a", "b"]), "regression", "contains 'a'; for regression it must be numbers"),
        (np.array([0, 1]), "multi-label", r"y has shape \(2,\); for multi-label it must be \(2, K\)"),
        (np.array([[0, 3]]), "multi-label", "y contains 3; for multi-label"),
        (np.array([[0, 3], [4, 5]]), "auto", "for several numbers per row pass --task regression"),
        (
            np.arange(100),
            "auto",
            "100 different integers in 100 rows, which looks like a regression target; pass --task",
        ),
        (np.arange(600) % 61, "auto", "61 different integers in 600 rows, which looks like a regression target"),
    ],
)
def test_targets_that_do_not_fit(y, asked, words):
    with pytest.raises(BadInput, match=words):
        task_of(y, asked, "d")


def test_many_integers_are_classes_if_there_are_rows_for_them_or_if_confirmed():
    assert task_of(np.arange(5000) % 50, "auto", "d") == "classification"
    with pytest.warns(UserWarning, match="73 different integers in 5000 rows; they are used as classes"):
        assert task_of(np.arange(5000) % 73, "auto", "d") == "classification"
    with pytest.warns(UserWarning, match="25 different integers in 100 rows; they are used as classes"):
        task_of(np.arange(100) % 25, "auto", "d")
    assert task_of(np.arange(5000) % 73, "classification", "d") == "classification"
    assert task_of(np.arange(30) % 15, "auto", "d") == "classification", "few values are never suspicious"
    assert task_of(np.arange(100).astype(str), "auto", "d") == "classification", "text is no quantity"


def test_quantiles_stand_for_a_regression_target():
    train = np.random.default_rng(0).normal(size=(500, 2)).astype(np.float32)
    mine, theirs, names = classes_of("regression", train, train[:50] * 9)
    assert len(names) == QUANTILES
    assert_array_equal(np.bincount(mine), np.full(QUANTILES, 50))
    assert theirs.min() == 0, "what lies outside counts with the outermost class"
    assert theirs.max() == QUANTILES - 1
    order = np.argsort(train[:, 0])
    assert (np.diff(mine[order]) >= 0).all()


@pytest.mark.parametrize("values", [[0, 0, 0, 0, 0, 0, 0, 1], [0] * 50 + list(range(50)), [1, 2], [5, 5, 5, 9, 9]])
def test_equal_quantiles_are_merged_and_every_class_occurs(values):
    column = np.array(values, dtype=np.float32)[:, None]
    mine, _, names = classes_of("regression", column, column)
    assert (np.bincount(mine, minlength=len(names)) > 0).all()
    assert len(names) > 1


def test_a_row_of_several_labels_has_the_class_of_its_rarest():
    train = np.array([[1, 1, 0], [1, 0, 0], [1, 0, 1], [1, 0, 1], [0, 0, 0]], dtype=np.float32)
    mine, theirs, names = classes_of("multi-label", train, np.array([[0, 1, 1], [0, 0, 0]], dtype=np.float32))
    assert [names[each] for each in mine] == ["1", "0", "2", "2", "none"]
    assert [names[each] for each in theirs] == ["1", "none"]


def test_a_class_that_only_test_rows_have_counts_with_the_largest():
    train = np.array([[1, 1], [1, 1], [1, 1]], dtype=np.float32)
    mine, theirs, names = classes_of("multi-label", train, np.array([[1, 0], [0, 0]], dtype=np.float32))
    assert len(names) == 1
    assert_array_equal(theirs, mine[:2])


def test_shares_of_labels():
    assert_allclose(label_shares(np.array([[1, 1, 0], [1, 0, 0]])), [2 / 3, 1 / 3, 0])
    assert_allclose(label_shares(np.zeros((2, 4))), np.full(4, 0.25))
    assert_array_equal(bins(np.array([-1.0, 0.0, 0.5, 1.0, 7.0]), (0.0, 1.0)), [0, 1, 1, 2, 2])


def test_targets_of_data_sets():
    prices = load_dataset((X, PRICE), task="regression")
    assert (prices.task, prices.classes, prices.y_train.shape, prices.y_train.dtype) == (
        "regression", 1, (190, 1), np.float32,
    )  # fmt: skip
    assert sorted(np.concatenate([prices.y_train, prices.y_test]).ravel()) == sorted(PRICE)
    tags = load_dataset((X, TAGS, X[:9], TAGS[:9]))
    assert (tags.task, tags.classes, tags.labels) == ("multi-label", 3, ("0", "1", "2"))
    data = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(PRICE))
    assert_array_equal(load_dataset(data, task="regression").y_train, prices.y_train)
    assert with_classes(prices).classes == QUANTILES
    assert load_dataset(prices) is prices
    with pytest.raises(BadInput, match="is a regression data set"):
        load_dataset(prices, task="classification")
    with pytest.raises(BadInput, match="digits is a classification data set"):
        load_dataset("digits", task="multi-label")


def test_targets_from_which_nothing_can_be_learnt():
    with pytest.raises(BadInput, match=r"all training targets are \[2.0\]"):
        load_dataset((X, np.full(240, 2.0)), task="regression")
    with pytest.raises(BadInput, match="no training row has a label"):
        load_dataset((X, np.zeros((240, 2), int)))
    with pytest.raises(BadInput, match="y has 3 columns, but y_test has 2"):
        load_dataset((X, TAGS, X, TAGS[:, :2]))


def table(path, header, *columns):
    path.write_text(header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in zip(*columns, strict=True)))
    return str(path)


def test_targets_in_tables(tmp_path):
    path = table(tmp_path / "t.csv", "a,price,b,cat,dog", X[:, 0], PRICE, X[:, 1], TAGS[:, 0], TAGS[:, 1])
    prices = load_dataset(f"{path}:price", task="regression")
    assert (prices.labels, prices.shape) == (("price",), (4,))
    tags = load_dataset(f"{path}:dog,cat")
    assert (tags.task, tags.labels, tags.shape) == ("multi-label", ("dog", "cat"), (3,))
    assert_array_equal(np.sort(tags.y_train.sum(axis=0) + tags.y_test.sum(axis=0)), np.sort(TAGS[:, 1::-1].sum(axis=0)))
    with pytest.raises(BadInput, match="no column 'bird'"):
        load_dataset(f"{path}:cat,bird")
    with pytest.warns(UserWarning, match="so the task is regression"):
        assert load_dataset(f"{path}:price").task == "regression"


def test_labels_such_as_one_point_zero_stay_text_in_a_table(tmp_path):
    """They were text in version 0.2, and sites of a ring compare labels by name."""
    path = table(tmp_path / "t.csv", "a,label", range(10), ["1.0", "2.0"] * 5)
    assert load_dataset(path).labels == ("1.0", "2.0")
    assert load_dataset(path, task="regression").y_train.max() == 2


# Runs.


def flat_run(task, y, model, **options):
    return firma.run(
        (X, y, X, y), "iid", "local", clients=1, rounds=2, task=task, model=model, seed=4,
        settings={"rate": 0.05, "epochs": 3, "batch": 32}, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("task", "y", "outputs", "loss", "targets"),
    [
        ("regression", PRICE, 1, nn.MSELoss(), torch.tensor(PRICE)[:, None]),
        ("regression", X[:, :2] * 3, 2, nn.MSELoss(), torch.tensor(X[:, :2] * 3)),
        ("multi-label", TAGS, 3, nn.BCEWithLogitsLoss(), torch.tensor(TAGS).float()),
        ("classification", TAGS[:, 0], 2, nn.CrossEntropyLoss(), torch.tensor(TAGS[:, 0])),
    ],
    ids=["one number", "two numbers", "labels", "two classes"],
)
def test_training_is_a_plain_torch_loop(task, y, outputs, loss, targets):
    """One client that shares nothing: two rounds are a loop over the same batches, with torch's own loss and Adam."""
    torch.manual_seed(0)
    model = (nn.Sequential(nn.Linear(5, 8), nn.Tanh()), nn.Linear(8, outputs))
    result = flat_run(task, y, model)
    plain = nn.Sequential(*model)
    order = firma.load_dataset((X, y, X, y), task=task)
    rows = np.random.default_rng(42).permutation(240)  # an iid split of all rows to one client
    assert_array_equal(order.x_train, X)
    x, t = torch.tensor(X)[rows], targets[rows]
    row, hyper = firma.METHODS["local"], result.config["hyper"]
    for number in range(2):
        make = torch.optim.Adam if row.optimiser == "adam" else torch.optim.SGD
        extra = {} if row.optimiser == "adam" else {"momentum": hyper["momentum"]}
        if number == 0 or row.persistent == "no":
            optimiser = make(plain.parameters(), lr=hyper["rate"], **extra)
        for epoch in epoch_orders(240, hyper["epochs"], generator(4, "batches", 0, number)):
            for start in range(0, 240, 32):
                chosen = torch.from_numpy(epoch[start : start + 32])
                optimiser.zero_grad()
                loss(plain(x[chosen]), t[chosen]).backward()
                optimiser.step()
    flat = torch.cat([each.detach().ravel() for each in plain.parameters()])
    torch.testing.assert_close(result.parameters[0], flat, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        expected = float(loss(plain(torch.tensor(X)), targets))
    assert result.curves["loss"][-1, 0] == pytest.approx(expected, rel=1e-4)
    assert result.metrics["mean_loss"] == result.curves["loss"][-1, 0]


SMALL = {"hidden": 16, "embedding": 8, "extractor_epochs": 2}


@pytest.mark.parametrize("method", ["fibfl++", "fedavg", "fibfl"])
@pytest.mark.parametrize(
    ("task", "y"), [("regression", PRICE), ("multi-label", TAGS)], ids=["regression", "multi-label"]
)
def test_every_method_learns(task, y, method):
    result = firma.run((X, y), None, method, clients=4, rounds=7, task=task, settings=SMALL | {"rate": 0.02})
    assert result.history[-1].mean() > max(0.5, result.history[0].mean())
    assert set(result.curves) == set(METRICS[task]) - {result.main}
    assert "mean_accuracy" not in result.metrics
    assert result.metrics[f"mean_{result.main}"] == pytest.approx(result.history[-1].mean())
    assert "do not support" in result.backend
    assert result.config["task"] == task
    assert result.config["scenario"] == "dir-0.5"


@pytest.mark.parametrize(
    ("y", "method"),
    [(TAGS[:, 0], "frame"), (PRICE, "fibfl++"), (TAGS, "fibfl++")],
    ids=["classes", "numbers", "labels"],
)
def test_without_a_name_the_method_follows_the_task(y, method, tmp_path):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = firma.run((X, y), clients=3, rounds=1, scenario="iid")
        np.savez(tmp_path / "own.npz", x=X, y=y)
        (cell,) = expand({"dataset": str(tmp_path / "own.npz"), "rounds": 1}, {}).cells
    assert (result.method, cell.method) == (method, method)
    assert not [each for each in said if "private head" in str(each.message)]


def test_two_classes_work_by_default():
    """The default scenario, skew-1, requires three."""
    y = np.where(X[:, 0] > 0, "yes", "no")
    result = firma.run((X, y), rounds=2, clients=3, settings=SMALL)
    assert result.config["scenario"] == default_scenario(load_dataset((X, y))) == "dir-0.5"
    assert result.history.shape == (2, 3)
    assert default_scenario(load_dataset("digits")) == "skew-1"


def test_two_opt_orders_by_label_shares_and_by_quantiles():
    tags = load_dataset((X, TAGS))
    parts = (np.arange(40), np.arange(40, 190))
    assert_allclose(label_proportions(tags, parts)[0], tags.y_train[:40].sum(axis=0) / tags.y_train[:40].sum())
    prices = load_dataset((X, PRICE), task="regression")
    assert_allclose(label_proportions(prices, parts).sum(axis=1), 1)
    assert label_proportions(prices, parts).shape == (2, QUANTILES)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_train_curves_are_of_the_training_data(task):
    y = PRICE if task == "regression" else (PRICE > 0).astype(int)
    model = (nn.Sequential(nn.Linear(5, 8), nn.ReLU()), nn.Linear(8, 1 if task == "regression" else 2))
    data = Dataset("d", X[:200], y[:200], X[200:], y[200:], 2)
    if task == "regression":
        data = replace(data, y_train=y[:200, None], y_test=y[200:, None], classes=1, task="regression")
    options = {"clients": 1, "rounds": 2, "model": model, "settings": {"rate": 0.01}}
    result = firma.run(data, "iid", "local", train_curves=True, **options)
    trained = result.model(0)
    with torch.no_grad():
        outputs = trained.head(trained.extractor(torch.tensor(X[:200]))).double().numpy()
    score = regression(outputs, y[:200, None]) if task == "regression" else classification(outputs, y[:200])
    assert result.curves["train_loss"][-1, 0] == pytest.approx(score["loss"], rel=1e-5)
    assert result.curves[f"train_{result.main}"][-1, 0] == pytest.approx(score[result.main], rel=1e-5)
    assert not any(name.startswith("train_") for name in firma.run(data, "iid", "local", **options).curves)


def test_progress_and_trackers_name_the_main_metric():
    outcome = RoundOutcome(
        2, np.array([0.5, -0.1]), 8, 1, {"mae": np.array([1.0, np.nan]), "auc": np.full(2, np.nan)}, "r2"
    )
    assert curves(outcome, outcome.main) == {
        "r2/mean": pytest.approx(0.2), "r2/worst": -0.1, "sent/bytes": 8, "mae/mean": 1, "clients/r2_0": 0.5,
        "clients/r2_1": -0.1,
    }  # fmt: skip
    said = []
    firma.run(
        (X, PRICE), "iid", "fedavg", clients=2, rounds=2, task="regression", settings=SMALL,
        on_round=lambda method, seed, outcome: said.append(outcome.main),
    )  # fmt: skip
    assert said == ["r2", "r2"]


# A loss and a metric of the user's own.


def pinball(outputs, targets):
    """Quantile regression at 0.9."""
    errors = targets - outputs
    return torch.maximum(0.9 * errors, -0.1 * errors).mean()


def bias(outputs, targets):
    return float((outputs - targets).mean())


def test_own_loss_and_metric(tmp_path, monkeypatch):
    source = (
        "import torch\n\n\ndef pinball(outputs, targets):\n    errors = targets - outputs\n"
        "    return torch.maximum(0.9 * errors, -0.1 * errors).mean()\n\n\n"
        "def bias(outputs, targets):\n    return float((outputs - targets).mean())\n"
    )
    (tmp_path / "my_losses_of_a_test.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(tmp_path)])
    model = (nn.Sequential(nn.Linear(5, 8), nn.ReLU()), nn.Linear(8, 1))  # which the compiled kernels could train
    named = flat_run(
        "regression", PRICE, model, loss="my_losses_of_a_test:pinball", metric=["my_losses_of_a_test:bias"]
    )  # fmt: skip
    given = flat_run("regression", PRICE, model, loss=pinball, metric=[bias])
    usual = flat_run("regression", PRICE, model)
    assert torch.equal(named.parameters, given.parameters)
    assert not torch.equal(usual.parameters, given.parameters)
    assert named.curves["bias"][-1, 0] == given.curves["bias"][-1, 0] > 0.1, "most targets must lie below"
    assert named.config["loss"] == "my_losses_of_a_test:pinball"
    task = Task("regression", own_function("my_losses_of_a_test:pinball", "loss"))
    assert code_of((), task.functions) == {"my_losses_of_a_test.py": source.encode()}, "what Ray's workers are sent"
    assert "a custom loss" in named.backend
    outputs, targets = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [1.0]])
    assert pinball(outputs, targets) == pytest.approx((0.9 * 2 + 0.1 * 1) / 2)


def test_a_loss_of_ones_own_also_trains_classes_on_any_backend():
    def smooth(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.2)

    options = {"scenario": "iid", "method": "fedavg", "clients": 2, "rounds": 2, "settings": SMALL}
    result = firma.run("digits", loss=smooth, **options)
    assert result.backend.startswith("autograd")
    assert "do not support a custom loss" in result.backend
    assert result.metrics["mean_accuracy"] > 0.3


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere_at_all:f", "module 'nowhere_at_all' cannot be imported"),
        ("math:nothing", "module 'math' has no 'nothing'"),
        ("math:pi", "'pi' is not a function"),
        ("math", "must have the form package.module:function"),
        (3, "must be a function"),
    ],
)
def test_functions_that_cannot_be_found(source, words):
    with pytest.raises(BadInput, match=words):
        own_function(source, "loss")


def test_functions_that_do_not_return_what_they_must():
    model = (nn.Sequential(nn.Linear(5, 8)), nn.Linear(8, 1))
    for wrong, words in (
        (lambda outputs, targets: (outputs - targets) ** 2, r"returned shape \(32, 1\); must return a scalar"),
        (lambda outputs, targets: 1.0, "returned float; must return a scalar tensor"),
        (lambda outputs, targets: (outputs.detach() - targets).mean(), "it has no gradient"),
    ):
        with pytest.raises(BadInput, match=words):
            flat_run("regression", PRICE, model, loss=wrong)
    with pytest.raises(BadInput, match="returned str; must return a number"):
        flat_run("regression", PRICE, model, metric=[lambda outputs, targets: "good"])
    with pytest.raises(BadInput, match="there already is a metric 'bias'"):
        own_metrics([bias, bias], "regression")


# Metrics of a run, stored and read.


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


def test_the_loss_is_part_of_what_identifies_a_run(make_federation):
    plain = make_federation("fibfl", 2)
    own = replace(plain, task=Task(loss=OwnFunction("m:pinball", pinball)))
    other = replace(plain, task=Task(loss=OwnFunction("m:pinball", bias)))
    assert len({fingerprint(plain), fingerprint(own), fingerprint(other)}) == 3
    assert fingerprint(replace(plain, task=Task(train_curves=True))) == fingerprint(plain)


# Warnings.


def test_a_diverged_run_says_so_once():
    with pytest.warns(UserWarning) as said:
        result = firma.run(
            (X, PRICE), "iid", "fedavg", clients=3, rounds=6, task="regression", settings={"rate": 1e9, **SMALL}
        )
    assert [str(each.message) for each in said] == [
        "fedavg, seed 0: training diverged: the loss of client 0 and 2 others is not a finite number after round 1; "
        "try a smaller learning rate, such as --set rate=1e+08, or clip gradients with --set clip=1"
    ]
    assert result.metrics["mean_r2"] is None
    json.dumps(result.as_dict(), allow_nan=False)


def test_a_run_at_chance_says_so_after_the_first_rounds():
    y = np.random.default_rng(0).integers(0, 4, 240)
    with pytest.warns(UserWarning, match="after 5 rounds the mean balanced accuracy is .*have not learnt") as said:
        firma.run((X, y), "iid", "fedavg", clients=2, rounds=6, settings={"rate": 1e3, "schedule": "constant", **SMALL})
    assert len(said) == 1
    with pytest.warns(UserWarning, match="after 5 rounds the mean R² is .*no better than predicting the mean"):
        slow = SMALL | {"rate": 1e-5, "schedule": "constant"}
        firma.run((X, PRICE + 500), "iid", "fedavg", clients=2, rounds=6, task="regression", settings=slow)


def test_when_a_run_is_at_chance():
    held = label_balance([np.array([0, 1, 1, 0]), np.array([2, 2])])
    assert_allclose(held.majority, [0.5, 1])
    assert_allclose(held.classes, [2, 1])
    low, high = np.array([0.5, 1.0]), np.array([0.9, 1.0])
    for balanced, number, warned in ((low, 4, True), (low, 3, False), (low, 5, False), (high, 4, False)):
        found = at_chance(CLASSIFICATION, number, balanced, {"balanced_accuracy": balanced}, held)
        assert bool(found) == warned
    one = label_balance([np.array([2, 2])])
    assert not at_chance(CLASSIFICATION, 4, np.ones(1), {"balanced_accuracy": np.ones(1)}, one), "nothing to tell apart"
    assert at_chance(Task("regression"), 4, np.array([-0.1, 0.05]), {}, None)
    assert not at_chance(Task("regression"), 4, np.array([-0.1, 0.5]), {}, None)
    assert at_chance(Task("multi-label"), 4, np.zeros(2), {}, None)
    assert not diverged(0, {"loss": np.array([1.0, 1e30])}, 0.1)
    assert not diverged(0, {}, 0.1), "a round that an earlier version saved"


def test_accuracy_that_flatters_is_pointed_out():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(400) < 0.08, "ill", "well")  # has nothing to do with the inputs
    x = rng.normal(size=(400, 3)).astype(np.float32)
    with pytest.warns(UserWarning, match=r"accuracy flatters: it is 0\.9.*balanced accuracy is 0\.5"):
        firma.run((x, y), "iid", "fedavg", clients=2, rounds=6, settings={**SMALL, "rate": 0.001})


@pytest.mark.parametrize(
    ("accuracy", "balanced", "warned"),
    [(0.9, 0.5, True), (0.915, 0.5, True), (0.93, 0.5, False), (0.9, 0.85, False), (0.99, 0.97, False)],
)
def test_when_accuracy_flatters(accuracy, balanced, warned):
    held = label_balance([np.array([1] * 9 + [0])])
    assert bool(flattered(accuracy, balanced, held)) == warned
    assert not flattered(0.5, 0.2, label_balance([np.array([0, 0, 1, 2])])), "an accuracy of a half flatters nobody"


# The command line.


def test_the_table_shows_what_fits_the_task(command, tmp_path):
    path = table(tmp_path / "t.csv", "a,b,price", X[:, 0], X[:, 1], PRICE)
    words = ("run", "--dataset", f"{path}:price", "--method", "fedavg", "--clients", 2, "--rounds", 2)
    small = [word for pair in SMALL.items() for word in ("--set", f"{pair[0]}={pair[1]}")]
    code, out, _ = command(*words, *small, "--task", "regression", "--out", tmp_path / "out")
    assert code == 0
    assert "mean R²" in out
    assert "RMSE" in out
    assert "accuracy" not in out
    assert (tmp_path / "out" / "r2.png").stat().st_size > 0
    code, out, _ = command(*words, *small, "--task", "regression", "--train-curves", "--json")
    (run,) = json.loads(out)["results"]
    assert set(run["curves"]) == {"loss", "mae", "rmse", "train_loss", "train_r2"}
    assert np.shape(run["curves"]["mae"]) == (2, 2)
    code, _, err = command(*words, *small, "--task", "classification")
    assert code == 2
    assert "pass --task regression" in err
    code, _, err = command(*words, *small, "--task", "regresion")
    assert code == 2
    assert "task = 'regresion': must be 'auto', 'classification', 'multi-label' or 'regression'" in err


DOCUMENT = (Path(__file__).parent.parent / "docs" / "tasks.md").read_text()


def test_what_the_documentation_shows_runs(command, tmp_path, monkeypatch, capsys):
    python = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    shell = re.findall(r"^firma run .*$", DOCUMENT, re.MULTILINE)
    assert (len(python), len(shell)) == (2, 3)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    exec(compile(python[0], "tasks.md", "exec"), {})
    assert capsys.readouterr().out
    (tmp_path / "losses.py").write_text(python[1])
    table(tmp_path / "houses.csv", "a,b,price", X[:, 0], X[:, 1], PRICE)
    table(tmp_path / "pictures.csv", "a,b,cat,dog,bird", X[:, 0], X[:, 1], *TAGS.T)
    for line in shell:
        code, out, _ = command(*line.split()[1:], "--rounds", 1, "--clients", 2, "--set", "extractor_epochs=1")
        assert code == 0
        assert "worst" in out


def test_the_table_of_multi_label(command, tmp_path):
    path = table(tmp_path / "t.csv", "a,b,cat,dog", X[:, 0], X[:, 1], TAGS[:, 0], TAGS[:, 1])
    code, out, _ = command(
        "run", "--dataset", f"{path}:cat,dog", "--method", "fibfl", "--clients", 2, "--rounds", 2, "--set", "hidden=8"
    )
    assert code == 0
    for column in ("micro", "macro F1", "exact", "ROC AUC", "worst"):
        assert column in out
