"""A data set from the user's own arrays: checked, labels numbered, a fifth held out if there are no test data."""

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from firma.data.dataset import (
    SPLIT_SEED,
    Array,
    Dataset,
    DatasetSource,
    Integers,
    OnProgress,
    load_dataset,
    no_progress,
    with_classes,
)
from firma.errors import BadInput
from firma.tasks.targets import check_varies, classes_of, matrix, task_of
from firma.tasks.task import TaskChoice, TaskName

if TYPE_CHECKING:
    from torch.utils.data import Dataset as TorchDataset

_EVERY = 256  # items between two calls of on_progress
_TWICE = 64


def from_arrays(
    x: Array,
    y: Array,
    x_test: Array | None = None,
    y_test: Array | None = None,
    client: Array | None = None,
    client_test: Array | None = None,
    name: str = "arrays",
    task: TaskChoice = "auto",
    target_names: tuple[str, ...] = (),
    one_class: bool = False,
) -> Dataset:
    """Inputs (n, …) and labels (n,), integers or text; uint8 is scaled to [0, 1], other numbers are used as they are.

    Targets are (n, K) of 0 and 1 for multi-label, (n,) or (n, d) numbers for regression, and have `target_names`; with
    task auto, what they look like decides.

    Classes are numbered in sorted order. Without test arrays, a fifth of each class is held out, or, with `client`, a
    fifth of each client's rows. Data of a single class are refused unless `one_class` says that others have more.
    """
    x, y = _array(x, "x", name), _array(y, "y", name)
    _check(x, y, client, ("x", "y", "client"), name)
    kind = task_of(y, task, name)
    y = _canonical(y, kind)
    if (x_test is None) != (y_test is None):
        raise BadInput(f"dataset {name}: x_test and y_test must be given together")
    if client_test is not None and (client is None or x_test is None):
        raise BadInput(f"dataset {name}: client_test requires {'client' if client is None else 'x_test'}")
    if x_test is None or y_test is None:
        owned = client is not None
        if owned:
            groups, _ = _numbered(np.asarray(client), "client", name)
        elif kind == "classification":
            groups, _ = _numbered(y, "y", name)
        else:
            groups, _, _ = classes_of(kind, y, y)
        train, test = held_out(groups)
        x, y, x_test, y_test = x[train], y[train], x[test], y[test]
        if client is not None:
            client, client_test = np.asarray(client)[train], np.asarray(client)[test]
    else:
        x_test, y_test = _array(x_test, "x_test", name), _array(y_test, "y_test", name)
        _check(x_test, y_test, client_test, ("x_test", "y_test", "client_test"), name)
        task_of(y_test, kind, name)
        y_test = _canonical(y_test, kind)
        if y.shape[1:] != y_test.shape[1:]:
            raise BadInput(f"dataset {name}: y has {y.shape[1]} columns, but y_test has {y_test.shape[1]}")
    if x.shape[1:] != x_test.shape[1:] or (x.dtype == np.uint8) != (x_test.dtype == np.uint8):
        raise BadInput(
            f"dataset {name}: one input has shape {x.shape[1:]} and dtype {x.dtype} in x, "
            f"but {x_test.shape[1:]} and {x_test.dtype} in x_test; they must match"
        )
    scale = 1 / 255 if x.dtype == np.uint8 else 1.0
    if kind != "classification":
        check_varies(y, kind, name)
        names = target_names or tuple(str(column) for column in range(y.shape[1]))
        dataset = Dataset(name, x, y, x_test, y_test, y.shape[1], scale, labels=names, task=kind)
        return dataset if client is None else _owned(dataset, client, client_test)
    classes, labels = _numbered(_joined(y, y_test), "y", name)
    if not one_class and (classes[: len(y)] == classes[0]).all():
        raise BadInput(
            f"dataset {name}: all training labels are {labels[classes[0]]}; at least two classes are required"
        )
    y_train, y_test = classes[: len(y)], classes[len(y) :]
    dataset = Dataset(name, x, y_train, x_test, y_test, len(labels), scale, labels=labels)
    return dataset if client is None else _owned(dataset, client, client_test)


def _array(values: Array, what: str, name: str) -> Array:
    """The values as an array; lists of rows must be equally long."""
    try:
        return np.asarray(values)
    except ValueError:
        raise BadInput(f"dataset {name}: the rows of {what} differ in shape; all must have the same") from None


