"""Data sets of Hugging Face `datasets` on this disk: a folder that `save_to_disk` wrote, with or without splits.

Its rows have a label column, optionally a column `client`, and one column of images, one of arrays, or numbers.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from firma.data.dataset import Array, Dataset, OnProgress
from firma.data.image_folder import is_colour, pixels_of, sorted_as_numbers
from firma.data.user_arrays import from_arrays
from firma.data.user_files import CLIENT_NAME, LABEL_NAMES
from firma.errors import BadInput
from firma.tasks.task import TaskChoice

_LABELS = (*LABEL_NAMES, "labels")
_EVERY = 256  # rows between two calls of on_progress


def read_hugging_face(
    folder: Path, column: str | None, task: TaskChoice, on_progress: OnProgress, one_class: bool = False
) -> Dataset:
    """A data set from disk; `column` names the label column, by default the first of the usual names that exists.

    Several label columns, for multi-label and regression, are separated by commas.
    """
    try:
        import datasets
    except ImportError:
        raise BadInput(
            f"dataset = {str(folder)!r}: a folder of Hugging Face datasets requires that package; install it with: "
            "pip install 'firma[hf]'"
        ) from None
    try:
        found = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"dataset = {str(folder)!r}: not a valid data set of save_to_disk ({error})") from None
    train, test = _halves(folder, dict(found) if isinstance(found, datasets.DatasetDict) else {"train": found})
    labels, client, inputs = _roles(folder, train, column, datasets)
    for name in (*labels, *inputs) if test is not None else ():
        if name not in test.column_names:
            raise BadInput(f"dataset = {str(folder)!r}: the test split has no column {name!r}")

    def read(half: Any, name: str) -> tuple[Array, Array, Array | None]:
        owner = _words(folder, half, client) if client is not None and client in half.column_names else None
        targets = [_words(folder, half, label) for label in labels]
        y = targets[0] if len(labels) == 1 else np.stack(targets, axis=1)
        return _inputs(folder, half, inputs, datasets, on_progress, name), y, owner

    x, y, owner = read(train, "train")
    x_test, y_test, owner_test = (None, None, None) if test is None else read(test, "test")
    made = from_arrays(x, y, x_test, y_test, owner, owner_test, folder.name, task, tuple(labels), one_class)
    return replace(made, columns=tuple(inputs)) if _is_number(train.features[inputs[0]], datasets) else made


def _halves(folder: Path, splits: dict[str, Any]) -> tuple[Any, Any]:
    """The training split, and the test split or None; a validation split takes the place of a missing test split."""
    if "train" not in splits:
        raise BadInput(f"dataset = {str(folder)!r}: has splits {', '.join(splits)}, but none called train")
    tests = [name for name in ("test", "validation", "valid", "val") if name in splits][:1]
    unused = [name for name in splits if name not in ("train", *tests)]
    if unused:
        warnings.warn(
            f"dataset = {str(folder)!r}: splits that are not used: {', '.join(unused)}", UserWarning, stacklevel=3
        )
    return splits["train"], splits[tests[0]] if tests else None


def _roles(folder: Path, data: Any, column: str | None, datasets: Any) -> tuple[list[str], str | None, list[str]]:
    """The label columns, the client column if any, and the columns of inputs."""
    names = list(data.column_names)
    classes = [name for name in names if isinstance(data.features[name], datasets.ClassLabel)]
    known = [name for name in _LABELS if name in names] or (classes if len(classes) == 1 else [])
    labels = known[:1] if column is None else [column] if column in names else [w.strip() for w in column.split(",")]
    absent = next((name for name in labels if name not in names), None)
    if not labels or absent is not None:
        wanted = repr(absent) if labels else f"{', '.join(_LABELS[:-1])} or {_LABELS[-1]}"
        raise BadInput(
            f"dataset = {str(folder)!r}: no column {wanted}; columns are {', '.join(names)}; name the label column: "
            f"{folder}:COLUMN"
        )
    client = CLIENT_NAME if CLIENT_NAME in names and CLIENT_NAME not in labels else None
    inputs = [name for name in names if name not in (*labels, client)]
    numbers = [name for name in inputs if _is_number(data.features[name], datasets)]
    if not inputs:
        raise BadInput(f"dataset = {str(folder)!r}: no columns besides {', '.join(names)}; inputs are required")
    if numbers != inputs and len(inputs) > 1:
        kinds = ", ".join(f"{name} ({_kind(data.features[name])})" for name in inputs)
        raise BadInput(
            f"dataset = {str(folder)!r}: the columns besides {', '.join(labels)} are {kinds}; they must be numbers, or "
            "one column of images or of arrays; leave the others out with remove_columns before save_to_disk"
        )
    return labels, client, inputs


def _inputs(folder: Path, data: Any, names: Sequence[str], datasets: Any, on_progress: OnProgress, half: str) -> Array:
    """(n, …) inputs: numbers side by side as float32, arrays as they are, images as bytes."""
    features, rows = data.features, len(data)
    if not rows:
        raise BadInput(f"dataset = {str(folder)!r}: the {half} split has no rows")
    for name in names:
        if name in data.column_names and data.data.column(name).null_count:
            row = data.data.column(name).is_null().to_pylist().index(True)
            raise BadInput(f"dataset = {str(folder)!r}: column {name!r} is empty in row {row + 1} of {half}")
    if isinstance(features[names[0]], datasets.Image):
        return _images(folder, data, names[0], on_progress, half)
    if _is_number(features[names[0]], datasets):
        table = data.with_format("numpy", columns=list(names))[:]
        return np.stack([table[name].astype(np.float32) for name in names], axis=1)
    inner = features[names[0]]
    while hasattr(inner, "feature"):  # lists of lists
        inner = inner.feature
    # Said explicitly: the default turns bytes into int64.
    kind = np.dtype(inner.dtype) if str(inner.dtype).startswith(("int", "uint", "float", "bool")) else None
    found = data.with_format("numpy", columns=list(names), dtype=kind)[:][names[0]] if kind is not None else None
    if found is None or found.dtype.kind not in "fiub":
        raise BadInput(
            f"dataset = {str(folder)!r}: column {names[0]!r} contains {_kind(features[names[0]])}; must be images, "
            "numbers, or arrays of one shape"
        )
    return np.asarray(found)


def _images(folder: Path, data: Any, name: str, on_progress: OnProgress, half: str) -> Array:
    """(n, height, width) bytes if all images are grey, else (n, 3, height, width)."""
    images = []
    for row in range(len(data)):
        if row % _EVERY == 0:
            on_progress(f"reading {folder.name} ({half})", row, len(data))
        try:
            image = data[row][name]
            colour = is_colour(image, f"dataset = {str(folder)!r}: row {row + 1} of {half}")
            images.append(pixels_of(image, colour, None))
        except (OSError, SyntaxError) as error:
            raise BadInput(
                f"dataset = {str(folder)!r}: the image in row {row + 1} of {half} cannot be read ({error})"
            ) from None
        if images[-1].shape[-2:] != images[0].shape[-2:]:
            sizes = [f"{each.shape[-2]}x{each.shape[-1]}" for each in (images[0], images[-1])]
            raise BadInput(
                f"dataset = {str(folder)!r}: images differ in size: row 1 of {half} has {sizes[0]} pixels (height x "
                f"width), row {row + 1} has {sizes[1]}; resize them with map before save_to_disk"
            )
    if any(each.ndim == 3 for each in images):
        images = [each if each.ndim == 3 else np.broadcast_to(each, (3, *each.shape)) for each in images]
    return np.stack(images)


def _words(folder: Path, data: Any, name: str) -> Array:
    """(n,) labels or clients: the names of a ClassLabel column, else its values."""
    values = list(data.select_columns([name])[:][name])
    feature = data.features[name]
    if None in values or (hasattr(feature, "int2str") and min(values) < 0):
        row = values.index(None) if None in values else values.index(min(values))
        raise BadInput(f"dataset = {str(folder)!r}: column {name!r} is empty in row {row + 1}")
    if hasattr(feature, "int2str"):
        values = feature.int2str(values)
    return sorted_as_numbers(values) if isinstance(values[0], str) else np.array(values)


def _is_number(feature: Any, datasets: Any) -> bool:
    return isinstance(feature, datasets.Value) and feature.dtype.startswith(("int", "uint", "float", "bool"))


def _kind(feature: Any) -> str:
    return str(getattr(feature, "dtype", None) or type(feature).__name__)
