"""The paper's ring figures, every one that its recipe gives, from the data that are on this machine."""

import csv
from importlib.resources import files

import pytest

from firma.data.cache import cache_folder, present
from firma.data.catalogue import PUBLIC
from firma.ring_cost import ring_report

UNPUBLISHED = ("skew-2", "skew-3")  # the paper does not say how these two were dealt
with (files("firma.paper") / "published_rings.csv").open() as file:
    ROWS = [row for row in csv.DictReader(file) if row["scenario"] not in UNPUBLISHED]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['dataset']} {row['scenario']}" for row in ROWS])
def test_published_ring(row):
    name = row["dataset"]
    if name in PUBLIC and not present(PUBLIC[name], cache_folder()):
        pytest.skip(f"{name} is not in {cache_folder()}; download it with: firma data get {name}")
    report = ring_report(name, row["scenario"], "fibfl++", int(row["clients"]), "published", {}, 0)
    assert f"{report['saving_percent']:.1f}" == row["saving_percent"]
    for cost in ("cost_identity", "cost_optimised"):
        assert not row[cost] or f"{report[cost]:.4f}" == row[cost]
    assert not row["order"] or report["order"] == [int(client) for client in row["order"].split()]
