"""Figures of many runs in one shape, whether the paper printed them or we ran them; claims are checked on either."""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from io import StringIO
from math import sqrt
from statistics import mean, stdev
from typing import Any

from firma.data.scenarios import STUDY as SCENARIOS
from firma.settings import PRESETS, Hyper, Split, hyper_for, split_for
from firma.study.grid import DATASETS
from firma.study.store import Stored, Study

Place = tuple[str, str]  # data set, scenario
PLACES: tuple[Place, ...] = tuple((dataset, scenario) for dataset in DATASETS for scenario in SCENARIOS)
SKEW = tuple(place for place in PLACES if place[1].startswith("skew"))
DIRICHLET = tuple(place for place in PLACES if place[1].startswith("dir"))
IID = tuple(place for place in PLACES if place[1].startswith("iid"))


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric over seeds; the deviation is None where there is one seed, or where nobody says."""

    mean: float
    deviation: float | None = None
    seeds: int = 1

    @property
    def error(self) -> float | None:
        """Standard error of the mean; None where there is one seed."""
        return None if self.deviation is None else self.deviation / sqrt(self.seeds)


@dataclass(frozen=True)
class Evidence:
    """Figures by (data set, scenario, method, metric), and what 2-opt saves in percent by (data set, scenario)."""

    name: str
    figures: Mapping[tuple[str, str, str, str], Figure] = field(default_factory=dict)
    savings: Mapping[Place, float] = field(default_factory=dict)
    exact: bool = False  # taken at their word, for nobody tells their noise

    def get(self, place: Place, method: str, metric: str = "mean_accuracy") -> Figure | None:
        """One figure, or None where nobody ran it."""
        return self.figures.get((*place, method, metric))

    def datasets(self) -> list[str]:
        """The study's data sets that have a figure here."""
        there = {key[0] for key in self.figures}
        return [name for name in DATASETS if name in there]

    def methods(self, place: Place, metric: str = "mean_accuracy") -> dict[str, Figure]:
        """All methods that have this metric there."""
        keys = [key for key in self.figures if key[:2] == place and key[3] == metric]
        return {key[2]: self.figures[key] for key in keys}


def published() -> Evidence:
    """What the paper printed: accuracies, Gini coefficients, and the ring savings that it names."""
    names = {"accuracy": "mean_accuracy", "gini": "gini"}
    figures = {
        (row["dataset"], row["scenario"], row["method"], names[row["metric"]]): Figure(float(row["value"]))
        for row in _rows("published_results.csv")
    }
    rings = _rows("published_rings.csv")
    savings = {(row["dataset"], row["scenario"]): float(row["saving_percent"]) for row in rings}
    return Evidence("paper's tables", figures, savings, exact=True)


def labels(config: Mapping[str, Any], method: str) -> list[str]:
    """What a run is called: its preset, and what differs from it: "paper rate=0.001 rounds=2".

    The preset is the nearest one, whatever words the run was asked for with. Where presets agree on a method's
    numbers, one run belongs to both.
    """
    hyper = Hyper.model_validate({k: v for k, v in config["hyper"].items() if k in Hyper.model_fields})
    split = Split.model_validate({k: v for k, v in config["split"].items() if k in Split.model_fields})
    size = DATASETS.get(config["dataset"])
    candidates = []
    for preset in PRESETS:
        usual = hyper_for(method, preset, {}).model_dump() | split_for(preset, {}).model_dump()
        given = hyper.model_dump() | split.model_dump()
        candidates.append([preset, *(f"{name}={given[name]}" for name in given if given[name] != usual[name])])
    clients, sized = config["clients"] + len(config["dropped"]), []
    if size is not None and clients != size.clients:
        sized.append(f"clients={clients}")
    if size is not None and config["rounds"] != size.rounds:
        sized.append(f"rounds={config['rounds']}")
    nearest = [words for words in candidates if len(words) == 1] or [
        min(candidates, key=lambda words: (len(words), words[0] != config["preset"]))
    ]
    return [" ".join([*words, *sized]) for words in nearest]


