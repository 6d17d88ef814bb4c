"""A data set in memory, and how one is found by name, by file, or from arrays."""

import gzip
import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firma.data.cache import cache_folder, open_known
from firma.data.catalogue import DIGITS_SIZE, KNOWN
from firma.errors import BadInput

if TYPE_CHECKING:
    from torch.utils.data import Dataset as TorchDataset

Array = NDArray[Any]
Integers = NDArray[np.int64]
SPLIT_SEED = 42
_FILE = re.compile(r"(.+\.(?:npz|csv|parquet))(?::(.+))?", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Dataset:
    """Inputs (n, …) as stored, labels (n,) in 0 … classes-1; a stored value times `scale` is what a model sees.

    `labels` are the names of the classes. Where rows belong to clients by nature, `client_train` (and `client_test`, if
    the tests do too) number them 0 … clients-1, and `client_names` are their names.
    """

    name: str
    x_train: Array
    y_train: Integers
    x_test: Array
    y_test: Integers
    classes: int
    scale: float = 1.0
    clients: int = 10  # what a run takes if nobody says otherwise
    rounds: int = 30
    labels: tuple[str, ...] = ()
    client_train: Integers | None = None
    client_test: Integers | None = None
    client_names: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.x_train.shape[1:])


DatasetSource: TypeAlias = "str | os.PathLike[str] | Dataset | tuple[Any, ...] | TorchDataset[Any]"


def load_dataset(source: DatasetSource) -> Dataset:
    """A data set by name or file, as it is, from arrays (x, y) or (x, y, x_test, y_test), or from torch's data sets.

    Torch's come alone, a fifth then being held out, or as a pair (train, test). A file is PATH.npz, PATH.csv or
    PATH.parquet; PATH.csv:COLUMN names the label's column.
    """
    from firma.data.arrays import from_arrays, from_torch, is_torch
    from firma.data.user_files import read_file

    if isinstance(source, Dataset):
        return source
    if is_torch(source):
        return from_torch(source)
    if isinstance(source, tuple):
        return from_torch(*source) if source and is_torch(source[0]) else from_arrays(*source)
    if not isinstance(source, str | os.PathLike):
        raise BadInput(f"dataset: a {type(source).__name__} is not one; give a name, a file, arrays or a torch Dataset")
    name = os.fspath(source)
    if name == "digits":
        return digits()
    if name in KNOWN:
        return public(name)
    if file := _FILE.fullmatch(name):
        return read_file(Path(file[1]), file[2])
    known = ", ".join(["digits", *KNOWN])
    raise BadInput(f"dataset = {name!r}: choose {known}, or a file that ends in .npz, .csv or .parquet")


def digits() -> Dataset:
    """The 1,797 8x8 digits that scikit-learn carries: 1,437 to train, 360 to test, dealt by default_rng(42)."""
    spec = importlib.util.find_spec("sklearn")  # found, not imported: importing it takes a second
    if spec is None or spec.origin is None:
        raise BadInput("dataset = 'digits': scikit-learn, which carries it, is not installed")
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    permutation = np.random.default_rng(SPLIT_SEED).permutation(len(table))
    train, test = np.split(permutation, [int(0.8 * len(table))])
    x, y = table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    names = tuple("0123456789")
    size = DIGITS_SIZE
    return Dataset(
        "digits", x[train], y[train], x[test], y[test], size.classes, 1 / 16, size.clients, size.rounds, names
    )  # fmt: skip


def public(name: str, cache: Path | None = None) -> Dataset:
    """A public data set from the cache; its inputs are memory maps of bytes, read when they are used."""
    known = KNOWN[name]
    stored = open_known(known, cache_folder(cache))
    y_train, y_test = stored.y_train.astype(np.int64), stored.y_test.astype(np.int64)
    classes = len(known.labels)
    return Dataset(name, stored.x_train, y_train, stored.x_test, y_test, classes, 1 / 255, labels=known.labels)
