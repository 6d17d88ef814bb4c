"""New data for a trained model: rows of a file in batches, with or without targets, columns matched by name."""

import csv
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from firma.data.catalogue import SIZES
from firma.data.dataset import Array, load_dataset
from firma.data.user_files import CLIENT_NAME, LABEL_NAMES, number_in_cell, refuse_cell
from firma.errors import BadInput

ROWS = 8192  # of a file that are in memory at a time
_TABLES = (".csv", ".parquet")


@dataclass(frozen=True)
class Wanted:
    """What is read: features by name (none: all columns but those of labels), and targets by name, if asked for.

    `targets` are the names of label columns; empty: the usual names. Without `labelled` no targets are read, and
    columns that hold them are left out.
    """

    columns: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    labelled: bool = False


@dataclass(frozen=True, eq=False)
class Rows:
    """A batch: inputs (n, …) as stored, targets (n,) or (n, K) as stored if they were asked for, columns left out."""

    x: Array
    y: Array | None = None
    left_out: tuple[str, ...] = ()


def split_source(source: str) -> tuple[str, tuple[str, ...]]:
    """FILE or FILE:COLUMN,… as the file and the names of its label columns."""
    for ending in _TABLES:
        place = source.lower().rfind(f"{ending}:")
        if place >= 0:
            cut = place + len(ending)
            return source[:cut], tuple(name.strip() for name in source[cut + 1 :].split(","))
    return source, ()


def new_rows(source: str, wanted: Wanted) -> Iterator[Rows]:
    """The rows of a file in batches of `ROWS`: .csv, .parquet, .npz or .npy; or the test data of a data set by name."""
    if source in SIZES:
        known = load_dataset(source)
        words = np.array(known.labels)[known.y_test]
        yield from _batches(known.x_test, words if wanted.labelled else None, ())
        return
    path = Path(source)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise BadInput(f"data = {source!r}: {what}; pass a file that ends in .csv, .parquet, .npz or .npy")
    readers = {".csv": _csv, ".parquet": _parquet, ".npz": _arrays, ".npy": _arrays}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise BadInput(f"data = {source!r}: must end in .csv, .parquet, .npz or .npy")
    empty = True
    for rows in reader(path, wanted):
        empty = False
        yield rows
    if empty:
        raise BadInput(f"data = {source!r}: contains no rows")


def _batches(x: Array, y: Array | None, left_out: tuple[str, ...]) -> Iterator[Rows]:
    for start in range(0, len(x), ROWS):
        stop = start + ROWS
        yield Rows(x[start:stop], None if y is None else y[start:stop], left_out)


def _arrays(path: Path, wanted: Wanted) -> Iterator[Rows]:
    """An .npz file with x, and y if it is asked for; an .npy file is x alone."""
    try:
        with path.open("rb") as raw:
            file = np.load(raw, allow_pickle=False)
            found = {"x": file} if isinstance(file, np.ndarray) else {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BadInput(f"data = {str(path)!r}: not a file of plain arrays ({error})") from None
    names = ("x", "y") if "x" in found else ("x_train", "y_train") if "x_train" in found else ("x_test", "y_test")
    x, y = found.get(names[0]), found.get(names[1])
    holds = ", ".join(sorted(found)) or "nothing"
    if x is None:
        raise BadInput(f"data = {str(path)!r}: contains {holds}; must contain x")
    if wanted.labelled and y is None:
        raise BadInput(f"data = {str(path)!r}: contains {holds}; must contain the labels y beside {names[0]}")
    if wanted.labelled and y is not None and len(x) != len(y):
        raise BadInput(f"data = {str(path)!r}: {len(x)} rows of {names[0]}, but {len(y)} of {names[1]}")
    left_out = tuple(sorted(found.keys() - {names[0], *([names[1]] if wanted.labelled else [])}))
    yield from _batches(x, y if wanted.labelled else None, left_out)


@dataclass(frozen=True)
class _Places:
    """Where in a table the features and the targets are, and what is left out."""

    features: list[int]
    targets: list[int]
    left_out: tuple[str, ...]


def _places(path: Path, columns: Sequence[str], wanted: Wanted) -> _Places:
    lower = [name.lower() for name in columns]
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"data = {str(path)!r}: two columns are called {twice!r}; each needs a name of its own")
    usual = [columns[lower.index(name)] for name in LABEL_NAMES if name in lower][:1]
    named = [name for name in wanted.targets if name in columns]
    labels = named or [name for name in usual if name not in wanted.columns]
    if wanted.labelled and (not labels or (named and len(named) < len(wanted.targets))):
        absent = next((name for name in wanted.targets if name not in columns), None)
        what = repr(absent) if absent else f"{', '.join(LABEL_NAMES[:-1])} or {LABEL_NAMES[-1]}"
        raise BadInput(
            f"data = {str(path)!r}: no column {what}; columns are {_listed(columns)}; name the label column: "
            f"{path}:COLUMN"
        )
    if wanted.columns:
        missing = [name for name in wanted.columns if name not in columns]
        if missing:
            raise BadInput(
                f"data = {str(path)!r}: lacks column{'s' if len(missing) > 1 else ''} {_listed(missing)}, on which the "
                f"model was trained; columns are {_listed(columns)}"
            )
        features = [columns.index(name) for name in wanted.columns]
    else:
        other = {*labels, *(columns[place] for place, name in enumerate(lower) if name == CLIENT_NAME)}
        features = [place for place, name in enumerate(columns) if name not in other]
    targets = [columns.index(name) for name in labels] if wanted.labelled else []
    left_out = tuple(name for place, name in enumerate(columns) if place not in (*features, *targets))
    return _Places(features, targets, left_out)


