"""Local training of a client: what a client is, and the parts that a step is made of.

A step is objective → gradient → transforms → update, and `Recipe` names the parts. Any of them can be exchanged:
training by autograd runs whatever is there, and the compiled kernels are the specialisation for a plain recipe
(cross-entropy, no transform, SGD or Adam). What a client remembers between rounds is a dict of named tensors, to which
the optimiser and every transform may add; checkpoints save all of it without knowing what it is.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from firma.errors import BadInput
from firma.methods import Method
from firma.models.split_model import InputKind, Part, SplitModel
from firma.schedule import Phase
from firma.settings import Hyper
from firma.tasks.losses import described, objective
from firma.tasks.task import CLASSIFICATION, Task
from firma.training.algorithm import PERSONAL, START, TAKEN, Algorithm, is_plain, overrides
from firma.training.clipping import Clip
from firma.training.hooks import check_memory, declared, mixed, sees_parameters, title
from firma.training.proximal import Proximal

Memory = dict[str, Tensor]  # by name
PLAIN = Algorithm()
CLASS_SHARES = (
    "class_shares"  # in a client's memory: its own before mixing, after it those of the clients it mixed with
)
Objective = Callable[[Tensor, Tensor], Tensor]  # outputs (n, K) and targets to a scalar loss
FIRST, SECOND, STEPS = "optimiser.first", "optimiser.second", "optimiser.steps"
_PART_INDEX: Mapping[Part, int] = {"extractor": 0, "head": 1}


@dataclass(frozen=True, slots=True)
class Step:
    """What a transform sees beside the gradient: the part of the model that is being trained, flat (n,)."""

    parameters: Tensor  # as they are before the update
    start: Tensor  # as they were at the start of the round
    memory: Mapping[str, Tensor]  # the client's, whole
    span: slice  # of the part in the flat model
    shared: tuple[slice, ...] = ()  # where the shared parameters are in the flat model

    def add_shared(self, gradients: Tensor, values: Tensor) -> None:
        """Add `values` (p,), which belong to the shared parameters, to the gradients of those that are trained."""
        at = 0
        for each in self.shared:
            low, high = max(each.start, self.span.start), min(each.stop, self.span.stop)
            if low < high:
                ours = slice(low - self.span.start, high - self.span.start)
                gradients[ours] += values[at + low - each.start : at + high - each.start]
            at += each.stop - each.start


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
    """v ← μv + g, p ← p − ηv, as torch.optim.SGD has it. A velocity of zeros is a fresh optimiser.

    `decay` λ is decoupled, as in SGDW: p ← (1 − ηλ)p before the step.
    """

    rate: float
    momentum: float
    decay: float = 0.0

    def __call__(
        self, parameters: Tensor, gradients: Tensor, memory: Mapping[str, Tensor], part: Part, at: slice
    ) -> None:
        """One update of `parameters` (n,), which are `at` this place of the flat model."""
        del part
        if self.decay:
            parameters.mul_(1 - self.rate * self.decay)
        velocity = memory[FIRST][at]
        velocity.mul_(self.momentum).add_(gradients)
        parameters.add_(velocity, alpha=-self.rate)


@dataclass(frozen=True, slots=True)
class Adam:
    """Adam with β = (0.9, 0.999), ε = 1e-8, as torch.optim.Adam has it; extractor and head count their steps apart.

    `decay` λ is decoupled, as in AdamW: p ← (1 − ηλ)p before the step.
    """

    rate: float
    decay: float = 0.0

    def __call__(
        self, parameters: Tensor, gradients: Tensor, memory: Mapping[str, Tensor], part: Part, at: slice
    ) -> None:
        """One update of `parameters` (n,), which are `at` this place of the flat model."""
        if self.decay:
            parameters.mul_(1 - self.rate * self.decay)
        steps = memory[STEPS]
        steps[_PART_INDEX[part]] += 1
        step = torch.tensor(float(steps[_PART_INDEX[part]]), device=parameters.device)
        torch._fused_adam_(  # the kernel behind torch.optim.Adam(fused=True), without its 50 µs of bookkeeping
            [parameters], [gradients], [memory[FIRST][at]], [memory[SECOND][at]], [], [step],
            lr=self.rate, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip


Update = Sgd | Adam


@dataclass(frozen=True, slots=True)
class Tuning:
    """How a client makes the mixed model its own: epochs on its data, and how far it goes towards the tuned model.

    Without a `share`, each client goes as far as its class shares are from the federation's; these, one number for each
    of the `classes`, are then mixed with the parameters.
    """

    head_only: bool
    epochs: int
    share: float | None
    update: Update
    classes: int = 0
    one_batch: bool = False  # of its data, drawn by client and round, instead of all of them


@dataclass(frozen=True)
class Recipe:
    """What local training is made of; `persistent`: the optimiser's state is kept between rounds."""

    update: Update
    persistent: bool = False
    transforms: tuple[Transform, ...] = ()
    objective: Objective = field(default=nn.functional.cross_entropy)
    task: Task = CLASSIFICATION
    algorithm: Algorithm = PLAIN
    shared: tuple[slice, ...] = ()  # where the shared parameters are in the flat model
    personal: Tuning | None = None  # what a client makes of the mixed model for itself
    steps_by_distance: bool = False  # a limit of steps is divided by the client's `distance`

    @property
    def special(self) -> str:
        """Which parts the compiled kernels do not have, for people; empty for a plain recipe."""
        names = [transform.name for transform in self.transforms]
        if overrides(self.algorithm, "change_gradient") or overrides(self.algorithm, "local_step"):
            names.append(f"the local step of {title(self.algorithm)}")
        elif sees_parameters(self.algorithm):
            names.append(f"the hooks of {title(self.algorithm)}")  # which see parameters in torch's layout
        elif any(size > 1 for size in self.algorithm.mixed(elements(self.shared)).values()):
            names.append(f"the vectors of {title(self.algorithm)}")  # which have torch's layout, as others may expect
        if loss := described(self.objective):
            names.insert(0, loss)
        return ", ".join(names)

    @property
    def mixed(self) -> Mapping[str, int]:
        """Vectors that are mixed beside the shared parameters: names and sizes."""
        tuning = self.personal
        told = {CLASS_SHARES: tuning.classes} if tuning is not None and tuning.share is None else {}
        return {**mixed(self.algorithm, elements(self.shared)), **told}

    def memory(self, start: Tensor) -> Memory:
        """What a client that starts from these parameters (P,) remembers, as it is before the first round.

        Mixed vectors are not part of it: they lie behind the parameters.
        """
        kept = optimiser_memory(len(start), start.device) if self.persistent else {}
        for transform in self.transforms:
            kept |= {name: tensor.to(start.device) for name, tensor in transform.memory(len(start)).items()}
        if self.personal is not None:
            kept[PERSONAL] = start.clone()
        if not is_plain(self.algorithm):
            own = declared(self.algorithm, "memory", start.clone(), elements(self.shared))
            if PERSONAL in own and self.personal is not None:
                raise BadInput(
                    f"{title(self.algorithm)} has a personal model of its own, so nothing else may make one; "
                    "use personal = 'none'"
                )
            check_memory(self.algorithm, own, start, kept, self.mixed)
            kept |= {name: tensor.to(start.device) for name, tensor in own.items()}
            kept[START] = start.clone()
            if self.steps_by_distance:
                kept[TAKEN] = torch.zeros(1, dtype=torch.int64)
        return kept


