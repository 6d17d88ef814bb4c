"""The user's own files: .npz arrays, CSV and Parquet tables."""

import csv
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TextIO

import numpy as np
from numpy.typing import NDArray

from firma.data.dataset import Array, Dataset
from firma.data.user_arrays import from_arrays
from firma.errors import BadInput
from firma.tasks.task import TaskChoice

LABEL_NAMES = ("label", "y", "class", "target")
CLIENT_NAME = "client"
_MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-")  # how tables spell that a value is missing
_ROW_NUMBERS = ("id", "index", "row", "row_id", "unnamed: 0")
_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_DATE = re.compile(r"\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{2,4}\b|\d\d?:\d\d")
_NOT_A_DATE = "turn dates and times into numbers, such as days since a fixed day, or remove the column"
_DECORATED = re.compile(r"\D{0,3}\d[\d.,' ]*\D{0,3}")
_PLAIN = (
    "write plain numbers with a decimal point, without separators of thousands, units or signs such as %; decimal "
    "commas are read if semicolons separate the columns"
)
_NOT_TEXT = (
    "turn categories into columns of 0 and 1 (pandas.get_dummies does it), or remove the column; the label column is "
    "named after a colon, FILE:COLUMN"
)
_ARRAYS = ("x", "y", "x_test", "y_test", "client", "client_test")


def read_file(path: Path, column: str | None, task: TaskChoice = "auto", one_class: bool = False) -> Dataset:
    """A data set from a file; `column` names the label column of a table, by default one of `LABEL_NAMES`.

    Several label columns, for multi-label and regression, are separated by commas.
    """
    if not path.is_file():
        raise BadInput(f"dataset = {str(path)!r}: no such file")
    if path.suffix.lower() == ".npz":
        if column is not None:
            raise BadInput(f"dataset = '{path}:{column}': an .npz file has no columns; its labels are the array y")
        return _read_npz(path, task, one_class)
    read = _read_csv if path.suffix.lower() == ".csv" else _read_parquet
    return read(path, column, task, one_class)


def _read_npz(path: Path, task: TaskChoice, one_class: bool) -> Dataset:
    """Arrays x and y, and optionally x_test, y_test, client and client_test."""
    try:
        with path.open("rb") as raw:
            file = np.load(raw, allow_pickle=False)
            found = {_plain(name): file[name] for name in getattr(file, "files", ())}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BadInput(f"dataset = {str(path)!r}: not an .npz file of plain arrays ({error})") from None
    odd = sorted(found.keys() - set(_ARRAYS))
    if odd or "x" not in found or "y" not in found:
        holds = ", ".join(sorted(found)) or "nothing"
        raise BadInput(
            f"dataset = {str(path)!r}: contains {holds}; must contain x and y, and may contain {', '.join(_ARRAYS[2:])}"
        )
    x, y, x_test, y_test, client, client_test = (found.get(name) for name in _ARRAYS)
    return from_arrays(
        np.asarray(x), np.asarray(y), x_test, y_test, client, client_test, path.name, task, (), one_class
    )


def _plain(name: str) -> str:
    """Some libraries, such as Keras, call x and y x_train and y_train."""
    return name.removesuffix("_train") if name in ("x_train", "y_train", "client_train") else name


