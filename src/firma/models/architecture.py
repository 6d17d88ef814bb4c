"""What a model computes, as plain data and as a hash: its modules, their options, and the code of the user's own.

Two models of equal shapes may compute different things: GELU or Tanh, dropout of 0.1 or 0.9, another line in `forward`.
A checkpoint belongs to one of them, so its run is named by this hash too.

Code is hashed as Python executes it, so comments and layout do not matter, and classes from an interactive session
count like those from files. Another minor version of Python compiles to other code, which is another hash.
"""

import functools
import hashlib
import json
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from firma.models.split_model import SplitModel

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.Size)
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_INTERNAL = frozenset(vars(nn.Module()))  # attributes that every module has
_LIBRARIES = frozenset(sys.stdlib_module_names) | {"torch", "numpy"}  # code that is named, not hashed
_ABOUT_CODE = {"__doc__", "__module__", "__qualname__", "__annotations__", "__firstlineno__", "__static_attributes__"}
_DEPTH = 4  # of objects within objects


@dataclass(frozen=True)
class _Known:
    """Whether code counts, and the hashes of functions and classes so far, by identity."""

    code: bool
    hashes: dict[int, str] = field(default_factory=dict)


def describe(model: SplitModel, code: bool = True) -> dict[str, Any]:
    """The structure of a model as plain data, ready for JSON; without `code`, the same for any version of Python.

    What the inputs are, and all modules in order: type, options, tensors (name, shape, dtype; frozen, tied to another,
    a private or a shared buffer), hooks, and the hash of the code if the type is the user's own; then the names of
    private parameters, if there are any. Values of parameters and buffers are not part of it.
    """
    known = _Known(code)
    first: dict[int, str] = {}
    shared = {name for name, _ in model.named_shared_buffers()}
    modules = [
        _module(f"{part}.{name}" if name else part, module, first, shared, known)
        for part, whole in (("extractor", model.extractor), ("head", model.head))
        for name, module in whole.named_modules(remove_duplicate=False)
    ]
    private = {"private": sorted(model.private)} if model.private else {}
    return {"inputs": model.inputs, "modules": modules} | private


def digest(model: SplitModel, code: bool = True) -> str:
    """The first half of the SHA-256 of `describe`, in hexadecimal."""
    return _hash(json.dumps(describe(model, code), sort_keys=True))


def _module(name: str, module: nn.Module, first: dict[int, str], shared: set[str], known: _Known) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "type": _name(type(module)), "options": _options(module, known)}
    if code := _class(type(module), known):
        found["code"] = code
    tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
    if tensors:
        found["tensors"] = [_tensor(f"{name}.{own}", tensor, first, shared) for own, tensor in tensors]
    hooks = [_value(hook, known) for kind in _HOOKS for hook in vars(module).get(kind, {}).values()]
    return found | ({"hooks": hooks} if hooks else {})


def _tensor(name: str, tensor: Tensor, first: dict[int, str], shared: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype)}
    if (earlier := first.setdefault(id(tensor), name)) != name:
        found["tied"] = earlier
    if isinstance(tensor, nn.Parameter):
        return found | ({} if tensor.requires_grad else {"frozen": True})
    return found | {"buffer": "shared" if name in shared else "private"}


def _options(module: nn.Module, known: _Known) -> dict[str, Any]:
    """What a module was told: its `extra_repr`, and its attributes that are not modules, parameters or buffers."""
    held = {name: value for name, value in vars(module).items() if name not in _INTERNAL}
    computed = (name for name, value in held.items() if isinstance(value, Tensor) and not value.is_leaf)
    for name in list(computed):  # by an earlier forward pass, such as weight_norm's weight
        del held[name]
    return {"repr": module.extra_repr()} | {name: _value(held[name], known) for name in sorted(held)}


