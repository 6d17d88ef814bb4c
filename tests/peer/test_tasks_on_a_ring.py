"""Regression and multi-label on a real ring: what the simulation gives, ring files that say so, and result.json."""

import hashlib
import json

import numpy as np
import pytest
import torch

import firma
from firma.data.dataset import Dataset
from firma.data.partition import deal, label_proportions
from firma.errors import BadInput
from firma.peer.ring_file import checked, read_ring, ring_toml
from firma.peer.runtime.local_training import load_own, noisy_proportions, proportions
from firma.settings import split_for
from firma.tasks.targets import classes_of

from .test_node import run_threads

RNG = np.random.default_rng(5)
X = RNG.normal(size=(300, 6)).astype(np.float32)
PRICE = (3 * X[:, 0] - X[:, 1])[:, None].astype(np.float32)
TAGS = (X[:, :3] > np.array([0.0, 0.5, 1.0])).astype(np.float32)
SETTINGS = {"schedule": "constant", "extractor_epochs": 2, "hidden": 16, "embedding": 8, "rate": 0.01}


def dataset_of(task):
    y = PRICE if task == "regression" else TAGS
    return Dataset("d", X[:240], y[:240], X[240:], y[240:], y.shape[1], task=task)


def edges_of(data):
    """The deciles by which the simulation cuts the target, as its classes are named by them."""
    return sorted({float(data.y_train[classes_of("regression", data.y_train, data.y_test)[0] == each].min())
                   for each in range(1, 10)})  # fmt: skip


def ring_of(make_ring, task, **changes):
    """A ring of four on the simulation's own split of the data."""
    data = dataset_of(task)
    names = ["price"] if task == "regression" else ["a", "b", "c"]
    agreed = {"shape": [6], "labels": names, "kind": task}
    if task == "regression":
        agreed["edges"] = edges_of(data)
    made = make_ring("fibfl++", 4, 7, task=agreed, set=SETTINGS, **changes)
    parts = deal(data, "dir-0.5", 4, split_for("recommended", {}), 0)
    for number in range(4):
        mine, theirs = parts.train[number], parts.test[number]
        np.savez(made.data(number), x=data.x_train[mine], y=data.y_train[mine],
                 x_test=data.x_test[theirs], y_test=data.y_test[theirs])  # fmt: skip
    return made, data


@pytest.mark.parametrize("task", ["regression", "multi-label"])
def test_peers_give_what_the_simulation_gives(make_ring, task):
    made, data = ring_of(make_ring, task)
    outcomes = run_threads(made)
    result = firma.run(data, "dir-0.5", "fibfl++", clients=4, rounds=7, settings=SETTINGS)
    assert not [error for error in outcomes.values() if isinstance(error, BaseException)], outcomes
    for number, outcome in outcomes.items():
        np.testing.assert_allclose(outcome.history, result.history[:, number], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(outcome.parameters, result.parameters[number], rtol=1e-3, atol=1e-4)
        assert outcome.order == tuple(made.ring.names[n] for n in result.order), "2-opt had the same proportions"
        for name, rows in result.curves.items():
            np.testing.assert_allclose(outcome.metrics[name], rows[-1, number], rtol=1e-2, atol=1e-3)
    assert result.history[-1].mean() > 0.2, "something was learnt"
    last = [json.loads(line) for line in (made.state(0) / "log.jsonl").read_text().splitlines()]
    reported = [line for line in last if line["event"] == "round"][-1]
    assert reported[result.main] == outcomes[0].history[-1]


def test_ring_files_of_version_0_2_keep_their_digest(make_ring):
    made = make_ring("fibfl", 2, 2)
    plain = made.ring.model_dump(mode="json", exclude={"flower", "continues", "insiders", "summary"})
    plain["task"] = {name: plain["task"][name] for name in ("shape", "labels", "scale", "model")}
    assert made.ring.digest == hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).digest()
    assert "kind" not in made.path.read_text()


