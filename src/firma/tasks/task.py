"""The tasks: what targets look like, which loss trains them, and by which metric clients are compared.

    task             targets               outputs    loss                            main metric
    classification   (n,) 0 … C-1          (n, C)     cross-entropy                   accuracy
    multi-label      (n, K) of 0 and 1     (n, K)     binary cross-entropy, logits    f1_micro
    regression       (n, d) numbers        (n, d)     mean squared error              r2

The main metric is what `Result.history`, the fairness metrics and the accuracy gate use. For multi-label data that is
F1 over all labels together: unlike macro F1 it is defined where a client lacks labels, and unlike exact match it does
not approach 0 as labels become many.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # the command line reads the names of the tasks without loading torch
    from torch import Tensor

TaskName = Literal["classification", "multi-label", "regression"]
TaskChoice = Literal["auto", "classification", "multi-label", "regression"]
MAIN: Mapping[TaskName, str] = {"classification": "accuracy", "multi-label": "f1_micro", "regression": "r2"}
METRICS: Mapping[TaskName, tuple[str, ...]] = {
    "classification": ("loss", "accuracy", "balanced_accuracy", "f1_macro", "roc_auc"),
    "multi-label": ("loss", "f1_micro", "f1_macro", "exact_match", "roc_auc"),
    "regression": ("loss", "r2", "mae", "rmse"),
}
TITLES: Mapping[str, str] = {
    "loss": "loss", "accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "f1_macro": "macro F1",
    "f1_micro": "micro F1", "roc_auc": "ROC AUC", "exact_match": "exact match", "r2": "R²", "mae": "MAE",
    "rmse": "RMSE",
}  # fmt: skip


@dataclass(frozen=True)
class OwnFunction:
    """A function of the user's own, (outputs, targets) to a number, and the name by which results record it."""

    name: str
    function: "Callable[[Tensor, Tensor], Tensor | float]"


@dataclass(frozen=True)
class Task:
    """What is learnt and how it is judged; `loss` and `metrics` are the user's own, if any.

    `train_curves`: the loss and the main metric are also computed on the training data after each round.
    """

    name: TaskName = "classification"
    loss: OwnFunction | None = None
    metrics: tuple[OwnFunction, ...] = ()
    train_curves: bool = False

    @property
    def main(self) -> str:
        """The metric by which clients are compared."""
        return MAIN[self.name]

    @property
    def functions(self) -> "list[Callable[[Tensor, Tensor], Tensor | float]]":
        """The user's own."""
        return [own.function for own in (*((self.loss,) if self.loss is not None else ()), *self.metrics)]


CLASSIFICATION = Task()  # with its usual loss and metrics: the default
