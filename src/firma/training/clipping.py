"""Gradient clipping by norm (Pascanu et al., ICML 2013)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from firma.training.local_step import Memory, Step


@dataclass(frozen=True, slots=True)
class Clip:
    """Scales a batch's gradient down to `norm` where it is longer: g ← g · min(1, norm / ‖g‖). ∞ is plain training.

    The norm is that of the part of the model which is being trained, all its tensors together.
    """

    norm: float
    name: str = "gradient clipping"

    def memory(self, size: int) -> "Memory":
        """Nothing: every step is clipped by itself."""
        del size
        return {}

    def __call__(self, gradients: "Tensor", step: "Step") -> None:
        """Shorten the gradient, never lengthen it."""
        del step
        length = gradients.norm()
        gradients.mul_((self.norm / length.clamp(min=1e-30)).clamp(max=1.0))
