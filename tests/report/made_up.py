"""A study that was never run: the paper's final results with made-up curves and noise around them."""

import numpy as np

from firma.data.catalogue import SIZES
from firma.methods import METHODS, PAPER_METHODS
from firma.paper.grid import DATASETS, SCENARIOS
from firma.paper.published import published
from firma.results import Result
from firma.settings import hyper_for, split_for
from firma.sweep.cells import Cell
from firma.sweep.store import save


def made_up_result(cell, final):
    rng = np.random.default_rng([cell.seed, len(cell.method), len(cell.scenario), round(1e4 * final)])
    rise = 1 - np.exp(-np.arange(1, cell.rounds + 1) / (1 + 2 * ("++" in cell.method)))
    spread = 0.02 * rng.normal(size=cell.clients)
    history = np.clip(final * rise[:, None] + spread + 0.004 * rng.normal(size=(cell.rounds, cell.clients)), 0, 1)
    config = {
        "dataset": cell.dataset, "scenario": cell.scenario, "clients": cell.clients, "dropped": [],
        "samples": [100] * cell.clients, "rounds": cell.rounds, "preset": cell.preset,
        "hyper": hyper_for(cell.method, cell.preset, cell.settings).model_dump(),
        "split": split_for(cell.preset, cell.settings).model_dump(), "device": "cpu",
        "versions": {"firma": "0", "torch": "0", "python": "3"},
    }  # fmt: skip
    sent = 0 if METHODS[cell.method.partition(":")[0]].topology == "none" else 1000 * (5 if "++" in cell.method else 1)
    traffic = (sent,) * cell.rounds
    return Result(cell.method, cell.seed, config, history, tuple(range(cell.clients)), traffic, traffic, 1.0, "made up")


def made_up_study(
    folder, datasets=DATASETS, scenarios=SCENARIOS, presets=("published", "paper"), seeds=2, ablations=()
):
    paper = published()
    for dataset in datasets:
        for scenario in scenarios:
            for method in [*PAPER_METHODS, *ablations]:
                known = paper.get((dataset, scenario), method.partition(":")[0])
                final = known.mean if known is not None else 0.8
                for preset in presets:
                    for seed in range(seeds):
                        size = SIZES[dataset]
                        cell = Cell(dataset, scenario, method, preset, seed, size.clients, size.rounds)
                        ring = {"saving_percent": 95.5 if scenario == "dir-0.1" else 30.0, "order": [0, 1]}
                        save(folder, cell, made_up_result(cell, final), ring)
    return folder
