"""The hooks of a method: what a client does beside plain training and mixing, one class per idea.

A round of a client is: `before_training`, local steps, `after_training`, mixing of what is shared, `after_mixing`. An
algorithm overrides the hooks that it needs; all others do nothing, and one that overrides none is plain training.
Everything is flat: parameters (P,) with the extractor first, and memory, named tensors that a client keeps between
rounds and that checkpoints save without knowing what they are.

Algorithms of your own are used by `replace(firma.METHODS["fedavg"], name="mine", algorithm=Mine())`, or on the command
line by `--method "fedavg:algorithm=my_module:Mine"`.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from firma.models.split_model import SplitModel
    from firma.training.local_step import Memory, Step

PERSONAL = "personal"  # in a client's memory: the (P,) model that is tested and saved instead of the mixed one
START = "round.start"  # in a client's memory, if its algorithm has hooks: (P,) parameters at the start of the round


@dataclass(frozen=True, slots=True)
class ClientRound:
    """One client at one point of a round; `parameters` and `memory` are changed in place.

    In `after_mixing`, `start` is what the round started from also for a client that took no part but was given the
    server's model.
    """

    client: int
    number: int  # of the round, from 0
    parameters: Tensor  # (P,)
    start: Tensor  # (P,) at the start of the round
    memory: "Memory"
    shared: tuple[slice, ...]  # where the shared parameters are in the flat model
    samples: int
    steps: int  # local steps of this round that train what is shared
    rate: float  # learning rate of this round
    momentum: float
    clients: int  # in the federation
    participants: int  # in this round

    @property
    def effective_steps(self) -> float:
        """Σ_k (1 - μ^k) / (1 - μ): by how many plain steps momentum μ moves along a constant gradient; K without."""
        mu, steps = self.momentum, self.steps
        return float(steps) if mu in (0, 1) else (steps - mu * (1 - mu**steps) / (1 - mu)) / (1 - mu)

    def of_shared(self, flat: Tensor) -> Tensor:
        """(p,) the shared part of a flat model, a copy."""
        return torch.cat([flat[span] for span in self.shared])

    def put_shared(self, values: Tensor) -> None:
        """Make `values` (p,) the shared part of the client's parameters."""
        at = 0
        for span in self.shared:
            size = span.stop - span.start
            self.parameters[span] = values[at : at + size]
            at += size


@dataclass(frozen=True, slots=True)
class LocalStep:
    """One batch, for an algorithm with a local step of its own.

    `gradient(at, rows, penalty)` is the gradient (P,) of the loss on these rows of the batch, at the flat parameters
    `at`; `penalty(features)` is added to the loss, features (n, …) being what the head is given. `update(gradients)` is
    the optimiser's step on the client's own parameters, with all transforms; `update(gradients, model)` the same on
    another flat model, with an optimiser of its own, fresh in each round. All without options is plain training:
    `step.update(step.gradient())`. Parts that the phase does not train have gradient 0.

    Buffers of the model, such as BatchNorm's running statistics: the personal model (`memory[PERSONAL]`) has its own,
    which gradients at it change; gradients at the client's own parameters change the client's; gradients at any other
    parameters change none.
    """

    parameters: Tensor  # (P,)
    start: Tensor
    memory: "Memory"
    rate: float
    samples: int  # in the batch
    gradient: "Gradient"
    update: "Update"


Penalty = Callable[[Tensor], Tensor]  # features (n, …) to a scalar


class Gradient:
    """See `LocalStep.gradient`."""

    def __init__(self, compute: Callable[[Tensor | None, slice, Penalty | None], Tensor]) -> None:
        self._compute = compute

    def __call__(
        self, at: Tensor | None = None, rows: slice = slice(None), penalty: Penalty | None = None
    ) -> Tensor:  # fmt: skip
        """(P,) a new tensor."""
        return self._compute(at, rows, penalty)


class Update:
    """See `LocalStep.update`."""

    def __init__(self, apply: Callable[[Tensor, Tensor | None], None]) -> None:
        self._apply = apply

    def __call__(self, gradients: Tensor, model: Tensor | None = None) -> None:
        """Change the client's own parameters (P,), or `model` (P,), in place."""
        self._apply(gradients, model)


class Algorithm:
    """Plain local training: every hook does nothing. Subclasses are frozen dataclasses, whose fields are settings."""

    name = "plain"

    @property
    def identity(self) -> str:
        """What identifies the algorithm in checkpoints and results: its class, its settings, and a hash of its code."""
        kind = type(self)
        try:
            code = hashlib.sha256(inspect.getsource(kind).encode()).hexdigest()[:16]
        except (OSError, TypeError):  # typed into a prompt
            code = "?"
        return f"{kind.__module__}:{self!r}#{code}"

    def fitted(self, model: "SplitModel") -> "Algorithm":
        """The algorithm with what it must know of the model, such as the number of features; most need nothing."""
        del model
        return self

    def memory(self, model: Tensor, shared: int) -> "Memory":
        """What a client keeps between rounds, as it is before the first one.

        `model` (P,) is what the client starts from, `shared` the number p of parameters that are shared. A tensor (P,)
        called `PERSONAL` is the client's personal model, which is tested and saved in place of the mixed one.
        """
        del model, shared
        return {}

    def mixed(self, shared: int) -> Mapping[str, int]:
        """Vectors that travel with the shared parameters and are mixed in the same way: names and sizes.

        They lie in the client's memory, as zeros before the first round.
        """
        del shared
        return {}

    def is_private(self, name: str, module: nn.Module) -> bool:
        """Whether a parameter, given by its name and the module that owns it, is neither mixed nor sent."""
        del name, module
        return False

    def before_training(self, one: ClientRound) -> None:
        """At the start of the round, before the first local step."""

    def change_gradient(self, gradients: Tensor, step: "Step") -> None:
        """Between the backward pass and the update: change the flat gradients (n,) in place."""

    def local_step(self, step: LocalStep) -> None:
        """One batch; the default is plain training."""
        step.update(step.gradient())

    def after_training(self, one: ClientRound) -> None:
        """After the last local step; what is in `parameters` and in the mixed vectors then travels."""

    def after_mixing(self, one: ClientRound) -> None:
        """After the shared parameters and the mixed vectors of the client were replaced by their mixtures."""

    def server_memory(self, shared: int) -> "Memory":
        """What the server keeps between rounds, for `aggregate`."""
        del shared
        return {}

    def aggregate(self, start: Tensor, received: Tensor, weights: Tensor, memory: "Memory") -> Tensor:
        """What a server makes of the clients' vectors (n, p), given those that it sent (p,) and their weights (n,).

        A vector holds the shared parameters, then the mixed vectors in their order. The default is the mean.
        """
        del start, memory
        return weights @ received


def is_plain(algorithm: Algorithm) -> bool:
    """Whether the algorithm has no hook at all."""
    return type(algorithm) is Algorithm


def overrides(algorithm: Algorithm, hook: str) -> bool:
    """Whether the algorithm has a hook of its own."""
    return getattr(type(algorithm), hook) is not getattr(Algorithm, hook)