def _read_csv(path: Path, column: str | None, task: TaskChoice, one_class: bool) -> Dataset:
    """A table with a header: a label column, optionally a column `client`, and numbers in all other columns."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            delimiter = max(",;\t|", key=first.count)
            columns = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
            labels, client, features = _roles(path, columns, column)
            _check_header(path, columns)
            try:
                table = _numbers(file, features, delimiter)
            except ValueError:  # slower, but it reads more, and says which cell is not a number
                table = _numbers_by_cell(path, columns, features, delimiter)
        words = _words(path, columns, labels if client is None else [*labels, client], delimiter)
    except UnicodeDecodeError as error:
        raise BadInput(f"dataset = {str(path)!r}: not UTF-8 text ({error}); save the file as CSV UTF-8") from None
    chosen = tuple(columns[feature] for feature in features)
    _checked_table(path, table, chosen)
    y = _targets([_target_values(_with_points(each, delimiter), task, len(labels)) for each in words[: len(labels)]])
    owners = _integers(words[-1]) if client is not None else None
    names = tuple(columns[label] for label in labels)
    made = from_arrays(
        table, y, client=owners, name=path.name, task=task, target_names=names, one_class=one_class
    )  # fmt: skip
    return replace(made, columns=chosen)


def _check_header(path: Path, columns: Sequence[str]) -> None:
    """Refuse a header in which a column has no name or two have the same."""
    if "" in columns:
        place = columns.index("")
        why = "pandas writes its index so: save with index=False" if place == 0 else "remove it, or name it"
        raise BadInput(f"dataset = {str(path)!r}: column {place + 1} of {len(columns)} has no name; {why}")
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"dataset = {str(path)!r}: two columns are called {twice!r}; each needs a name of its own")


def _numbers(file: TextIO, features: Sequence[int], delimiter: str) -> NDArray[np.float32]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # for an empty table, which is refused later
        return np.loadtxt(
            file, dtype=np.float32, delimiter=delimiter, quotechar='"', comments=None, usecols=features, ndmin=2
        )


def _words(path: Path, columns: Sequence[str], chosen: Sequence[int], delimiter: str) -> list[NDArray[np.str_]]:
    """The chosen columns as text."""
    cells: list[list[str]] = [[] for _ in chosen]  # these columns alone: all cells as Python strings would fill memory
    for _, row in _csv_rows(path, columns, delimiter):
        for mine, place in zip(cells, chosen, strict=True):
            mine.append(row[place].strip())
    words = [np.array(mine) for mine in cells]
    for place, each in zip(chosen, words, strict=True):
        if (each == "").any():
            line = int(np.argmax(each == "")) + 1
            raise BadInput(f"dataset = {str(path)!r}: column {columns[place]!r} is empty in data row {line}")
    return words


def _numbers_by_cell(
    path: Path, columns: Sequence[str], features: Sequence[int], delimiter: str
) -> NDArray[np.float32]:
    """The features of a table cell by cell: decimal commas and True or False are numbers too; errors name the cell."""
    numbers: list[list[float]] = []
    comma = point = ""  # a number of each kind, with its place
    for line, row in _csv_rows(path, columns, delimiter):
        values = [number_in_cell(row[feature], delimiter) for feature in features]
        for feature, value in zip(features, values, strict=True):
            cell = row[feature].strip()
            if value is None:
                refuse_cell(path, columns, features, line, row, feature, delimiter)
            if "," in cell:
                comma = comma or f"{cell} in column {columns[feature]!r}, data row {line}"
            elif "." in cell:
                point = point or f"{cell} in column {columns[feature]!r}, data row {line}"
        numbers.append([value for value in values if value is not None])
    if comma and point:
        raise BadInput(
            f"dataset = {str(path)!r}: numbers with a decimal comma ({comma}) and with a point ({point}); "
            "use one of them in the whole file"
        )
    return np.array(numbers, dtype=np.float32).reshape(len(numbers), len(features))


def number_in_cell(text: str, delimiter: str) -> float | None:
    """The number in a cell; NaN for one that is empty or says so, None for other text."""
    cell = text.strip()
    if cell.lower() in _MISSING:
        return float("nan")
    if cell.lower() in ("true", "false"):
        return float(cell.lower() == "true")
    if delimiter != "," and _DECIMAL_COMMA.fullmatch(cell):
        cell = cell.replace(",", ".")
    try:
        return None if "_" in cell else float(cell)  # Python reads 1_000, other programs do not write it
    except ValueError:
        return None


def refuse_cell(
    path: Path, columns: Sequence[str], features: Sequence[int], line: int, row: Sequence[str], feature: int,
    delimiter: str,
) -> NoReturn:  # fmt: skip
    """Raise an error that names a cell that is not a number, the other columns like it, and what to do."""
    others = [columns[each] for each in features if each != feature and number_in_cell(row[each], delimiter) is None]
    more = f" (not a number either: {_listed(others)})" if others else ""
    cell = row[feature].strip()
    hint = _NOT_A_DATE if _DATE.match(cell) else _PLAIN if _DECORATED.fullmatch(cell) else _NOT_TEXT
    raise BadInput(
        f"dataset = {str(path)!r}: data row {line} contains {row[feature]!r} in column {columns[feature]!r}{more}; "
        f"must be a number: {hint}"
    )


def _csv_rows(path: Path, columns: Sequence[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows below the header with their numbers from 1; empty lines are skipped."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        file.readline()
        rows = (row for row in csv.reader(file, delimiter=delimiter) if row)
        for line, row in enumerate(rows, 1):
            if len(row) != len(columns):
                raise BadInput(
                    f"dataset = {str(path)!r}: data row {line} has {len(row)} cells, but the header has {len(columns)}"
                )
            yield line, row


def _integers(words: NDArray[np.str_]) -> Array:
    try:
        return words.astype(np.int64)
    except (ValueError, OverflowError):
        return words


def _target_values(words: NDArray[np.str_], task: TaskChoice, columns: int) -> Array:
    """A label column: integers if all cells are, numbers if all are and a cell has a fraction, else text.

    Text such as 1.0 stays text, as in earlier versions, unless only numbers can be meant.
    """
    whole = _integers(words)
    if whole is not words:
        return whole
    try:
        numbers = words.astype(np.float64)
    except ValueError:
        return words
    meant = task in ("regression", "multi-label") or columns > 1 or bool((numbers != np.floor(numbers)).any())
    return numbers if meant else words


def _with_points(words: NDArray[np.str_], delimiter: str) -> NDArray[np.str_]:
    """Numbers with decimal commas with points instead, if all cells are numbers and commas do not separate columns."""
    if delimiter == "," or not all(_DECIMAL_COMMA.fullmatch(word) or _WHOLE.fullmatch(word) for word in words.tolist()):
        return words
    return np.char.replace(words, ",", ".")


def _targets(columns: Sequence[Array]) -> Array:
    """(n,) of one label column, (n, K) of several."""
    return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)


def _read_parquet(path: Path, column: str | None, task: TaskChoice, one_class: bool) -> Dataset:
    """A Parquet file with the same columns as a CSV."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise BadInput(
            f"dataset = {str(path)!r}: Parquet requires pyarrow; install it with: pip install 'firma[tables]'"
        ) from None
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise BadInput(f"dataset = {str(path)!r}: not a valid Parquet file ({error})") from None
    columns = list(table.column_names)
    labels, client, features = _roles(path, columns, column)
    numbers = np.empty((table.num_rows, len(features)), dtype=np.float32)
    for place, feature in enumerate(features):
        kind = table.schema.field(feature).type
        if not (arrow.types.is_integer(kind) or arrow.types.is_floating(kind) or arrow.types.is_boolean(kind)):
            hint = _NOT_A_DATE if arrow.types.is_temporal(kind) else _NOT_TEXT
            raise BadInput(
                f"dataset = {str(path)!r}: column {columns[feature]!r} contains {kind}; must be numbers: {hint}"
            )
        # An empty cell becomes NaN; unsafe because float32 cannot hold every large integer exactly.
        numbers[:, place] = table.column(feature).cast(arrow.float32(), safe=False).to_numpy()
    chosen = tuple(columns[feature] for feature in features)
    _checked_table(path, numbers, chosen)
    y = _targets([_values(path, columns[place], table.column(place)) for place in labels])
    owners = _values(path, columns[client], table.column(client)) if client is not None else None
    names = tuple(columns[label] for label in labels)
    made = from_arrays(
        numbers, y, client=owners, name=path.name, task=task, target_names=names, one_class=one_class
    )  # fmt: skip
    return replace(made, columns=chosen)