def elements(spans: tuple[slice, ...]) -> int:
    """How many elements these spans have."""
    return sum(span.stop - span.start for span in spans)


def recipe(
    method: Method, hyper: Hyper, task: Task = CLASSIFICATION, algorithm: Algorithm = PLAIN,
    shared: tuple[slice, ...] = (), classes: int = 0,
) -> Recipe:  # fmt: skip
    """The recipe that a method's columns, settings and the task ask for."""
    decay = hyper.weight_decay
    update: Update = Sgd(hyper.rate, hyper.momentum, decay) if method.optimiser == "sgd" else Adam(hyper.rate, decay)
    transforms: list[Transform] = []
    if hyper.proximal:
        transforms.append(Proximal(hyper.proximal))
    if hyper.clip is not None:
        transforms.append(Clip(hyper.clip))
    tuning = _tuning(method, hyper, task, classes)
    known = tuning is not None and tuning.share is None  # class shares travel, so a client knows its distance
    return Recipe(
        update, method.persistent == "yes", tuple(transforms), objective(task), task, algorithm, shared, tuning,
        known and hyper.local_steps_for == "different",
    )  # fmt: skip


def _tuning(method: Method, hyper: Hyper, task: Task, classes: int) -> Tuning | None:
    if method.personal == "none":
        return None
    share = None if hyper.personal_share == "auto" else hyper.personal_share
    if share is None and task.name != "classification":
        raise BadInput(
            f"personal_share = 'auto' compares class shares, and the task is {task.name}; "
            "set it to a number from 0 to 1"
        )
    if method.personal == "one-step":
        return Tuning(False, 1, share, Sgd(hyper.inner_rate, 0.0), classes, one_batch=True)
    update = Sgd(hyper.personal_rate, hyper.momentum)
    return Tuning(method.personal == "tune-head", hyper.personal_epochs, share, update, classes)