def grouped(cells: Iterable[Stored]) -> dict[str, list[Stored]]:
    """Cells by label, the presets as they are first; runs that differ are never mixed."""
    groups: dict[str, list[Stored]] = {}
    for cell in cells:
        for name in labels(cell.result.config, cell.result.method):
            groups.setdefault(name, []).append(cell)
    return {name: groups[name] for name in sorted(groups, key=_preset_first)}


def gathered(study: Study) -> dict[str, Evidence]:
    """One body of evidence a label; what a ring saves is known where it was ordered, run or not."""
    groups = grouped(study.cells)
    savings: dict[str, dict[Place, float]] = {}
    for ring in study.rings:
        savings.setdefault(ring.preset, {})[ring.dataset, ring.scenario] = ring.saving_percent
    names = sorted({*groups, *savings}, key=_preset_first)
    return {name: _evidence(name, groups.get(name, []), savings.get(name, {})) for name in names}


def _preset_first(name: str) -> tuple[int, str]:
    order = list(reversed(PRESETS))
    return order.index(name) if name in order else len(order), name


def _evidence(name: str, cells: Iterable[Stored], ordered: Mapping[Place, float]) -> Evidence:
    """Every metric over the seeds of each method, data set and scenario."""
    values: dict[tuple[str, str, str, str], list[float | None]] = {}
    savings: dict[Place, list[float]] = {}
    for cell in cells:
        savings.setdefault((cell.dataset, cell.scenario), []).append(float(cell.ring["saving_percent"]))
        for metric, value in cell.result.metrics.items():
            values.setdefault((cell.dataset, cell.scenario, cell.result.method, metric), []).append(value)
    figures = {key: _figure([v for v in found if v is not None]) for key, found in values.items() if None not in found}
    return Evidence(name, figures, {**ordered, **{place: mean(found) for place, found in savings.items()}})


def to_csv(bodies: Mapping[str, Evidence], metrics: Iterable[str]) -> str:
    """Evidence as a small file that can be shipped."""
    kept = tuple(metrics)
    buffer = StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["runs", "dataset", "scenario", "method", "metric", "mean", "deviation", "seeds"])
    for name, body in bodies.items():
        for (dataset, scenario, method, metric), figure in sorted(body.figures.items()):
            if metric in kept:
                spread = "" if figure.deviation is None else f"{figure.deviation:.6g}"
                writer.writerow([name, dataset, scenario, method, metric, f"{figure.mean:.6g}", spread, figure.seeds])
        for (dataset, scenario), saving in sorted(body.savings.items()):
            writer.writerow([name, dataset, scenario, "", "saving_percent", f"{saving:.6g}", "", 1])
    return buffer.getvalue()


def shipped() -> dict[str, Evidence]:
    """The evidence of our own runs that comes with the package; empty until there is some."""
    if not (files("firma") / "data_files" / "evidence.csv").is_file():
        return {}
    return from_rows(_rows("evidence.csv"))


def from_rows(rows: Iterable[Mapping[str, str]]) -> dict[str, Evidence]:
    """The inverse of `to_csv`."""
    figures: dict[str, dict[tuple[str, str, str, str], Figure]] = {}
    savings: dict[str, dict[Place, float]] = {}
    for row in rows:
        place = (row["dataset"], row["scenario"])
        ours = figures.setdefault(row["runs"], {})
        if row["metric"] == "saving_percent":
            savings.setdefault(row["runs"], {})[place] = float(row["mean"])
        else:
            spread = float(row["deviation"]) if row["deviation"] else None
            ours[(*place, row["method"], row["metric"])] = Figure(float(row["mean"]), spread, int(row["seeds"]))
    return {name: Evidence(name, figures[name], savings.get(name, {})) for name in figures}


def _figure(values: list[float]) -> Figure:
    return Figure(mean(values), stdev(values) if len(values) > 1 else None, len(values))


def _rows(name: str) -> list[dict[str, str]]:
    text = (files("firma") / "data_files" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(StringIO(text)))
