"""The metrics of one client: its outputs and targets to numbers, as scikit-learn defines them.

Undefined values are NaN (ROC AUC where the test data have one class only); a main metric is always defined, unless
outputs are NaN because training diverged.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from firma.tasks.losses import own_value
from firma.tasks.task import Task, TaskName

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Array = NDArray[Any]
_NAN = float("nan")


def scores(task: Task, outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Every metric of a client by name, from outputs (n, K) and targets, (n,) or (n, K)."""
    outputs, targets = outputs.detach().cpu(), targets.detach().cpu()
    with np.errstate(all="ignore"):  # outputs of a diverged model: the result is NaN, and a warning says why
        found = _BY_TASK[task.name](outputs.numpy().astype(np.float64), targets.numpy())
    if task.loss is not None:
        found["loss"] = own_value(task.loss, outputs, targets)
    return found | {own.name: own_value(own, outputs, targets) for own in task.metrics}


def main_score(task: Task, outputs: Tensor, targets: Tensor) -> float:
    """The main metric alone, as `scores` has it."""
    if task.name == "classification":
        return int((outputs.argmax(1) == targets).sum()) / len(targets)
    return scores(Task(task.name), outputs, targets)[task.main]


def gate_score(task: Task, outputs: Tensor, targets: Tensor) -> float:
    """What the accuracy gate compares: the main metric, clipped to [0, 1]; 0 if outputs are NaN."""
    value = main_score(task, outputs, targets)
    return min(max(value, 0.0), 1.0) if value == value else 0.0  # noqa: PLR0124  # NaN is not equal to itself


def classification(logits: Floats, labels: Integers) -> dict[str, float]:
    """Metrics of logits (n, C) for labels (n,).

    Balanced accuracy is the mean recall of the classes in the labels. Macro F1 leaves out classes that are neither in
    the labels nor predicted, ROC AUC (one class against the rest, mean over classes) those not in the labels.
    """
    size, classes = logits.shape
    top = logits.max(axis=1)
    powers = np.exp(logits - top[:, None])
    totals = powers.sum(axis=1)
    loss = float((np.log(totals) + top - logits[np.arange(size), labels]).mean())
    predicted = logits.argmax(axis=1)
    held = np.bincount(labels, minlength=classes)
    right = np.bincount(labels[predicted == labels], minlength=classes)
    claimed = held + np.bincount(predicted, minlength=classes)
    present, known = held > 0, claimed > 0
    chosen = np.flatnonzero(present)
    return {
        "loss": loss,
        "accuracy": int(right.sum()) / size,
        "balanced_accuracy": float((right[present] / held[present]).mean()),
        "f1_macro": float((2 * right[known] / claimed[known]).mean()),
        "roc_auc": _mean_auc((powers / totals[:, None])[:, chosen], labels[:, None] == chosen),
    }


def multi_label(logits: Floats, labels: Array) -> dict[str, float]:
    """Metrics of logits (n, K) for labels (n, K) of 0 and 1; a logit above 0 predicts the label.

    Macro F1 leaves out labels that are neither there nor predicted, ROC AUC those without both a positive and a
    negative sample. With no label there and none predicted, F1 is 1: nothing was there to be found.
    """
    truth, predicted = labels > 0.5, logits > 0
    right = (truth & predicted).sum(axis=0)
    claimed = truth.sum(axis=0) + predicted.sum(axis=0)
    known = claimed > 0
    loss = np.maximum(logits, 0) - logits * truth + np.log1p(np.exp(-np.abs(logits)))
    finite = bool(np.isfinite(logits).all())
    return {
        "loss": float(loss.mean()),
        "f1_micro": float(2 * right.sum() / claimed.sum()) if known.any() else 1.0,
        "f1_macro": float((2 * right[known] / claimed[known]).mean()) if known.any() else 1.0,
        "exact_match": float((truth == predicted).all(axis=1).mean()),
        "roc_auc": _mean_auc(logits, truth) if finite else _NAN,
    }


def regression(outputs: Floats, targets: Array) -> dict[str, float]:
    """Metrics of outputs (n, d) for targets (n, d), each the mean over the d columns; the loss is the squared error.

    R² of a column whose targets are all equal, one sample included, is 1 if they are predicted exactly, else 0.
    """
    truth = targets.astype(np.float64)
    errors = outputs - truth
    square = (errors**2).sum(axis=0)
    spread = ((truth - truth.mean(axis=0)) ** 2).sum(axis=0)
    r2 = np.where(spread > 0, 1 - square / np.where(spread > 0, spread, 1), np.where(square > 0, 0.0, 1.0))
    return {
        "loss": float((errors**2).mean()),
        "r2": float(r2.mean()) if np.isfinite(square).all() else _NAN,
        "mae": float(np.abs(errors).mean()),
        "rmse": float(np.sqrt(square / len(truth)).mean()),
    }


_BY_TASK: Mapping[TaskName, Callable[[Floats, Array], dict[str, float]]] = {
    "classification": classification,
    "multi-label": multi_label,
    "regression": regression,
}


def _mean_auc(values: Floats, positive: NDArray[np.bool_]) -> float:
    """Mean area under the ROC curve over the columns of (n, K) that have both kinds of samples; NaN if none has.

    The area is that of Mann and Whitney: (Σ ranks of positives - m(m+1)/2) / (m (n-m)); equals share their ranks.
    """
    size, counts = len(values), positive.sum(axis=0)
    both = (counts > 0) & (counts < size)
    if not both.any() or not np.isfinite(values).all():
        return _NAN
    values, positive, counts = values[:, both], positive[:, both], counts[both]
    order, columns = np.argsort(values, axis=0), np.arange(len(counts))
    ordered = values[order, columns]
    ranks = np.arange(1.0, size + 1)[:, None]
    equal = ordered[1:] == ordered[:-1]
    if equal.any():
        places = np.broadcast_to(np.arange(size)[:, None], ordered.shape)
        edge = np.ones((1, ordered.shape[1]), dtype=bool)
        first = np.maximum.accumulate(np.where(np.concatenate([edge, ~equal]), places, 0), axis=0)
        last = np.where(np.concatenate([~equal, edge]), places, size)[::-1]
        ranks = (first + np.minimum.accumulate(last, axis=0)[::-1]) / 2 + 1
    sums = (ranks * positive[order, columns]).sum(axis=0)
    return float(((sums - counts * (counts + 1) / 2) / (counts * (size - counts))).mean())
