"""Metrics of a run, from `history`, the (rounds, clients) test accuracy; rounds are counted from 1.

Where the task is not classification, the history is that of the task's main metric; see `firma.tasks.task`.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Accuracies = NDArray[np.float64]


def gini(values: Accuracies) -> float:
    """Gini coefficient in [0, 1]: mean absolute difference over twice the mean; 0 if all are equal or zero."""
    ordered = np.sort(values)
    total = ordered.sum()
    if total <= 0:
        return 0.0
    ranks = 2 * np.arange(1, len(ordered) + 1) - len(ordered) - 1
    return max(0.0, float((ranks * ordered).sum() / (len(ordered) * total)))


def jain(values: Accuracies) -> float:
    """Jain's fairness index in [1/N, 1]; 1 if all are equal or zero."""
    square = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * square) if square > 0 else 1.0


def worst_fifth(values: Accuracies) -> float:
    """Mean of the worst fifth of the clients, at least one."""
    return float(np.sort(values)[: max(1, len(values) // 5)].mean())


def rounds_to(means: Accuracies, level: float) -> int | None:
    """The first round whose mean accuracy is at least `level`, or None; None for a level below 0, a negative R²."""
    if level < 0:
        return None
    reached = np.flatnonzero(means >= level)
    return int(reached[0]) + 1 if len(reached) else None


def plateau_std(means: Accuracies) -> float:
    """Standard deviation of the mean accuracy over the final half of the rounds."""
    return float(means[len(means) // 2 :].std())


def largest_drop(means: Accuracies) -> float:
    """The largest drop of the mean accuracy from one round to the next; 0 if it never dropped."""
    return max(0.0, float(-np.diff(means).min())) if len(means) > 1 else 0.0


def summarise(
    history: Accuracies, sent_bytes: Sequence[int], messages: Sequence[int], main: str = "accuracy",
    curves: Mapping[str, Accuracies] | None = None,
) -> dict[str, float | int | None]:  # fmt: skip
    """All metrics of one run; traffic is the mean per round, summed over clients.

    `main` is the name of the metric in `history`. Gini and Jain use it clipped to [0, 1], for R² may be negative. Of
    every other metric, (rounds, clients) in `curves`, there is the mean over the clients that have it in the last
    round. A value that is not a finite number is None.
    """
    means, final = history.mean(axis=1), history[-1]
    positive, finite = np.clip(final, 0.0, 1.0), bool(np.isfinite(final).all())
    found: dict[str, float | int | None] = {
        f"mean_{main}": float(final.mean()),
        "worst_client": float(final.min()),
        "worst_fifth": worst_fifth(final),
        "gini": gini(positive) if finite else None,
        "jain": jain(positive) if finite else None,
        "rounds_to_50": rounds_to(means, 0.5),
        "rounds_to_half_of_final": rounds_to(means, float(means[-1]) / 2),
        "plateau_std": plateau_std(means),
        "worst_round": float(means.min()),
        "largest_drop": largest_drop(means),
        "bytes_per_round": float(np.mean(sent_bytes)) if len(sent_bytes) else None,  # not known of a single site
        "messages_per_round": float(np.mean(messages)) if len(messages) else None,
    }
    for name, values in (curves or {}).items():
        known = values[-1][~np.isnan(values[-1])]
        found[f"mean_{name}"] = float(known.mean()) if len(known) else None
    return {name: value if value is None or math.isfinite(value) else None for name, value in found.items()}


def honest_metrics(history: Accuracies, dishonest: Sequence[int], main: str = "accuracy") -> dict[str, float | None]:
    """Mean and worst of the honest clients after the last round; nothing if all are honest."""
    if not len(dishonest):
        return {}
    final = np.delete(history[-1], list(dishonest))
    found = {f"honest_mean_{main}": float(final.mean()), "honest_worst_client": float(final.min())}
    return {name: value if math.isfinite(value) else None for name, value in found.items()}
