"""Calls an algorithm's hooks, and says in a sentence what is wrong with one: which hook, which client, which round.

What a hook keeps must be where checkpoints, worker processes and other machines find it: in the tensors that `memory`
and `mixed` declared. A hook may assign a new tensor of the same shape; its values are then copied to the declared one.
"""

import inspect
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from firma.errors import BadInput
from firma.models.reference import said
from firma.training.algorithm import PERSONAL, START, TAKEN, Algorithm, ClientRound, LocalStep, ServerRound, overrides

if TYPE_CHECKING:
    from firma.models.split_model import SplitModel
    from firma.training.local_step import Memory, Step

HOOKS = (
    "fitted", "memory", "mixed", "is_private", "before_training", "change_gradient", "local_step", "after_training",
    "after_mixing", "server_memory", "aggregate",
)  # fmt: skip
# Names in a client's memory that belong to the package; "personal" may be declared: it is then what is tested.
_RESERVED = (START, TAKEN, "class_shares")
_PREFIXES = ("optimiser.", "buffer.", f"{PERSONAL}.buffer.")
PARAMETERS = "parameters"  # in the spans of a server's vector: the shared parameters, beside the mixed vectors


def title(algorithm: Algorithm) -> str:
    """What an algorithm is called in sentences: its name, or MODULE:CLASS of one that has none."""
    kind = type(algorithm)
    named = kind is Algorithm or algorithm.name != Algorithm.name
    return algorithm.name if named else f"{kind.__module__}:{kind.__qualname__}"


def is_own(algorithm: Algorithm) -> bool:
    """Whether the algorithm is not one of this package."""
    return type(algorithm).__module__.partition(".")[0] != "firma"


def sees_parameters(algorithm: Algorithm) -> bool:
    """Whether hooks of the user's own see a client's parameters, which must then be in torch's order."""
    hooks = ("memory", "before_training", "after_training", "after_mixing")
    return is_own(algorithm) and any(overrides(algorithm, hook) for hook in hooks)


def check(algorithm: Algorithm) -> Algorithm:
    """The algorithm itself, if its hooks can be called as they will be; a method that is almost a hook is warned of."""
    _check_class(type(algorithm))  # type: ignore[arg-type]  # mypy takes a class for unhashable
    _ = algorithm.identity  # settings that cannot identify a run are refused
    return algorithm


@cache
def _check_class(kind: type[Algorithm]) -> None:
    what = f"algorithm {kind.__module__}:{kind.__qualname__}"
    for hook in HOOKS:
        mine = inspect.signature(getattr(Algorithm, hook))
        found = inspect.getattr_static(kind, hook)
        if not inspect.isfunction(found):
            raise BadInput(f"{what}: {hook} is of type {type(found).__name__}; must be a method, def {hook}{mine}")
        theirs = inspect.signature(found)
        try:
            theirs.bind(*mine.parameters)
        except TypeError:
            names = ", ".join(theirs.parameters)
            raise BadInput(f"{what}: {hook} takes ({names}); must take ({', '.join(mine.parameters)})") from None
    bases = [each for each in kind.__mro__ if each not in Algorithm.__mro__]
    for name in dict.fromkeys(name for each in bases for name in vars(each)):
        near = get_close_matches(name, HOOKS, 1, cutoff=0.8)
        if near and name not in HOOKS and not name.startswith("_"):
            hint = f"(did you mean {near[0]!r}?)"
            warnings.warn(f"{what}: {name} is not a hook and is never called {hint}", UserWarning, stacklevel=2)
    if _has(kind, "server_memory") and not _has(kind, "aggregate"):
        warnings.warn(
            f"{what}: server_memory is never used, because only aggregate reads it and the class has none; define "
            "aggregate, or keep state of clients in memory",
            UserWarning,
            stacklevel=2,
        )


def _has(kind: type[Algorithm], hook: str) -> bool:
    return getattr(kind, hook) is not getattr(Algorithm, hook)


def client_hook(algorithm: Algorithm, hook: str, one: ClientRound) -> None:
    """Call `before_training`, `after_training` or `after_mixing`, if the algorithm has it."""
    if not overrides(algorithm, hook):
        return
    sound = _unsound(one.memory, {"parameters": one.parameters, "start": one.start}) is None
    _called(algorithm, hook, (one,), one.memory, one.client, one.number)
    broken = _unsound(one.memory, {"parameters": one.parameters}) if sound else None
    if broken is not None:
        raise BadInput(
            f"{_where(algorithm, hook, one.client, one.number)} made {broken} NaN or infinite; look for divisions by "
            "zero, and for numbers that grow from round to round"
        )