def _values(path: Path, name: str, column: Any) -> Array:
    values = column.to_pylist()
    if None in values:
        raise BadInput(f"dataset = {str(path)!r}: column {name!r} is empty in data row {values.index(None) + 1}")
    return np.array(values)


def _roles(path: Path, columns: Sequence[str], column: str | None) -> tuple[list[int], int | None, list[int]]:
    """Which columns are labels, which one is the client if any, and which are features."""
    lower = [name.lower() for name in columns]
    if column is None:
        named = [columns[lower.index(name)] for name in LABEL_NAMES if name in lower][:1]
    else:
        named = [column] if column in columns else [name.strip() for name in column.split(",")]
    absent = next((name for name in named if name not in columns), None)
    if not named or absent is not None:
        wanted = repr(absent) if named else f"{', '.join(LABEL_NAMES[:-1])} or {LABEL_NAMES[-1]}"
        if columns and all(name and number_in_cell(name, ",") is not None for name in columns):
            raise BadInput(
                f"dataset = {str(path)!r}: the first line must name the columns, but it contains numbers: "
                f"{_listed(columns)}"
            )
        if len(columns) < 2:
            raise BadInput(
                f"dataset = {str(path)!r}: the first line is {_listed(columns)!r}, without column {wanted}; it must "
                "name the columns, separated by commas, semicolons or tabs"
            )
        raise BadInput(
            f"dataset = {str(path)!r}: no column {wanted}; columns are {_listed(columns)}; name the label "
            f"column: {path}:COLUMN"
        )
    labels = [columns.index(name) for name in named]
    client = lower.index(CLIENT_NAME) if CLIENT_NAME in lower and lower.index(CLIENT_NAME) not in labels else None
    features = [place for place in range(len(columns)) if place not in (*labels, client)]
    if not features:
        raise BadInput(
            f"dataset = {str(path)!r}: no columns besides {', '.join(columns)}; at least one feature is required"
        )
    return labels, client, features


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


def _checked_table(path: Path, table: NDArray[np.float32], names: Sequence[str]) -> None:
    """Refuse gaps, and warn of a feature that only numbers the rows: it tells rows apart but means nothing."""
    _refuse_gaps(path, table, names)
    for column, name in enumerate(names):
        if name.lower() in _ROW_NUMBERS and len(np.unique(table[:, column])) == len(table) > 1:
            warnings.warn(
                f"dataset = {str(path)!r}: column {name!r} seems to number the rows, but is used as a feature; remove "
                "it if it means nothing",
                UserWarning,
                stacklevel=2,
            )


def _refuse_gaps(path: Path, table: NDArray[np.float32], names: Sequence[str]) -> None:
    """Refuse empty cells and infinities, naming the first."""
    sound = np.isfinite(table)
    if not len(table):
        raise BadInput(f"dataset = {str(path)!r}: has a header but no rows")
    if not sound.all():
        row, column = np.argwhere(~sound)[0]
        many = f" (the first of {(~sound).sum():,} such cells)" if (~sound).sum() > 1 else ""
        raise BadInput(
            f"dataset = {str(path)!r}: column {names[column]!r} is empty or not a finite number in data row {row + 1}"
            f"{many}; fill in missing values, or remove their rows or columns"
        )
