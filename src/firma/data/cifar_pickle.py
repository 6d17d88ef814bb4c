"""CIFAR-10's pickled batches, read without running anything that a pickle asks for.

This is the only module that imports pickle: the official archive of CIFAR-10 has no other form in Python's version.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from firma.data.cache import Bytes
from firma.errors import BadInput

_LARGEST = 64 << 20  # a real batch has 31 MB


class _Captured:
    """Stands in for a pickled array and its dtype: it stores the state that a pickle gives it and does nothing else."""

    def __init__(self, kind: object) -> None:
        self.kind = kind
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _RestrictedUnpickler(pickle.Unpickler):
    """Accepts the three names that a pickled NumPy array needs, and resolves each to a stand-in.

    NumPy's own functions are never called: a forged dtype could make them read the bytes as pointers.
    """

    def find_class(self, module: str, name: str) -> Any:
        """A new stand-in for each call, so that a pickle that tampers with one has no lasting effect."""
        if (module, name) in (("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")):
            return lambda _kind, _shape, _typecode: _Captured("array")
        if (module, name) == ("numpy", "dtype"):
            return lambda code, _align, _copy: _Captured(code)
        if (module, name) == ("numpy", "ndarray"):
            return object()  # only ever an argument of _reconstruct
        raise pickle.UnpicklingError(f"it refers to {module}.{name}; only NumPy arrays are allowed")


def read_batch(path: Path) -> tuple[Bytes, Bytes]:
    """Pixels (n, 3072) and labels (n,) of one pickled batch."""
    if path.stat().st_size > _LARGEST:
        raise BadInput(f"{path}: {path.stat().st_size:,} bytes, larger than any CIFAR-10 batch")
    try:
        with path.open("rb") as file:
            batch = _RestrictedUnpickler(file, encoding="bytes").load()
    except (Exception, MemoryError) as error:  # a damaged or forged pickle can raise anything
        raise BadInput(f"{path}: not a CIFAR-10 batch ({error})") from None
    if not isinstance(batch, dict) or not {b"data", b"labels"} <= batch.keys():
        raise BadInput(f"{path}: not a CIFAR-10 batch (no dictionary with data and labels)")
    return _pixels(batch[b"data"], path), _labels(batch[b"labels"], path)


def _pixels(data: object, path: Path) -> Bytes:
    state = data.state if isinstance(data, _Captured) and data.kind == "array" else None
    if isinstance(state, tuple) and len(state) == 5:
        _, shape, kind, fortran, raw = state
        sound = isinstance(kind, _Captured) and kind.kind in (b"u1", "u1") and isinstance(raw, bytes)
        if sound and fortran in (0, False) and shape == (len(raw) // 3072, 3072) and len(raw) % 3072 == 0:
            return np.frombuffer(raw, np.uint8).reshape(-1, 3072)
    raise BadInput(f"{path}: not a CIFAR-10 batch (data is not an array of bytes with 3072 columns)")


def _labels(labels: object, path: Path) -> Bytes:
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 10 for label in labels):
        raise BadInput(f"{path}: not a CIFAR-10 batch (labels are not integers from 0 to 9)")
    return np.array(labels, dtype=np.uint8)
