"""APFL's mixture of a local and a shared model (Deng, Kamani and Mahdavi, 2020).

Each client has w, trained and averaged as in FedAvg, and v of its own; its personal model is v̄ = αv + (1 - α)w. In each
local step w moves by ∇f(w), v by α∇f(v̄), and, if α is learnt, α by ⟨v - w, ∇f(v̄)⟩, clipped to [0, 1]; all three
at the values before the step. With a fixed α = 0, v̄ is FedAvg's model; with α = 1 it is training alone.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from firma.training.algorithm import PERSONAL, Algorithm, ClientRound, LocalStep

if TYPE_CHECKING:
    from torch import Tensor

    from firma.training.local_step import Memory

_OWN, _SHARE = "interpolation.own", "interpolation.share"


@dataclass(frozen=True)
class Apfl(Algorithm):
    """`share` is α in the beginning; it is moved in every step if it is `learnt`."""

    share: float = 0.5
    learnt: bool = True
    name = "interpolation"

    def memory(self, model: "Tensor", shared: int) -> "Memory":
        """v and v̄, which start where w does, and α."""
        del shared
        return {_OWN: model.clone(), PERSONAL: model.clone(), _SHARE: torch.tensor([self.share])}

    def local_step(self, step: LocalStep) -> None:
        """w, v and α by gradients at the values before the step."""
        own, mixture, share = step.memory[_OWN], step.memory[PERSONAL], step.memory[_SHARE]
        shared_gradient, gradient = step.gradient(), step.gradient(mixture)
        slope = torch.dot(own - step.parameters, gradient)
        step.update(shared_gradient)
        step.update(gradient * share, own)
        if self.learnt:
            share.sub_(slope, alpha=step.rate).clamp_(0.0, 1.0)
        torch.lerp(step.parameters, own, share, out=mixture)

    def after_mixing(self, one: ClientRound) -> None:
        """v̄ of the mixed model."""
        torch.lerp(one.parameters, one.memory[_OWN], one.memory[_SHARE], out=one.memory[PERSONAL])
