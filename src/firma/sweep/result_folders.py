"""Results from disk, whatever wrote them: `firma sweep`, `firma reproduce`, `firma run --out` or `Result.save`."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from firma.errors import BadInput
from firma.results import Result, from_dict, load_saved
from firma.run_config import stated
from firma.sweep.store import StoredCell, SweepResults, has_cells, read_results

_RUN, _SAVED = "results.json", "result.json"  # of `firma run --out`, and of `Result.save`


def load_results(folder: str | os.PathLike[str]) -> list[Result]:
    """All results in a folder of `firma sweep`, `firma reproduce`, `firma run --out` or `Result.save`, as a list."""
    return [cell.result for cell in read_folder(Path(folder)).cells]


def read_folders(folders: Iterable[Path]) -> SweepResults:
    """Everything that these folders hold; a run that is in several of them counts once."""
    found = [read_folder(folder) for folder in folders]
    cells: dict[tuple[str, str, str], StoredCell] = {}
    for each in found:
        for place, cell in enumerate(each.cells):
            identity = (cell.key, cell.preset, "") if cell.key else (str(id(each)), "", str(place))
            cells.setdefault(identity, cell)
    return SweepResults(
        list(cells.values()),
        [ring for each in found for ring in each.ring_orders],
        [failure for each in found for failure in each.failures],
    )


def read_folder(folder: Path) -> SweepResults:
    """Everything that one folder holds."""
    if has_cells(folder):
        return read_results(folder)
    if (folder / _RUN).is_file():
        return SweepResults(_of_run(folder / _RUN))
    if (folder / _SAVED).is_file():
        return SweepResults([StoredCell("", load_saved(folder), {})])
    below = sorted(str(each) for each in folder.glob("*/") if holds_results(each)) if folder.is_dir() else []
    hint = f"; pass {' '.join(below)}" if below else ": run firma sweep, firma reproduce or firma run --out first"
    what = "contains no results" if folder.is_dir() else "does not exist"
    raise BadInput(f"results folder {str(folder)!r} {what}{hint}")


def holds_results(folder: Path) -> bool:
    """Whether anything here can be read."""
    return has_cells(folder) or (folder / _RUN).is_file() or (folder / _SAVED).is_file()


def _of_run(path: Path) -> list[StoredCell]:
    """The runs of one `firma run --out`; each repeats the options of the command with its own method and seed."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        options = stated(document["config"])
        return [
            StoredCell("", result, {}, options | {"method": result.method, "seed": result.seed})
            for result in (from_dict(each) for each in document["results"])
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{path} is not a file of firma run --out ({error})") from None
