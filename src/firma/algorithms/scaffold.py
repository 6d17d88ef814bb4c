"""SCAFFOLD's control variates against client drift (Karimireddy et al., ICML 2020), option II.

With c_i the client's control and c the server's: g ← g - c_i + c in each of the K local steps at rate η; then
c_i⁺ = c_i - c + (x - y_i) / (Kη), and c moves by |S|/N of the participants' mean change. Controls of zero are FedAvg.
Without a server, those that take no part in a round keep their c, which is then not the mean of the c_i.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from firma.training.algorithm import Algorithm, ClientRound

if TYPE_CHECKING:
    from torch import Tensor

    from firma.training.local_step import Memory, Step

_OWN, _SERVER = "control.own", "control.server"


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """Travels with the parameters: the server's control. With momentum, Kη counts the lengthened steps."""

    name = "control variates"

    def memory(self, model: "Tensor", shared: int) -> "Memory":
        """The client's control, zero at first, for the shared part."""
        del model
        return {_OWN: torch.zeros(shared)}

    def mixed(self, shared: int) -> Mapping[str, int]:
        """The server's control."""
        return {_SERVER: shared}

    def change_gradient(self, gradients: "Tensor", step: "Step") -> None:
        """g ← g - c_i + c."""
        correction = step.memory[_SERVER] - step.memory[_OWN]
        step.add_shared(gradients, correction)

    def after_training(self, one: ClientRound) -> None:
        """The new control, and the server's control moved by this client's share of the change."""
        if not one.steps:
            return
        own, server = one.memory[_OWN], one.memory[_SERVER]
        moved = one.of_shared(one.start - one.parameters) / (one.effective_steps * one.rate)
        new = own - server + moved
        server.add_(new - own, alpha=one.participants / one.clients)
        own.copy_(new)
