"""A local step in parts: objective → gradient → transforms → update.

`Recipe` names the parts. Any of them can be exchanged: training by autograd runs whatever is there, and the compiled
kernels are the specialisation for a plain recipe (cross-entropy, no transform, SGD or Adam). What a client remembers
between rounds is a dict of named tensors, to which the optimiser and every transform may add; checkpoints save all of
it without knowing what it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from firma.methods import Method
from firma.models.split import Part
from firma.settings import Hyper
from firma.training.clipping import Clip
from firma.training.proximal import Proximal

Memory = dict[str, Tensor]  # by name
Objective = Callable[[Tensor, Tensor], Tensor]  # logits (n, C) and labels (n,) to a scalar loss
FIRST, SECOND, STEPS = "optimiser.first", "optimiser.second", "optimiser.steps"
_PART_INDEX: Mapping[Part, int] = {"extractor": 0, "head": 1}


@dataclass(frozen=True, slots=True)
class Step:
    """What a transform sees beside the gradient: the part of the model that is being trained, flat (n,)."""

    parameters: Tensor  # as they are before the update
    start: Tensor  # as they were at the start of the round
    memory: Mapping[str, Tensor]  # the client's, whole
    span: slice  # of the part in the flat model


class Transform(Protocol):
    """Changes gradients between the backward pass and the update."""

    @property
    def name(self) -> str:
        """What people call it."""

    def memory(self, size: int) -> Memory:
        """What it adds to a client's memory before the first round, for a model of `size` parameters."""

    def __call__(self, gradients: Tensor, step: Step) -> None:
        """Change the flat gradients (n,) in place."""


@dataclass(frozen=True, slots=True)
class Sgd:
    """v ← μv + g, p ← p − ηv, as torch.optim.SGD has it. A velocity of zeros is a fresh optimiser."""

    rate: float
    momentum: float

    def __call__(
        self, parameters: Tensor, gradients: Tensor, memory: Mapping[str, Tensor], part: Part, at: slice
    ) -> None:
        """One update of `parameters` (n,), which are `at` this place of the flat model."""
        del part
        velocity = memory[FIRST][at]
        velocity.mul_(self.momentum).add_(gradients)
        parameters.add_(velocity, alpha=-self.rate)


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam with β = (0.9, 0.999), ε = 1e-8, as torch.optim.Adam has it; extractor and head count their steps apart."""

    rate: float

    def __call__(
        self, parameters: Tensor, gradients: Tensor, memory: Mapping[str, Tensor], part: Part, at: slice
    ) -> None:
        """One update of `parameters` (n,), which are `at` this place of the flat model."""
        steps = memory[STEPS]
        steps[_PART_INDEX[part]] += 1
        step = torch.tensor(float(steps[_PART_INDEX[part]]), device=parameters.device)
        torch._fused_adam_(  # the kernel behind torch.optim.Adam(fused=True), without its 50 µs of bookkeeping
            [parameters], [gradients], [memory[FIRST][at]], [memory[SECOND][at]], [], [step],
            lr=self.rate, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip


Update = Sgd | Adam


@dataclass(frozen=True)
class Recipe:
    """What local training is made of; `persistent`: the optimiser's state is kept between rounds."""

    update: Update
    persistent: bool = False
    transforms: tuple[Transform, ...] = ()
    objective: Objective = field(default=nn.functional.cross_entropy)

    @property
    def special(self) -> str:
        """Which parts the compiled kernels do not have, for people; empty for a plain recipe."""
        names = [transform.name for transform in self.transforms]
        if self.objective is not nn.functional.cross_entropy:
            names.insert(0, "a loss of your own")
        return ", ".join(names)

    def memory(self, size: int, device: torch.device) -> Memory:
        """What a client remembers between rounds, as it is before the first one."""
        kept = optimiser_memory(size, device) if self.persistent else {}
        for transform in self.transforms:
            kept |= {name: tensor.to(device) for name, tensor in transform.memory(size).items()}
        return kept


def recipe(method: Method, hyper: Hyper) -> Recipe:
    """The recipe that a method's columns and settings ask for."""
    update: Update = Sgd(hyper.rate, hyper.momentum) if method.optimiser == "sgd" else Adam(hyper.rate)
    transforms: list[Transform] = []
    if hyper.proximal:
        transforms.append(Proximal(hyper.proximal))
    if hyper.clip is not None:
        transforms.append(Clip(hyper.clip))
    return Recipe(update, method.persistent == "yes", tuple(transforms))


def optimiser_memory(size: int, device: torch.device) -> Memory:
    """A fresh optimiser: two (P,) moments, and how many steps extractor and head have taken."""
    return {
        FIRST: torch.zeros(size, device=device),
        SECOND: torch.zeros(size, device=device),
        STEPS: torch.zeros(2, dtype=torch.int64),
    }


def reset(memory: Memory) -> None:
    """Back to a fresh optimiser, in place."""
    for tensor in memory.values():
        tensor.zero_()
