"""Ditto's personal models (Li et al., ICML 2021): each client trains a second model, which is pulled to the shared one.

Beside w, which is trained and averaged as in FedAvg, each local step moves the client's own v by the gradient of
F_i(v) + λ/2 ‖v - w^t‖², where w^t is the shared model at the start of the round; v is tested, and never sent.
With λ = 0, v is training alone, on the same batches.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firma.training.algorithm import PERSONAL, Algorithm, LocalStep

if TYPE_CHECKING:
    from torch import Tensor

    from firma.training.local_step import Memory


@dataclass(frozen=True)
class Ditto(Algorithm):
    """`attraction` is λ. v has momentum of its own; the two models cost twice the training of one."""

    attraction: float = 0.1
    name = "a second model"

    def memory(self, model: "Tensor", shared: int) -> "Memory":
        """v, which starts where w does."""
        del shared
        return {PERSONAL: model.clone()}

    def local_step(self, step: LocalStep) -> None:
        """Both models on the same batch; the pull acts on what the phase trains, as the optimiser does."""
        own = step.memory[PERSONAL]
        step.update(step.gradient())
        gradient = step.gradient(own)
        if self.attraction:
            gradient.add_(own - step.start, alpha=self.attraction)
        step.update(gradient, own)
