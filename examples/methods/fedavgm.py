"""FedAvg with server momentum (Hsu et al., 2019): the server keeps a velocity between rounds.

    v ← μv + (mean of what clients sent - x),        x ← x + ηv

μ = 0 and η = 1 is FedAvg.

    firma run --method "fedavg:algorithm=fedavgm:FedAvgM(momentum=0.9)"
"""

from dataclasses import dataclass

import torch
from torch import Tensor

import firma


@dataclass(frozen=True)
class FedAvgM(firma.Algorithm):
    momentum: float = 0.9
    rate: float = 1.0

    def server_memory(self, shared: int) -> dict[str, Tensor]:
        return {"velocity": torch.zeros(shared)}

    def aggregate(self, server: firma.ServerRound) -> Tensor:
        velocity = server.memory["velocity"].mul_(self.momentum).add_(server.mean - server.start)
        return server.start + self.rate * velocity
