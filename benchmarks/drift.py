"""Accuracy over rounds under drift, and whether it helps to order the ring anew: digits, ten clients, five seeds.

    nice -n 15 python benchmarks/drift.py docs/figures/drift.png

Writes the figure and prints two tables: the mean accuracy of the second half of the rounds for every method, and what
another order of the ring changes in it, paired by seed (mean difference in points and its 95 % interval). Each seed
splits the data, and drifts, in its own way. About seven minutes on one core; `--keep FILE` stores what has been run,
and continues from there after an interruption.
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import firma
from firma.report.drawing import PALETTE, canvas
from firma.statistics import statistic

CLIENTS, ROUNDS = 10, 12
PANELS = {  # scenario and drift
    "class proportions change in round 7 (skew-1)": ("skew-1", "label-shift@7"),
    "class proportions change gradually (dir-0.3)": ("dir-0.3", "label-shift"),
    "four new classes in round 7 (dir-0.3)": ("dir-0.3", "new-classes-4@7"),
    "images are rotated gradually, to 90° (dir-0.3)": ("dir-0.3", "rotate-90"),
}
ANEW = {"reorder_every": 3}
LINES = {  # method and settings
    "local": ("local", {}),
    "fedavg": ("fedavg", {}),
    "frame": ("frame", {}),
    "fibfl++, ordered once": ("fibfl++", {}),
    "fibfl++, every 3 rounds": ("fibfl++", ANEW),
}
CONSTANT = {"schedule": "constant"}
STEADY = {f"{method}, constant rate": (method, CONSTANT) for method in ("fedavg", "frame", "fibfl++")}  # in the table
ONE_PASS = "fibfl++:passes=one"  # what neighbours are matters most where parameters go no farther in a round
PAIRS = {  # what is compared with what
    "anew every 3 rounds - once": (("fibfl++", ANEW), ("fibfl++", {})),
    "once - as given": (("fibfl++", {}), ("fibfl++:order=given", {})),
    "one pass: anew - once": ((ONE_PASS, ANEW), (ONE_PASS, {})),
    "one pass: once - as given": ((ONE_PASS, {}), (f"{ONE_PASS},order=given", {})),
}
Run = tuple[str, dict[str, Any]]


class Runs:
    """Mean accuracies (seeds, rounds), each run once."""

    def __init__(self, seeds: int, keep: Path | None) -> None:
        self._seeds, self._keep = seeds, keep
        lines = keep.read_text().splitlines() if keep is not None and keep.exists() else []
        self._known = {key: np.array(values) for key, values in map(json.loads, lines)}

    def of(self, panel: str, run: Run) -> NDArray[np.float64]:
        """(seeds, rounds) mean test accuracy over clients, on the data of each round."""
        key = f"{panel} {run} {self._seeds}"
        if key not in self._known:
            scenario, drift = PANELS[panel]
            config = firma.RunConfig(
                "digits", scenario, run[0], clients=CLIENTS, rounds=ROUNDS, seeds=self._seeds, drift=drift,
                settings={"split_seed": "none"} | run[1],
            )  # fmt: skip
            self._known[key] = np.stack([result.history.mean(axis=1) for result in firma.run_all(config)])
            if self._keep is not None:
                with self._keep.open("a") as file:
                    file.write(json.dumps([key, self._known[key].tolist()]) + "\n")
            print(f"{panel}, {run[0]} {run[1] or ''}: {self.late(panel, run).mean():.3f}", flush=True)
        return self._known[key]

    def late(self, panel: str, run: Run) -> NDArray[np.float64]:
        """(seeds,) mean of the second half of the rounds."""
        return np.asarray(self.of(panel, run)[:, ROUNDS // 2 :].mean(axis=1), dtype=np.float64)


def figure(runs: Runs, path: Path) -> None:
    """A panel for every drift, a line for every method."""
    whole = canvas(9.5, 5.6)
    for axes, panel in zip(whole.subplots(2, 2, sharex=True).flat, PANELS, strict=True):
        for (name, run), colour in zip(LINES.items(), PALETTE, strict=False):
            anew = bool(run[1])
            curve = runs.of(panel, run).mean(axis=0)
            axes.plot(range(1, ROUNDS + 1), curve, label=name, color=colour, linestyle="--" if anew else "-")
        axes.set_title(panel, fontsize=10)
        axes.set_ylim(0.8, 1.0)
        axes.set_yticks((0.8, 0.85, 0.9, 0.95, 1.0))
        axes.grid(alpha=0.3)
    for axes in whole.axes[2:]:
        axes.set_xlabel("round")
    for axes in whole.axes[::2]:
        axes.set_ylabel("mean test accuracy")
    whole.axes[1].legend(fontsize=8, loc="lower right")
    whole.savefig(path, dpi=75)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("figure", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # of clients that some seeds leave without data
    runs = Runs(asked.seeds, asked.keep)
    figure(runs, asked.figure)
    print(f"\nMean accuracy of rounds {ROUNDS // 2 + 1} to {ROUNDS}, {asked.seeds} seeds")
    print("| method |" + "".join(f" {' '.join(PANELS[panel])} |" for panel in PANELS))
    print("|---|" + "---|" * len(PANELS))
    for name, run in (LINES | STEADY).items():
        print(f"| {name} |" + "".join(f" {runs.late(panel, run).mean():.3f} |" for panel in PANELS))
    moving = [panel for panel, (_, drift) in PANELS.items() if drift.startswith("label")]
    print("\nDifferences in points, mean and 95 % interval over seeds")
    print("| order of the ring |" + "".join(f" {' '.join(PANELS[panel])} |" for panel in moving))
    print("|---|" + "---|" * len(moving))
    for name, (one, other) in PAIRS.items():
        cells = []
        for panel in moving:
            found = statistic((100 * (runs.late(panel, one) - runs.late(panel, other))).tolist())
            low, high = found.interval() or (found.mean, found.mean)
            cells.append(f" {found.mean:+.2f} ({low:+.2f} to {high:+.2f}) |")
        print(f"| {name} |" + "".join(cells))


if __name__ == "__main__":
    main()