def _value(held: object, known: _Known, depth: int = 0) -> Any:  # noqa: PLR0911  # one per kind of value
    """A value as plain data: functions by their code, arrays by their bytes, objects by their type and attributes."""
    if isinstance(held, _PLAIN):
        return repr(held)
    if isinstance(held, np.ndarray | Tensor):
        array = held.detach().cpu().float().numpy() if isinstance(held, Tensor) else held
        return f"{type(held).__name__} {tuple(held.shape)} {held.dtype} {_hash(array.tobytes())}"
    if isinstance(held, types.MethodType):
        return _value(held.__func__, known, depth)
    if isinstance(held, types.FunctionType):
        return f"{_name(held)} {_function(held, known)}".rstrip()
    if isinstance(held, type):
        return f"{_name(held)} {_class(held, known)}".rstrip()
    if isinstance(held, nn.Module) or depth == _DEPTH:
        return _name(type(held))
    if isinstance(held, functools.partial):
        return ["partial", *(_value(each, known, depth + 1) for each in (held.func, held.args, held.keywords))]
    if isinstance(held, set | frozenset):
        return sorted((_value(each, known, depth + 1) for each in held), key=str)
    if isinstance(held, list | tuple):
        return [_value(each, known, depth + 1) for each in held]
    if isinstance(held, Mapping):
        return {str(key): _value(each, known, depth + 1) for key, each in held.items()}
    if callable(held) and hasattr(held, "__qualname__"):  # torch.relu and other functions in C
        return _name(held)
    kind = f"{_name(type(held))} {_class(type(held), known)}".rstrip()
    return [kind, _value(vars(held), known, depth + 1)] if hasattr(held, "__dict__") else kind


def _class(kind: type, known: _Known) -> str:
    """The hash of a class of the user's own, its bases included; empty for one of a library."""
    if not known.code or _of_a_library(kind):
        return ""
    if id(kind) not in known.hashes:
        known.hashes[id(kind)] = _name(kind)  # until it is hashed, for classes and functions refer to each other
        parts = [
            f"{name}={_member(held, known)}"
            for each in kind.__mro__
            if not _of_a_library(each)
            for name, held in sorted(vars(each).items())
            if name not in _ABOUT_CODE
        ]
        known.hashes[id(kind)] = _hash("\n".join(parts))
    return known.hashes[id(kind)]


def _member(held: Any, known: _Known) -> Any:
    """An attribute of a class: methods and properties by their code."""
    if isinstance(held, property):
        return [_member(each, known) for each in (held.fget, held.fset) if each is not None]
    function = getattr(held, "__func__", held)  # of static and class methods
    if isinstance(function, (types.FunctionType, types.BuiltinFunctionType, tuple, list, dict, *_PLAIN)):
        return _value(function, known)
    return type(held).__name__


def _function(function: types.FunctionType, known: _Known) -> str:
    """The hash of a function of the user's own and of what it uses; empty for one of a library."""
    if not known.code or _of_a_library(function):
        return ""
    if id(function) not in known.hashes:
        known.hashes[id(function)] = _name(function)
        used = list(_used(function, known))
        cells = [_value(cell.cell_contents, known, 1) for cell in function.__closure__ or () if _filled(cell)]
        given = [_value(each, known, 1) for each in (function.__defaults__, function.__kwdefaults__)]
        known.hashes[id(function)] = _hash(str([_executed(function.__code__), used, cells, given]))
    return known.hashes[id(function)]


def _used(function: types.FunctionType, known: _Known) -> Iterator[str]:
    """What a function finds by name in its module: functions, classes and constants of the user's own.

    Installed packages are not followed: their classes count as they are, but not what those use in turn.
    """
    if "site-packages" in function.__code__.co_filename:
        return
    names = sorted(set(_names(function.__code__)))
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for held in [each for each in found.values() if isinstance(each, types.ModuleType)]:
        if held.__name__.partition(".")[0] not in _LIBRARIES:
            found |= {f"{held.__name__}.{name}": vars(held)[name] for name in names if name in vars(held)}
    for name, held in found.items():
        if not name.startswith("__") and isinstance(held, (types.FunctionType, type, tuple, *_PLAIN)):
            yield f"{name}={_value(held, known, 1)}"


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _executed(code: types.CodeType) -> str:
    """What Python executes: instructions, names and constants, without line numbers."""
    constants = [_executed(each) if isinstance(each, types.CodeType) else _constant(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {constants}"


def _constant(held: object) -> str:
    """A constant of compiled code; the order of a set depends on the process."""
    return f"{{{sorted(map(repr, held))}}}" if isinstance(held, frozenset) else repr(held)


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a variable that has no value yet
        return False


def _of_a_library(written: Any) -> bool:
    return str(getattr(written, "__module__", None)).partition(".")[0] in _LIBRARIES


def _name(written: Any) -> str:
    return f"{getattr(written, '__module__', None)}.{getattr(written, '__qualname__', type(written).__name__)}"


def _hash(written: str | bytes) -> str:
    return hashlib.sha256(written.encode() if isinstance(written, str) else written).hexdigest()[:32]
