"""MOON (Li et al., CVPR 2021): features stay near the global model's and away from the client's previous model's.

The loss gains -μ log(e^{sim(z, z_global)/T} / (e^{sim(z, z_global)/T} + e^{sim(z, z_previous)/T})), where z are the
features of the batch and sim is the cosine. μ = 0 is FedAvg. In the first round, the previous model is the global one.

    firma run --method "fedavg:algorithm=moon:Moon(mu=1.0)"
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

import firma


@dataclass(frozen=True)
class Moon(firma.Algorithm):
    mu: float = 1.0
    temperature: float = 0.5

    def memory(self, model: Tensor, shared: int) -> dict[str, Tensor]:
        return {"previous": model}

    def local_step(self, step: firma.LocalStep) -> None:
        near, far = step.features(at=step.start), step.features(at=step.memory["previous"])

        def penalty(features: Tensor) -> Tensor:
            similar = torch.stack([cosine_similarity(features, each) for each in (near, far)], 1) / self.temperature
            return self.mu * cross_entropy(similar, similar.new_zeros(len(similar), dtype=torch.long))

        step.update(step.gradient(penalty=penalty))

    def after_training(self, one: firma.ClientRound) -> None:
        one.memory["previous"] = one.parameters
