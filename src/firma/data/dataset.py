"""A data set in memory, the one that comes with scikit-learn, and arrays of the user's own."""

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firma.errors import BadInput

Array = NDArray[Any]
SPLIT_SEED = 42


@dataclass(frozen=True)
class Dataset:
    """Inputs (n, …) as stored, labels (n,) in 0 … classes-1; a stored value times `scale` is what a model sees."""

    name: str
    x_train: Array
    y_train: NDArray[np.int64]
    x_test: Array
    y_test: NDArray[np.int64]
    classes: int
    scale: float = 1.0
    clients: int = 10  # what a run takes if nobody says otherwise
    rounds: int = 30

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.x_train.shape[1:])


DatasetSource = str | Dataset | tuple[Array, ...]


def load_dataset(source: DatasetSource) -> Dataset:
    """A data set by name, as it is, or from arrays (x, y) or (x, y, x_test, y_test)."""
    if isinstance(source, Dataset):
        return source
    if isinstance(source, tuple):
        return from_arrays(*source)
    if source == "digits":
        return digits()
    raise BadInput(f"dataset = {source!r}: choose digits")


def digits() -> Dataset:
    """The 1,797 8x8 digits that scikit-learn carries: 1,437 to train, 360 to test, dealt by default_rng(42)."""
    spec = importlib.util.find_spec("sklearn")  # found, not imported: importing it takes a second
    if spec is None or spec.origin is None:
        raise BadInput("dataset = 'digits': scikit-learn, which carries it, is not installed")
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    train, test = _first_fifths(len(table))
    x, y = table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    return Dataset("digits", x[train], y[train], x[test], y[test], 10, 1 / 16, clients=5, rounds=10)


def from_arrays(x: Array, y: Array, x_test: Array | None = None, y_test: Array | None = None) -> Dataset:
    """A data set of the user's own. Integers 0 … 255 are scaled to [0, 1], floats are taken as they are.

    Without test arrays, a fifth is held out.
    """
    x, y = np.asarray(x), np.asarray(y)
    if (x_test is None) != (y_test is None):
        raise BadInput("dataset: give both x_test and y_test, or neither")
    if x_test is None or y_test is None:
        _check(x, y, "x", "y")
        train, test = _first_fifths(len(y))
        x, y, x_test, y_test = x[train], y[train], x[test], y[test]
    x_test, y_test = np.asarray(x_test), np.asarray(y_test)
    _check(x, y, "x", "y")
    _check(x_test, y_test, "x_test", "y_test")
    if x.shape[1:] != x_test.shape[1:] or (x.dtype == np.uint8) != (x_test.dtype == np.uint8):
        raise BadInput(
            f"dataset: x holds {x.dtype} of shape {x.shape[1:]}, x_test {x_test.dtype} of shape {x_test.shape[1:]}"
        )
    classes = int(max(y.max(), y_test.max())) + 1
    if len(np.unique(y)) < 2:
        raise BadInput(f"dataset: y holds the class {int(y[0])} alone; at least two classes are needed")
    scale = 1 / 255 if x.dtype == np.uint8 else 1.0
    return Dataset("arrays", x, y.astype(np.int64), x_test, y_test.astype(np.int64), classes, scale)


def _first_fifths(size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of the first 80% of a permutation by default_rng(42), and of the rest."""
    permutation = np.random.default_rng(SPLIT_SEED).permutation(size)
    cut = int(0.8 * size)
    return permutation[:cut], permutation[cut:]


def _check(x: Array, y: Array, x_name: str, y_name: str) -> None:
    """Refuse arrays that cannot be learnt from."""
    if x.ndim < 2:
        raise BadInput(f"dataset: {x_name} has shape {x.shape}; (samples, features …) is needed")
    if y.shape != (len(x),):
        raise BadInput(
            f"dataset: {y_name} has shape {y.shape}; ({len(x)},) is needed, a label for every row of {x_name}"
        )
    if not len(x):
        raise BadInput(f"dataset: {x_name} is empty")
    if x.dtype.kind not in "fiu":
        raise BadInput(f"dataset: {x_name} holds {x.dtype}; numbers are needed")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise BadInput(
            f"dataset: {x_name} holds NaN or infinity in {int((~np.isfinite(x)).any(axis=tuple(range(1, x.ndim))).sum())} rows"
        )
    if y.dtype.kind not in "iu" or y.min() < 0:
        raise BadInput(f"dataset: {y_name} must hold classes as integers from 0, not {y.dtype} from {y.min()}")
