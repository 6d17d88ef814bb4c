"""The cache folder of public data sets, each decoded once to four .npy files of uint8."""

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firma.atomic_files import sync
from firma.data.catalogue import PARTS, PublicDataset
from firma.errors import BadInput

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Arrays:
    """A decoded data set: inputs (n, …) and labels (n,), all uint8."""

    x_train: Bytes
    y_train: Bytes
    x_test: Bytes
    y_test: Bytes


def cache_folder(chosen: Path | None = None) -> Path:
    """The chosen folder, else FIRMA_DATA, else firma/ in the user's cache (XDG_CACHE_HOME or ~/.cache)."""
    if chosen is not None:
        return chosen.expanduser()
    if named := os.environ.get("FIRMA_DATA"):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "firma"


def present(known: PublicDataset, cache: Path) -> bool:
    """Whether the data set is in the cache, judged by the headers and lengths of its files, not by their content."""
    try:
        arrays = _map(cache / known.name)
    except (OSError, ValueError):
        return False
    return not wrong_shape(known, arrays)


def open_cached(known: PublicDataset, cache: Path) -> Arrays:
    """The data set from the cache: inputs as read-only memory maps, so that opening costs neither time nor memory."""
    folder = cache / known.name
    command = f"firma data get {known.name}"
    if not folder.is_dir():
        raise BadInput(f"dataset = {known.name!r}: not in {cache}; download it with: {command}")
    try:
        arrays = _map(folder)
    except (OSError, ValueError) as error:
        raise BadInput(f"dataset = {known.name!r}: {folder} is damaged ({error}); repair it with: {command}") from None
    if problem := wrong_shape(known, arrays):
        raise BadInput(f"dataset = {known.name!r}: {folder} is damaged ({problem}); repair it with: {command}")
    return arrays


def store(known: PublicDataset, arrays: Arrays, cache: Path) -> None:
    """Put a data set into the cache, complete or not at all: a new folder, every file synced, then one rename."""
    target = cache / known.name
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{known.name}.") as name:
        draft = Path(name) / known.name
        draft.mkdir()
        for part in PARTS:
            with (draft / f"{part}.npy").open("wb") as file:
                np.save(file, getattr(arrays, part), allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
        sync(draft)
        try:
            draft.rename(target)
        except OSError:  # it exists: damaged, or stored by another process in the meantime; it is replaced
            target.rename(Path(name) / "old")
            draft.rename(target)
        sync(cache)


def stored_bytes(known: PublicDataset, cache: Path) -> int:
    """Size on disk of a data set in the cache."""
    return sum(file.stat().st_size for file in (cache / known.name).glob("*.npy"))


def wrong_shape(known: PublicDataset, arrays: Arrays) -> str | None:
    """What is wrong with the shapes, or None."""
    wanted = ((known.train, *known.shape), (known.train,), (known.test, *known.shape), (known.test,))
    for part, shape in zip(PARTS, wanted, strict=True):
        found = getattr(arrays, part)
        if found.shape != shape or found.dtype != np.uint8:
            return f"{part} holds {found.dtype} of shape {found.shape}, not uint8 of shape {shape}"
    return None


def wrong_content(known: PublicDataset, arrays: Arrays) -> str | None:
    """What differs from the published data, or None: shapes first, then SHA-256 of the content."""
    if problem := wrong_shape(known, arrays):
        return problem
    for part, digest in zip(PARTS, known.digests, strict=True):
        found = sha256(getattr(arrays, part))
        if found != digest:
            return f"{part} has the SHA-256 {found[:12]}…, not {digest[:12]}…"
    return None


def sha256(array: NDArray[Any]) -> str:
    """SHA-256 of the bytes of an array in C order, whatever its strides."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _map(folder: Path) -> Arrays:
    inputs = {part: np.load(folder / f"{part}.npy", mmap_mode="r") for part in PARTS if part.startswith("x")}
    labels = {part: np.load(folder / f"{part}.npy", allow_pickle=False) for part in PARTS if part.startswith("y")}
    return Arrays(**inputs, **labels)
