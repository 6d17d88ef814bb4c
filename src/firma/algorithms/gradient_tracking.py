"""Gradient tracking with local steps, K-GT (Liu, Lin, Koloskova and Stich, Optimization Methods and Software 2024).

Client i corrects each gradient by c_i: y ← y - η(g + c_i). After K steps z_i = (x_i - y_i) / (Kη) is the mean of its
moves. y and z are mixed by the row of the mixing matrix W: x_i⁺ = Σ_j w_ij y_j and c_i⁺ = c_i - z_i + Σ_j w_ij z_j,
so z tracks the mean gradient of all clients, and Σ_i c_i = 0 as long as W is doubly stochastic. With one step per round
it is gradient tracking (DIGing). Where everybody mixes with everybody in equal shares, it is SCAFFOLD with full
participation, c_i being the difference c - c_i of its controls; without corrections it is plain gossip (D-PSGD).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from firma.training.algorithm import Algorithm, ClientRound

if TYPE_CHECKING:
    from torch import Tensor

    from firma.training.local_step import Memory, Step

_CORRECTION, _SENT, _TRACKED = "tracking.correction", "tracking.sent", "tracking.mean"


@dataclass(frozen=True)
class GradientTracking(Algorithm):
    """Travels with the parameters: z, of the same size. With momentum, Kη counts the lengthened steps.

    Corrections start at zero, and the paper's server rate is 1.
    """

    name = "tracked gradients"

    def memory(self, model: "Tensor", shared: int) -> "Memory":
        """The correction, and what the client sent of z, for the shared part."""
        del model
        return {_CORRECTION: torch.zeros(shared), _SENT: torch.zeros(shared)}

    def mixed(self, shared: int) -> Mapping[str, int]:
        """z."""
        return {_TRACKED: shared}

    def change_gradient(self, gradients: "Tensor", step: "Step") -> None:
        """g ← g + c_i."""
        step.add_shared(gradients, step.memory[_CORRECTION])

    def after_training(self, one: ClientRound) -> None:
        """z_i; 0 for a client that took no step."""
        moved = one.of_shared(one.start - one.parameters) / (max(one.effective_steps, 1.0) * one.rate)
        one.memory[_SENT].copy_(moved)
        one.memory[_TRACKED].copy_(moved)

    def after_mixing(self, one: ClientRound) -> None:
        """c_i moves by what the mixture of z differs from the client's own, if its own was part of it."""
        if one.took_part:
            one.memory[_CORRECTION].add_(one.memory[_TRACKED] - one.memory[_SENT])
