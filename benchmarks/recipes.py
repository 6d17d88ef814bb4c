"""Which recipe gives the figures that the paper prints, where that of its text gives others: a search on digits.

    python benchmarks/recipes.py OUT.jsonl               # run what is missing, then print the tables
    python benchmarks/recipes.py OUT.jsonl --table       # print the tables only
    python benchmarks/recipes.py OUT.jsonl --page docs/reproduction/deviations.md   # write them into the page
    python benchmarks/recipes.py OUT.jsonl --only NAME …  # run the recipes whose names begin so

The base is the paper's text: the published preset with `quota = sequential`, which was the preset until this search
found `reduced`. A recipe is the base with one or two changes: of the split, of what clients are tested on, of a column
of the design table, or of a number. A line of the file is one run: the accuracy of every client after every round, so
that the ways to report (which round, which mean) need no runs of their own. The runs of the base are in
`evidence/digits-published.jsonl` and, where the quota matters, in `evidence/sequential`.

A printed figure is one run. It fits a recipe if it lies in the 95 % prediction interval of one more run: the mean of
our seeds ± t · deviation · √(1 + 1/seeds). Fewer than five seeds say little of the deviation, so theirs is pooled with
that of the base for the same method and scenario.
"""

import argparse
import itertools
import json
import math
import re
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import firma
from firma.data import scenarios
from firma.data.dataset import Dataset, load_dataset
from firma.data.partition import class_proportions, matched, split_by_label
from firma.data.scenarios import Indices
from firma.metrics import gini
from firma.mixing.ring_order import ring_cost, similarity, two_opt
from firma.paper.published import published
from firma.settings import Split, split_for
from firma.statistics import Statistic, statistic, t_quantile

EVIDENCE = Path(__file__).parents[1] / "evidence"
# HALF: FibFL and FibFL+ with the retention of the text; OLDER: label skew with the split of the text.
PRESET, HALF, OLDER = (EVIDENCE / each / "digits-published.jsonl" for each in (".", "half-retention", "sequential"))
CLIENTS, ROUNDS, SEEDS = 5, 10, 5
SKEW = ("skew-1", "skew-2", "skew-3")
ALL = ("iid", "dir-0.8", "dir-0.5", "dir-0.1", *SKEW)
SGD, RING = ("rdfl", "fedrep", "fedavg"), ("fibfl", "fibfl+", "fibfl++")
METHODS = (*SGD, *RING)
LARGE, INPUTS = ("mnist", "fashion-mnist", "cifar10"), {"none": "[0, 1]", "constants": "standardised"}
Rows = list[Indices]
Place = tuple[str, str, str]  # data set, scenario, method


@dataclass(frozen=True)
class Recipe:
    """A way in which the printed figures may have been made, and for which methods and scenarios it is tried."""

    name: str
    says: str
    methods: tuple[str, ...] = ("rdfl",)
    scenarios: tuple[str, ...] = ("skew-2", "skew-3")
    split: str = "sequential"
    tests: str = "independent"
    columns: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 2
    clients: int = CLIENTS
    rounds: int = ROUNDS
    smallest: int = 64
    split_seed: int = 42
    kept: tuple[str, ...] | None = None  # FedRep by hand: the parts whose optimiser is kept across rounds
    centred: bool = False  # inputs in [-1, 1] in place of [0, 1]


def skew_rows(labels: NDArray[np.int64], shares: NDArray[np.float64], budget: float, seed: int) -> Rows:
    """Rows by label skew, client by client until a class is used up; `shares` (N, C) are of the budget."""
    rng = np.random.default_rng(seed)
    pools = [np.flatnonzero(labels == label) for label in range(shares.shape[1])]
    for pool in pools:
        rng.shuffle(pool)
    parts = []
    for wishes in (shares * budget + 1e-9).astype(np.int64):
        parts.append(np.concatenate([pool[:wish] for pool, wish in zip(pools, wishes, strict=True)]))
        pools = [pool[wish:] for pool, wish in zip(pools, wishes, strict=True)]
    return parts


def _reduced(shares: NDArray[np.float64], primary: int) -> NDArray[np.float64]:
    return shares * 2 / (primary + 1)


def _primary_divided(shares: NDArray[np.float64], primary: int) -> NDArray[np.float64]:
    return np.where(shares == shares.max(), shares / primary, shares)


