"""Backends: the ways of training a client, which one fits a model, a device and a recipe, and a round of it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from firma.models.linear_stack import Stack, stack_of
from firma.models.split import SplitModel
from firma.schedule import RoundPlan
from firma.seeds import generator, torch_seed
from firma.training.autograd import AutogradTrainer, samplewise
from firma.training.client import BUFFER, Client, Job, Trainer
from firma.training.parts import Recipe

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


def choose(model: SplitModel, device: torch.device, recipe: Recipe, batch: int, wanted: str = "auto") -> Backend:
    """Compiled kernels for plain stacks with a plain recipe on a CPU, autograd for everything else.

    `wanted` = "autograd" insists on autograd.
    """
    stack = stack_of(model)
    if wanted == "autograd":
        reason = "asked for"
    elif device.type != "cpu":
        reason = f"the device is {device}"
    elif stack is None:
        reason = "the model is not a plain stack of linear, layer norm and ReLU"
    elif recipe.special:
        reason = f"the compiled kernels do not have {recipe.special}"
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


def train_round(backend: Backend, trainer: Trainer, client: Client, job: Job, plan: RoundPlan, seed: int) -> float:
    """Local training for one client and one round; shared by the simulation and real peers.

    Returns the training accuracy where a gate asks for it, else 1.
    """
    drawing = _drawing(torch_seed(seed, "layers", client.number, plan.number)) if backend.draws else nullcontext()
    with drawing:
        trainer.train(client, job, generator(seed, "batches", client.number, plan.number))
    return trainer.correct(client, test=False) / len(client.data.labels) if plan.gate is not None else 1.0


def portable(backend: Backend, client: Client) -> dict[str, Tensor]:
    """Parameters and memory by name in torch's layout, so that a client may resume on another device or backend."""
    kept = {"parameters": client.parameters} | client.memory
    return {name: _outward(backend, client, name, tensor).detach().cpu() for name, tensor in kept.items()}


def resume(backend: Backend, client: Client, saved: Mapping[str, Tensor]) -> None:
    """The inverse of `portable`, in place; `KeyError` if something that the client remembers was not saved."""
    for name, tensor in ({"parameters": client.parameters} | client.memory).items():
        layout = _is_flat(client, name, tensor)
        tensor.copy_(backend.inward(saved[name]) if layout else saved[name])


def _outward(backend: Backend, client: Client, name: str, tensor: Tensor) -> Tensor:
    return backend.outward(tensor) if _is_flat(client, name, tensor) else tensor


def _is_flat(client: Client, name: str, tensor: Tensor) -> bool:
    """Whether a tensor holds one number per parameter, in the order of the parameters."""
    return not name.startswith(BUFFER) and tensor.shape == client.parameters.shape


@contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """torch's own generators at an address, for layers that draw, such as dropout; afterwards they are as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _compiled(stack: Stack, batch: int) -> Trainer:
    from firma.training.compiled import CompiledTrainer  # imports numba, which takes half a second

    return CompiledTrainer(stack, batch)
