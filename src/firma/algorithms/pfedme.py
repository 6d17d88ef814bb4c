"""pFedMe's Moreau envelopes (Dinh, Tran and Nguyen, NeurIPS 2020).

A client descends on F_i(w) = min_θ f_i(θ) + λ/2 ‖θ - w‖², whose gradient is λ(w - θ̂). For each batch, θ starts at w and
takes K steps θ ← θ - ρ(∇f(θ) + λ(θ - w)); then w moves by λ(w - θ) at the learning rate. The last θ is the personal
model. After mixing, w⁺ = (1 - β)w + β · mean. With K = 1, λρ = 1 and β = 1 a step is w - η∇f(w): FedAvg, equal weights.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from firma.training.algorithm import PERSONAL, Algorithm, ClientRound, LocalStep

if TYPE_CHECKING:
    from torch import Tensor

    from firma.training.local_step import Memory


@dataclass(frozen=True)
class PFedMe(Algorithm):
    """`attraction` is λ, `steps` K, `rate` ρ and `server_rate` β.

    θ is found from w anew for each batch; the authors' program starts from the θ of the batch before. Where only some
    clients take part, the others neither train nor send.
    """

    attraction: float = 15.0
    steps: int = 5
    rate: float = 0.01
    server_rate: float = 1.0
    name = "a Moreau envelope"

    def memory(self, model: "Tensor", shared: int) -> "Memory":
        """θ, which starts where w does."""
        del shared
        return {PERSONAL: model.clone()}

    def local_step(self, step: LocalStep) -> None:
        """θ by K steps, then w by the gradient of the envelope, which is 0 for what the phase does not train."""
        near = step.memory[PERSONAL]
        near.copy_(step.parameters)
        for _ in range(self.steps):
            pull = near - step.parameters
            near.sub_(step.gradient(near).add_(pull, alpha=self.attraction), alpha=self.rate)
        step.update((step.parameters - near) * self.attraction)

    def after_mixing(self, one: ClientRound) -> None:
        """From where the round started, β of the way to the mean."""
        if self.server_rate != 1.0:
            start, mean = one.of_shared(one.start), one.of_shared(one.parameters)
            one.put_shared(start + self.server_rate * (mean - start))