def natural(dataset: DatasetSource, client: Array, client_test: Array | None = None) -> Dataset:
    """A data set whose rows belong to clients: `client` holds the client of each training row, (n,) numbers or names.

    `dataset` is what `load_dataset` takes. `client_test` names the clients of the test rows; without it, each client is
    tested on rows that have the class proportions of its training data. Of arrays (x, y) and of a torch Dataset without
    test data, a fifth of each client's rows is held out.
    """
    if is_torch(dataset):
        return from_arrays(*_stacked(dataset, no_progress), None, None, client, client_test, type(dataset).__name__)
    if isinstance(dataset, tuple) and dataset and not is_torch(dataset[0]):
        if len(dataset) not in (2, 4):
            raise BadInput(
                f"natural: a tuple of {len(dataset)} is not supported; pass (x, y) or (x, y, x_test, y_test)"
            )
        x, y, x_test, y_test = (*dataset, None, None)[:4]
        return from_arrays(x, y, x_test, y_test, client, client_test)
    loaded = load_dataset(dataset)
    if isinstance(dataset, str | os.PathLike) and loaded.client_train is not None:
        raise BadInput(f"natural: {loaded.name} already names the client of each row; pass it to firma.run as it is")
    return _owned(loaded, client, client_test)


def _owned(dataset: Dataset, client: Array, client_test: Array | None) -> Dataset:
    """The data set with the client of each training row, and of each test row if that is known too."""
    values = np.asarray(client)
    for what, each, rows in (
        ("client", values, len(dataset.y_train)),
        ("client_test", client_test, len(dataset.y_test)),
    ):
        if each is not None and np.shape(each) != (rows,):
            kind = "training" if what == "client" else "test"
            raise BadInput(
                f"dataset {dataset.name}: {what} has shape {np.shape(each)}; must be ({rows},), one per {kind} row"
            )
    owners, names = _numbered(_joined(values, client_test), "client", dataset.name)
    tests = None if client_test is None else owners[len(values) :]
    return replace(
        dataset, clients=len(names), client_train=owners[: len(values)], client_test=tests, client_names=names
    )


def is_torch(source: object) -> "TypeGuard[TorchDataset[Any]]":
    """Whether this is a torch Dataset; does not import torch, which is loaded already if it is one."""
    torch_data = sys.modules.get("torch.utils.data")
    return torch_data is not None and isinstance(source, torch_data.Dataset)


def from_torch(
    train: "TorchDataset[Any]",
    test: "TorchDataset[Any] | None" = None,
    task: TaskChoice = "auto",
    on_progress: OnProgress = no_progress,
) -> Dataset:
    """Torch data sets of pairs (input, label), read once into memory; one that draws its items at random is refused."""
    x_test, y_test = (None, None) if test is None else _stacked(test, on_progress)
    return from_arrays(*_stacked(train, on_progress), x_test, y_test, name=type(train).__name__, task=task)


def validation(dataset: Dataset) -> Dataset:
    """The data set with a fifth of its training data in place of the test data, for choosing settings."""
    owners = dataset.client_train
    train, held = held_out(with_classes(dataset).y_train if owners is None else owners)
    x, y = dataset.x_train, dataset.y_train
    client, client_held = (None, None) if owners is None else (owners[train], owners[held])
    return replace(
        dataset, x_train=x[train], y_train=y[train], x_test=x[held], y_test=y[held], client_train=client,
        client_test=client_held,
    )  # fmt: skip


