"""SCAFFOLD (Karimireddy et al., ICML 2020), option II: control variates against client drift.

A client keeps its control c_i; the server's control c travels beside the parameters, so messages are twice as large.
A local step descends along g - c_i + c. After K steps at rate η from x to y_i,

    c_i⁺ = c_i - c + (x - y_i) / (Kη),        c moves by |S|/N times the participants' mean change.

Controls of zero are FedAvg. With momentum, K counts the steps as long as momentum makes them.

    firma run --method "fedavg:weights=equal,algorithm=scaffold:Scaffold"
"""

from collections.abc import Mapping

import torch
from torch import Tensor

import firma


class Scaffold(firma.Algorithm):
    def memory(self, model: Tensor, shared: int) -> dict[str, Tensor]:
        """The client's control: never sent."""
        return {"own": torch.zeros(shared)}

    def mixed(self, shared: int) -> Mapping[str, int]:
        """The server's control: sent with the parameters and averaged like them."""
        return {"control": shared}

    def change_gradient(self, gradients: Tensor, step: firma.Step) -> None:
        step.add_shared(gradients, step.memory["control"] - step.memory["own"])

    def after_training(self, one: firma.ClientRound) -> None:
        own, control = one.memory["own"], one.memory["control"]
        new = own - control + one.of_shared(one.start - one.parameters) / (one.effective_steps * one.rate)
        control.add_(new - own, alpha=one.participants / one.clients)
        own.copy_(new)
