"""Runs of every task: against a plain torch loop, what they learn, and what is shown of them."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch import nn

import firma
from firma.data.dataset import Dataset, load_dataset
from firma.data.partition import default_scenario, label_proportions
from firma.engines.engine import RoundOutcome
from firma.seeds import generator
from firma.sweep.grid import expand
from firma.tasks.scores import classification, regression
from firma.tasks.targets import QUANTILES
from firma.tasks.task import METRICS
from firma.tracking import curves
from firma.training.local_step import epoch_orders
from tests.task_data import PRICE, SMALL, TAGS, X, flat_run, table


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


def test_the_table_of_multi_label(command, tmp_path):
    path = table(tmp_path / "t.csv", "a,b,cat,dog", X[:, 0], X[:, 1], TAGS[:, 0], TAGS[:, 1])
    code, out, _ = command(
        "run", "--dataset", f"{path}:cat,dog", "--method", "fibfl", "--clients", 2, "--rounds", 2, "--set", "hidden=8"
    )
    assert code == 0
    for column in ("micro", "macro F1", "exact", "ROC AUC", "worst"):
        assert column in out
