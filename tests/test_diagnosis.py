"""Warnings of a run that diverged, that learnt nothing, or whose accuracy flatters."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

import firma
from firma.tasks.diagnosis import at_chance, diverged, flattered, label_balance
from firma.tasks.task import CLASSIFICATION, Task
from tests.task_data import PRICE, SMALL, X


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
