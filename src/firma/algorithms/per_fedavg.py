"""Per-FedAvg (Fallah, Mokhtari and Ozdaglar, NeurIPS 2020): a shared model from which one step leads to a good own one.

A local step takes the first half D of the batch to look ahead, w̃ = w - α∇f(w; D), and the second half D' to move:
w ← w - η (I - α∇²f(w; D)) ∇f(w̃; D'). Without the Hessian it is the first-order variant (FO); with it, its product with
g = ∇f(w̃; D') is (∇f(w + δg; D) - ∇f(w - δg; D)) / 2δ (HF). After mixing, each client is tested after one step at rate
α on one batch of its own (`personal = one-step`). With α = 0 it is FedAvg on the second half of each batch.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firma.training.algorithm import Algorithm, LocalStep

if TYPE_CHECKING:
    from torch import Tensor

_SMALLEST = 4  # samples in a batch that is halved: batch normalisation needs two in each half


@dataclass(frozen=True)
class PerFedAvg(Algorithm):
    """`rate` is α. The paper draws three batches per step, independently; D serves the Hessian, too.

    A batch of fewer than four samples is used whole for both halves. The product is of gradients that lie δg apart, so
    with ReLU, whose gradients jump, it is noisy.
    """

    rate: float = 0.01
    hessian: bool = False
    spacing: float = 1e-2  # δ
    name = "a meta step"

    def local_step(self, step: LocalStep) -> None:
        """Look ahead on the first half, move by the gradient there on the second."""
        middle = step.samples // 2
        first, second = (slice(0, middle), slice(middle, None)) if step.samples >= _SMALLEST else (slice(None),) * 2
        ahead = step.parameters - self.rate * step.gradient(rows=first)
        gradient = step.gradient(ahead, second)
        if self.hessian:
            gradient = gradient - self.rate * self._curvature(step, gradient, first)
        step.update(gradient)

    def _curvature(self, step: LocalStep, direction: "Tensor", rows: slice) -> "Tensor":
        """The Hessian's product with a direction (P,), by central differences."""
        above = step.gradient(step.parameters + self.spacing * direction, rows)
        below = step.gradient(step.parameters - self.spacing * direction, rows)
        return (above - below) / (2 * self.spacing)
