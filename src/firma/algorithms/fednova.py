"""FedNova's normalised averaging (Wang et al., NeurIPS 2020): clients that take more steps do not pull harder.

With Δ_i = y_i - x what client i has moved by in τ_i local steps, and p_i its weight in the average:
x⁺ = x + τ_eff Σ_i p_i Δ_i / τ_i with τ_eff = Σ_i p_i τ_i. With momentum, τ_i counts the lengthened steps, ‖a_i‖₁ in the
paper. If all clients take equally many steps, this is FedAvg.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from firma.training.algorithm import Algorithm, ClientRound

if TYPE_CHECKING:
    from torch import Tensor

    from firma.models.split_model import SplitModel

_STEPS = "normalised.steps"


@dataclass(frozen=True)
class FedNova(Algorithm):
    """What travels in place of the parameters is Δ_i / τ_i, and one number beside it, τ_i; each client adds up itself.

    So all must start the round from the same x. A proximal term or weight decay is not counted in τ_i. A client without
    a single step sends zeros. Shared buffers, such as running statistics, are averaged as they are: the weights
    p_i τ_eff / τ_i do not sum to 1, and a variance could become negative.
    """

    buffers: int = 0  # shared ones, with which the flat model begins
    name = "normalised steps"
    sends_differences = True

    def fitted(self, model: "SplitModel") -> Algorithm:
        """With the number of shared buffers."""
        return replace(self, buffers=model.layout().buffers)

    def mixed(self, shared: int) -> Mapping[str, int]:
        """τ_i."""
        del shared
        return {_STEPS: 1}

    def after_training(self, one: ClientRound) -> None:
        """Δ_i / τ_i, and τ_i."""
        steps = one.effective_steps
        one.memory[_STEPS].fill_(steps)
        trained, moved = one.of_shared(one.parameters), one.of_shared(one.parameters - one.start)
        one.put_shared(self._with_buffers(one, moved / max(steps, 1.0), trained))

    def after_mixing(self, one: ClientRound) -> None:
        """x + τ_eff · the mean of Δ_i / τ_i."""
        mean = one.of_shared(one.parameters)
        one.put_shared(self._with_buffers(one, one.of_shared(one.start) + one.memory[_STEPS] * mean, mean))

    def _with_buffers(self, one: ClientRound, values: "Tensor", buffers: "Tensor") -> "Tensor":
        """(p,) `values`, but for the shared buffers, which are those of `buffers` (p,)."""
        if self.buffers and one.shared[0].start == 0:  # what is shared includes the extractor
            values[: self.buffers] = buffers[: self.buffers]
        return values