def class_shares(labels: Tensor, classes: int) -> Tensor:
    """(K,) shares of the classes among these labels."""
    return torch.bincount(labels, minlength=classes).float() / max(len(labels), 1)


def distance(client: "Client") -> float | None:
    """½ Σ_c |q_c - Q_c| between the client's class shares q and those of the clients it mixed with, Q; 0: alike.

    None before the client has mixed with anybody.
    """
    others = client.memory[CLASS_SHARES]
    if not bool(others.any()):
        return None
    return float((class_shares(client.data.labels, len(others)) - others).abs().sum()) / 2


def limited(phases: tuple[Phase, ...], client: "Client") -> tuple[Phase, ...]:
    """The phases with their limits of steps divided by the client's distance: none at 0, the limit itself at 1.

    Training far from the others' data takes the extractor away from theirs; training on like data does not. In the
    first round, when nothing is known about others, the limit holds as it is.
    """
    apart = distance(client)
    if apart is None:
        return phases
    return tuple(
        phase if phase.steps is None else replace(phase, steps=math.ceil(phase.steps / apart) if apart else None)
        for phase in phases
    )


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


BUFFER = "buffer."  # in a client's memory, what the modules hold besides parameters, such as running means


@dataclass(frozen=True)
class ClientData:
    """A client's samples: inputs (n, …) as `as_tensor` keeps them, and labels (n,) int64.

    Inputs of models that take floats are float32, or bytes that are multiplied by `scale`; those of models that take
    integers are integers. Where the task is not classification, labels are the targets, (n, K) float32.
    """

    inputs: Tensor
    labels: Tensor
    test_inputs: Tensor
    test_labels: Tensor
    scale: float = 1.0

    def to(self, device: torch.device) -> "ClientData":
        """The same on a device."""
        return ClientData(
            self.inputs.to(device), self.labels.to(device), self.test_inputs.to(device), self.test_labels.to(device),
            self.scale,
        )  # fmt: skip


@dataclass
class Client:
    """One client: its data, its parameters (P,) with the extractor first, and what it remembers between rounds."""

    number: int
    data: ClientData
    parameters: Tensor
    memory: Memory
    frozen: Mapping[str, Tensor] = field(default_factory=dict)  # of its first model: not a copy, never changed


@dataclass(frozen=True)
class Job:
    """Local training for one round, the same for all clients."""

    recipe: Recipe
    phases: tuple[Phase, ...]
    batch: int
    number: int = 0  # of the round, from 0
    clients: int = 1  # in the federation
    seed: int = 0  # of the run


class Trainer(Protocol):
    """Trains and scores clients one at a time; its work space is its own, so every worker has one."""

    def train(self, client: Client, job: Job, shuffle: np.random.Generator) -> None:
        """Train a client for one round, in place."""

    def outputs(self, client: Client, test: bool) -> Tensor:
        """(n, K) outputs of the client's model for its test or training samples, in evaluation mode."""


def new_client(number: int, data: ClientData, row: Tensor, model: SplitModel, recipe: Recipe) -> Client:
    """A client before its first round, on the device of `row`: its parameters (P,), then the vectors mixed with them.

    The model's private buffers are copied; its frozen parameters are not, for nobody changes them.
    """
    device = row.device
    buffers = {BUFFER + name: tensor.detach().clone().to(device) for name, tensor in model.named_buffers()}
    frozen = {name: tensor.detach() for name, tensor in model.named_frozen()}
    size = len(row) - sum(recipe.mixed.values())
    own = recipe.memory(row[:size])
    if PERSONAL in own and recipe.personal is None and (shared := next(model.named_shared_buffers(), None)):
        raise BadInput(
            f"model: buffer {shared[0]!r} is shared, which cannot be combined with {recipe.algorithm.name}: it trains "
            "a model beside the shared one; remove the attribute shared_buffers"
        )
    memory = buffers | own
    if PERSONAL in own:
        memory |= {f"{PERSONAL}.{name}": tensor.clone() for name, tensor in buffers.items()}
    for name, count in recipe.mixed.items():
        memory[name], size = row[size : size + count], size + count
    return Client(number, data.to(device), row[: len(row) - sum(recipe.mixed.values())], memory, frozen)


