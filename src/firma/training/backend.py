"""Backends: the ways of training a client, and which one fits a model, a device and a recipe.

Compiled kernels train plain stacks of linear, layer norm and ReLU, recognised here by their structure, not by a name;
autograd trains everything else.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from firma.models.split_model import Layout, SplitModel
from firma.schedule import RoundPlan
from firma.seeds import generator, torch_seed
from firma.tasks.scores import gate_score
from firma.training.autograd_trainer import AutogradTrainer, samplewise
from firma.training.local_step import BUFFER, Client, Job, Recipe, Trainer

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
        reason = "requested"
    elif device.type != "cpu":
        reason = f"the device is {device}"
    elif stack is None:
        reason = "the model is not a plain stack of linear, layer norm and ReLU layers"
    elif recipe.special:
        reason = f"the compiled kernels do not support {recipe.special}"
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

    Returns the training accuracy where a gate asks for it, else 1; for other tasks, the main metric in its place.
    """
    drawing = _drawing(torch_seed(seed, "layers", client.number, plan.number)) if backend.draws else nullcontext()
    with drawing:
        trainer.train(client, job, generator(seed, "batches", client.number, plan.number))
    if plan.gate is None:
        return 1.0
    return gate_score(job.recipe.task, trainer.outputs(client, test=False), client.data.labels)


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


@dataclass(frozen=True, slots=True)
class Block:
    """x ↦ relu(norm(x W + b)); norm and ReLU are optional. Offsets are into the flat buffer."""

    inputs: int
    outputs: int
    weight: int
    bias: int
    gain: int = -1  # layer norm's weight and bias; -1: no norm
    shift: int = -1
    epsilon: float = 0.0
    relu: bool = False


@dataclass(frozen=True, slots=True)
class Stack:
    """Blocks in order; the last one is the head, a bare linear layer."""

    blocks: tuple[Block, ...]
    layout: Layout

    def turned(self, flat: Tensor, inward: bool) -> Tensor:
        """A copy of (…, P) buffers with every weight matrix transposed.

        torch stores (outputs, inputs); small batches multiply faster with (inputs, outputs), so a stack trains in that
        layout. `inward` converts from torch's layout to the stack's. Mixing gives the same result in either.
        """
        result = flat.clone()
        for block in self.blocks:
            span = slice(block.weight, block.weight + block.inputs * block.outputs)
            rows, columns = (block.outputs, block.inputs) if inward else (block.inputs, block.outputs)
            matrix = flat[..., span].reshape(*flat.shape[:-1], rows, columns)
            result[..., span] = matrix.transpose(-1, -2).flatten(-2)
        return result


def stack_of(model: SplitModel) -> Stack | None:
    """The model as a stack, or None if it is anything else."""
    layout = model.layout()
    starts = {id(own): piece.start for (_, own), piece in zip(model.named_parameters(), layout.pieces, strict=True)}
    head = list(_leaves(model.head))
    if len(head) != 1 or not isinstance(head[0], nn.Linear):
        return None
    blocks: list[Block] = []
    for index, layer in enumerate([*_leaves(model.extractor), *head]):
        if isinstance(layer, nn.Flatten) and index == 0:
            continue
        if not _append(blocks, layer, starts):
            return None
    chained = all(left.outputs == right.inputs for left, right in pairwise(blocks))
    return Stack(tuple(blocks), layout) if chained and len(blocks) > 1 else None


def _append(blocks: list[Block], layer: nn.Module, starts: dict[int, int]) -> bool:
    """Add a layer to the stack; False if it does not fit."""
    if any(parameter.dtype != torch.float32 for parameter in layer.parameters()):
        return False
    match layer:
        case nn.Linear() if layer.bias is not None:
            weight, bias = starts[id(layer.weight)], starts[id(layer.bias)]
            blocks.append(Block(layer.in_features, layer.out_features, weight, bias))
            return True
        case nn.LayerNorm() if blocks and blocks[-1].gain < 0 and not blocks[-1].relu and layer.bias is not None:
            if layer.normalized_shape != (blocks[-1].outputs,):
                return False
            gain, shift = starts[id(layer.weight)], starts[id(layer.bias)]
            blocks[-1] = replace(blocks[-1], gain=gain, shift=shift, epsilon=layer.eps)
            return True
        case nn.ReLU() if blocks and not blocks[-1].relu:
            blocks[-1] = replace(blocks[-1], relu=True)
            return True
    return False


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of plain `nn.Sequential`s, in order; any other module is a leaf."""
    if type(module) is nn.Sequential:
        for child in module:
            yield from _leaves(child)
    else:
        yield module


def _compiled(stack: Stack, batch: int) -> Trainer:
    from firma.training.compiled_trainer import CompiledTrainer  # imports numba, which takes half a second

    return CompiledTrainer(stack, batch)
