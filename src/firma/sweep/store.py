"""Results of a sweep on disk: a folder with one file per data set and preset, one cell per line.

    RESULTS/digits-paper.jsonl    finished cells, sorted: adding a cell adds a line
    RESULTS/cells/KEY.PRESET.json    cells finished by the command that is running, or that was killed
    RESULTS/rings.csv             see `ring_savings`
    RESULTS/failures.json         cells that failed, and why; they are run again
    RESULTS/sweep.toml            the grid file of `firma sweep`, as it was last run
    RESULTS/live.jsonl            the progress of the last command, for `firma watch`: see `firma.live_log`

While a command runs, each finished cell is written as a small file, whole or not at all; `kill -9` loses the cell that
is running and no other. The small files are folded into the files per data set and preset when the command ends, or
when the next one starts. Version 0.1 kept all cells as cells/KEY.json: they are read and folded in the same way.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from firma.atomic_files import check_writable, replace_synced, write_whole
from firma.errors import BadInput
from firma.live_log import LIVE_FILE
from firma.results import Result, from_dict
from firma.settings import changed_settings, given_settings, hyper_for, split_for
from firma.sweep.cells import RESULTS_VERSION, Cell, as_options, configuration, digest, key
from firma.sweep.ring_savings import RingOrder, read_ring_orders

GRID_FILE = "sweep.toml"
_FAILURES = "failures.json"


@dataclass(frozen=True, eq=False)
class StoredCell:
    """A cell that was run: its result, and what 2-opt saves on its ring."""

    key: str
    result: Result
    ring: Mapping[str, Any]
    asked: Mapping[str, Any] = field(default_factory=dict)  # the options that `firma run` repeats it with
    inputs: Mapping[str, str] = field(default_factory=dict)  # fingerprints of the user's own data and code

    @property
    def dataset(self) -> str:
        """Name of the data set."""
        return str(self.result.config["dataset"])

    @property
    def scenario(self) -> str:
        """Name of the scenario."""
        return str(self.result.config["scenario"])

    @property
    def preset(self) -> str:
        """The preset that it was run with."""
        return str(self.result.config["preset"])


@dataclass(frozen=True)
class SweepResults:
    """Everything in a results folder: cells that were run, and rings that were ordered without training."""

    cells: Sequence[StoredCell]
    ring_orders: Sequence[RingOrder] = ()
    failures: Sequence["Failure"] = ()


@dataclass(frozen=True)
class Failure:
    """A cell that failed, by its name, and why."""

    key: str
    name: str
    error: str
    details: str = ""


def read_results(folder: Path) -> SweepResults:
    """Everything that a results folder holds."""
    return SweepResults(read_cells(folder), read_ring_orders(folder), read_failures(folder))


def read_cells(folder: Path) -> list[StoredCell]:
    """Every valid cell of a results folder, by key; cells that are damaged or of another version are left out."""
    if not has_cells(folder):
        raise BadInput(f"results folder {str(folder)!r} contains no results; run firma reproduce --out {folder} first")
    return _read(folder)


def has_cells(folder: Path) -> bool:
    """Whether this is a results folder of a sweep, of which some or all cells may be missing."""
    return bool(_files(folder)) or any(
        (folder / name).exists() for name in ("cells", "rings.csv", _FAILURES, GRID_FILE)
    )


def _read(folder: Path) -> list[StoredCell]:
    lines = [line for path in _files(folder) for line in path.read_text(encoding="utf-8").split("\n") if line]
    found: dict[tuple[str, str], StoredCell] = {}
    for text in [*lines, *(path.read_text(encoding="utf-8", errors="replace") for path in _small_files(folder))]:
        if (cell := parse(text)) is not None:
            found.setdefault((cell.key, cell.preset), cell)
    return [found[each] for each in sorted(found)]


def parse(text: str) -> StoredCell | None:
    """A stored cell from its JSON; None if it is damaged or was written by another version of the results."""
    try:
        document = json.loads(text)
        if document["figures"] != RESULTS_VERSION or digest(document["configuration"]) != document["key"]:
            return None
        known = {name: str(document["configuration"].get(name, "")) for name in ("data", "code")}
        return StoredCell(document["key"], from_dict(document), document["ring"], document.get("asked", {}), known)
    except (ValueError, KeyError, TypeError):
        return None


def missing(cells: Sequence[Cell], folder: Path) -> list[Cell]:
    """The cells that have no valid result under their preset yet, in order."""
    done = {(cell.key, cell.preset) for cell in _read(folder)}
    return [cell for cell in cells if (key(cell), cell.preset) not in done]


def save(folder: Path, cell: Cell, result: Result, ring: Mapping[str, Any]) -> None:
    """Write a finished cell as a small file: a reader sees all of it or nothing."""
    path = folder / "cells" / f"{key(cell)}.{cell.preset}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"key": key(cell), "figures": RESULTS_VERSION, "configuration": configuration(cell), "ring": dict(ring)}
    asked = {"asked": as_options(cell)} if cell.called else {}
    last = {name: values[-1:] for name, values in result.curves.items()}  # enough for tables, a tenth of the bytes
    document = facts | asked | replace(result, curves=last).as_dict()
    write_whole(path, json.dumps(document, allow_nan=False) + "\n")


def record_failure(folder: Path, cell: Cell, error: str, details: str = "") -> None:
    """Write down why a cell failed, in place of what was written about it before."""
    folder.mkdir(parents=True, exist_ok=True)
    others = [each for each in read_failures(folder) if each.key != key(cell)]
    _write_failures(folder, [*others, Failure(key(cell), cell.name, error, details)])


def forget_failure(folder: Path, cell: Cell) -> None:
    """A cell that had failed has now been run."""
    found = read_failures(folder)
    others = [each for each in found if each.key != key(cell)]
    if len(others) < len(found):
        _write_failures(folder, others)


def _write_failures(folder: Path, failures: Sequence[Failure]) -> None:
    if failures:
        write_whole(folder / _FAILURES, json.dumps([vars(each) for each in failures], indent=1) + "\n")
    else:
        (folder / _FAILURES).unlink()


def read_failures(folder: Path) -> list[Failure]:
    """The cells of a results folder that failed when they were last run."""
    try:
        found = json.loads((folder / _FAILURES).read_text(encoding="utf-8"))
        return [Failure(each["key"], each["name"], each["error"], each["details"]) for each in found]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def copy_between_presets(cells: Sequence[Cell], folder: Path) -> int:
    """Where two presets give a method the same numbers, the result of one is the other's too; returns how many."""
    stored = {cell.key: cell for cell in _read(folder)}
    found = [cell for cell in missing(cells, folder) if key(cell) in stored]
    for cell in found:
        same = stored[key(cell)]
        hyper = hyper_for(cell.method, cell.preset, cell.settings)
        changed = changed_settings(cell.method, cell.preset, hyper, split_for(cell.preset, cell.settings))
        given = given_settings(cell.settings, hyper, split_for(cell.preset, cell.settings))
        config = {**same.result.config, "preset": cell.preset, "settings": changed, "set": given}
        save(folder, cell, replace(same.result, method=cell.method, config=config), same.ring)
    return len(found)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the folder for one process; small files are folded when it is opened and when it is closed.

    The lock is the operating system's: it is released with the process that holds it, however that ends.
    """
    check_writable(folder)
    with (folder / ".lock").open("w") as lock:
        _hold(lock.fileno(), folder)
        for draft in (*folder.glob(".*.jsonl.*"), *(folder / "cells").glob(".*.json.*")):
            draft.unlink()
        fold(folder)
        try:
            yield
        finally:
            fold(folder)


def fold(folder: Path) -> None:
    """Move small files into the files per data set and preset; a crash in between leaves a cell in both, never in none.

    Files that are not JSON are removed: their cells are run again. JSON of any other kind stays where it is.
    """
    moved: dict[str, dict[str, str]] = {}
    small: dict[str, list[Path]] = {}
    for path in _small_files(folder):
        try:
            text = path.read_text(encoding="utf-8").strip()
            name, identity = _file_name(json.loads(text)), _sort_key(text)
        except (KeyError, TypeError):
            continue
        except ValueError:
            path.unlink()
            continue
        moved.setdefault(name, {})[identity[-1]] = text
        small.setdefault(name, []).append(path)
    for name, texts in moved.items():
        lines = {_sort_key(line)[-1]: line for line in _lines(folder / name)} | texts
        whole = "".join(f"{line}\n" for line in sorted(lines.values(), key=_sort_key))
        replace_synced(folder / name, whole.encode())
        for path in small[name]:
            path.unlink()
    with suppress(OSError):  # not empty, or not there
        (folder / "cells").rmdir()


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.glob("*.jsonl") if each.name != LIVE_FILE)


def _small_files(folder: Path) -> list[Path]:
    return sorted((folder / "cells").glob("*.json"))


def _file_name(document: Mapping[str, Any]) -> str:
    config = document["config"]
    return re.sub(r"[^\w.-]+", "_", f"{config['dataset']}-{config['preset']}") + ".jsonl"


def _sort_key(text: str) -> tuple[str, str, int, str]:
    document = json.loads(text)
    return document["config"]["scenario"], document["method"], document["seed"], document["key"]


def _lines(path: Path) -> list[str]:
    """The lines of a file that are cells, of whatever version."""
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        with suppress(ValueError, KeyError, TypeError):
            _sort_key(line)
            found.append(line)
    return found


def _hold(handle: int, folder: Path) -> None:
    if os.name != "posix":
        return
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BadInput(
            f"results folder {str(folder)!r} is in use by another firma command; wait for it, or choose another --out"
        ) from None