def tested(client: Client) -> Client:
    """The client as it is tested and saved: with its personal model, if it has one."""
    if PERSONAL not in client.memory:
        return client
    own = f"{PERSONAL}.{BUFFER}"
    buffers = {BUFFER + name.removeprefix(own): kept for name, kept in client.memory.items() if name.startswith(own)}
    return replace(client, parameters=client.memory[PERSONAL], memory=client.memory | buffers)


def private_buffers(client: Client) -> dict[str, Tensor]:
    """The buffers of a client's model, such as running means, by their names in the model."""
    return {name.removeprefix(BUFFER): kept for name, kept in client.memory.items() if name.startswith(BUFFER)}


def as_tensor(stored: NDArray[np.generic], kind: InputKind) -> Tensor:
    """Inputs as a client keeps them: bytes and, for models that take integers, integers as they are; else float32.

    A batch becomes what the model sees when it is used, see `model_inputs` and benchmarks/README.md.
    """
    if stored.dtype == np.uint8:
        return torch.from_numpy(np.ascontiguousarray(stored))
    if kind == "float32":
        return torch.from_numpy(np.ascontiguousarray(stored.astype(np.float32)))
    if stored.dtype.kind not in "iub":
        raise BadInput(f"inputs are {stored.dtype}, but the model takes integers; store them with an integer dtype")
    kept = stored.astype(np.int64) if stored.dtype.kind == "u" else stored
    return torch.from_numpy(np.ascontiguousarray(kept, dtype=kept.dtype.newbyteorder("=")))


def model_inputs(batch: Tensor, scale: float, kind: InputKind) -> Tensor:
    """What the model sees of a batch: float32, bytes scaled; or int64, bytes as the numbers that they are."""
    if kind == "int64":
        return batch.long()
    return batch if batch.dtype == torch.float32 else batch.float() * scale


def upgraded(saved: Mapping[str, Tensor], client: Client) -> dict[str, Tensor]:
    """Tensors under today's names, where version 0.1 saved them: moments as first and second, buffers by number."""
    buffers = [name for name in client.memory if name.startswith(BUFFER)]
    names = {"first": FIRST, "second": SECOND, "steps": STEPS}
    names |= {f"private.{number}": name for number, name in enumerate(buffers)}
    return {names.get(name, name): tensor for name, tensor in saved.items()}


def batch_count(size: int, batch: int, smallest: int = 1) -> int:
    """How many batches an epoch over so many samples has, see `batches`."""
    count = -(-size // batch)
    return count - 1 if count > 1 and size - (count - 1) * batch < smallest else count


def phase_steps(size: int, phase: Phase, batch: int, smallest: int = 1) -> int:
    """How many batches a phase trains on: whole epochs, or as many as the phase allows."""
    whole = phase.epochs * batch_count(size, batch, smallest)
    return whole if phase.steps is None else min(whole, phase.steps)


def phase_orders(
    size: int, phase: Phase, batch: int, shuffle: np.random.Generator, smallest: int = 1
) -> list[NDArray[np.int64]]:
    """Sample numbers of a phase: (epochs, n) of its whole epochs and, if it ends within an epoch, (1, m) of that one.

    An epoch that does not begin is not drawn.
    """
    if phase.steps is None:
        return [epoch_orders(size, phase.epochs, shuffle)]
    each = batch_count(size, batch, smallest)
    epochs, rest = divmod(phase_steps(size, phase, batch, smallest), each) if each else (0, 0)
    orders = epoch_orders(size, epochs + (rest > 0), shuffle)
    return [part for part in (orders[:epochs], orders[epochs:, : rest * batch].copy()) if part.size]


def epoch_orders(size: int, epochs: int, shuffle: np.random.Generator) -> NDArray[np.int64]:
    """(epochs, n) sample numbers: a new permutation every epoch."""
    orders = np.empty((epochs, size), dtype=np.int64)
    for epoch in range(epochs):
        orders[epoch] = shuffle.permutation(size)
    return orders


def batches(orders: NDArray[np.int64], batch: int, smallest: int = 1) -> Iterator[NDArray[np.int64]]:
    """Sample numbers of every batch; the last batch of an epoch may be short.

    A last batch of fewer than `smallest` samples joins the one before it, if there is one: batch normalisation cannot
    be trained on a single sample.
    """
    for order in orders:
        starts = list(range(0, len(order), batch))
        if len(starts) > 1 and len(order) - starts[-1] < smallest:
            del starts[-1]
        for start, stop in zip(starts, [*starts[1:], len(order)], strict=True):
            yield order[start:stop]
