"""FedSAM (Qu et al., ICML 2022): sharpness-aware local steps, twice the work of plain ones.

A step descends along the gradient at w + ρ g/‖g‖, where g is the gradient at w. ρ = 0 is FedAvg.

    firma run --method "fedavg:algorithm=fedsam:FedSAM(rho=0.05)"
"""

from dataclasses import dataclass

import firma


@dataclass(frozen=True)
class FedSAM(firma.Algorithm):
    rho: float = 0.05

    def local_step(self, step: firma.LocalStep) -> None:
        g = step.gradient()
        step.update(step.gradient(at=step.parameters + self.rho * g / (g.norm() + 1e-12)))
