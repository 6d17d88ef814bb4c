"""Targets: the task that they call for, those that do not fit, and the classes that stand for them."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from firma.data.dataset import load_dataset, with_classes
from firma.errors import BadInput
from firma.tasks.targets import QUANTILES, bins, classes_of, label_shares, task_of
from tests.task_data import PRICE, TAGS, X, table


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
