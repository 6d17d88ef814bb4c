"""FedDBE (Zhang et al., NeurIPS 2023): what biases a client's features is kept in a private vector.

The loss of a batch is ℓ(head(f(x) + b_i), y) + κ/(2K) ‖m - z‖² for K features: b_i is the client's private bias, and
m ← (1 - μ)m + μ · mean f(x), from 0 in each round, is drawn to z, the mean of the features over all clients. z is found
once, in the first round, which is FedAvg's; each client sends its m then. With b_i = 0 and κ = 0 all rounds are FedAvg.

No layer is added: b_i is part of the personal model's first bias, head(f + b) = W(f + b) + c = Wf + (c + Wb). Gradients
are taken there and carried over: that of W gains g bᵀ and that of b is Wᵀg, where g is the gradient of the bias.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from firma.errors import BadInput
from firma.models.split_model import Piece, SplitModel
from firma.training.algorithm import PERSONAL, Algorithm, ClientRound, LocalStep

if TYPE_CHECKING:
    from firma.training.local_step import Memory

_BIAS, _MEAN, _GLOBAL, _KNOWN, _SENT = "bias.own", "bias.mean", "bias.global", "bias.known", "bias.sent"
_NOWHERE = Piece("", (0, 0), 0, 0)


@dataclass(frozen=True)
class FedDbe(Algorithm):
    """`penalty` is κ, `momentum` μ; b_i takes plain steps at the learning rate, and only where the head is trained.

    The paper discards the training of the round that finds z. A client that joins later first sends its own m.
    """

    penalty: float = 50.0
    momentum: float = 1.0
    bias: bool = True
    weight: Piece = _NOWHERE  # (outputs, K) of the head's first layer
    shift: Piece = _NOWHERE  # (outputs,)
    name = "feature debiasing"

    def fitted(self, model: SplitModel) -> Algorithm:
        """With the place of the head's first layer."""
        place, first = "head", model.head
        while type(first) is nn.Sequential and len(first):
            place, first = f"{place}.0", first[0]
        found = {piece.name: piece for piece in model.layout().pieces}
        if type(first) is not nn.Linear or not {f"{place}.weight", f"{place}.bias"} <= found.keys():
            lacking = ""
            if type(first) is nn.Linear:
                lacking = " without a bias" if first.bias is None else " that is frozen"
            raise BadInput(
                f"{self.name} requires a head that starts with a linear layer with a bias, both trainable; "
                f"this one starts with {type(first).__name__}{lacking}; choose another method, or another model"
            )
        return replace(self, weight=found[f"{place}.weight"], shift=found[f"{place}.bias"])

    def memory(self, model: Tensor, shared: int) -> "Memory":
        """The model with its bias, b_i, m, z, and whether z is known."""
        del shared
        empty = torch.zeros(self.weight.shape[1])
        return {PERSONAL: model.clone(), _KNOWN: torch.zeros(1)} | {n: empty.clone() for n in (_BIAS, _MEAN, _GLOBAL)}

    def mixed(self, shared: int) -> Mapping[str, int]:
        """m in a client's first round, then z."""
        del shared
        return {_SENT: self.weight.shape[1]}

    def before_training(self, one: ClientRound) -> None:
        """m = 0."""
        one.memory[_MEAN].zero_()

    def local_step(self, step: LocalStep) -> None:
        """The gradient at the biased model, carried over to the shared one and to b_i."""
        memory, known = step.memory, bool(step.memory[_KNOWN])

        def penalty(features: Tensor) -> Tensor:
            mean = torch.lerp(memory[_MEAN], features.flatten(0, -2).mean(0), self.momentum)
            memory[_MEAN].copy_(mean.detach())
            if not known or not self.penalty:
                return features.new_zeros(())
            return 0.5 * self.penalty * (mean - memory[_GLOBAL]).square().mean()

        gradient = step.gradient(memory[PERSONAL], penalty=penalty)
        slope = gradient[self.shift.start : self.shift.stop]
        change = slope @ self._weight(step.parameters)
        self._weight(gradient).addr_(slope, memory[_BIAS])
        step.update(gradient)
        if self.bias and known:
            memory[_BIAS].sub_(change, alpha=step.rate)
        self._put(step.parameters, memory)

    def after_training(self, one: ClientRound) -> None:
        """Whoever does not know z yet sends its own mean."""
        one.memory[_SENT].copy_(one.memory[_GLOBAL if one.memory[_KNOWN] else _MEAN])

    def after_mixing(self, one: ClientRound) -> None:
        """z stays as it was first heard; the personal model is the mixed one with b_i."""
        if not one.memory[_KNOWN]:
            one.memory[_GLOBAL].copy_(one.memory[_SENT])
            one.memory[_KNOWN].fill_(1.0)
        self._put(one.parameters, one.memory)

    def _weight(self, flat: Tensor) -> Tensor:
        return flat[self.weight.start : self.weight.stop].view(self.weight.shape)

    def _put(self, parameters: Tensor, memory: "Memory") -> None:
        """The personal model: c + W b in place of c."""
        memory[PERSONAL].copy_(parameters)
        memory[PERSONAL][self.shift.start : self.shift.stop] += self._weight(parameters) @ memory[_BIAS]
