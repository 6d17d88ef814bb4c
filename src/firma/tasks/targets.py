"""Targets as users have them: which task they call for, whether they fit the task that was asked for, and the classes
that scenarios, 2-opt and matched tests use where targets are not classes."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firma.errors import BadInput
from firma.tasks.task import TaskChoice, TaskName

Array = NDArray[Any]
Floats32 = NDArray[np.float32]
Integers = NDArray[np.int64]
QUANTILES = 10  # classes that a regression target is cut into
_MANY = 50  # different integers above which a target may be a quantity
_FEW = 20  # … and up to which it never is


def task_of(y: Array, asked: TaskChoice, name: str) -> TaskName:
    """The task of targets (n,) or (n, K): the one that was asked for, if they fit it, else the one they look like.

    Text and integers are classes, other numbers a regression target, (n, K) of 0 and 1 labels.
    """
    found = _looks_like(y, name) if asked == "auto" else asked
    if found == "classification":
        _check_classes(y, name, confirmed=asked != "auto")
    elif found == "multi-label":
        _check_labels(y, name)
    else:
        _check_numbers(y, name)
    if asked == "auto" and found == "regression":
        found_in = f"y contains numbers such as {_odd(y)}"
        _notice(f"dataset {name}: {found_in}, so the task is regression; pass --task regression to confirm")
    if asked == "auto" and found == "multi-label" and (y.sum(axis=1) == 1).all():
        _notice(
            f"dataset {name}: each row of y contains exactly one 1; if that is a one-hot class, pass y.argmax(axis=1); "
            "for several labels per row, pass --task multi-label to confirm"
        )
    return found


def matrix(y: Array) -> Floats32:
    """Targets of multi-label and regression as a model is trained on them: (n, K) float32."""
    return np.ascontiguousarray(y.reshape(len(y), -1), dtype=np.float32)


def check_varies(y: Floats32, task: TaskName, name: str) -> None:
    """Refuse training targets from which nothing can be learnt."""
    if task == "regression" and (y == y[0]).all():
        raise BadInput(f"dataset {name}: all training targets are {y[0].tolist()}; they must differ")
    if task == "multi-label" and not y.any():
        raise BadInput(f"dataset {name}: no training row has a label; y must contain 1 where a label applies")


def classes_of(task: TaskName, train: Floats32, test: Floats32) -> tuple[Integers, Integers, tuple[str, ...]]:
    """Classes that stand for targets where rows are dealt to clients: of the training rows, the test rows, their names.

    A regression target is cut at the deciles of its training values (the first column, if there are several); equal
    deciles are merged. A row of several labels has the class of its rarest label in the training data, rows without
    labels have one of their own. Every class occurs in the training data.
    """
    return _by_quantile(train[:, 0], test[:, 0]) if task == "regression" else _by_rarest(train, test)


def bins(values: Array, edges: Array | tuple[float, ...]) -> Integers:
    """(n,) numbers of the intervals between sorted edges; a value on an edge belongs to the upper interval."""
    places = np.searchsorted(np.asarray(edges, dtype=np.float64), values.astype(np.float64), side="right")
    return places.astype(np.int64)


def label_shares(labels: Array) -> NDArray[np.float64]:
    """(K,) each label's share of all labels that rows (n, K) have; equal shares if they have none."""
    counts = labels.sum(axis=0, dtype=np.float64)
    total = float(counts.sum())
    return np.asarray(counts / total) if total > 0 else np.full(labels.shape[1], 1 / labels.shape[1])


def _looks_like(y: Array, name: str) -> TaskName:
    if y.ndim == 1 or y.shape[1] == 1:
        whole = y.dtype.kind != "f" or bool((y == np.floor(y)).all())
        return "classification" if whole else "regression"
    if y.dtype.kind in "biuf" and np.isin(y, (0, 1)).all():
        return "multi-label"
    if y.dtype.kind == "f" and (y != np.floor(y)).any():
        return "regression"
    raise BadInput(
        f"dataset {name}: y has shape {y.shape} and contains {_odd(y, whole=True)!r}; several labels per row must be 0 "
        "and 1 only; for several numbers per row pass --task regression"
    )


