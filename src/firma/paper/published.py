"""Result tables that come with the package: what the paper printed, and the statistics of our own runs."""

import csv
from functools import cache
from importlib.resources import files
from io import StringIO

from firma.statistics import Statistic
from firma.sweep.result_table import Case, ResultTable, from_csv

# The metrics of our own runs that are shipped; enough for advice and for the claims of the README.
SHIPPED_METRICS = (
    "mean_accuracy", "gini", "worst_client", "bytes_per_round", "rounds_to_half_of_final", "plateau_std",
)  # fmt: skip


def published() -> ResultTable:
    """What the paper printed: accuracies, Gini coefficients, and the ring savings that it names."""
    names = {"accuracy": "mean_accuracy", "gini": "gini"}
    statistics = {
        (row["dataset"], row["scenario"], row["method"], names[row["metric"]]): Statistic(float(row["value"]))
        for row in csv.DictReader(StringIO(_text("published_results.csv")))
    }
    savings = {(row["dataset"], row["scenario"]): float(row["saving_percent"]) for row in _rings()}
    return ResultTable("paper", statistics, savings, exact=True, source="printed in the paper")


@cache
def printed_orders() -> dict[Case, tuple[int, ...]]:
    """The orders of rings that the paper prints: one, MNIST at Dir 0.1 (Section 6.7)."""
    return {
        (row["dataset"], row["scenario"]): tuple(map(int, row["order"].split())) for row in _rings() if row["order"]
    }


def shipped() -> dict[str, ResultTable]:
    """The statistics of our own runs, one table per preset; made by `firma report --evidence`."""
    return from_csv(_text("evidence.csv"))


def _rings() -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(_text("published_rings.csv"))))


def _text(name: str) -> str:
    return (files("firma.paper") / name).read_text(encoding="utf-8")
