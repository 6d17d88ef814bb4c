"""Backends: the ways of training a client, and which one fits a model, a device and a recipe.

Compiled kernels train plain stacks of linear, layer norm and ReLU, recognised here by their structure, not by a name;
autograd trains everything else. Only exact types are recognised, as torch defines them: a subclass, a hook, a tied or
a frozen parameter means autograd.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from firma.models.split_model import Layout, SplitModel
from firma.schedule import RoundPlan
from firma.seeds import generator, torch_seed
from firma.tasks.losses import LOSSES
from firma.tasks.scores import gate_score, scores
from firma.tasks.task import Task
from firma.training.algorithm import START, TAKEN, ClientRound, is_plain
from firma.training.autograd_trainer import AutogradTrainer
from firma.training.hooks import client_hook
from firma.training.layers import altered, global_hooks, named_layers, steady, user_hooks
from firma.training.local_step import (
    BUFFER,
    CLASS_SHARES,
    Client,
    Job,
    Recipe,
    Sgd,
    Trainer,
    class_shares,
    limited,
    phase_steps,
)

_SMALL = 2_000_000  # parameters below which a batch's products are too small to be shared by threads
_MODEL = "the model is not a plain stack of linear, layer norm and ReLU layers"

# How several clients train at the same time. Threads suffice for layers that are known to draw nothing; torch's random
# numbers belong to the whole process, so a model that may draw trains in processes, where every draw is its own.
Parallel = Literal["no", "threads", "processes"]


@dataclass(frozen=True)
class Backend:
    """A way of training: how to make a worker's trainer, and how its flat buffers differ from torch's."""

    name: str
    reason: str
    make: Callable[[], Trainer]
    inward: Callable[[Tensor], Tensor]  # (…, P) from torch's layout to the trainer's
    outward: Callable[[Tensor], Tensor]
    parallel: Parallel
    threads: int | None  # torch's own, within one trainer, where one client trains alone; None: as many as it likes
    draws: bool  # layers may draw from generators of the whole process
    smallest: int = 1  # samples that a batch must have
    notes: tuple[str, ...] = ()  # what else is worth knowing, for people
    # Metrics on a client's test or training data, the task's main one among them, where a trainer knows metrics only
    reports: Callable[[Trainer, Client, bool], Mapping[str, float]] | None = None

    def described(self, count: int) -> str:
        """How clients are trained, that many at a time, and why."""
        return f"{self.name}, {count} at a time ({'; '.join((self.reason, *self.notes))})"


def choose(model: SplitModel, device: torch.device, recipe: Recipe, batch: int, wanted: str = "auto") -> Backend:
    """Compiled kernels for plain stacks with a plain recipe on a CPU, autograd for everything else.

    `wanted` = "autograd" insists on autograd.
    """
    stack = stack_of(model)
    if wanted == "autograd":
        reason = "requested"
    elif device.type != "cpu":
        reason = f"the device is {device}"
    elif isinstance(stack, str):
        reason = stack
    elif recipe.special:
        reason = f"the compiled kernels do not support {recipe.special}"
    else:
        return Backend(
            "compiled",
            f"a stack of {len(stack.blocks)} linear layers on a CPU",
            lambda: _compiled(stack, batch),
            lambda flat: stack.turned(flat, inward=True),
            lambda flat: stack.turned(flat, inward=False),
            parallel="threads",
            threads=1,
            draws=False,
        )
    return by_autograd(model, device, recipe, reason)


def by_autograd(model: SplitModel, device: torch.device, recipe: Recipe, reason: str, smallest: int = 1) -> Backend:
    """Training by autograd, for this reason."""
    quiet = steady(model.extractor) and steady(model.head) and recipe.objective in LOSSES.values()
    parallel: Parallel = "no"
    notes = []
    if device.type == "cpu":
        parallel = "threads" if quiet else "processes"
        if not quiet and (hooked := user_hooks(named_layers(model))):
            parallel = "no"  # what a hook records in another process would be lost
            notes.append(f"one at a time because {hooked}")
    buffers = len(list(model.named_buffers()))
    if buffers:
        notes.append(f"{buffers} {'buffer is' if buffers == 1 else 'buffers are'} private to each client")
    if shared := len(list(model.named_shared_buffers())):
        notes.append(f"{shared} {'buffer is' if shared == 1 else 'buffers are'} shared with the extractor")
    if frozen := len(list(model.named_frozen())):
        notes.append(f"{frozen} {'parameter tensor is' if frozen == 1 else 'parameter tensors are'} frozen")
    if smallest > 1:
        notes.append("a last batch of one sample joins the one before it, since the model cannot be trained on one")
    return Backend(
        "autograd",
        reason,
        lambda: AutogradTrainer(model, device, smallest),
        torch.clone,
        torch.clone,
        parallel=parallel,
        threads=1 if model.layout().size < _SMALL else None,
        draws=not quiet,
        smallest=smallest,
        notes=tuple(notes),
    )


def train_round(backend: Backend, trainer: Trainer, client: Client, job: Job, plan: RoundPlan, seed: int) -> float:
    """Local training for one client and one round; shared by the simulation and real peers.

    Returns the training accuracy where a gate asks for it, else 1; for other tasks, the main metric in its place.
    """
    job, algorithm = planned(job, plan), job.recipe.algorithm
    if job.recipe.steps_by_distance:
        job = replace(job, phases=limited(job.phases, client))
    if not is_plain(algorithm):
        client.memory[START].copy_(client.parameters)
        if TAKEN in client.memory:  # after mixing, the class shares that the limit follows from are others
            client.memory[TAKEN].fill_(_steps(backend, client, job, plan))
        client_hook(algorithm, "before_training", _client_round(backend, client, job, plan))
    with seeded(backend, seed, "layers", client.number, plan.number):
        trainer.train(client, job, generator(seed, "batches", client.number, plan.number))
    reached = 1.0
    if plan.gate is not None:
        with seeded(backend, seed, "evaluation", client.number):
            reached = gate_accuracy(backend, trainer, client, job.recipe.task)
    if CLASS_SHARES in client.memory:
        mixed = client.memory[CLASS_SHARES]
        mixed.copy_(class_shares(client.data.labels, len(mixed)))
    if not is_plain(algorithm):  # after the gate: what travels may be something else than the trained model
        client_hook(algorithm, "after_training", _client_round(backend, client, job, plan))
    return reached


def after_mixing(backend: Backend, client: Client, job: Job, plan: RoundPlan) -> None:
    """What the algorithm does once the shared parameters of a client are mixed."""
    one = _client_round(backend, client, planned(job, plan), plan)
    if plan.participants is not None and client.number not in plan.participants:
        one = replace(one, took_part=False, steps=0)
    elif TAKEN in client.memory:
        one = replace(one, steps=int(client.memory[TAKEN]))
    client_hook(job.recipe.algorithm, "after_mixing", one)


def planned(job: Job, plan: RoundPlan) -> Job:
    """The job with the round's number, learning rate and phases."""
    recipe = job.recipe
    if plan.rate != 1.0:
        recipe = replace(recipe, update=replace(recipe.update, rate=recipe.update.rate * plan.rate))
    return replace(job, recipe=recipe, phases=plan.phases, number=plan.number)