def change_gradient(algorithm: Algorithm, gradients: Tensor, step: "Step", client: int, number: int) -> None:
    """Call the hook between the backward pass and the update."""
    sound = bool(gradients.sum().isfinite())
    _called(algorithm, "change_gradient", (gradients, step), step.memory, client, number)
    if sound and not bool(gradients.isfinite().all()):
        raise BadInput(f"{_where(algorithm, 'change_gradient', client, number)} made gradients NaN or infinite")


def local_step(algorithm: Algorithm, step: LocalStep, diverged: Callable[[], bool]) -> None:
    """Call the local step of one batch; `diverged` says afterwards whether training itself made NaN or infinity in it.

    Rows of the table are not checked: what they compute is known, so that it is their numbers that are too large, and a
    run with such numbers ends with a warning instead.
    """
    hook, held = "local_step", {"parameters": step.parameters}
    own = {name: kept for name, kept in step.memory.items() if name not in _RESERVED and not name.startswith(_PREFIXES)}
    watched = is_own(algorithm) and _unsound(own, held) is None
    _called(algorithm, hook, (step,), step.memory, step.client, step.number)
    if watched and (broken := _unsound(own, held)) and not diverged():
        raise BadInput(
            f"{_where(algorithm, hook, step.client, step.number)} made {broken} NaN or infinite; look for "
            "divisions by zero, and for numbers that grow from step to step"
        )


def aggregate(algorithm: Algorithm, server: ServerRound) -> Tensor:
    """(q,) what the server makes of what it received; a new tensor."""
    hook, number, expected = "aggregate", server.number, server.start
    sound = _unsound(server.memory, {"start": server.start, "received": server.received}) is None
    found = _called(algorithm, hook, (server,), server.memory, None, number, returns=True)
    where = _where(algorithm, hook, None, number)
    if not isinstance(found, Tensor) or found.shape != expected.shape:
        shown = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise BadInput(f"{where} returned {shown}; must return a tensor of shape {tuple(expected.shape)}")
    if sound and (broken := _unsound(server.memory, {"the result": found})):
        raise BadInput(f"{where} made {broken} NaN or infinite; look for divisions by zero")
    return found.detach().to(expected, copy=True)


def declared(algorithm: Algorithm, hook: str, *given: Any) -> "Memory":
    """What `memory` or `server_memory` declares, checked."""
    found = _plainly(algorithm, hook, given)
    what = f"algorithm {title(algorithm)}: {hook}"
    if not isinstance(found, dict):
        raise BadInput(f"{what} returned {type(found).__name__}; must return a dict of tensors by name")
    for name, tensor in found.items():
        _check_name(what, name)
        if not isinstance(tensor, Tensor):
            raise BadInput(
                f"{what}: {name!r} is of type {type(tensor).__name__}; must be a tensor, such as torch.zeros(1) for a "
                "number"
            )
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise BadInput(f"{what}: {name!r} contains NaN or infinity")
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def mixed(algorithm: Algorithm, shared: int) -> dict[str, int]:
    """Names and sizes of the vectors that travel with the parameters, checked."""
    if not overrides(algorithm, "mixed"):
        return {}
    found = _plainly(algorithm, "mixed", (shared,))
    what = f"algorithm {title(algorithm)}: mixed"
    if not isinstance(found, Mapping):
        raise BadInput(f"{what} returned {type(found).__name__}; must return a dict of sizes by name")
    for name, size in found.items():
        _check_name(what, name)
        if name == PARAMETERS:
            raise BadInput(f"{what}: the name {name!r} is reserved for the shared parameters; choose another")
        if name == PERSONAL:
            raise BadInput(f"{what}: the name {name!r} is taken: a personal model stays with the client")
        if type(size) is not int or size < 1:
            raise BadInput(f"{what}: {name!r} has size {size!r}; must be a whole number of at least 1")
    return dict(found)


def check_memory(
    algorithm: Algorithm, own: "Memory", parameters: Tensor, others: "Memory", sizes: Mapping[str, int]
) -> None:
    """Refuse names that something else in a client's memory has, and a personal model of another size."""
    what = f"algorithm {title(algorithm)}: memory"
    for name, tensor in own.items():
        if name in others or name in sizes:
            taken = "by `mixed`" if name in sizes else "by the package"
            raise BadInput(f"{what}: the name {name!r} is already taken {taken}; choose another")
        if name == PERSONAL and tensor.shape != parameters.shape:
            raise BadInput(
                f"{what}: {name!r} has shape {tuple(tensor.shape)}; it is the model that is tested in place of the "
                f"mixed one and must have shape {tuple(parameters.shape)}"
            )


def fitted(algorithm: Algorithm, model: "SplitModel") -> Algorithm:
    """The algorithm with what it must know of the model."""
    found = _plainly(algorithm, "fitted", (model,))
    if not isinstance(found, Algorithm):
        raise BadInput(
            f"algorithm {title(algorithm)}: fitted returned {type(found).__name__}; must return an algorithm, such as "
            "dataclasses.replace(self, ...)"
        )
    return found


