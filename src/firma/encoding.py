"""Encodings of parameters in messages: float32, bfloat16 or int8. Pure functions; messages are built elsewhere.

Each tensor, or slice of a tensor, is encoded on its own. int8 is symmetric: every `BLOCK` elements share one float32
scale, their largest magnitude / 127, and an element is the nearest of the 255 multiples, ties to even. Equal elements
give equal bytes on every machine.
"""

from typing import get_args

import numpy as np
from numpy.typing import NDArray

from firma.errors import unknown
from firma.settings import Wire

__all__ = ["BLOCK", "WIRES", "Bytes", "Floats", "Wire", "checked_wire", "pack", "size", "unpack"]
WIRES: tuple[Wire, ...] = get_args(Wire)
BLOCK = 1024  # elements per scale; docs/deploy.md has the measurement
_LEVELS = 127
_LARGEST = 1e38  # the largest magnitude that the narrow encodings accept; beyond it rounding could give infinity
_TINY = 2.0**-120  # smaller scales count as 0: whether a processor flushes denormal numbers must not matter
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


def checked_wire(name: str) -> Wire:
    """The encoding of that name."""
    for wire in WIRES:
        if wire == name:
            return wire
    raise unknown("wire", name, WIRES)


def size(wire: Wire, count: int) -> int:
    """Bytes of `count` elements: 4 or 2 each, or 1 each plus 4 per block, the last block possibly short."""
    if wire == "int8":
        return count + 4 * _blocks(count)
    return count * (4 if wire == "float32" else 2)


def pack(wire: Wire, values: Floats) -> Bytes:
    """(n,) floats as (size,) bytes, little-endian; `ValueError` for values that are not finite or too large."""
    values = np.ascontiguousarray(values, dtype="<f4")
    if not np.isfinite(values).all():
        raise ValueError("NaN or infinity")
    if wire == "float32":
        return values.view(np.uint8)
    if np.abs(values).max(initial=0.0) > _LARGEST:
        raise ValueError(f"a number beyond {_LARGEST:g}, too large for {wire}")
    return _halved(values) if wire == "bfloat16" else _quantised(values)


def unpack(wire: Wire, raw: Bytes, count: int) -> Floats:
    """(n,) floats of (size,) bytes; `ValueError` if their number is wrong or a value is not finite."""
    if len(raw) != size(wire, count):
        raise ValueError(f"{len(raw)} bytes instead of {size(wire, count)}")
    if wire == "float32":
        values: Floats = raw.view("<f4")
    elif wire == "bfloat16":
        values = (raw.view("<u2").astype("<u4") << 16).view("<f4")
    else:
        values = _expanded(raw, count)
    if not np.isfinite(values).all():
        raise ValueError("NaN or infinity")
    return values.astype(np.float32, copy=False)


def _halved(values: Floats) -> Bytes:
    """The upper half of each float's bits, rounded to nearest, ties to even."""
    bits = values.view("<u4")
    upper = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    raw: Bytes = upper.astype("<u2").view(np.uint8)
    return raw


def _quantised(values: Floats) -> Bytes:
    """All scales, then all elements."""
    grid = _grid(values)
    scales = np.abs(grid).max(axis=1) / np.float32(_LEVELS)
    scales[scales < _TINY] = 0.0
    steps = np.where(scales > 0, scales, np.float32(1.0))[:, None]
    levels = np.clip(np.rint(grid / steps), -_LEVELS, _LEVELS).astype(np.int8)
    return np.concatenate([scales.astype("<f4").view(np.uint8), levels.reshape(-1)[: len(values)].view(np.uint8)])


def _expanded(raw: Bytes, count: int) -> Floats:
    blocks = _blocks(count)
    scales, levels = raw[: 4 * blocks].view("<f4"), raw[4 * blocks :].view(np.int8)
    if not (np.isfinite(scales).all() and (scales >= 0).all()):
        raise ValueError("a scale that is negative or not finite")
    if (levels < -_LEVELS).any():
        raise ValueError(f"a level below -{_LEVELS}")
    with np.errstate(over="ignore"):  # too large a scale gives infinity, which unpack refuses
        values: Floats = (_grid(levels.astype(np.float32)) * scales[:, None]).reshape(-1)[:count]
    return values


def _grid(values: Floats) -> Floats:
    """(blocks, BLOCK) elements, the last row padded with zeros."""
    filled = np.zeros(_blocks(len(values)) * BLOCK, np.float32)
    filled[: len(values)] = values
    return filled.reshape(-1, BLOCK)


def _blocks(count: int) -> int:
    return -(-count // BLOCK)
