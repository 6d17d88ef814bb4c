"""What a study holds, in a few small tables: how much was run, on what, with which numbers."""

from collections.abc import Mapping, Sequence

from firma.data.scenarios import STUDY as SCENARIOS
from firma.methods import METHODS
from firma.report.table import Entry, Table, number, words
from firma.settings import hyper_for, split_for
from firma.study.evidence import Evidence, labels
from firma.study.grid import DATASETS
from firma.study.store import Stored


def coverage(bodies: Mapping[str, Evidence]) -> Table:
    """How many of the study's 28 places times 7 methods were run, and with how many seeds."""
    rows = []
    for name, body in bodies.items():
        for dataset in DATASETS:
            found = [body.get((dataset, scenario), method) for scenario in SCENARIOS for method in METHODS]
            seeds = [figure.seeds for figure in found if figure is not None]
            spread = "—" if not seeds else str(max(seeds)) if len(set(seeds)) == 1 else f"{min(seeds)} to {max(seeds)}"
            rows.append(
                (Entry(name), Entry(dataset), number(len(seeds), "{:.0f}"), Entry(str(len(found))), Entry(spread))
            )
    columns = ("runs", "data set", "places run", "of", "seeds")
    return Table("coverage", "What was run", columns, tuple(rows), "A place is a scenario and a method.")


def versions(cells: Sequence[Stored]) -> Table:
    """Versions and ways of training that the cells were run with."""
    kinds: dict[tuple[str, ...], int] = {}
    for cell in cells:
        stated = cell.result.config["versions"]
        kind = (stated["firma"], stated["torch"], stated["python"], cell.result.backend)
        kinds[kind] = kinds.get(kind, 0) + 1
    rows = [(*words(*kind), number(count, "{:.0f}")) for kind, count in sorted(kinds.items())]
    return Table("versions", "Versions", ("firma", "torch", "python", "trained by", "cells"), tuple(rows))


def configuration(cells: Sequence[Stored]) -> Table:
    """The numbers and switches of every method, under every label that was run."""
    seen: dict[tuple[str, str], Mapping[str, object]] = {}
    for cell in cells:
        config, method = cell.result.config, cell.result.method
        if method in METHODS:
            for name in labels(config, method):
                seen.setdefault((name, method), dict(config["hyper"]) | dict(config["split"]))
    names = [*hyper_for("local", "paper", {}).model_dump(), *split_for("paper", {}).model_dump()]
    order = sorted(seen, key=lambda each: (each[0], list(METHODS).index(each[1])))
    rows = [words(name, *(str(seen[each].get(name, "—")) for each in order)) for name in names]
    columns = ("setting", *(f"{method} ({name})" for name, method in order))
    return Table("configuration", "Configuration", columns, tuple(rows))
