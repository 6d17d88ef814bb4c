"""FedNova's normalised averaging (Wang et al., NeurIPS 2020): clients that take more steps do not pull harder.

With Δ_i = y_i - x what client i has moved by in τ_i local steps, and p_i its weight in the average:
x⁺ = x + τ_eff Σ_i p_i Δ_i / τ_i with τ_eff = Σ_i p_i τ_i. With momentum, τ_i counts the lengthened steps, ‖a_i‖₁ in the
paper. If all clients take equally many steps, this is FedAvg.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from firma.training.algorithm import Algorithm, ClientRound

_STEPS = "normalised.steps"


@dataclass(frozen=True)
class FedNova(Algorithm):
    """What travels in place of the parameters is Δ_i / τ_i, and one number beside it, τ_i; each client adds up itself.

    A proximal term or weight decay is not counted in τ_i. A client without a single step sends zeros.
    """

    name = "normalised steps"

    def mixed(self, shared: int) -> Mapping[str, int]:
        """τ_i."""
        del shared
        return {_STEPS: 1}

    def after_training(self, one: ClientRound) -> None:
        """Δ_i / τ_i, and τ_i."""
        steps = one.effective_steps
        one.memory[_STEPS].fill_(steps)
        one.put_shared(one.of_shared(one.parameters - one.start) / max(steps, 1.0))

    def after_mixing(self, one: ClientRound) -> None:
        """x + τ_eff · the mean of Δ_i / τ_i."""
        mean = one.of_shared(one.parameters)
        one.put_shared(one.of_shared(one.start) + one.memory[_STEPS] * mean)
