"""Cells on disk: a file each, named by the hash of its configuration, whole or not there at all."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firma.atomic_files import check_writable, write_whole
from firma.errors import BadInput
from firma.results import Result, from_dict
from firma.study import rings
from firma.study.grid import FIGURES, Cell, configuration, key
from firma.study.rings import Ring


@dataclass(frozen=True, eq=False)
class Stored:
    """A cell that was run: its result, and what 2-opt saves on its ring."""

    key: str
    result: Result
    ring: Mapping[str, Any]

    @property
    def dataset(self) -> str:
        """Name of the data set."""
        return str(self.result.config["dataset"])

    @property
    def scenario(self) -> str:
        """Name of the scenario."""
        return str(self.result.config["scenario"])


@dataclass(frozen=True)
class Study:
    """What a results folder holds: cells that were run, and rings that were ordered without running any."""

    cells: Sequence[Stored]
    rings: Sequence[Ring] = ()


def cell_path(folder: Path, cell: Cell) -> Path:
    """Where a cell's file is or will be."""
    return folder / "cells" / f"{key(cell)}.json"


def save(folder: Path, cell: Cell, result: Result, ring: Mapping[str, Any]) -> Path:
    """Write a cell in one step: a reader sees all of it or nothing."""
    path = cell_path(folder, cell)
    facts = {"key": key(cell), "figures": FIGURES, "configuration": configuration(cell), "ring": dict(ring)}
    write_whole(path, json.dumps(facts | result.as_dict(), allow_nan=False) + "\n")
    return path


def read(path: Path) -> Stored | None:
    """A stored cell; None if the file is not there, is damaged, or was written by another version of the figures."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["key"] != path.stem or document["figures"] != FIGURES:
            return None
        return Stored(document["key"], from_dict(document), document["ring"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_all(folder: Path) -> list[Stored]:
    """Every whole cell of a results folder."""
    if not (folder / "cells").is_dir():
        raise BadInput(f"results = {str(folder)!r}: no study there; firma reproduce --out {folder} makes one")
    found = (read(path) for path in sorted((folder / "cells").glob("*.json")))
    return [stored for stored in found if stored is not None]


def read_study(folder: Path) -> Study:
    """All that a results folder holds."""
    return Study(read_all(folder), rings.read(folder))


def is_done(folder: Path, cell: Cell) -> bool:
    """Whether the cell is there, whole and of this version."""
    return read(cell_path(folder, cell)) is not None


@contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """Hold the folder for one process; what a killed one left half-written is swept away.

    The lock is the operating system's, so that it dies with its owner, however that ends.
    """
    check_writable(folder / "cells")
    with (folder / ".lock").open("w") as lock:
        _hold(lock.fileno(), folder)
        for draft in (folder / "cells").glob(".*.json.*"):
            draft.unlink()
        yield


def _hold(handle: int, folder: Path) -> None:
    if os.name != "posix":
        return
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadInput(f"out = {str(folder)!r}: another firma reproduce is at work there") from None