def _check_classes(y: Array, name: str, confirmed: bool) -> None:
    """Refuse targets that are not classes, and integers that look like a quantity unless they were confirmed."""
    if y.ndim > 1 and y.shape[1] > 1:
        raise BadInput(
            f"dataset {name}: y has shape {y.shape}; for classification it must be ({len(y)},), one class per row; "
            "pass --task multi-label or --task regression, or y.argmax(axis=1) if it is one-hot"
        )
    if y.dtype.kind == "f" and (y != np.floor(y)).any():
        raise BadInput(
            f"dataset {name}: y contains {_odd(y)}, which is not a class; it looks like a regression target: pass "
            "--task regression"
        )
    if confirmed or y.dtype.kind not in "iuf":
        return
    values = len(np.unique(y))
    rows = f"y contains {values} different integers in {len(y)} rows"
    if values > _FEW and (values > len(y) / 2 or (values > _MANY and values > len(y) / 10)):
        raise BadInput(
            f"dataset {name}: {rows}, which looks like a regression target; pass --task regression, or --task "
            "classification if they are classes"
        )
    if values > max(_FEW, len(y) / 10) or values > _MANY:
        _notice(
            f"dataset {name}: {rows}; they are used as classes: pass --task classification to confirm, or --task "
            "regression if they are quantities"
        )


def _check_labels(y: Array, name: str) -> None:
    if y.ndim != 2:
        raise BadInput(
            f"dataset {name}: y has shape {y.shape}; for multi-label it must be ({len(y)}, K): a 1 for each of the K "
            "labels that applies, else 0"
        )
    if y.dtype.kind not in "biuf" or not np.isin(y, (0, 1)).all():
        raise BadInput(
            f"dataset {name}: y contains {_odd(y, whole=True)!r}; for multi-label it must contain 0 and 1 only"
        )


def _check_numbers(y: Array, name: str) -> None:
    if y.dtype.kind not in "iufb":
        raise BadInput(
            f"dataset {name}: y contains {y.ravel().tolist()[0]!r}; for regression it must be numbers; pass --task "
            "classification if these are classes"
        )


def _odd(y: Array, whole: bool = False) -> object:
    """The first value that is not an integer (or, if `whole`, that is neither 0 nor 1), else the first value."""
    flat = y.ravel()
    strange = ~np.isin(flat, (0, 1)) if whole or flat.dtype.kind != "f" else flat != np.floor(flat)
    return flat[int(np.argmax(strange))].item()


def _notice(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=2)


def _by_quantile(train: Floats32, test: Floats32) -> tuple[Integers, Integers, tuple[str, ...]]:
    # Edges are values of the training data, so that no class is empty; nothing lies below the smallest value.
    inner = np.quantile(train.astype(np.float64), np.arange(1, QUANTILES) / QUANTILES, method="higher")
    edges = np.unique(inner[inner > train.min()])
    names = tuple(
        f"{'' if low is None else f'{low:.4g} ≤ '}y{'' if high is None else f' < {high:.4g}'}"
        for low, high in zip([None, *edges], [*edges, None], strict=True)
    )
    return bins(train, edges), bins(test, edges), names


def _by_rarest(train: Floats32, test: Floats32) -> tuple[Integers, Integers, tuple[str, ...]]:
    counts = train.sum(axis=0)
    order = np.argsort(counts, kind="stable")  # rarest first
    none = train.shape[1]

    def rarest(labels: Floats32) -> Integers:
        first = np.argmax(labels[:, order] > 0, axis=1)
        return np.asarray(np.where(labels.any(axis=1), order[first], none), dtype=np.int64)

    mine, theirs = rarest(train), rarest(test)
    found, numbers = np.unique(mine, return_inverse=True)
    # A test row may be of a class that no training row has: it counts as one of the largest class.
    largest = int(np.bincount(numbers).argmax())
    place = np.full(none + 1, largest, dtype=np.int64)
    place[found] = np.arange(len(found))
    names = tuple("none" if each == none else str(each) for each in found)
    return numbers.astype(np.int64), place[theirs], names