def is_private(algorithm: Algorithm, name: str, module: nn.Module) -> bool:
    """Whether the algorithm keeps a parameter with the client."""
    if not overrides(algorithm, "is_private"):
        return False
    found = _plainly(algorithm, "is_private", (name, module))
    if type(found) is not bool:
        raise BadInput(
            f"algorithm {title(algorithm)}: is_private returned {type(found).__name__} for {name!r}; must return "
            "True or False"
        )
    return found


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise BadInput(f"{what}: the name {name!r} must be text")
    if name in _RESERVED or name.startswith(_PREFIXES):
        raise BadInput(f"{what}: the name {name!r} is reserved for the package; choose another")


def _plainly(algorithm: Algorithm, hook: str, given: tuple[Any, ...]) -> Any:
    """Call a hook that belongs to no round."""
    try:
        return getattr(algorithm, hook)(*given)
    except BadInput as error:
        if not is_own(algorithm):
            raise  # it says all there is to say; where it was raised is of no use to anybody
        raise _failure(algorithm, f"algorithm {title(algorithm)}: {hook}", error) from error
    except Exception as error:
        raise _failure(algorithm, f"algorithm {title(algorithm)}: {hook}", error) from error


def _called(
    algorithm: Algorithm, hook: str, given: tuple[Any, ...], memory: Mapping[str, Tensor], client: int | None,
    number: int, returns: bool = False,
) -> Any:  # fmt: skip
    before = dict(memory)
    try:
        found = getattr(algorithm, hook)(*given)
    except Exception as error:
        raise _failure(algorithm, _where(algorithm, hook, client, number), error) from error
    if found is not None and not returns:
        raise BadInput(
            f"{_where(algorithm, hook, client, number)} returned {type(found).__name__}; must return nothing and "
            "change what it is given in place, as in gradients.add_(...)"
        )
    if memory.keys() != before.keys() or any(memory[name] is not kept for name, kept in before.items()):
        assert isinstance(memory, dict)
        _keep(memory, before, _where(algorithm, hook, client, number))
    return found


def _keep(memory: "Memory", before: "Memory", where: str) -> None:
    """Copy newly assigned tensors into the declared ones, which are those that checkpoints and processes know."""
    for name in before:
        if name not in memory:
            raise BadInput(f"{where} removed {name!r} from memory; memory keeps the names that it was declared with")
    for name, tensor in list(memory.items()):
        if name not in before:
            raise BadInput(f"{where} added {name!r} to memory; declare it in memory, or in server_memory, first")
        kept = before[name]
        if not isinstance(tensor, Tensor):
            raise BadInput(f"{where} assigned {type(tensor).__name__} to memory {name!r}; must be a tensor")
        if tensor.shape != kept.shape:
            raise BadInput(
                f"{where} changed the shape of {name!r} from {tuple(kept.shape)} to {tuple(tensor.shape)}; memory and "
                "mixed vectors keep their shapes"
            )
        if not torch.can_cast(tensor.dtype, kept.dtype):
            now, declared_as = (str(each.dtype).removeprefix("torch.") for each in (tensor, kept))
            raise BadInput(
                f"{where} assigned {now} to {name!r}, which was declared as {declared_as} and would round it; declare "
                f"it as {now}, or assign {declared_as}"
            )
        if tensor is not kept:
            kept.copy_(tensor.detach())
            memory[name] = kept


def _unsound(memory: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> str | None:
    """The first of these tensors that holds NaN or infinity."""
    named = {**others, **{f"memory {name!r}": tensor for name, tensor in memory.items()}}
    for name, tensor in named.items():
        if tensor.is_floating_point() and not is_finite(tensor):
            return name
    return None


def is_finite(tensor: Tensor) -> bool:
    """Whether a tensor holds neither NaN nor infinity; of a finite sum, no element does."""
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())


def _where(algorithm: Algorithm, hook: str, client: int | None, number: int) -> str:
    who = "" if client is None else f" for client {client}"
    return f"algorithm {title(algorithm)}: {hook}{who} in round {number + 1}"


def _failure(algorithm: Algorithm, where: str, error: Exception) -> BadInput:
    """A sentence, then the lines of the user's traceback: it is read where the error itself does not arrive."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    lines = "".join(traceback.format_list(frames)).rstrip()
    hint = (
        "; change tensors in place, as in one.parameters.copy_(...)" if isinstance(error, FrozenInstanceError) else ""
    )
    told = f"{where} failed ({said(error, type(algorithm).__module__)}){hint}"
    return BadInput(told + (f"\n{lines}" if lines else ""))
