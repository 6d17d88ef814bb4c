"""The hooks of a method: what a client does beside plain training and mixing, one class per idea.

A round of a client is: `before_training`, local steps, `after_training`, mixing of what is shared, `after_mixing`. An
algorithm overrides the hooks that it needs; all others do nothing, and one that overrides none is plain training.
Everything is flat: parameters (P,) with the extractor first, and memory, named tensors that a client keeps between
rounds and that checkpoints save without knowing what they are.

Algorithms of your own are used by `replace(firma.METHODS["fedavg"], name="mine", algorithm=Mine())`, or on the command
line by `--method "fedavg:algorithm=my_module:Mine"`: docs/your-method.md. `training.hooks` calls the hooks and checks
what they did.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from firma.errors import BadInput
from firma.seeds import generator
from firma.training.algorithm_code import code_hash, settings

if TYPE_CHECKING:
    from firma.models.split_model import SplitModel
    from firma.training.local_step import Memory, Step

PERSONAL = "personal"  # in a client's memory: the (P,) model that is tested and saved instead of the mixed one
START = "round.start"  # in a client's memory, if its algorithm has hooks: (P,) parameters at the start of the round
TAKEN = "round.steps"  # in a client's memory, if clients differ in their limits of steps: (1,) those of its last round


@dataclass(frozen=True, slots=True)
class ClientRound:
    """One client at one point of a round; `parameters` and `memory` are changed in place.

    `after_mixing` is also called for a client that took no part but was given the server's model: `start` is what it
    had before, and `steps` is 0.
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
    inputs: Tensor  # (samples, …) the client's training data as they are stored
    targets: Tensor  # (samples, …)
    seed: int = 0  # of the run
    took_part: bool = True  # in this round

    def generator(self, purpose: str) -> np.random.Generator:
        """Random numbers of this client, round and purpose: the same on every engine and after a resume."""
        return generator(self.seed, f"algorithm {purpose}", self.client, self.number)

    @property
    def effective_steps(self) -> float:
        """Σ_k (1 - μ^k) / (1 - μ): by how many plain steps momentum μ moves along a constant gradient; K without."""
        mu, steps = self.momentum, self.steps
        if mu == 0:
            return float(steps)
        if mu == 1:  # velocities of 1, 2, …, K
            return steps * (steps + 1) / 2
        return (steps - mu * (1 - mu**steps) / (1 - mu)) / (1 - mu)

    def of_shared(self, flat: Tensor) -> Tensor:
        """(p,) the shared part of a flat model, a copy."""
        return torch.cat([flat[span] for span in self.shared])

    def put_shared(self, values: Tensor) -> None:
        """Make `values` (p,) the shared part of the client's parameters."""
        at, size = 0, sum(span.stop - span.start for span in self.shared)
        if values.shape != (size,):
            raise BadInput(f"put_shared: the values have shape {tuple(values.shape)}; must be ({size},)")
        for span in self.shared:
            size = span.stop - span.start
            self.parameters[span] = values[at : at + size]
            at += size


@dataclass(frozen=True, slots=True)
class LocalStep:
    """One batch, for an algorithm with a local step of its own.

    `gradient(at, rows)` is the gradient (P,) of the loss on these rows of the batch, at the flat parameters `at`.
    `penalty=f` adds f(features), a scalar, to the loss, features (n, …) being what the head is given; `loss=f` takes
    f(outputs, targets) in place of `loss`. `update(gradients)` is the optimiser's step on the client's own parameters,
    with all transforms; `update(gradients, model)` the same on another flat model, with an optimiser of its own, fresh
    in each round. All without options is plain training: `step.update(step.gradient())`. Parts that the phase does not
    train have gradient 0.

    `features(at, rows)` and `outputs(at, rows)` are those of the extractor and of the whole model at any parameters, in
    evaluation mode and without gradient.

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
    features: "Forward"
    outputs: "Forward"
    loss: "Loss"  # of the task
    client: int = 0
    number: int = 0  # of the round, from 0
    index: int = 0  # of the step in the round, from 0
    seed: int = 0  # of the run

    def generator(self, purpose: str) -> np.random.Generator:
        """Random numbers of this client, round, step and purpose: the same on every engine and after a resume."""
        return generator(self.seed, f"algorithm step {purpose}", self.client, self.number, self.index)


Penalty = Callable[[Tensor], Tensor]  # features (n, …) to a scalar
Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (n, K) and targets to a scalar
_ALL = slice(None)


class Gradient:
    """See `LocalStep.gradient`."""

    def __init__(self, compute: Callable[[Tensor | None, slice, Penalty | None, Loss | None], Tensor]) -> None:
        self._compute = compute

    def __call__(
        self, at: Tensor | None = None, rows: slice = _ALL, penalty: Penalty | None = None, loss: Loss | None = None
    ) -> Tensor:
        """(P,) a new tensor."""
        return self._compute(at, rows, penalty, loss)


class Update:
    """See `LocalStep.update`."""

    def __init__(self, apply: Callable[[Tensor, Tensor | None], None]) -> None:
        self._apply = apply

    def __call__(self, gradients: Tensor, model: Tensor | None = None) -> None:
        """Change the client's own parameters (P,), or `model` (P,), in place."""
        self._apply(gradients, model)