def _steps(backend: Backend, client: Client, job: Job, plan: RoundPlan) -> int:
    """How many steps of the job train what the plan shares."""
    rows, shared = len(client.data.labels), plan.part
    counted = [each for each in job.phases if "model" in (each.trains, shared) or each.trains == shared]
    return sum(phase_steps(rows, phase, job.batch, backend.smallest) for phase in counted)


def _client_round(backend: Backend, client: Client, job: Job, plan: RoundPlan) -> ClientRound:
    rows, update = len(client.data.labels), job.recipe.update
    return ClientRound(
        client.number, plan.number, client.parameters, client.memory[START], client.memory, job.recipe.shared, rows,
        _steps(backend, client, job, plan), update.rate,
        update.momentum if isinstance(update, Sgd) else 0.0, job.clients,
        job.clients if plan.participants is None else len(plan.participants), client.data.inputs[:rows],
        client.data.labels[:rows], job.seed,
    )  # fmt: skip


def metrics(backend: Backend, trainer: Trainer, client: Client, task: Task, test: bool) -> dict[str, float]:
    """Every metric of the task on a client's test or training data: computed, or as the backend reports them."""
    if backend.reports is not None:
        return dict(backend.reports(trainer, client, test))
    return scores(task, trainer.outputs(client, test), client.data.test_labels if test else client.data.labels)


def gate_accuracy(backend: Backend, trainer: Trainer, client: Client, task: Task) -> float:
    """What the accuracy gate compares, on a client's training data: computed, or as the backend reports it."""
    if backend.reports is not None:
        return backend.reports(trainer, client, False)[task.main]
    return gate_score(task, trainer.outputs(client, test=False), client.data.labels)


def seeded(backend: Backend, seed: int, purpose: str, *address: int) -> AbstractContextManager[None]:
    """Random numbers of an address for layers that draw, in training or, as with Monte Carlo dropout, in evaluation."""
    return drawing(torch_seed(seed, purpose, *address)) if backend.draws else nullcontext()


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """torch (and the sgemm in it) with that many threads of its own, for a while; None changes nothing."""
    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None and count != before:
            torch.set_num_threads(before)


