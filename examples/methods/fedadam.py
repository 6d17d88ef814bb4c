"""FedAdam (Reddi et al., ICLR 2021, Algorithm 2): Adam at the server, the clients' mean change for a gradient.

    Δ = mean of what clients sent - x,    m ← β₁m + (1 - β₁)Δ,    v ← β₂v + (1 - β₂)Δ²,    x ← x + ηm / (√v + τ)

Without bias correction, as in the paper. A large τ with η = τ and β₁ = 0 is nearly FedAvg.

    firma run --method "fedavg:algorithm=fedadam:FedAdam(rate=0.03)"
"""

from dataclasses import dataclass

import torch
from torch import Tensor

import firma


@dataclass(frozen=True)
class FedAdam(firma.Algorithm):
    rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def server_memory(self, shared: int) -> dict[str, Tensor]:
        return {"m": torch.zeros(shared), "v": torch.full((shared,), self.tau**2)}

    def aggregate(self, server: firma.ServerRound) -> Tensor:
        change = server.mean - server.start
        m, v = server.memory["m"], server.memory["v"]
        m.mul_(self.beta1).add_(change, alpha=1 - self.beta1)
        v.mul_(self.beta2).addcmul_(change, change, value=1 - self.beta2)
        return server.start + self.rate * m / (v.sqrt() + self.tau)
