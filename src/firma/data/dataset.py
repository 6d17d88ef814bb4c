"""A data set in memory, and how it is loaded: by name, by file or folder, or from arrays."""

import gzip
import importlib.util
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firma.data.catalogue import PUBLIC, SIZES
from firma.errors import BadInput, unknown
from firma.tasks.task import TaskChoice, TaskName

if TYPE_CHECKING:
    from torch.utils.data import Dataset as TorchDataset

Array = NDArray[Any]
Integers = NDArray[np.int64]
SPLIT_SEED = 42
MANIFEST = "firma-split.json"  # marks a folder that `firma split --export` wrote
HUGGING_FACE_FILES = ("dataset_dict.json", "state.json")  # one of them marks a folder that `save_to_disk` wrote
_FILE = re.compile(r"(.+\.(?:npz|csv|parquet))(?::(.+))?", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Dataset:
    """Inputs (n, …) as stored, labels (n,) in 0 … classes-1; a stored value times `scale` is what a model sees.

    `labels` are the names of the classes. If `task` is not classification, targets are (n, classes) float32: 0 or 1 for
    each label of multi-label data, the numbers to predict of regression data.

    If the data name the client of each row, `client_train` (and `client_test`, if the test data do too) hold its
    number, 0 … clients-1, and `client_names` the names of the clients.
    """

    name: str
    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    classes: int  # or labels, or numbers to predict: the model's outputs
    scale: float = 1.0
    clients: int = 10  # the defaults of a run
    rounds: int = 30
    labels: tuple[str, ...] = ()
    client_train: Integers | None = None
    client_test: Integers | None = None
    client_names: tuple[str, ...] = ()
    task: TaskName = "classification"
    columns: tuple[str, ...] = ()  # names of the features of a table, in order; empty if they have none

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(self.x_train.shape[1:])


DatasetSource: TypeAlias = "str | os.PathLike[str] | Dataset | tuple[Any, ...] | TorchDataset[Any]"
# Called while many items are read: with what is read, how many items so far, and of how many.
OnProgress: TypeAlias = Callable[[str, int, int], None]


def with_classes(dataset: Dataset) -> Dataset:
    """The data set with classes in place of targets, as rows are dealt by class: see `tasks.targets.classes_of`.

    A classification data set is returned as it is.
    """
    if dataset.task == "classification":
        return dataset
    from firma.tasks.targets import classes_of

    train, test, names = classes_of(dataset.task, dataset.y_train, dataset.y_test)
    if dataset.task == "multi-label" and dataset.labels:
        names = tuple(dataset.labels[int(name)] if name.isdigit() else name for name in names)
    return replace(dataset, y_train=train, y_test=test, classes=len(names), labels=names, task="classification")


def load_dataset(
    source: DatasetSource, *, task: TaskChoice = "auto", on_progress: OnProgress | None = None, one_class: bool = False
) -> Dataset:
    """Load a data set: by name, from a file or folder, from arrays (x, y) or (x, y, x_test, y_test), or from torch.

    A torch Dataset is passed alone, and a fifth of it is held out for testing, or as a pair (train, test). A file is
    PATH.npz, PATH.csv or PATH.parquet; PATH.csv:COLUMN names the label column, PATH.csv:A,B several. A folder holds
    images in one subfolder per class (FOLDER:32x32 resizes them), a data set of Hugging Face's `save_to_disk`, or what
    `firma split --export` wrote. A `Dataset` is returned as it is. `task` auto: as the targets look. `on_progress` is
    called while many items are read. A file or folder with a single class is refused unless `one_class` says that it is
    a part of data with more.
    """
    if isinstance(source, Dataset):
        return _of_task(source, task)
    if isinstance(source, str | os.PathLike):
        return _of_task(_by_name(os.fspath(source), task, on_progress or no_progress, one_class), task)
    from firma.data.user_arrays import from_arrays, from_torch, is_torch

    if is_torch(source):
        return from_torch(source, None, task, on_progress or no_progress)
    if isinstance(source, tuple) and len(source) == 2 and is_torch(source[0]):
        return from_torch(source[0], source[1], task, on_progress or no_progress)
    if isinstance(source, tuple) and len(source) in (2, 4):
        x, y, x_test, y_test = (*source, None, None)[:4]
        return from_arrays(x, y, x_test, y_test, task=task)
    got = f"a tuple of {len(source)}" if isinstance(source, tuple) else f"type {type(source).__name__}"
    raise BadInput(
        f"dataset: {got} is not supported; pass a name, a file, a folder, a tuple of arrays (x, y) or "
        "(x, y, x_test, y_test), or a torch Dataset"
    )


def no_progress(what: str, done: int, total: int) -> None:
    """Nobody follows the progress."""


def _of_task(dataset: Dataset, task: TaskChoice) -> Dataset:
    """The data set, if it is of that task."""
    if task not in ("auto", dataset.task):
        raise BadInput(f"task = {task!r}: data set {dataset.name} is a {dataset.task} data set; pass --task auto")
    return dataset


def _by_name(name: str, task: TaskChoice, on_progress: OnProgress, one_class: bool) -> Dataset:
    if name == "digits":
        return digits()
    if name in PUBLIC:
        return public(name)
    if file := _FILE.fullmatch(name):
        from firma.data.user_files import read_file

        return read_file(Path(file[1]), file[2], task, one_class)
    folder, _, detail = (name, "", "") if Path(name).is_dir() else name.rpartition(":")
    if folder and Path(folder).is_dir():
        return _by_folder(Path(folder), detail or None, task, on_progress, one_class)
    if Path(name).is_file():
        kind = Path(name).suffix or "without an ending"
        raise BadInput(
            f"dataset = {name!r}: files {kind} are not supported; save the data as .csv (UTF-8), .parquet or .npz"
        )
    raise BadInput(
        f"{unknown('dataset', name, SIZES)}, or pass a file that ends in .npz, .csv or .parquet, or a folder of images"
    )


def _by_folder(folder: Path, detail: str | None, task: TaskChoice, on_progress: OnProgress, one_class: bool) -> Dataset:
    """A folder of the user's; `detail` is what follows its name and a colon: a column, or the size of images."""
    if (folder / MANIFEST).is_file():
        from firma.data.exported import read_exported

        return read_exported(folder, detail)
    if any((folder / name).is_file() for name in HUGGING_FACE_FILES):
        from firma.data.hugging_face import read_hugging_face

        return read_hugging_face(folder, detail, task, on_progress, one_class)
    from firma.data.image_folder import read_image_folder

    return read_image_folder(folder, detail, on_progress, one_class)


def digits() -> Dataset:
    """The 1,797 8x8 digits that scikit-learn contains: 1,437 to train, 360 to test, drawn by default_rng(42)."""
    spec = importlib.util.find_spec("sklearn")  # found, not imported: importing it takes a second
    if spec is None or spec.origin is None:
        raise BadInput("dataset = 'digits': requires scikit-learn; install it with: pip install scikit-learn")
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    permutation = np.random.default_rng(SPLIT_SEED).permutation(len(table))
    train, test = np.split(permutation, [int(0.8 * len(table))])
    x, y = table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    size, names = SIZES["digits"], tuple("0123456789")
    return Dataset(
        "digits", x[train], y[train], x[test], y[test], size.classes, 1 / 16, size.clients, size.rounds, names
    )  # fmt: skip


def public(name: str, cache: Path | None = None) -> Dataset:
    """A public data set from the cache; its inputs are memory maps of bytes, read when they are used."""
    from firma.data.cache import cache_folder, open_cached

    known, size = PUBLIC[name], SIZES[name]
    stored = open_cached(known, cache_folder(cache))
    y_train, y_test = stored.y_train.astype(np.int64), stored.y_test.astype(np.int64)
    return Dataset(
        name, stored.x_train, y_train, stored.x_test, y_test, size.classes, 1 / 255, size.clients, size.rounds,
        known.labels,
    )  # fmt: skip