class Forward:
    """See `LocalStep.features`."""

    def __init__(self, compute: Callable[[Tensor | None, slice], Tensor]) -> None:
        self._compute = compute

    def __call__(self, at: Tensor | None = None, rows: slice = _ALL) -> Tensor:
        """(n, …) a new tensor."""
        return self._compute(at, rows)


@dataclass(frozen=True, slots=True)
class ServerRound:
    """A star's server at the end of a round, for `aggregate`; `memory` is changed in place.

    A vector (q,) holds the shared parameters, then the mixed vectors in their order; `spans` says where: "parameters",
    and each mixed vector by its name.
    """

    number: int  # of the round, from 0
    start: Tensor  # (q,) what the server sent last; in the first round, what everybody starts from
    received: Tensor  # (n, q) from the clients that took part
    weights: Tensor  # (n,) of the clients: they sum to 1
    participants: tuple[int, ...]  # the clients' numbers, in the order of the rows
    clients: int  # in the federation
    memory: "Memory"
    spans: Mapping[str, slice]
    seed: int = 0  # of the run

    @property
    def mean(self) -> Tensor:
        """(q,) the weighted mean of what was received: plain averaging."""
        return self.weights @ self.received

    def generator(self, purpose: str) -> np.random.Generator:
        """Random numbers of this round and purpose: the same on every engine and after a resume."""
        return generator(self.seed, f"server {purpose}", self.number)


class Algorithm:
    """Plain local training: every hook does nothing. Subclasses are frozen dataclasses, whose fields are settings."""

    name = "plain"
    # Whether `after_training` puts what the client has moved by in the place of its shared parameters, to be added to
    # `start` in `after_mixing`. Shared buffers, such as running statistics, are sent as they are in any case.
    sends_differences = False

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refused: clients train in several threads, processes or machines, where an attribute would be lost."""
        raise BadInput(
            f"algorithm {type(self).__qualname__}: the attribute {name!r} cannot be assigned; make settings the fields "
            "of a class with @dataclass(frozen=True), and keep state in memory"
        )

    @property
    def identity(self) -> str:
        """What identifies the algorithm in checkpoints and results: its class, its settings, and a hash of its code."""
        kind = type(self)
        code = code_hash(kind, Algorithm)  # type: ignore[arg-type]  # mypy takes a class for unhashable
        return f"{kind.__module__}:{kind.__qualname__}({settings(self)})" + (f"#{code}" if code else "")

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
        """What the server keeps between rounds, for `aggregate`; `shared` is the number p of shared parameters."""
        del shared
        return {}

    def aggregate(self, server: ServerRound) -> Tensor:
        """(q,) what a server makes of the clients' vectors and sends to all; the default is their mean."""
        return server.mean


def is_plain(algorithm: Algorithm) -> bool:
    """Whether the algorithm has no hook at all."""
    return type(algorithm) is Algorithm


def overrides(algorithm: Algorithm, hook: str) -> bool:
    """Whether the algorithm has a hook of its own."""
    return getattr(type(algorithm), hook) is not getattr(Algorithm, hook)
