"""Rings ordered without training: what 2-opt saves follows from the split alone (rings.csv in a results folder)."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from io import StringIO
from pathlib import Path

from firma.atomic_files import write_whole
from firma.data.dataset import load_dataset
from firma.errors import BadInput
from firma.methods import METHODS
from firma.ring_cost import ring_report
from firma.sweep.cells import Cell

# The method whose ring is ordered; what 2-opt saves is recorded with every cell, whichever method it runs.
ORDERED_METHOD = next(row.name for row in METHODS.values() if row.order == "2-opt")


@dataclass(frozen=True, slots=True)
class RingOrder:
    """The ring of one preset, data set and scenario: its cost as given and as 2-opt orders it."""

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
    def identity(self) -> tuple[str, str, str]:
        """Preset, data set and scenario."""
        return self.preset, self.dataset, self.scenario


def order_rings(cells: Iterable[Cell]) -> Iterator[RingOrder]:
    """The ring of every preset, data set and scenario among the cells, once each."""
    seen = set()
    for cell in cells:
        identity = (cell.preset, cell.dataset, cell.scenario)
        if identity in seen:
            continue
        seen.add(identity)
        source = load_dataset(cell.dataset)
        report = ring_report(source, cell.scenario, ORDERED_METHOD, cell.clients, cell.preset, cell.settings, cell.seed)
        known = {field.name: report[field.name] for field in fields(RingOrder)}
        yield RingOrder(**known | {"order": tuple(report["order"])})


def save_ring_orders(folder: Path, orders: Iterable[RingOrder]) -> Path:
    """Add rings to those of a results folder; one of the same preset, data set and scenario is replaced."""
    merged = {each.identity: each for each in (*read_ring_orders(folder), *orders)}
    buffer = StringIO()
    writer = csv.DictWriter(buffer, [field.name for field in fields(RingOrder)], lineterminator="\n")
    writer.writeheader()
    for each in merged.values():
        writer.writerow(asdict(each) | {"order": " ".join(str(client) for client in each.order)})
    write_whole(_path(folder), buffer.getvalue())
    return _path(folder)


def read_ring_orders(folder: Path) -> list[RingOrder]:
    """The rings of a results folder; an empty list if none were ordered."""
    path = _path(folder)
    if not path.is_file():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [_ring_order(row) for row in csv.DictReader(file)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{path} is damaged; delete it and run firma reproduce --rings to write it again") from None


def _ring_order(row: dict[str, str]) -> RingOrder:
    return RingOrder(
        row["preset"], row["dataset"], row["scenario"], int(row["clients"]), row["ring_cost"],
        float(row["cost_identity"]), float(row["cost_optimised"]), float(row["saving_percent"]),
        tuple(int(client) for client in row["order"].split()),
    )  # fmt: skip


def _path(folder: Path) -> Path:
    return folder / "rings.csv"