def _all_divided(shares: NDArray[np.float64], primary: int) -> NDArray[np.float64]:
    kinds = {0.55: primary, 0.2: primary + 1, 0.03: shares.shape[1] - 2 * primary - 1}
    parts = [np.where(np.isclose(shares, share), share / number, 0.0) for share, number in kinds.items()]
    return np.sum(parts, axis=0, dtype=np.float64)


def _normalised(shares: NDArray[np.float64], primary: int) -> NDArray[np.float64]:
    return shares / shares.sum(axis=1, keepdims=True)


def _reversed_clients(shares: NDArray[np.float64], primary: int) -> NDArray[np.float64]:
    return shares[::-1]


def _of_ten(shares: NDArray[np.float64], primary: int) -> NDArray[np.float64]:
    return scenarios.skew_shares(primary, 2 * len(shares), shares.shape[1])[::2]


# How the shares of label skew may have been meant: 55 %, 20 % and 3 % per class of n/N samples, changed by a rule.
SHARES: Mapping[str, Callable[[NDArray[np.float64], int], NDArray[np.float64]]] = {
    "reduced": _reduced,
    "primary divided": _primary_divided,
    "all divided": _all_divided,
    "normalised": _normalised,
    "reversed clients": _reversed_clients,
    "layout of ten": _of_ten,
}


@cache
def digits() -> Dataset:
    """All of the digits."""
    return load_dataset("digits")


