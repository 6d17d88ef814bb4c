"""Figures over rounds: convergence in every scenario, how fast it starts and how steady it ends."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from firma.data.scenarios import STUDY as SCENARIOS
from firma.report.canvas import MARKS, canvas, colour, in_order, panels, tidy, titled
from firma.study.evidence import Evidence
from firma.study.store import Stored

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def convergence(cells: Sequence[Stored], title: str) -> "Figure":
    """Mean test accuracy over rounds of one data set, a panel a scenario; a band is one deviation over seeds."""
    figure = canvas(13, 6)
    figure.suptitle(title, fontsize=12)
    axes = panels(figure, len(SCENARIOS))
    for place, scenario in zip(axes, SCENARIOS, strict=False):
        here = [cell for cell in cells if cell.scenario == scenario]
        for method in in_order(cell.result.method for cell in here):
            _line(place, np.stack([_means(cell) for cell in here if cell.result.method == method]), method)
        tidy(place)
        titled(place, scenario, bool(here))
    axes[0].set_ylabel("mean test accuracy")
    axes[4].set(ylabel="mean test accuracy", xlabel="round")
    legend(axes[len(SCENARIOS)], in_order(cell.result.method for cell in cells))
    return figure


def speed(body: Evidence, dataset: str) -> "Figure":
    """Rounds to half of the final accuracy, and plateau σ, a group of bars a scenario."""
    figure = canvas(12, 7)
    figure.suptitle(f"{dataset}: first rounds and plateau ({body.name})", fontsize=12)
    upper, lower = figure.subplots(2, 1)
    methods = in_order(key[2] for key in body.figures if key[0] == dataset)
    _bars(upper, body, dataset, methods, "rounds_to_half_of_final")
    upper.set_ylabel("rounds to half of the final accuracy")
    _bars(lower, body, dataset, methods, "plateau_std")
    lower.set_ylabel("plateau σ")
    handles, names = upper.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", frameon=False)
    return figure


def legend(axes: "Axes", methods: Sequence[str]) -> None:
    """The methods' colours and marks in an empty panel."""
    from matplotlib.lines import Line2D

    lines = [Line2D([], [], color=colour(name), marker=MARKS[name], label=name) for name in methods]
    axes.legend(handles=lines, loc="center", frameon=False, fontsize=11)


def _line(axes: "Axes", means: "np.ndarray[tuple[int, int], np.dtype[np.float64]]", method: str) -> None:
    rounds, middle = np.arange(1, means.shape[1] + 1), means.mean(axis=0)
    every = max(1, len(rounds) // 8)
    axes.plot(rounds, middle, color=colour(method), marker=MARKS[method], markevery=every, markersize=4, linewidth=1.4)
    if len(means) > 1:
        spread = means.std(axis=0, ddof=1)
        axes.fill_between(rounds, middle - spread, middle + spread, color=colour(method), alpha=0.15, linewidth=0)


def _means(cell: Stored) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.asarray(cell.result.history.mean(axis=1))


def _bars(axes: "Axes", body: Evidence, dataset: str, methods: Sequence[str], metric: str) -> None:
    width = 0.8 / max(len(methods), 1)
    for rank, method in enumerate(methods):
        found = [body.get((dataset, scenario), method, metric) for scenario in SCENARIOS]
        where = [
            place + (rank - (len(methods) - 1) / 2) * width for place, each in enumerate(found) if each is not None
        ]
        heights = [each.mean for each in found if each is not None]
        axes.bar(where, heights, width * 0.92, color=colour(method), label=method)
    axes.set_xticks(range(len(SCENARIOS)), SCENARIOS)
    tidy(axes)