def portable(backend: Backend, client: Client) -> dict[str, Tensor]:
    """Parameters and memory by name in torch's layout, so that a client may resume on another device or backend."""
    return dict(portable_items(backend, client))


def portable_items(backend: Backend, client: Client) -> Iterator[tuple[str, Tensor]]:
    """The same one after another: of a large model, only one copy exists at a time."""
    for name, tensor in ({"parameters": client.parameters} | client.memory).items():
        yield name, _outward(backend, client, name, tensor).detach().cpu()


def resume(backend: Backend, client: Client, saved: Mapping[str, Tensor]) -> None:
    """The inverse of `portable`, in place; `KeyError` if something that the client remembers was not saved."""
    for name, tensor in ({"parameters": client.parameters} | client.memory).items():
        values = backend.inward(saved[name]) if _is_flat(client, name, tensor) else saved[name]
        if name in client.memory and values.shape != tensor.shape:  # what grows as a client trains
            client.memory[name] = values.clone()
        else:
            tensor.copy_(values)


def _outward(backend: Backend, client: Client, name: str, tensor: Tensor) -> Tensor:
    return backend.outward(tensor) if _is_flat(client, name, tensor) else tensor


def _is_flat(client: Client, name: str, tensor: Tensor) -> bool:
    """Whether a tensor holds one number per parameter, in the order of the parameters."""
    return not name.startswith(BUFFER) and tensor.shape == client.parameters.shape


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Generators of the whole process at an address, for layers that draw, such as dropout; then as they were before.

    torch's, NumPy's and Python's, for a user's `forward` may use any of them.
    """
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002  # the user's, not ours
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            random.seed(seed)
            yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


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


def stack_of(model: SplitModel) -> Stack | str:
    """The model as a stack, or the reason why it is none."""
    if reason := next(_special(model), None):
        return reason
    layout = model.layout()
    starts = {id(own): piece.start for (_, own), piece in zip(model.named_parameters(), layout.pieces, strict=True)}
    head = list(_leaves(model.head))
    if len(head) != 1 or type(head[0]) is not nn.Linear:
        return _MODEL
    blocks: list[Block] = []
    for index, layer in enumerate([*_leaves(model.extractor), *head]):
        if type(layer) is nn.Flatten and (index, layer.start_dim, layer.end_dim) == (0, 1, -1):
            continue
        if not _append(blocks, layer, starts):
            return _MODEL
    chained = all(left.outputs == right.inputs for left, right in pairwise(blocks))
    return Stack(tuple(blocks), layout) if chained and len(blocks) > 1 else _MODEL


def _special(model: SplitModel) -> Iterator[str]:
    """What the compiled kernels would not do as torch does, for people."""
    if model.inputs != "float32":
        yield "the model takes integers"
    if global_hooks():
        yield "hooks for all modules are registered with torch"
    for name, module in named_layers(model):
        if what := altered(module):
            yield f"layer {name!r} has {what}"
    for name, _ in model.named_frozen():
        yield f"parameter {name!r} is frozen"
    for name, _ in (*model.named_buffers(), *model.named_shared_buffers()):
        yield f"the model has a buffer, {name!r}"
    seen: dict[int, str] = {}
    for name, module in named_layers(model):
        for own, parameter in module.named_parameters(recurse=False):
            known = seen.setdefault(parameter.untyped_storage().data_ptr(), here := f"{name}.{own}")
            if known != here:
                yield f"parameters {known!r} and {here!r} are tied"


def _append(blocks: list[Block], layer: nn.Module, starts: dict[int, int]) -> bool:
    """Add a layer to the stack; False if it does not fit."""
    if any(parameter.dtype != torch.float32 for parameter in layer.parameters()):
        return False
    kind = type(layer)  # exact: a subclass may compute anything
    match layer:
        case nn.Linear() if kind is nn.Linear and layer.bias is not None:
            weight, bias = starts[id(layer.weight)], starts[id(layer.bias)]
            blocks.append(Block(layer.in_features, layer.out_features, weight, bias))
            return True
        case nn.LayerNorm() if kind is nn.LayerNorm and blocks and blocks[-1].gain < 0 and not blocks[-1].relu:
            if layer.normalized_shape != (blocks[-1].outputs,) or layer.bias is None:
                return False
            gain, shift = starts[id(layer.weight)], starts[id(layer.bias)]
            blocks[-1] = replace(blocks[-1], gain=gain, shift=shift, epsilon=layer.eps)
            return True
        case nn.ReLU() if kind is nn.ReLU and blocks and not blocks[-1].relu:
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
