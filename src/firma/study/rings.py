"""Rings ordered without training: what 2-opt saves is a fact of the split, known before anyone runs it."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from io import StringIO
from pathlib import Path

from firma.atomic_files import write_whole
from firma.data.dataset import load_dataset
from firma.errors import BadInput
from firma.methods import METHODS
from firma.ring_report import ring_report
from firma.study.grid import Cell

# The method whose ring is ordered; what it saves is told beside every cell, whoever uses it.
ORDERED = next(row.name for row in METHODS.values() if row.order == "2-opt")


@dataclass(frozen=True, slots=True)
class Ring:
    """One ring of the study: its cost as given and as 2-opt orders it."""

    preset: str
    dataset: str
    scenario: str
    clients: int
    ring_cost: str
    cost_identity: float
    cost_optimised: float
    saving_percent: float
    order: tuple[int, ...]

    @property
    def place(self) -> tuple[str, str, str]:
        """What it is the ring of."""
        return self.preset, self.dataset, self.scenario


def ordered(cells: Iterable[Cell]) -> Iterator[Ring]:
    """The ring of every preset, data set and scenario among the cells, once each."""
    seen = set()
    for cell in cells:
        place = (cell.preset, cell.dataset, cell.scenario)
        if place in seen:
            continue
        seen.add(place)
        source = load_dataset(cell.dataset)
        report = ring_report(source, cell.scenario, ORDERED, cell.clients, cell.preset, cell.settings, cell.seed)
        known = {field.name: report[field.name] for field in fields(Ring)}
        yield Ring(**known | {"order": tuple(report["order"])})


def save(folder: Path, rings: Iterable[Ring]) -> Path:
    """Add rings to those of a results folder; a ring that is there is replaced."""
    kept = {ring.place: ring for ring in (*read(folder), *rings)}
    buffer = StringIO()
    writer = csv.DictWriter(buffer, [field.name for field in fields(Ring)], lineterminator="\n")
    writer.writeheader()
    for ring in kept.values():
        writer.writerow(asdict(ring) | {"order": " ".join(str(client) for client in ring.order)})
    write_whole(_path(folder), buffer.getvalue())
    return _path(folder)


def read(folder: Path) -> list[Ring]:
    """The rings of a results folder; none where nobody ordered any."""
    path = _path(folder)
    if not path.is_file():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_ring(row) for row in csv.DictReader(file)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{path}: damaged; remove it, firma reproduce --rings writes it again") from None


def _ring(row: dict[str, str]) -> Ring:
    return Ring(
        row["preset"], row["dataset"], row["scenario"], int(row["clients"]), row["ring_cost"],
        float(row["cost_identity"]), float(row["cost_optimised"]), float(row["saving_percent"]),
        tuple(int(client) for client in row["order"].split()),
    )  # fmt: skip


def _path(folder: Path) -> Path:
    return folder / "rings.csv"
