"""FedProx (Li et al., MLSys 2020): local training is pulled back to where the round started.

Each local step descends on the loss plus μ/2 · ‖w - w_start‖². μ = 0 is FedAvg.

    firma run --method "fedavg:algorithm=fedprox:FedProx(mu=0.1)"
"""

from dataclasses import dataclass

from torch import Tensor

import firma


@dataclass(frozen=True)
class FedProx(firma.Algorithm):
    """g ← g + μ (w - w_start)."""

    mu: float = 0.1

    def change_gradient(self, gradients: Tensor, step: firma.Step) -> None:
        gradients.add_(step.parameters - step.start, alpha=self.mu)
