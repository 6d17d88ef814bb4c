"""Figures of final results: rankings, ring savings, accuracy against fairness, the radar."""

from collections.abc import Mapping, Sequence
from math import pi
from statistics import mean
from typing import TYPE_CHECKING, cast

from firma.data.scenarios import STUDY as SCENARIOS
from firma.report.canvas import DATASET_MARKS, INK, MARKS, canvas, colour, in_order, panels, tidy, titled
from firma.study.evidence import DIRICHLET, IID, SKEW, Evidence, Place
from firma.study.grid import DATASETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.projections.polar import PolarAxes

_AXES = ("IID accuracy", "Dirichlet accuracy", "label-skew accuracy", "fairness", "steadiness", "thrift")


def rankings(body: Evidence, paper: Evidence, dataset: str) -> "Figure":
    """Worst to best, a panel a scenario; a tick marks what the paper printed."""
    figure = canvas(13, 6)
    figure.suptitle(f"{dataset}: worst to best ({body.name}; ticks: printed in the paper)", fontsize=12)
    axes = panels(figure, len(SCENARIOS))
    for place, scenario in zip(axes, SCENARIOS, strict=False):
        found = body.methods((dataset, scenario))
        names = sorted(in_order(found), key=lambda name: found[name].mean)
        for row, name in enumerate(names):
            ours = found[name]
            place.barh(row, ours.mean, color=colour(name), xerr=ours.deviation, ecolor=INK, height=0.75)
            place.text(1.04, row, f"{ours.mean:.3f}", va="center", fontsize=8, color=INK)
            if (printed := paper.get((dataset, scenario), name)) is not None:
                place.plot([printed.mean] * 2, [row - 0.42, row + 0.42], color=INK, linewidth=1.6)
        place.set_yticks(range(len(names)), names)
        place.set_xlim(0, 1.02)
        tidy(place)
        titled(place, scenario, bool(names))
    axes[4].set_xlabel("mean test accuracy")
    return figure


def ring_savings(body: Evidence, paper: Evidence) -> "Figure":
    """What 2-opt saves, a group of bars a scenario; circles are the paper's."""
    figure = canvas(9, 4.2)
    axes = figure.add_subplot()
    greys = dict(zip(DATASETS, ("#bcd4e6", "#7fb0d3", "#3d7fb0", "#144c73"), strict=True))
    for rank, dataset in enumerate(DATASETS):
        spots = [place + (rank - 1.5) * 0.2 for place in range(len(SCENARIOS))]
        ours = [body.savings.get((dataset, scenario)) for scenario in SCENARIOS]
        known = [(spot, saving) for spot, saving in zip(spots, ours, strict=True) if saving is not None]
        axes.bar(
            [spot for spot, _ in known], [saving for _, saving in known], 0.18, color=greys[dataset], label=dataset
        )
        for spot, saving in known:
            if saving < 0.5:  # a bar that cannot be seen is not a bar that is missing
                axes.text(spot, 1, "0", ha="center", fontsize=7, color=INK)
        for spot, scenario in zip(spots, SCENARIOS, strict=True):
            if (printed := paper.savings.get((dataset, scenario))) is not None:
                axes.plot(spot, printed, marker="o", color="#D55E00", markersize=5, markerfacecolor="none")
    axes.plot([], [], "o", color="#D55E00", markerfacecolor="none", label="printed in the paper")
    axes.set_xticks(range(len(SCENARIOS)), SCENARIOS)
    axes.set(ylabel="ring cost saved, %", ylim=(0, 105), title=f"What 2-opt saves ({body.name})")
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    tidy(axes)
    return figure


def fairness(body: Evidence) -> "Figure":
    """Accuracy against Gini of every cell: colour is the method, shape the data set; best is low and to the right."""
    figure = canvas(8, 5)
    axes = figure.add_subplot()
    methods = in_order(key[2] for key in body.figures)
    for (dataset, scenario, method, metric), accuracy in body.figures.items():
        unfair = body.get((dataset, scenario), method, "gini")
        if metric == "mean_accuracy" and unfair is not None and method in methods:
            mark = DATASET_MARKS.get(dataset, ".")
            axes.plot(accuracy.mean, unfair.mean, mark, color=colour(method), markersize=6, alpha=0.8)
    for name in methods:
        axes.plot([], [], "o", color=colour(name), label=name)
    for name, mark in DATASET_MARKS.items():
        axes.plot([], [], mark, color=INK, markerfacecolor="none", label=name)
    axes.set(xlabel="mean test accuracy", ylabel="Gini coefficient", title=f"Accuracy and fairness ({body.name})")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    tidy(axes)
    return figure


def radar(body: Evidence) -> "Figure":
    """Six dimensions, outside is better; over the places where every method drawn was run."""
    figure = canvas(7.5, 5.6)
    axes = cast("PolarAxes", figure.add_subplot(projection="polar"))
    scores = radar_scores(body)
    angles = [2 * pi * rank / len(_AXES) for rank in range(len(_AXES))]
    axes.set_theta_offset(pi / 2)
    axes.set_theta_direction(-1)
    for name, values in scores.items():
        ring = [*values, values[0]]
        axes.plot(
            [*angles, 2 * pi], ring, color=colour(name), linewidth=1.6, marker=MARKS[name], markersize=4, label=name
        )
    axes.set_xticks(angles, _AXES, fontsize=9)
    for text, angle in zip(axes.get_xticklabels(), angles, strict=True):
        text.set_horizontalalignment("center" if angle in (0, pi) else "left" if angle < pi else "right")
    axes.set(ylim=(0, 1.02), yticks=[0.25, 0.5, 0.75, 1.0])
    axes.set_yticklabels(["", "0.5", "", "1"], fontsize=7)
    places = [place for group in _shared(body) for place in group]
    over = ", ".join(name for name in DATASETS if any(place[0] == name for place in places))
    axes.set_title(f"Six dimensions ({body.name}), mean over {len(places)} places of {over}", fontsize=11, pad=18)
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.22, 0.5))
    return figure


def radar_scores(body: Evidence) -> Mapping[str, Sequence[float]]:
    """Six numbers a method in [0, 1]: accuracies, 1 - Gini, 1 - 10σ of the plateau, the least traffic over its own."""
    methods = in_order(key[2] for key in body.figures)
    groups = _shared(body)
    everywhere = [place for group in groups for place in group]
    if not everywhere:
        return {}
    sent = {name: _mean(body, everywhere, name, "bytes_per_round") for name in methods}
    least = min((value for value in sent.values() if value > 0), default=1.0)
    return {
        name: (
            *(_mean(body, group, name, "mean_accuracy") for group in groups),
            1 - _mean(body, everywhere, name, "gini"),
            max(0.0, 1 - 10 * _mean(body, everywhere, name, "plateau_std")),
            least / sent[name] if sent[name] > 0 else 1.0,
        )
        for name in methods
    }


def _shared(body: Evidence) -> list[list[Place]]:
    """The IID, Dirichlet and label-skew places that every method was run in."""
    methods = set(in_order(key[2] for key in body.figures))
    groups = (IID, DIRICHLET, SKEW)
    return [[place for place in group if methods and methods <= set(body.methods(place))] for group in groups]


def _mean(body: Evidence, group: Sequence[Place], method: str, metric: str) -> float:
    found = [figure.mean for place in group if (figure := body.get(place, method, metric)) is not None]
    return mean(found) if found else 0.0
