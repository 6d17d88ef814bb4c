"""All figures of a sweep; those of final results are drawn here: rankings, ring savings, fairness, the radar.

Methods of one case are drawn over the seeds that they share, as the tables have them.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from math import pi
from statistics import mean
from typing import TYPE_CHECKING, cast

from firma.report.curves import convergence, speed
from firma.report.drawing import (
    DATASET_MARKS,
    INK,
    MARKS,
    Picture,
    Pictures,
    canvas,
    colour,
    label_outer,
    panels,
    table_rows,
    tidy,
    titled,
)
from firma.report.tables import Scope, slug
from firma.sweep.result_table import Case, ResultTable, by_label, result_tables
from firma.sweep.store import StoredCell, SweepResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.projections.polar import PolarAxes

_BLUES = ("#bcd4e6", "#7fb0d3", "#3d7fb0", "#144c73")
_REFERENCE = "#D55E00"
_KINDS = {"IID accuracy": "iid", "Dirichlet accuracy": "dir", "label-skew accuracy": "skew"}
_AXES = (*_KINDS, "fairness", "steadiness", "low traffic")


def sweep_figures(results: SweepResults, scope: Scope) -> Pictures:
    """The figures of each label: three per data set, then those over all data sets."""
    groups = by_label(results.cells)
    for name, table in result_tables(results).items():
        yield from _figures_of(table, groups.get(name, []), scope)


def _figures_of(table: ResultTable, cells: Sequence[StoredCell], scope: Scope) -> Pictures:
    name = table.name
    for dataset in scope.datasets:
        here = [cell for cell in cells if cell.dataset == dataset]
        if here:
            text = f"{dataset}: mean accuracy over rounds ({name})"
            yield Picture(slug("convergence", dataset, name), text, convergence(here, scope.scenarios, text))
            text = f"{dataset}: worst to best ({name})"
            yield Picture(slug("rankings", dataset, name), text, rankings(table, scope, dataset))
            text = f"{dataset}: rounds to half of the final accuracy, plateau σ ({name})"
            yield Picture(slug("speed", dataset, name), text, speed(table, dataset, scope.scenarios))
    if table.savings:
        yield Picture(slug("savings", name), f"Ring cost saved by 2-opt ({name})", ring_savings(table, scope))
    if not cells:
        return
    yield Picture(slug("fairness", name), f"Accuracy against Gini ({name})", fairness(table))
    if radar_scores(table):
        yield Picture(slug("radar", name), f"Six dimensions ({name}); outside is better", radar(table))


def rankings(table: ResultTable, scope: Scope, dataset: str) -> "Figure":
    """Worst to best, one panel per scenario; a tick marks the value of the reference."""
    reference, scenarios = scope.reference, scope.scenarios
    figure = canvas(13, 6)
    ticks = f"; ticks: {reference.source}" if reference is not None else ""
    figure.suptitle(f"{dataset}: worst to best ({table.name}{ticks})", fontsize=12)
    axes = panels(figure, len(scenarios))
    for panel, scenario in zip(axes, scenarios, strict=False):
        found = table.side_by_side((dataset, scenario), table.methods((dataset, scenario)))
        names = sorted(table_rows(found), key=lambda name: found[name].mean)
        for row, name in enumerate(names):
            ours = found[name]
            panel.barh(row, ours.mean, color=colour(name), xerr=ours.deviation, ecolor=INK, height=0.75)
            panel.text(1.04, row, f"{ours.mean:.3f}", va="center", fontsize=8, color=INK)
            printed = reference.get((dataset, scenario), name) if reference is not None else None
            if printed is not None:
                panel.plot([printed.mean] * 2, [row - 0.42, row + 0.42], color=INK, linewidth=1.6)
        panel.set_yticks(range(len(names)), names)
        panel.set_xlim(0, 1.02)
        tidy(panel)
        titled(panel, scenario, bool(names))
    label_outer(axes, len(scenarios), x="mean test accuracy")
    return figure


def ring_savings(table: ResultTable, scope: Scope) -> "Figure":
    """What 2-opt saves, one group of bars per scenario; circles are the reference."""
    reference, datasets, scenarios = scope.reference, scope.datasets, scope.scenarios
    figure = canvas(9, 4.2)
    axes = figure.add_subplot()
    step = 0.8 / len(datasets)
    for rank, (dataset, blue) in enumerate(zip(datasets, cycle(_BLUES), strict=False)):
        spots = [group + (rank - (len(datasets) - 1) / 2) * step for group in range(len(scenarios))]
        ours = [table.savings.get((dataset, scenario)) for scenario in scenarios]
        known = [(spot, saving) for spot, saving in zip(spots, ours, strict=True) if saving is not None]
        axes.bar([spot for spot, _ in known], [saving for _, saving in known], 0.9 * step, color=blue, label=dataset)
        for spot, saving in known:
            if saving < 0.5:  # too small to be seen, but not missing
                axes.text(spot, 1, "0", ha="center", fontsize=7, color=INK)
        for spot, scenario in zip(spots, scenarios, strict=True):
            printed = reference.savings.get((dataset, scenario)) if reference is not None else None
            if printed is not None:
                axes.plot(spot, printed, marker="o", color=_REFERENCE, markersize=5, markerfacecolor="none")
    if reference is not None:
        axes.plot([], [], "o", color=_REFERENCE, markerfacecolor="none", label=reference.source)
    axes.set_xticks(range(len(scenarios)), scenarios)
    axes.set(ylabel="ring cost saved, %", ylim=(0, 105), title=f"Ring cost saved by 2-opt ({table.name})")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    tidy(axes)
    return figure


def fairness(table: ResultTable) -> "Figure":
    """Accuracy against Gini: colour is the method, shape the data set; best is low and to the right."""
    figure = canvas(8, 5)
    axes = figure.add_subplot()
    methods = table_rows(each[2] for each in table.statistics)
    for case in {each[:2]: None for each in table.statistics}:
        unfair = table.side_by_side(case, methods, "gini")
        for method, accuracy in table.side_by_side(case, methods).items():
            if method in unfair:
                mark = DATASET_MARKS.get(case[0], ".")
                axes.plot(accuracy.mean, unfair[method].mean, mark, color=colour(method), markersize=6, alpha=0.8)
    for name in methods:
        axes.plot([], [], "o", color=colour(name), label=name)
    for name in table.datasets():
        axes.plot([], [], DATASET_MARKS.get(name, "."), color=INK, markerfacecolor="none", label=name)
    axes.set(xlabel="mean test accuracy", ylabel="Gini coefficient", title=f"Accuracy and fairness ({table.name})")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    tidy(axes)
    return figure


def radar(table: ResultTable) -> "Figure":
    """Six dimensions, outside is better; of methods run in half of the cases or more, over those that they share."""
    figure = canvas(7.5, 5.6)
    axes = cast("PolarAxes", figure.add_subplot(projection="polar"))
    scores = radar_scores(table)
    angles = [2 * pi * rank / len(_AXES) for rank in range(len(_AXES))]
    axes.set_theta_offset(pi / 2)
    axes.set_theta_direction(-1)
    for name, values in scores.items():
        line = [*values, values[0]]
        axes.plot(
            [*angles, 2 * pi], line, color=colour(name), linewidth=1.6, marker=MARKS[name], markersize=4, label=name
        )
    axes.set_xticks(angles, _AXES, fontsize=9)
    for text, angle in zip(axes.get_xticklabels(), angles, strict=True):
        text.set_horizontalalignment("center" if angle in (0, pi) else "left" if angle < pi else "right")
    axes.set(ylim=(0, 1.02), yticks=[0.25, 0.5, 0.75, 1.0])
    axes.set_yticklabels(["", "0.5", "", "1"], fontsize=7)
    cases = [case for group in _shared(table) for case in group]
    over = ", ".join(name for name in table.datasets() if any(case[0] == name for case in cases))
    axes.set_title(f"Six dimensions ({table.name}), mean over {len(cases)} cases of {over}", fontsize=11, pad=18)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.22, 0.5))
    return figure


def radar_scores(table: ResultTable) -> Mapping[str, Sequence[float]]:
    """Six numbers per method in [0, 1]: accuracies, 1 - Gini, 1 - 10σ of the plateau, least traffic over its own."""
    methods = _well_covered(table)
    groups = _shared(table)
    everywhere = [case for group in groups for case in group]
    if not everywhere:
        return {}
    sent = {name: _mean(table, everywhere, name, "bytes_per_round") for name in methods}
    least = min((value for value in sent.values() if value > 0), default=1.0)
    return {
        name: (
            *(_mean(table, group, name, "mean_accuracy") for group in groups),
            1 - _mean(table, everywhere, name, "gini"),
            max(0.0, 1 - 10 * _mean(table, everywhere, name, "plateau_std")),
            least / sent[name] if sent[name] > 0 else 1.0,
        )
        for name in methods
    }


def _well_covered(table: ResultTable) -> list[str]:
    """The methods that were run in half of all cases or more: one that was not would hide what the others did there."""
    methods = table_rows(each[2] for each in table.statistics)
    cases = {each[:2] for each in table.statistics}
    return [name for name in methods if 2 * sum(table.get(case, name) is not None for case in cases) >= len(cases)]


def _shared(table: ResultTable) -> list[list[Case]]:
    """The IID, Dirichlet and label-skew cases in which every method that the radar draws was run."""
    methods = set(_well_covered(table))
    cases = [(dataset, scenario) for dataset in table.datasets() for scenario in table.scenarios(dataset)]
    complete = [case for case in cases if methods and methods <= set(table.methods(case))]
    return [[case for case in complete if case[1].partition("-")[0] == kind] for kind in _KINDS.values()]


def _mean(table: ResultTable, group: Sequence[Case], method: str, metric: str) -> float:
    methods = _well_covered(table)
    found = [value.mean for case in group if (value := table.side_by_side(case, methods, metric).get(method))]
    return mean(found) if found else 0.0
