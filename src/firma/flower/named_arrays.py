"""An app's named arrays as FIRMA's flat model: what is shared lies in the extractor, what is private in the head.

Floating-point arrays are parameters, in float32. Arrays of integers, such as the batch counter of a BatchNorm layer,
cannot be averaged: every client keeps its own.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from firma.errors import BadInput, unknown
from firma.models.split_model import SplitModel
from firma.training.local_step import BUFFER, Client

Array = NDArray[Any]
CONTEXT = BUFFER + "head.flower_context"  # context.state of the app, as bytes, in a client's memory
_SHOWN = 12  # names in an error


class Holder(nn.Module):
    """Arrays of an app as parameters and buffers under their own names; it has no forward pass."""

    def __init__(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, values in parameters.items():  # not register_parameter: names of arrays may contain dots
            self._parameters[name] = nn.Parameter(values)
        for name, values in buffers.items():
            self._buffers[name] = values


@dataclass(frozen=True)
class ArraySpec:
    """One array: its name, shape and dtype in the app, and the slice of the flat model; None: private to a client."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    span: slice | None

    def record(self) -> dict[str, Any]:
        """As plain data, for a result."""
        start = None if self.span is None else self.span.start
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype.name, "start": start}

    @classmethod
    def recorded(cls, plain: Mapping[str, Any]) -> "ArraySpec":
        """The inverse of `record`."""
        shape, start = tuple(plain["shape"]), plain["start"]
        span = None if start is None else slice(start, start + math.prod(shape))
        return cls(plain["name"], shape, np.dtype(plain["dtype"]), span)


@dataclass(frozen=True)
class Template:
    """The arrays in the app's order, and the model that holds them."""

    specs: tuple[ArraySpec, ...]
    model: SplitModel

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all arrays."""
        return tuple(spec.name for spec in self.specs)

    def arrays(self, client: Client) -> dict[str, Array]:
        """A client's arrays as the app knows them; copies."""
        return unpacked(self.specs, client.parameters, client.memory)

    def adopt(self, client: Client, arrays: Sequence[Array]) -> None:
        """A client takes over arrays in the app's order."""
        for spec, array in zip(self.specs, arrays, strict=True):
            values = torch.from_numpy(np.ascontiguousarray(array, dtype=_stored(spec.dtype)))
            held = client.memory[_private(spec.name)] if spec.span is None else client.parameters[spec.span]
            held.copy_(values.reshape(held.shape))


def unpacked(specs: Sequence[ArraySpec], flat: Tensor, memory: Mapping[str, Tensor]) -> dict[str, Array]:
    """The arrays in a flat model (P,) and, for those that are private, in a client's memory; copies."""
    found: dict[str, Array] = {}
    for spec in specs:
        held = memory[_private(spec.name)] if spec.span is None else flat[spec.span]
        found[spec.name] = held.detach().cpu().numpy().astype(spec.dtype).reshape(spec.shape)
    return found


def template(arrays: Mapping[str, Array], head: Sequence[int | str]) -> Template:
    """Divide an app's arrays into extractor and head; an empty `head` leaves the head empty."""
    names = list(arrays)
    chosen = _chosen(names, head)
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise BadInput(f"flower app: array {name!r} has dtype {array.dtype}; must be floating-point or integer")
    parts: dict[str, dict[str, Tensor]] = {"extractor": {}, "head": {}, "private": {}}
    for name, array in arrays.items():
        part = "private" if array.dtype.kind != "f" else "head" if name in chosen else "extractor"
        parts[part][name] = torch.from_numpy(np.array(array, dtype=_stored(array.dtype)))
    if not parts["extractor"]:
        raise BadInput(f"flower app: head = {list(head)} names every array, so there is nothing to share")
    buffers = parts["private"] | {"flower_context": torch.zeros(0, dtype=torch.uint8)}
    model = SplitModel(Holder(parts["extractor"], {}), Holder(parts["head"], buffers))
    places = {piece.name.partition(".")[2]: slice(piece.start, piece.stop) for piece in model.layout().pieces}
    specs = (ArraySpec(name, array.shape, array.dtype, places.get(name)) for name, array in arrays.items())
    return Template(tuple(specs), model)


def tell_what_changes(made: Template) -> None:
    """Warn where the arrays cannot be handled exactly as Flower would."""
    wide = [spec.name for spec in made.specs if spec.dtype == np.float64]
    if wide:
        warnings.warn(f"float64 arrays are kept and sent as float32: {listed(wide)}", UserWarning, stacklevel=3)
    private = [spec.name for spec in made.specs if spec.span is None]
    if private:
        warnings.warn(
            f"integer arrays are not averaged, each client keeps its own: {listed(private)}", UserWarning, stacklevel=3
        )


def listed(names: Sequence[str]) -> str:
    """Names for a message: all, or the first of many."""
    more = f", … ({len(names)} in all)" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _chosen(names: Sequence[str], head: Sequence[int | str]) -> set[str]:
    """The names that `head` selects: by index, name or pattern."""
    chosen: set[str] = set()
    for entry in head:
        if isinstance(entry, int):
            if not -len(names) <= entry < len(names):
                raise BadInput(
                    f"head = {entry}: the app has {len(names)} arrays, numbered from 0 (or from the end, -1)"
                )
            chosen.add(names[entry])
            continue
        found = {name for name in names if name == entry or fnmatchcase(name, entry)}
        if not found:
            raise unknown("head: array", entry, names)
        chosen |= found
    return chosen


def _private(name: str) -> str:
    """Where a client's memory holds a private array."""
    return f"{BUFFER}head.{name}"


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """How an array is held: floating-point as float32, integers as they are."""
    return np.dtype(np.float32) if dtype.kind == "f" else dtype
