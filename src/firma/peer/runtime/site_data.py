"""This site's data against what the ring file agreed on: what is refused, and what `firma doctor --data` says."""

import warnings
from collections.abc import Iterator

import numpy as np

from firma.data.dataset import Array, Dataset
from firma.data.standardise import warn_of_scales
from firma.errors import BadInput
from firma.peer.ring_file import ColumnType, Ring, Task
from firma.peer.runtime.local_training import load_own

LARGEST = 1e18  # of an input: the sum of a few squares of larger ones is no longer a float32
_LARGE = 1e4  # of an input that is not standardised: training is likely to fail
_CHUNK = 4096  # rows at a time
Told = tuple[str, bool, str]  # about what, whether it passed, what was found or is to be done


def check_inputs(own: Dataset, path: str) -> None:
    """Refuse inputs that are not finite as float32, or so large that no model can be trained on them."""
    for name, x in (("training", own.x_train), ("test", own.x_test)):
        if x.dtype.kind not in "fiu" or x.dtype == np.uint8:
            continue
        for start in range(0, len(x), _CHUNK):
            rows = x[start : start + _CHUNK].astype(np.float64).reshape(len(x[start : start + _CHUNK]), -1)
            wrong = ~(np.abs(rows * own.scale) <= LARGEST)
            if wrong.any():
                row, place = np.argwhere(wrong)[0]
                column = f"column {own.columns[place]!r}" if own.columns else f"value {place + 1}"
                raise BadInput(
                    f"data = {path!r}: {column} of {name} row {start + row + 1} is {rows[row, place]:.3g}; inputs must "
                    f"be finite and at most {LARGEST:g} in magnitude: correct the value, or change the unit"
                )


def column_types(own: Dataset) -> tuple[ColumnType, ...]:
    """What each column of a table holds: 0 and 1 only, integers only, or any numbers."""
    both = np.concatenate([own.x_train, own.x_test]) if len(own.x_test) else own.x_train
    return tuple(_type_of(both[:, place]) for place in range(len(own.columns)))


def _type_of(values: Array) -> ColumnType:
    if np.isin(values, (0, 1)).all():
        return "binary"
    return "integer" if np.array_equal(values, np.trunc(values)) else "number"


def check_column_types(own: Dataset, path: str, task: Task) -> None:
    """Refuse a table whose columns hold other values than the ring file agreed on."""
    for place, (name, agreed) in enumerate(zip(task.columns, task.types, strict=False)):
        for half, x in (("training", own.x_train), ("test", own.x_test)):
            values = x[:, place]
            fits = np.isin(values, (0, 1)) if agreed == "binary" else values == np.trunc(values)
            if agreed != "number" and not fits.all():
                row = int(np.argmin(fits))
                what = "0 and 1" if agreed == "binary" else "integers"
                raise BadInput(
                    f"data = {path!r}: column {name!r} is {agreed} in the ring file, {what} only, but {half} row "
                    f"{row + 1} has {float(values[row]):g}; correct it, or agree on a ring file with {name}:number"
                )


def column_notice(own: Dataset, task: Task) -> str:
    """What nobody can check about the order of this site's columns; "" if the ring file settles it.

    Columns that the ring file lists have been matched by name. A ring of one feature has no order.
    """
    if own.columns and not task.columns and len(own.columns) > 1:
        return (
            f"the ring file lists no columns, so nobody checks that all sites have them in this order: "
            f"{_listed(own.columns)}; agree on a ring file written with --columns-of"
        )
    if task.columns and not own.columns:
        return (
            "the columns of this site's data have no names; make sure that they are in the order of the ring file: "
            f"{_listed(task.columns)}"
        )
    return ""


def data_findings(path: str, ring: Ring) -> Iterator[Told]:
    """What `firma doctor --data` says: shape, columns, labels, scale, duplicates. Nothing of it leaves this site."""
    task = ring.task
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            own = load_own(path, task)
            check_inputs(own, path)
            check_column_types(own, path, task)
            if not ring.standardise:
                warn_of_scales(own, "firma ring-file --set standardise=per-client for a new ring file")
    except BadInput as error:
        yield "data", False, str(error)
        return
    shape = "x".join(map(str, own.shape))
    yield "data", True, f"{len(own.y_train):,} samples to train, {len(own.y_test):,} to test, inputs of shape {shape}"
    notice = column_notice(own, task)
    if notice:
        yield "columns", bool(task.columns), notice
    elif task.columns:
        types = ", types as agreed" if task.types else ""
        yield "columns", True, f"matched by name{types}: {_listed(task.columns)}"
    yield _labels(own, task)
    yield _scale(own, ring.standardise)
    for each in caught:
        yield "data", True, f"warning: {each.message}"
    yield _duplicates(own)


def _labels(own: Dataset, task: Task) -> Told:
    if task.kind == "regression":
        low, high = own.y_train.min(axis=0), own.y_train.max(axis=0)
        ranges = (f"{name} {a:.4g} to {b:.4g}" for name, a, b in zip(task.labels, low, high, strict=True))
        return "targets", True, ", ".join(ranges)
    counts = own.y_train.sum(axis=0) if task.kind == "multi-label" else np.bincount(own.y_train, minlength=own.classes)
    there = [f"{name} {int(count):,}" for name, count in zip(task.labels, counts, strict=True) if count]
    missing = [name for name, count in zip(task.labels, counts, strict=True) if not count]
    more = f"; none of {_listed(missing)}" if missing else ""
    if len(there) == 1 and task.kind == "classification":
        more += "; one class only: this site's own head learns nothing to tell apart"
    return "labels", True, f"{_listed(there)}{more}"


def _scale(own: Dataset, standardised: bool) -> Told:
    low, high = float(own.x_train.min()) * own.scale, float(own.x_train.max()) * own.scale
    says = f"inputs from {low:.4g} to {high:.4g}"
    if standardised:
        return "scale", True, f"{says}; standardised by this site's training data"
    if max(-low, high) > _LARGE and own.x_train.dtype.kind == "f":
        return "scale", False, f"{says}; too large to train on: change the unit, or agree on standardise=per-client"
    return "scale", True, says


def _duplicates(own: Dataset) -> Told:
    """Test rows that are also training rows make the accuracy look better than it is."""
    known = set(_rows(own.x_train))
    twice = sum(row in known for row in _rows(own.x_test))
    if not twice:
        return "duplicates", True, "no test row is also a training row"
    return "duplicates", True, (
        f"warning: {twice:,} of {len(own.y_test):,} test rows are also training rows, so the accuracy flatters"
    )  # fmt: skip


def _rows(x: Array) -> Iterator[int]:
    for row in x:
        yield hash(np.ascontiguousarray(row).tobytes())


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:10]) + (f", … ({len(names)} in all)" if len(names) > 10 else "")