def dealt(labels: NDArray[np.int64], recipe: Recipe, scenario: str, split: Split) -> Rows:
    """Rows of every client, before any is left out."""
    kind = scenarios.parse(scenario)
    if kind.name == "skew" and recipe.split in SHARES:
        primary = int(kind.number)
        shares = SHARES[recipe.split](scenarios.skew_shares(primary, recipe.clients, digits().classes), primary)
        return skew_rows(labels, shares, max(20, len(labels) // recipe.clients), recipe.split_seed)
    return split_by_label(labels, digits().classes, kind, recipe.clients, split, recipe.split_seed)


def rows_of(recipe: Recipe, scenario: str) -> tuple[Rows, Rows]:
    """Training and test rows of the clients that take part."""
    data = digits()
    split = split_for("published", {"quota": "fair" if recipe.split == "fair" else "sequential"})
    train = dealt(data.y_train, recipe, scenario, split)
    if recipe.tests == "independent":
        test = dealt(data.y_test, recipe, scenario, split)
    elif recipe.tests == "matched":
        test = matched(data, train, recipe.split_seed)
    elif recipe.tests == "held classes":
        test = [np.flatnonzero(np.isin(data.y_test, np.unique(data.y_train[rows]))) for rows in train]
    elif recipe.tests == "whole":
        test = [np.arange(len(data.y_test)) for _ in train]
    elif recipe.tests == "equal parts":
        test = split_by_label(data.y_test, data.classes, scenarios.parse("iid"), recipe.clients, split, 42)
    else:
        raise ValueError(recipe.tests)
    kept = [i for i in range(len(train)) if len(train[i]) >= recipe.smallest and len(test[i])]
    return [train[i] for i in kept], [test[i] for i in kept]


def with_clients(train: Rows, test: Rows) -> Dataset:
    """The digits with the client of each row named; test rows may belong to several clients."""
    data, chosen, tested = digits(), np.concatenate(train), np.concatenate(test)
    return replace(
        data,
        clients=len(train),
        x_train=data.x_train[chosen],
        y_train=data.y_train[chosen],
        x_test=data.x_test[tested],
        y_test=data.y_test[tested],
        client_train=np.repeat(np.arange(len(train)), [len(rows) for rows in train]),
        client_test=np.repeat(np.arange(len(test)), [len(rows) for rows in test]),
        client_names=tuple(str(client) for client in range(len(train))),
    )


def centred(data: Dataset) -> Dataset:
    """The same images, from -1 to 1."""
    inputs = [(2 * data.scale * x.astype(np.float64) - 1).astype(np.float32) for x in (data.x_train, data.x_test)]
    return replace(data, x_train=inputs[0], x_test=inputs[1], scale=1.0)


def fedrep_by_hand(train: Rows, test: Rows, kept: Sequence[str], seed: int) -> list[list[float]]:
    """The history of FedRep with an optimiser for each part, of which those of the parts `kept` outlive a round."""
    generator, data, classes = torch.Generator().manual_seed(seed), digits(), digits().classes
    clients = [_model(data.x_train[0].size, classes, generator) for _ in train]
    sets = [_tensors(data.x_train, data.y_train, rows, data.scale) for rows in train]
    tests = [_tensors(data.x_test, data.y_test, rows, data.scale) for rows in test]
    shares = np.array([len(rows) for rows in train]) / sum(len(rows) for rows in train)
    optimisers: list[dict[str, torch.optim.Optimizer]] = [{} for _ in clients]
    history = []
    for _ in range(ROUNDS):
        for model, own, (x, y) in zip(clients, optimisers, sets, strict=True):
            for part in ("head", "extractor"):
                if part not in kept or part not in own:
                    own[part] = torch.optim.SGD(model[part].parameters(), lr=0.01, momentum=0.9)
                model.requires_grad_(False)
                model[part].requires_grad_(True)
                for _ in range(2):
                    for batch in torch.randperm(len(y), generator=generator).split(64):
                        own[part].zero_grad()
                        scores = model["head"](model["extractor"](x[batch]))
                        torch.nn.functional.cross_entropy(scores, y[batch]).backward()
                        own[part].step()
        states = [model["extractor"].state_dict() for model in clients]
        mean = {
            name: sum(share * state[name] for share, state in zip(shares, states, strict=True)) for name in states[0]
        }
        with torch.no_grad():
            for model in clients:
                model["extractor"].load_state_dict(mean)
            found = [
                (model["head"](model["extractor"](x)).argmax(1) == y).float().mean().item()
                for model, (x, y) in zip(clients, tests, strict=True)
            ]
        history.append(found)
    return history


def _tensors(x: NDArray[Any], y: NDArray[np.int64], rows: Indices, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.from_numpy((x[rows].reshape(len(rows), -1) * scale).astype(np.float32))
    return inputs, torch.from_numpy(y[rows])


def _model(inputs: int, classes: int, generator: torch.Generator) -> torch.nn.ModuleDict:
    """The paper's model with torch's usual start."""
    nn = torch.nn
    extractor = nn.Sequential(
        nn.Linear(inputs, 256), nn.LayerNorm(256), nn.ReLU(),
        nn.Linear(256, 256), nn.LayerNorm(256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
    )  # fmt: skip
    model = nn.ModuleDict({"extractor": extractor, "head": nn.Linear(128, classes)})
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            bound = layer.in_features**-0.5
            nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
            nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return model


def trained(recipe: Recipe, method: str, scenario: str, seed: int) -> dict[str, Any]:
    """One run, as a line of the file."""
    train, test = rows_of(recipe, scenario)
    if recipe.kept is not None:
        history = fedrep_by_hand(train, test, recipe.kept, seed)
    else:
        data = with_clients(train, test)
        result = firma.run(
            centred(data) if recipe.centred else data, "natural",
            f"{method}:{recipe.columns}" if recipe.columns else method,
            preset="published", rounds=recipe.rounds, seed=seed, workers=1,
            settings={"min_samples": 1, **recipe.settings},
        )  # fmt: skip
        history = result.history.tolist()
    return {
        "recipe": recipe.name, "method": method, "scenario": scenario, "seed": seed,
        "train": [len(rows) for rows in train], "test": [len(rows) for rows in test],
        "history": [[round(float(each), 5) for each in row] for row in history],
    }  # fmt: skip


KEPT = "persistent=yes"
TWO_EPOCHS = {"head_epochs": 2, "extractor_epochs": 2}
BASE = "sequential"

RECIPES = (
    # What was found, on everything that it changes.
    Recipe("kept", "SGD keeps its momentum across rounds", SGD, ALL[:5], columns=KEPT, seeds=5),
    Recipe("kept, budget", "label skew: each client asks for 2/(K+1) as much; momentum kept", SGD, SKEW[1:],
           "reduced", columns=KEPT, seeds=5),
    Recipe("budget, ring", "the same split", RING, SKEW[1:], "reduced"),
    # The split and the tests, by training alone: no mixing can blur what they do.
    Recipe("primary divided", "the primary classes share 55 %", split="primary divided", columns=KEPT),
    Recipe("all divided", "primary, secondary and other classes share 55 %, 20 % and 3 %", scenarios=SKEW,
           split="all divided", columns=KEPT),
    Recipe("normalised", "shares are divided by their sum", scenarios=SKEW, split="normalised", columns=KEPT),
    Recipe("fair", "quota=fair", SGD, split="fair", seeds=1),
    Recipe("reversed", "the last client is served first", split="reversed clients", columns=KEPT, seeds=1),
    Recipe("layout of ten", "the classes of every second of ten clients", split="layout of ten", columns=KEPT, seeds=1),
    Recipe("ten clients", "N = 10", scenarios=("iid", *SKEW[1:]), clients=10, columns=KEPT, smallest=32, seeds=1),
    Recipe("nobody dropped", "min_samples=1", scenarios=("skew-3",), smallest=1, columns=KEPT, seeds=1),
    Recipe("matched", "tests=matched", scenarios=("dir-0.5", *SKEW[1:]), tests="matched", columns=KEPT, seeds=1),
    Recipe("held classes", "all test data of the classes that a client holds", tests="held classes", columns=KEPT,
           seeds=1),
    Recipe("whole test set", "everybody is tested on all test data", scenarios=("iid", *SKEW[1:]), tests="whole",
           columns=KEPT, seeds=1),
    Recipe("equal parts", "test data are dealt as for iid", tests="equal parts", columns=KEPT, seeds=1),
    *(Recipe(f"split seed {seed}", f"split_seed={seed}", scenarios=("dir-0.8", *SKEW[1:]), split_seed=seed,
             columns=KEPT, seeds=1) for seed in (0, 1)),
    # How clients train, where the split is not in doubt.
    Recipe("shared start", "initial=shared", SGD, ("iid", "dir-0.8", "dir-0.1"), settings={"initial": "shared"},
           seeds=1),
    Recipe("fewer epochs", "E=2, momentum kept", ("rdfl", "fedavg"), ("iid", "dir-0.8", "dir-0.1"),
           settings={"epochs": 2}, columns=KEPT, seeds=1),
    Recipe("more epochs", "E=10", ("rdfl", "fedavg"), ("iid", "dir-0.8", "dir-0.1"), settings={"epochs": 10}, seeds=1),
    Recipe("more rounds", "30 rounds", SGD[:2], ("dir-0.8",), rounds=30, seeds=1),
    Recipe("fedrep, one head epoch", "Eh=1, momentum kept", ("fedrep",), ("iid", "dir-0.8", "dir-0.5", "skew-1"),
           settings={"head_epochs": 1}, columns=KEPT, seeds=1),
    Recipe("fedrep, one extractor epoch", "Ee=1, momentum kept", ("fedrep",), ("iid", "dir-0.8", "dir-0.5", "skew-1"),
           settings={"extractor_epochs": 1}, columns=KEPT, seeds=1),
    Recipe("fedrep, equal weights", "clients count alike, momentum kept", ("fedrep",), ("dir-0.8", "dir-0.5", "skew-1"),
           columns=f"{KEPT},weights=equal"),
    *(Recipe(f"by hand, kept: {' and '.join(kept) or 'none'}", "momentum of one part, or of both",
             ("fedrep",), ("iid", "dir-0.8", "dir-0.5", "skew-1"), kept=kept, seeds=1)
      for kept in ((), ("head",), ("extractor",), ("head", "extractor"))),
    # FibFL's training.
    Recipe("fibfl, Adam reset", "Adam forgets between rounds", RING[:1], ("dir-0.8", "dir-0.5"),
           columns="persistent=no"),
    Recipe("fibfl, 20 joint epochs", "one phase of 20 epochs, Adam", RING[:1], ("dir-0.8", "dir-0.5"),
           columns="training=joint", settings={"epochs": 20}),
    Recipe("fibfl, 5 joint epochs", "one phase of 5 epochs, Adam", RING[:1], ALL[:5], columns="training=joint"),
    Recipe("fibfl, trained as rdfl", "one phase of 5 epochs, SGD", RING[:2], ALL[:5],
           columns="training=joint,optimiser=sgd"),
    # The public code trains so where it runs its experiments by itself.
    Recipe("fibfl, two epochs", "Eh=2 Ee=2", RING, ALL[:5], settings=TWO_EPOCHS, seeds=5),
    Recipe("fibfl, two epochs, budget", "Eh=2 Ee=2, and the same split", RING, SKEW[1:], "reduced",
           settings=TWO_EPOCHS, seeds=5),
    Recipe("fibfl, no mixing", "retention=1", RING[:1], ("dir-0.8", "dir-0.5"), settings={"retention": 1.0}),
    *(Recipe(f"fibfl, retention {kept}{budget}", f"retention={kept}{budget and ', and the same split'}", RING[:2],
             SKEW[1:] if budget else ALL[:5], "reduced" if budget else BASE, settings={"retention": kept}, seeds=5)
      for kept in (0.6, 0.7, 0.8) for budget in ("", ", budget")),
    Recipe("fibfl, SGD", "SGD in two phases", RING[:1], ("dir-0.8",), columns="optimiser=sgd"),
    # What explains the large data sets, where the paper's public code standardises inputs; it leaves digits alone.
    Recipe("inputs in [-1, 1]", "pixels from -1 to 1", RING[:2], ("iid", "dir-0.8", "dir-0.5", "skew-1"), centred=True),
)  # fmt: skip


def cells(recipes: Iterable[Recipe]) -> Iterator[tuple[Recipe, str, str, int]]:
    """All runs, seed by seed, so that an interrupted search has tried everything once."""
    chosen = list(recipes)
    for seed in range(max(recipe.seeds for recipe in chosen)):
        for recipe in chosen:
            if seed < recipe.seeds:
                yield from (
                    (recipe, method, scenario, seed) for method in recipe.methods for scenario in recipe.scenarios
                )


def read(file: Path) -> list[dict[str, Any]]:
    """The lines of a file; none if it does not exist."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def name_of(line: Mapping[str, Any]) -> tuple[str, str, str, int]:
    """What identifies a run."""
    return line["recipe"], line["method"], line["scenario"], line["seed"]


def complete(file: Path, only: tuple[str, ...]) -> None:
    """Run what is missing of the recipes whose names begin with one of `only`."""
    done = {name_of(line) for line in read(file)}
    for recipe, method, scenario, seed in cells(each for each in RECIPES if each.name.startswith(only)):
        if (recipe.name, method, scenario, seed) not in done:
            with file.open("a") as opened:
                opened.write(json.dumps(trained(recipe, method, scenario, seed)) + "\n")


# Ways to report a run: accuracy of each client, given the (R, N) history.
REPORTS: Mapping[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "last round": lambda history: history[-1],
    "best round": lambda history: history[history.mean(axis=1).argmax()],
    "mean of the last five rounds": lambda history: history[-5:].mean(axis=0),
    "each client's best round": lambda history: history.max(axis=0),
}
METRICS = ("mean_accuracy", "gini")
Figures = tuple[float, float]


def baseline() -> list[dict[str, Any]]:
    """The runs of the base. A stored configuration says `reduced` only where that splits otherwise."""
    found = [*(cell for cell in read(PRESET) if cell["method"] not in RING[:2]), *read(HALF), *read(OLDER)]
    return _lines(BASE, (cell for cell in found if cell["configuration"]["split"]["quota"] == "sequential"))


def preset() -> list[dict[str, Any]]:
    """The runs of the published preset as it is now."""
    return _lines("published", read(PRESET))


def _lines(recipe: str, stored: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "recipe": recipe, "method": cell["method"], "scenario": cell["configuration"]["scenario"],
            "seed": cell["seed"], "train": cell["config"]["samples"], "history": cell["history"],
        }
        for cell in stored
        if cell["method"] in METHODS
    ]  # fmt: skip


def figures(line: Mapping[str, Any], report: str = "last round", weighted: bool = False, dropped: int = 0) -> Figures:
    """Mean accuracy and Gini coefficient; `dropped` clients count as 0, the mean may be weighted by samples."""
    each = REPORTS[report](np.array(line["history"]))
    everybody = np.concatenate([each, np.zeros(dropped)])
    mean = np.average(each, weights=line["train"]) if weighted else everybody.mean()
    return float(mean), gini(everybody)


def grouped(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[Mapping[str, Any]]]:
    """Lines by recipe, method and scenario."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["recipe"], line["method"], line["scenario"]), []).append(line)
    return groups


def printed(method: str, scenario: str) -> Figures:
    """What the paper prints for digits."""
    table = published()
    found = [table.get(("digits", scenario), method, metric) for metric in METRICS]
    return found[0].mean, found[1].mean  # type: ignore[union-attr]


def half_width(values: Statistic, usual: Statistic | None = None) -> float:
    """Half of the 95 % prediction interval of one more run; a few seeds are pooled with those of the `usual` recipe."""
    spread, freedom = values.deviation or 0.0, values.seeds - 1
    if values.seeds < SEEDS and usual is not None and usual.deviation is not None:
        squares = freedom * spread**2 + (usual.seeds - 1) * usual.deviation**2
        freedom += usual.seeds - 1
        spread = math.sqrt(squares / freedom)
    return t_quantile(0.95, freedom) * spread * math.sqrt(1 + 1 / values.seeds)


@dataclass(frozen=True)
class Fit:
    """A recipe's figures of one method and scenario beside the printed ones: mean accuracy, then Gini coefficient."""

    recipe: str
    method: str
    scenario: str
    ours: tuple[Statistic, ...]
    printed: Figures
    widths: tuple[float, ...]

    @property
    def fits(self) -> tuple[bool, ...]:
        """Whether the printed accuracy and Gini coefficient lie in the prediction intervals."""
        beside = zip(self.printed, self.ours, self.widths, strict=True)
        return tuple(abs(value - ours.mean) <= width for value, ours, width in beside)


def fits(lines: Iterable[Mapping[str, Any]], **how: Any) -> list[Fit]:
    """Every recipe, method and scenario, in order; `how` as for `figures`."""
    usual = {(method, scenario): _figures_of(runs, how) for (_, method, scenario), runs in grouped(baseline()).items()}
    result = []
    for (recipe, method, scenario), runs in grouped(lines).items():
        ours = _figures_of(runs, how)
        widths = tuple(half_width(*pair) for pair in zip(ours, usual[method, scenario], strict=True))
        result.append(Fit(recipe, method, scenario, ours, printed(method, scenario), widths))
    return sorted(result, key=lambda each: (METHODS.index(each.method), ALL.index(each.scenario)))


def _figures_of(runs: Iterable[Mapping[str, Any]], how: Mapping[str, Any]) -> tuple[Statistic, ...]:
    return tuple(statistic(values) for values in zip(*(figures(run, **how) for run in runs), strict=True))


def count_deviating(found: Sequence[Fit]) -> int:
    """How many printed figures lie outside."""
    return sum(not fits for each in found for fits in each.fits)


def ring_saving(rule: str, primary: int, labels: NDArray[np.int64], clients: int = 10) -> float:
    """What 2-opt saves in percent on training data with these labels, split by a rule for the shares of label skew."""
    shares = scenarios.skew_shares(primary, clients, 10)
    shares = SHARES[rule](shares, primary) if rule in SHARES else shares
    kept = tuple(part for part in skew_rows(labels, shares, len(labels) // clients, 42) if len(part) >= 64)
    alike = similarity(class_proportions(labels, kept, 10), "dot")
    before, after = ring_cost(alike, range(len(kept))), ring_cost(alike, two_opt(alike))
    return round(100 * (before - after) / before, 1)


FASHION = np.repeat(np.arange(10), 6000)  # the labels of Fashion-MNIST, as far as they matter: 6,000 of each class
# The recipe that is proposed for each method and scenario.
FOUND = {(method, scenario): "kept" for method in SGD for scenario in ALL[:5]}
FOUND |= {(method, scenario): "kept, budget" for method in SGD for scenario in SKEW[1:]}
FOUND |= {(RING[2], scenario): "budget, ring" for scenario in SKEW[1:]}
FOUND |= {(method, scenario): "fibfl, retention 0.7" for method in RING[:2] for scenario in ALL[:5]}
FOUND |= {(method, scenario): "fibfl, retention 0.7, budget" for method in RING[:2] for scenario in SKEW[1:]}


def _row(*entries: str) -> str:
    return "| " + " | ".join(entries) + " |"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([_row(*heads), "| --- |" + " ---: |" * (len(heads) - 1), *(_row(*row) for row in rows)])


def _shown(each: Fit) -> list[str]:
    """Accuracy in % and Gini coefficient, bold where the printed figure lies outside of the interval."""
    texts = [f"{100 * each.ours[0].mean:.1f}", f"{each.ours[1].mean:.3f}"]
    if each.ours[0].deviation is not None and each.ours[1].deviation is not None:
        texts = [f"{texts[0]} ± {100 * each.ours[0].deviation:.1f}", f"{texts[1]} ± {each.ours[1].deviation:.3f}"]
    return [text if fits else f"**{text}**" for text, fits in zip(texts, each.fits, strict=True)]


def deviations_table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Every cell of the base from which a printed figure deviates, and what the found recipe gives."""
    found = {(each.recipe, each.method, each.scenario): each for each in fits(lines)}
    rows = []
    for each in fits(baseline()):
        if not all(each.fits):
            name = FOUND.get((each.method, each.scenario), "")
            now = found.get((name, each.method, each.scenario))
            gap = [each.printed[0] - each.ours[0].mean, each.printed[1] - each.ours[1].mean]
            rows.append([
                f"{each.method}, {each.scenario}", f"{100 * each.printed[0]:.1f}", _shown(each)[0],
                f"{100 * gap[0]:+.1f}", f"{each.printed[1]:.3f}", _shown(each)[1], f"{gap[1]:+.3f}",
                *([name, *_shown(now)] if now else ["", "", ""]),
            ])  # fmt: skip
    heads = ("cell", "printed %", "text %", "difference", "printed Gini", "text", "difference", "recipe", "%", "Gini")
    return _table(heads, rows)


def counts_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """How many of the 84 printed figures lie outside, by ways to report and with the recipes that were found."""
    runs = baseline()
    rows = [[f"the text's recipe, {report}", str(count_deviating(fits(runs, report=report)))] for report in REPORTS]
    rows.append(["the text's recipe, mean weighted by samples", str(count_deviating(fits(runs, weighted=True)))])
    rows.append(["the preset `published`, last round", str(count_deviating(fits(preset())))])
    kept = [each for each in runs if (each["method"], each["scenario"]) not in FOUND]
    better = [each for each in lines if FOUND.get((each["method"], each["scenario"])) == each["recipe"]]
    rows.append(["the recipes that were found, last round", str(count_deviating(fits([*kept, *better])))])
    return _table(("runs, and what is reported of them", "of 84 outside"), rows)


def recipes_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Every recipe: for what it was tried, how far the printed figures are, and how many lie in its intervals."""
    rows = []
    for recipe in RECIPES:
        of = [each for each in fits(lines) if each.recipe == recipe.name]
        if of:
            off = [100 * (each.printed[0] - each.ours[0].mean) for each in of]
            places = ", ".join(dict.fromkeys(each.scenario for each in of))
            inside = sum(fits for each in of for fits in each.fits)
            rows.append([
                f"{recipe.name}: {recipe.says}", f"{', '.join(dict.fromkeys(each.method for each in of))}; {places}",
                f"{min(off):+.1f} to {max(off):+.1f}", f"{inside} of {2 * len(of)}",
            ])  # fmt: skip
    return _table(("recipe", "tried for", "printed minus ours, points", "figures inside"), rows)


def savings_table() -> str:
    """Ring savings of Fashion-MNIST by rule; they need no training."""
    rows = [
        [rule, *(f"{ring_saving(rule, primary, FASHION):.1f}" for primary in (1, 2, 3))] for rule in (BASE, *SHARES)
    ]
    printed_ones = published().savings
    rows.insert(0, ["printed", *(f"{printed_ones['fashion-mnist', scenario]:.1f}" for scenario in SKEW)])
    return _table(("shares of label skew", "K = 1", "K = 2", "K = 3"), rows)


def retention_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """FibFL and FibFL+ by what a client keeps of its own parameters: printed figures inside, and falls in a round."""
    rows = []
    tried = {"0.5, as in the text": _lines("half", read(HALF))} | {
        kept: [line for line in lines if line["recipe"].startswith(f"fibfl, retention {kept}")]
        for kept in ("0.6", "0.7", "0.8")
    }
    for kept, runs in tried.items():
        inside = sum(inside for each in fits(runs) for inside in each.fits)
        falls = [max(-np.diff([np.mean(row) for row in line["history"]])) for line in runs]
        rows.append([kept, f"{inside} of 28", f"{sum(fall >= 0.3 for fall in falls)} of {len(falls)}",
                     f"{100 * max(falls):.0f}"])  # fmt: skip
    heads = ("retention", "printed figures inside", "runs with a fall by 30 points or more", "largest fall")
    return _table(heads, rows)


def _large_runs() -> dict[str, dict[Place, Mapping[str, float]]]:
    """Metrics of the published preset on the large data sets, means over seeds, by how inputs are scaled."""
    seeds: dict[str, dict[Place, list[Mapping[str, float]]]] = {scaling: {} for scaling in INPUTS}
    for run in (run for name in LARGE for run in read(EVIDENCE / f"{name}-published.jsonl")):
        config = run["config"]
        if run["method"] in METHODS:
            place = (config["dataset"], config["scenario"], run["method"])
            seeds[config["split"].get("standardise", "none")].setdefault(place, []).append(run["metrics"])
    return {
        scaling: {
            place: {metric: statistics.mean(each[metric] for each in runs) for metric in (*METRICS, "plateau_std")}
            for place, runs in places.items()
        }
        for scaling, places in seeds.items()
    }


def _off(runs: Mapping[Place, Mapping[str, float]], place: Place, metric: str = "mean_accuracy") -> float:
    """How far ours is above what is printed."""
    return runs[place][metric] - published().statistics[*place, metric].mean


def inputs_table() -> str:
    """Cells that were run with inputs in [0, 1] and standardised: how far either is from what is printed."""
    kinds = _large_runs()
    both: dict[tuple[str, str], list[Place]] = {}
    for place in sorted(kinds["none"].keys() & kinds["constants"].keys(), key=_in_order):
        both.setdefault((place[0], place[2]), []).append(place)
    rows = []
    for (dataset, method), places in both.items():
        far = [
            [statistics.mean(abs(_off(kinds[scaling], place, metric)) for place in places) for scaling in INPUTS]
            for metric in METRICS
        ]
        still = [statistics.mean(kinds[scaling][place]["plateau_std"] for place in places) for scaling in INPUTS]
        rows.append([
            f"{dataset}, {method}", ", ".join(place[1] for place in places), *(f"{100 * each:.1f}" for each in far[0]),
            *(f"{each:.3f}" for each in far[1]), *(f"{each:.4f}" for each in still),
        ])  # fmt: skip
    heads = ("data set, method", "scenarios", "points: [0, 1]", "constants", "Gini: [0, 1]", "constants")
    return _table((*heads, "σ: [0, 1]", "constants"), rows)


def large_table() -> str:
    """How far ours is above what is printed on the large data sets, in points, from least to most of the scenarios."""
    rows = []
    for dataset, (scaling, runs) in itertools.product(LARGE, _large_runs().items()):
        cells = []
        for method in METHODS:
            off = [100 * _off(runs, place) for place in runs if place[::2] == (dataset, method)]
            few = f" ({len(off)})" if len(off) < len(ALL) else ""
            cells.append(f"{min(off):+.1f} to {max(off):+.1f}{few}" if off else "—")
        if set(cells) != {"—"}:
            rows.append([f"{dataset}, {INPUTS[scaling]}", *cells])
    return _table(("data set, inputs", *METHODS), rows)


def _in_order(place: Place) -> tuple[int, int, int]:
    return LARGE.index(place[0]), METHODS.index(place[2]), ALL.index(place[1])


def tables(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """All tables of docs/reproduction/deviations.md."""
    return {
        "deviations": deviations_table(lines), "counts": counts_table(lines), "savings": savings_table(),
        "retention": retention_table(lines), "recipes": recipes_table(lines), "inputs": inputs_table(),
        "large": large_table(),
    }  # fmt: skip


def ordered(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines in the order of the recipes, so that a file does not depend on who ran first."""
    places = {(recipe.name, *rest): place for place, (recipe, *rest) in enumerate(cells(RECIPES))}
    once = {name_of(line): line for line in lines if name_of(line) in places}
    return [once[name] for name in sorted(once, key=lambda name: places[name])]


def filled(page: str, found: Mapping[str, str]) -> str:
    """A page whose tables, each below a comment that names it, are replaced by those that were computed."""
    return re.sub(r"(?m)^(<!-- table: (\w+) -->\n\n)(?:\|.*\n)*", lambda match: f"{match[1]}{found[match[2]]}\n", page)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--only", nargs="+", default=[""])
    asked = parser.parse_args()
    if not asked.table and asked.page is None:
        warnings.simplefilter("ignore", UserWarning)  # runs that stay at chance level are what this looks for
        complete(asked.file, tuple(asked.only))
        asked.file.write_text("".join(json.dumps(line) + "\n" for line in ordered(read(asked.file))))
    found = tables(ordered(read(asked.file)))
    if asked.page is not None:
        asked.page.write_text(filled(asked.page.read_text(), found))
    else:
        print("\n\n".join(found.values()))


if __name__ == "__main__":
    main()
