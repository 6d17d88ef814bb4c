"""What is wrong with a run, in a sentence: it diverged, it learns nothing, or its accuracy flatters it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firma.tasks.task import TITLES, Task

Floats = NDArray[np.float64]
FIRST_ROUNDS = 5  # after which a model is expected to be better than chance
_NEAR_CHANCE = 0.02
_MAJORITY = 0.6  # share of the largest class from which an accuracy near it looks good
_NEAR_MAJORITY = 0.02
_FAR_LOWER = 0.1


@dataclass(frozen=True)
class LabelBalance:
    """Of every client's test labels, (N,): the share of the largest class, and the number of classes."""

    majority: Floats
    classes: Floats


def label_balance(labels: Sequence[NDArray[np.int64]]) -> LabelBalance:
    """From every client's test labels (n,)."""
    counts = [np.bincount(each) for each in labels]
    return LabelBalance(
        np.array([count.max() / count.sum() for count in counts]),
        np.array([float((count > 0).sum()) for count in counts]),
    )


def diverged(number: int, metrics: Mapping[str, Floats], rate: float) -> str:
    """A sentence if the loss of some client is not finite after round `number` (from 0), else nothing."""
    losses = metrics.get("loss")
    if losses is None or np.isfinite(losses).all():
        return ""
    bad = np.flatnonzero(~np.isfinite(losses))
    whom = f"client {bad[0]}" + (f" and {len(bad) - 1} others" if len(bad) > 1 else "")
    return (
        f"training diverged: the loss of {whom} is not a finite number after round {number + 1}; try a smaller "
        f"learning rate, such as --set rate={rate / 10:g}, or clip gradients with --set clip=1"
    )


def at_chance(task: Task, number: int, main: Floats, metrics: Mapping[str, Floats], held: LabelBalance | None) -> str:
    """A sentence if, after the first rounds, clients' models are on average no better than a constant answer.

    Classification: the mean balanced accuracy of clients with several classes is that of a constant, 1 / classes.
    Regression: the mean R² is 0 or less. Multi-label: no label is predicted correctly at all.
    """
    if number + 1 != FIRST_ROUNDS or not np.isfinite(main).all():
        return ""
    if task.name == "classification":
        balanced = metrics.get("balanced_accuracy")
        found = _classes_at_chance(main, balanced, held) if balanced is not None and held is not None else ""
    else:
        constant = "predicting the mean" if task.name == "regression" else "predicting no label"
        low = f"the mean {TITLES[task.main]} is {main.mean():.3f}, no better than {constant}"
        found = low if main.mean() <= 0 else ""
    scale = ", or scale targets to a standard deviation of about 1" if task.name == "regression" else ""
    advice = f"try a smaller learning rate, or check that inputs and targets belong together{scale}"
    return f"after {number + 1} rounds {found}; {advice}" if found else ""


def _classes_at_chance(accuracy: Floats, balanced: Floats, held: LabelBalance) -> str:
    several = held.classes > 1
    if not several.any():
        return ""
    majority = float(held.majority[several].mean())
    if majority >= _MAJORITY and abs(accuracy[several].mean() - majority) <= _NEAR_MAJORITY:
        return ""  # the answer is the most common class: `flattered` says so if it stays like that
    chance, reached = float((1 / held.classes[several]).mean()), float(balanced[several].mean())
    if reached > chance + _NEAR_CHANCE:
        return ""
    return (
        f"the mean balanced accuracy is {reached:.3f}, and a constant answer has {chance:.3f}: the models have not "
        "learnt to tell classes apart"
    )


def flattered(accuracy: float, balanced: float, held: LabelBalance) -> str:
    """A sentence if the mean accuracy is about the share of the largest class, and the balanced accuracy far lower."""
    majority = float(held.majority.mean())
    if majority < _MAJORITY or accuracy > majority + _NEAR_MAJORITY or balanced > accuracy - _FAR_LOWER:
        return ""
    return (
        f"accuracy flatters: it is {accuracy:.3f}, but always answering with a client's most common class has "
        f"{majority:.3f}; the data are imbalanced and the balanced accuracy is {balanced:.3f}"
    )