def test_a_ring_file_names_its_task(make_ring):
    made, _ = ring_of(make_ring, "regression")
    again = read_ring(made.path)
    assert (again.task.kind, len(again.task.edges), again.task.shares) == ("regression", 9, 10)
    other = checked(made.ring.model_dump(mode="json") | {"task": made.ring.task.stable() | {"edges": [0.0]}})
    assert again.digest == made.ring.digest != other.digest
    assert ring_toml(again) == made.path.read_text()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"kind": "regression", "labels": ["price"]}, "proportions, which for regression require edges"),
        ({"kind": "regression", "labels": ["price"], "edges": [2, 1]}, "edges = .*: must increase"),
        ({"kind": "classification", "labels": ["only"]}, "must be at least two"),
        ({"kind": "classification", "labels": ["a", "b"], "edges": [1]}, "require kind = 'regression'"),
        ({"kind": "ranking", "labels": ["a", "b"]}, "'classification', 'multi-label' or 'regression'"),
    ],
)
def test_ring_files_that_make_no_sense(make_ring, task, words):
    values = make_ring("fibfl++", 2, 2).ring.model_dump(mode="json")
    with pytest.raises(BadInput, match=words):
        checked(values | {"task": {"shape": [6]} | task})


def test_without_proportions_no_edges_are_needed(make_ring):
    values = make_ring("fibfl++", 2, 2).ring.model_dump(mode="json")
    task = {"shape": [6], "kind": "regression", "labels": ["price"]}
    assert checked(values | {"task": task, "proportions": "none"}).task.kind == "regression"
    assert checked(values | {"task": task, "method": "fibfl"}).task.kind == "regression"


def test_a_site_must_have_the_targets_that_were_agreed(make_ring, tmp_path):
    task = ring_of(make_ring, "multi-label")[0].ring.task
    np.savez(tmp_path / "two.npz", x=X, y=TAGS[:, :2])
    with pytest.raises(BadInput, match="y has 2 columns, but the ring file has 3 labels: a, b, c"):
        load_own(str(tmp_path / "two.npz"), task)
    np.savez(tmp_path / "classes.npz", x=X, y=np.arange(300) % 3)
    with pytest.raises(BadInput, match="for multi-label it must be"):
        load_own(str(tmp_path / "classes.npz"), task)


def test_a_table_is_read_by_the_names_in_the_ring_file(make_ring, tmp_path):
    task = ring_of(make_ring, "multi-label")[0].ring.task
    rows = [",".join(f"{value:.6g}" for value in (*x, *tags[::-1])) for x, tags in zip(X, TAGS, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["x0,x1,x2,x3,x4,x5,c,b,a", *rows]))
    own = load_own(str(tmp_path / "t.csv"), task)
    assert own.labels == ("a", "b", "c")
    np.testing.assert_array_equal(own.y_train.sum(axis=0) + own.y_test.sum(axis=0), TAGS.sum(axis=0))


def test_what_members_publish_is_what_the_simulation_orders_by():
    for task in ("regression", "multi-label"):
        data = dataset_of(task)
        edges = tuple(edges_of(data)) if task == "regression" else ()
        everything = (np.arange(240),)
        np.testing.assert_allclose(proportions(data, edges), label_proportions(data, everything)[0], atol=1e-12)


def test_noise_grows_with_the_labels_that_one_sample_may_have():
    """Adding a sample may change every one of K counts by one, so the noise must be K times that of one class."""
    many = Dataset("d", X, np.ones((300, 40), np.float32), X, np.ones((300, 40), np.float32), 40, task="multi-label")
    one = Dataset("d", X, np.arange(300) % 40, X, np.arange(300) % 40, 40)
    scaled = np.mean([np.abs(np.array(noisy_proportions(many, 1.0)) * 12000 - 300).mean() for _ in range(40)])
    plain = np.mean([np.abs(np.array(noisy_proportions(one, 1.0)) * 300 - 7.5).mean() for _ in range(40)])
    assert scaled > 20 * plain
