"""Which way of training fits a model and a device."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from firma.models.linear_stack import Stack, stack_of
from firma.models.split import SplitModel
from firma.training.autograd import AutogradTrainer, samplewise
from firma.training.client import Trainer

_SMALL = 2_000_000  # parameters below which a batch's products are too small to be shared by threads


@dataclass(frozen=True)
class Backend:
    """A way of training: how to make a worker's trainer, and how its flat buffers differ from torch's."""

    name: str
    reason: str
    make: Callable[[], Trainer]
    inward: Callable[[Tensor], Tensor]  # (…, P) from torch's layout to the trainer's
    outward: Callable[[Tensor], Tensor]
    parallel: bool  # several trainers may work at the same time
    threads: int | None  # torch's own, within one trainer; None: as many as it likes
    draws: bool  # layers may draw from torch's own generator


def choose(model: SplitModel, device: torch.device, batch: int, wanted: str = "auto") -> Backend:
    """Compiled kernels for plain stacks on a CPU, autograd for everything else; `wanted` may insist on autograd."""
    stack = stack_of(model)
    if wanted == "autograd":
        reason = "asked for"
    elif device.type != "cpu":
        reason = f"the device is {device}"
    elif stack is None:
        reason = "the model is not a plain stack of linear, layer norm and ReLU"
    else:
        return Backend(
            "compiled",
            f"a stack of {len(stack.blocks)} linear layers on a CPU",
            lambda: _compiled(stack, batch),
            lambda flat: stack.turned(flat, inward=True),
            lambda flat: stack.turned(flat, inward=False),
            parallel=True,
            threads=1,
            draws=False,
        )
    steady = samplewise(model.extractor) and samplewise(model.head)  # nothing draws, so threads do not disturb it
    return Backend(
        "autograd",
        reason,
        lambda: AutogradTrainer(model, device),
        torch.clone,
        torch.clone,
        parallel=steady and device.type == "cpu",
        threads=1 if steady or model.layout().size < _SMALL else None,
        draws=not steady,
    )


def _compiled(stack: Stack, batch: int) -> Trainer:
    from firma.training.compiled import CompiledTrainer  # imports numba, which takes half a second

    return CompiledTrainer(stack, batch)
