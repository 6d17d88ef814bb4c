"""The user's own files: .npz, CSV and Parquet."""

import zipfile
from pathlib import Path

import numpy as np

from firma.data.arrays import from_arrays
from firma.data.dataset import Dataset
from firma.data.tables import read_csv, read_parquet
from firma.errors import BadInput

_ARRAYS = ("x", "y", "x_test", "y_test", "client", "client_test")


def read_file(path: Path, column: str | None) -> Dataset:
    """A data set from a file; `column` names the label's column of a table, and is otherwise found by its name."""
    if not path.is_file():
        raise BadInput(f"dataset = {str(path)!r}: there is no such file")
    if path.suffix.lower() == ".npz":
        if column is not None:
            raise BadInput(f"dataset = '{path}:{column}': an .npz file has no columns; its labels are the array y")
        return _npz(path)
    return read_csv(path, column) if path.suffix.lower() == ".csv" else read_parquet(path, column)


def _npz(path: Path) -> Dataset:
    """Arrays x and y, and where they are there x_test, y_test, client and client_test."""
    try:
        with path.open("rb") as raw:
            file = np.load(raw, allow_pickle=False)
            found = {_plain(name): file[name] for name in getattr(file, "files", ())}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BadInput(f"dataset = {str(path)!r}: not a sound .npz file of plain arrays ({error})") from None
    odd = sorted(found.keys() - set(_ARRAYS))
    if odd or "x" not in found or "y" not in found:
        holds = ", ".join(sorted(found)) or "nothing"
        raise BadInput(
            f"dataset = {str(path)!r}: holds {holds}; x and y are needed, and only {', '.join(_ARRAYS[2:])} beside"
        )
    x, y, x_test, y_test, client, client_test = (found.get(name) for name in _ARRAYS)
    return from_arrays(np.asarray(x), np.asarray(y), x_test, y_test, client, client_test, path.name)


def _plain(name: str) -> str:
    """Keras and others call x and y x_train and y_train."""
    return name.removesuffix("_train") if name in ("x_train", "y_train", "client_train") else name