def _csv(path: Path, wanted: Wanted) -> Iterator[Rows]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            delimiter = max(",;\t|", key=first.count)
            columns = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
            places = _places(path, columns, wanted)
            rows = (row for row in csv.reader(file, delimiter=delimiter) if row)
            done = 0
            while batch := list(islice(rows, ROWS)):
                yield _cells(path, columns, places, batch, done, delimiter)
                done += len(batch)
    except UnicodeDecodeError as error:
        raise BadInput(f"data = {str(path)!r}: not UTF-8 text ({error}); save the file as CSV UTF-8") from None


def _cells(
    path: Path, columns: Sequence[str], places: _Places, batch: list[list[str]], done: int, delimiter: str
) -> Rows:
    """A batch of a CSV file, `done` rows after its header."""
    for line, row in enumerate(batch, done + 1):
        if len(row) != len(columns):
            raise BadInput(
                f"data = {str(path)!r}: data row {line} has {len(row)} cells, but the header has {len(columns)}"
            )
    try:
        x = np.array([[row[place] for place in places.features] for row in batch]).astype(np.float32)
    except ValueError:  # slower, but it reads more, and says which cell is not a number
        x = np.empty((len(batch), len(places.features)), np.float32)
        for line, row in enumerate(batch):
            for column, place in enumerate(places.features):
                value = number_in_cell(row[place], delimiter)
                if value is None:
                    refuse_cell(path, columns, places.features, done + line + 1, row, place, delimiter)
                x[line, column] = value
    _refuse_gaps(path, x, [columns[place] for place in places.features], done)
    words = [np.array([row[place].strip() for row in batch]) for place in places.targets]
    return Rows(x, _joined(words), places.left_out)


def _parquet(path: Path, wanted: Wanted) -> Iterator[Rows]:
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise BadInput(
            f"data = {str(path)!r}: Parquet requires pyarrow; install it with: pip install 'firma[tables]'"
        ) from None
    try:
        file = parquet.ParquetFile(path)
    except (arrow.ArrowException, OSError) as error:
        raise BadInput(f"data = {str(path)!r}: not a valid Parquet file ({error})") from None
    columns = list(file.schema_arrow.names)
    places = _places(path, columns, wanted)
    names = [columns[place] for place in places.features]
    done = 0
    for batch in file.iter_batches(ROWS, columns=[columns[each] for each in (*places.features, *places.targets)]):
        if not batch.num_rows:
            continue
        x = np.empty((batch.num_rows, len(names)), np.float32)
        for place, name in enumerate(names):
            values: Any = batch.column(name)
            kind = values.type
            if not (arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_boolean(kind)):
                raise BadInput(f"data = {str(path)!r}: column {name!r} contains {kind}; must be numbers")
            x[:, place] = values.cast(arrow.float32(), safe=False).to_numpy(zero_copy_only=False)
        _refuse_gaps(path, x, names, done)
        words = [np.array(batch.column(columns[place]).to_pylist()) for place in places.targets]
        yield Rows(x, _joined(words), places.left_out)
        done += batch.num_rows


def _joined(columns: Sequence[Array]) -> Array | None:
    """(n,) of one column, (n, K) of several, None of none."""
    if not columns:
        return None
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def _refuse_gaps(path: Path, x: Array, names: Sequence[str], done: int) -> None:
    sound = np.isfinite(x)
    if not sound.all():
        row, column = np.argwhere(~sound)[0]
        raise BadInput(
            f"data = {str(path)!r}: column {names[column]!r} is empty or not a finite number in data row "
            f"{done + row + 1}; fill in missing values, or remove their rows"
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
