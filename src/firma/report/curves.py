"""The first picture that anyone wants: mean accuracy over rounds."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from firma.results import Result

# Okabe and Ito's palette: told apart by the colour-blind; the same colour for a method everywhere.
COLOURS = {
    "local": "#999999",
    "fedavg": "#0072B2",
    "fedrep": "#E69F00",
    "rdfl": "#009E73",
    "fibfl": "#CC79A7",
    "fibfl+": "#56B4E9",
    "fibfl++": "#D55E00",
}


def curves(results: Sequence[Result], path: Path) -> None:
    """Mean test accuracy over rounds, a line a method; with several seeds, a band of one deviation."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for method in dict.fromkeys(result.method for result in results):
        means = np.stack([result.history.mean(axis=1) for result in results if result.method == method])
        rounds, middle = np.arange(1, means.shape[1] + 1), means.mean(axis=0)
        colour = COLOURS.get(method)
        (line,) = axes.plot(rounds, middle, label=method, color=colour, marker="o", markersize=3)
        if len(means) > 1:
            spread = means.std(axis=0, ddof=1)
            axes.fill_between(rounds, middle - spread, middle + spread, color=line.get_color(), alpha=0.15, lw=0)
    facts = results[0].config
    axes.set(xlabel="round", ylabel="mean test accuracy", title=f"{facts['dataset']}, {facts['scenario']}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)
