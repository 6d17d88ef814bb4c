"""FedProx's proximal term (Li et al., MLSys 2020): local training is pulled back to where the round started."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from firma.training.local_step import Memory, Step


@dataclass(frozen=True, slots=True)
class Proximal:
    """Adds the gradient of μ/2 · ‖w − w_start‖² to each step: g ← g + μ (w − w_start). μ = 0 is plain training."""

    mu: float
    name: str = "a proximal term"

    def memory(self, size: int) -> "Memory":
        """Nothing: the start of the round is known anyway."""
        del size
        return {}

    def __call__(self, gradients: "Tensor", step: "Step") -> None:
        """Pull the part that is being trained towards the start of the round."""
        gradients.add_(step.parameters - step.start, alpha=self.mu)
