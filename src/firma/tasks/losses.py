"""The loss of each task, and losses and metrics of the user's own, given as functions or by reference."""

import hashlib
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from firma.errors import BadInput
from firma.tasks.task import METRICS, OwnFunction, Task, TaskName

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (n, K) and targets to a scalar
LOSSES: dict[TaskName, Loss] = {
    "classification": nn.functional.cross_entropy,
    "multi-label": nn.functional.binary_cross_entropy_with_logits,
    "regression": nn.functional.mse_loss,
}


@dataclass(frozen=True)
class OwnLoss:
    """A loss of the user's own, whose value is checked: a scalar tensor that has a gradient in training."""

    own: OwnFunction

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of a batch."""
        value = self.own.function(outputs, targets)
        if not isinstance(value, Tensor) or value.numel() != 1:
            shown = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise BadInput(f"loss {self.own.name}: returned {shown}; must return a scalar tensor")
        if outputs.requires_grad and not value.requires_grad:
            raise BadInput(
                f"loss {self.own.name}: its value does not depend on the outputs through torch operations, so it has "
                "no gradient"
            )
        return value.reshape(())


def objective(task: Task) -> Loss:
    """What training minimises: the user's own loss, else that of the task."""
    return LOSSES[task.name] if task.loss is None else OwnLoss(task.loss)


def described(loss: Loss) -> str:
    """A loss for people; empty for cross-entropy, which the compiled kernels have."""
    names = {"classification": "", "multi-label": "binary cross-entropy", "regression": "the squared error"}
    return next((names[task] for task, usual in LOSSES.items() if loss is usual), "a custom loss")


def own_function(source: Any, what: str) -> OwnFunction:
    """A function given as PACKAGE.MODULE:FUNCTION, or itself. The current folder is searched as `python -m` does."""
    if not isinstance(source, str):
        if not callable(source):
            raise BadInput(f"{what} = {source!r}: must be a function(outputs, targets), or 'package.module:function'")
        name = getattr(source, "__qualname__", type(source).__name__)
        return OwnFunction(f"{getattr(source, '__module__', '?')}:{name}", source)
    found = imported(source, what)
    if not callable(found):
        raise BadInput(f"{what} = {source!r}: {source.partition(':')[2]!r} is not a function")
    return OwnFunction(source, found)


def imported(source: str, what: str) -> Any:
    """What PACKAGE.MODULE:NAME refers to. The current folder is searched as `python -m` does."""
    module, colon, name = source.partition(":")
    if not module or not colon or not name:
        raise BadInput(f"{what} = {source!r}: must have the form package.module:function")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise BadInput(f"{what} = {source!r}: module {module!r} cannot be imported ({error})") from None
    except AttributeError:
        raise BadInput(f"{what} = {source!r}: module {module!r} has no {name!r}") from None


def own_metrics(sources: Sequence[Any], task: TaskName) -> tuple[OwnFunction, ...]:
    """Metrics of the user's own by the name of their function, which is their name in the results."""
    found: dict[str, OwnFunction] = {}
    for source in sources:
        own = own_function(source, "metric")
        name = own.name.partition(":")[2].rpartition(".")[2]
        if name in found or name in METRICS[task]:
            raise BadInput(f"metric = {own.name!r}: there already is a metric {name!r}; rename the function")
        found[name] = OwnFunction(name, own.function)
    return tuple(found.values())


def own_value(own: OwnFunction, outputs: Tensor, targets: Tensor) -> float:
    """A metric or loss of the user's own for one client."""
    with torch.no_grad():
        value = own.function(outputs, targets)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BadInput(f"{own.name}: returned {type(value).__name__}; must return a number") from None


def identity(own: OwnFunction) -> str:
    """What identifies a function in a checkpoint: its name and, where it can be read, its source."""
    try:
        return f"{own.name}#{hashlib.sha256(inspect.getsource(own.function).encode()).hexdigest()}"
    except (OSError, TypeError):
        return own.name