def held_out(groups: Integers) -> tuple[Integers, Integers]:
    """Rows to train and rows to test: a fifth of each group, (n,) numbers from 0, and at least one of two or more."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    sizes = np.bincount(groups)
    tests = np.where(sizes > 1, np.maximum(1, np.rint(sizes / 5)), 0)
    rank = np.arange(len(order)) - np.repeat(sizes.cumsum() - sizes, sizes)
    test = rank < np.repeat(tests, sizes)
    return np.sort(order[~test]), np.sort(order[test])


def _stacked(data: "TorchDataset[Any]", on_progress: OnProgress) -> tuple[Array, Array]:
    from torch.utils.data import TensorDataset

    tensors = getattr(data, "tensors", None)  # a TensorDataset holds its tensors, unless a subclass changes its items
    if isinstance(tensors, tuple) and len(tensors) == 2 and type(data).__getitem__ is TensorDataset.__getitem__:
        return tensors[0].numpy(), tensors[1].numpy()
    if not hasattr(data, "__len__"):
        raise BadInput(
            f"dataset: {type(data).__name__} has no length; pass a torch Dataset with __len__ and __getitem__"
        )
    name, rows = type(data).__name__, len(data)
    pairs = []
    try:
        for row in range(rows):
            if row % _EVERY == 0:
                on_progress(f"reading {name}", row, rows)
            pairs.append(_pair(data, row))
        x, y = np.stack([x for x, _ in pairs]), np.stack([y for _, y in pairs])
        again = [_pair(data, row) for row in _spread(rows)]
    except (TypeError, ValueError) as error:
        raise BadInput(f"dataset: {name} must return pairs (input, label), all inputs of one shape ({error})") from None
    on_progress(f"reading {name}", rows, rows)
    for row, (same_x, same_y) in zip(_spread(rows), again, strict=True):
        if not np.array_equal(x[row], same_x, equal_nan=x.dtype.kind == "f") or not np.array_equal(y[row], same_y):
            raise BadInput(
                f"dataset: item {row} of {name} is another one when it is read again, as with random augmentation. The "
                "data are read once, so every epoch would see the same draw; return items without randomness and draw "
                "in the model instead, in a layer that changes its inputs while it trains: see docs/your-data.md"
            )
    return x, y


def _pair(data: "TorchDataset[Any]", row: int) -> tuple[Array, Array]:
    x, y = data[row]
    return np.asarray(x), np.asarray(y)


def _spread(rows: int) -> range:
    """Rows that are read a second time; a draw that changes one item in ten is overlooked once in 700,000 times."""
    return range(0, rows, max(1, rows // _TWICE))


def _canonical(y: Array, task: TaskName) -> Array:
    """Classes as (n,), other targets as (n, K) float32."""
    return y.reshape(len(y)) if task == "classification" else matrix(y)


def _joined(first: Array, second: Array | None) -> Array:
    return first if second is None else np.concatenate([first, np.asarray(second)])


def _numbered(values: Array, what: str, name: str) -> tuple[Integers, tuple[str, ...]]:
    """(n,) values as numbers from 0 in sorted order, and the names of the values."""
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values):
        values = values.astype(str)
    if values.dtype.kind == "f" and (values == np.floor(values)).all() and np.abs(values).max() < 2**53:
        values = values.astype(np.int64)
    if values.dtype.kind not in "iubU":
        odd = next((each for each in values.tolist() if not isinstance(each, str)), values[0])
        raise BadInput(f"dataset {name}: {what} contains {odd!r} ({values.dtype}); must be integers or text")
    found, numbers = np.unique(values, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(value) for value in found)


def _check(x: Array, y: Array, client: Array | None, names: tuple[str, str, str], name: str) -> None:
    """Refuse arrays that a model cannot be trained on."""
    if x.ndim < 2:
        raise BadInput(f"dataset {name}: {names[0]} has shape {x.shape}; must be (samples, features, …)")
    if not x.size:
        raise BadInput(f"dataset {name}: {names[0]} is empty (shape {x.shape})")
    if x.dtype.kind not in "fiub":
        raise BadInput(f"dataset {name}: {names[0]} has dtype {x.dtype}; must be numbers")
    for column, each in ((names[1], y), (names[2], client)):
        if each is None:
            continue
        values = np.asarray(each)
        several = each is y and values.ndim == 2 and len(values) == len(x) and values.shape[1] > 0
        if values.shape != (len(x),) and not several:
            needed = f"({len(x)},), one per row of {names[0]}"
            raise BadInput(f"dataset {name}: {column} has shape {values.shape}; must be {needed}")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values).reshape(len(values), -1).all(axis=1)))
            raise BadInput(f"dataset {name}: {column} is missing (NaN) in row {row}")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        rows = np.flatnonzero(~np.isfinite(x).all(axis=tuple(range(1, x.ndim))))
        raise BadInput(
            f"dataset {name}: {names[0]} contains NaN or infinity in {len(rows)} rows, first in row {rows[0]}"
        )
