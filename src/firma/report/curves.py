"""Figures over rounds: mean accuracy, how fast it rises, and how steady it is in the end."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from firma.report.drawing import COLOURS, MARKS, canvas, colour, label_outer, panels, table_rows, tidy, titled
from firma.results import Result
from firma.statistics import shared_seeds
from firma.sweep.result_table import ResultTable
from firma.sweep.store import StoredCell
from firma.tasks.task import TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def curves(results: Sequence[Result], path: Path) -> None:
    """Mean test score over rounds, one line per method; with several seeds, a band of one deviation."""
    figure = canvas(7, 4.2)
    axes = figure.add_subplot()
    for method in dict.fromkeys(result.method for result in results):
        means = np.stack([result.history.mean(axis=1) for result in results if result.method == method])
        rounds, middle = np.arange(1, means.shape[1] + 1), means.mean(axis=0)
        (line,) = axes.plot(rounds, middle, label=method, color=COLOURS.get(method), marker="o", markersize=3)
        if len(means) > 1:
            spread = means.std(axis=0, ddof=1)
            axes.fill_between(rounds, middle - spread, middle + spread, color=line.get_color(), alpha=0.15, lw=0)
    facts = results[0].config
    axes.set(
        xlabel="round", ylabel=f"mean test {TITLES[results[0].main]}", title=f"{facts['dataset']}, {facts['scenario']}"
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)


def convergence(cells: Sequence[StoredCell], scenarios: Sequence[str], title: str) -> "Figure":
    """Mean test accuracy over rounds of one data set, one panel per scenario; a band is one deviation over seeds.

    The methods of a panel are drawn over the seeds that they share, if there are any.
    """
    figure = canvas(13, 6)
    figure.suptitle(title, fontsize=12)
    axes = panels(figure, len(scenarios))
    for panel, scenario in zip(axes, scenarios, strict=False):
        here = [cell for cell in cells if cell.scenario == scenario]
        methods = table_rows(cell.result.method for cell in here)
        seeds = shared_seeds({cell.result.seed: 0.0 for cell in here if cell.result.method == name} for name in methods)
        here = [cell for cell in here if not seeds or cell.result.seed in seeds]
        for method in methods:
            _line(panel, np.stack([_means(cell) for cell in here if cell.result.method == method]), method)
        tidy(panel)
        titled(panel, scenario, bool(here))
    label_outer(axes, len(scenarios), x="round", y="mean test accuracy")
    legend(axes[len(scenarios)], table_rows(cell.result.method for cell in cells))
    return figure


def speed(table: ResultTable, dataset: str, scenarios: Sequence[str]) -> "Figure":
    """Rounds to half of the final accuracy, and plateau σ, one group of bars per scenario."""
    figure = canvas(12, 7)
    figure.suptitle(f"{dataset}: first rounds and plateau ({table.name})", fontsize=12)
    upper, lower = figure.subplots(2, 1)
    methods = table_rows(each[2] for each in table.statistics if each[0] == dataset)
    _bars(upper, table, dataset, scenarios, methods, "rounds_to_half_of_final")
    upper.set_ylabel("rounds to half of the final accuracy")
    _bars(lower, table, dataset, scenarios, methods, "plateau_std")
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


def _means(cell: StoredCell) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.asarray(cell.result.history.mean(axis=1))


def _bars(
    axes: "Axes", table: ResultTable, dataset: str, scenarios: Sequence[str], methods: Sequence[str], metric: str
) -> None:
    width = 0.8 / max(len(methods), 1)
    for rank, method in enumerate(methods):
        found = [table.side_by_side((dataset, scenario), methods, metric).get(method) for scenario in scenarios]
        shift = (rank - (len(methods) - 1) / 2) * width
        where = [group + shift for group, each in enumerate(found) if each is not None]
        heights = [each.mean for each in found if each is not None]
        axes.bar(where, heights, width * 0.92, color=colour(method), label=method)
    axes.set_xticks(range(len(scenarios)), scenarios)
    tidy(axes)
