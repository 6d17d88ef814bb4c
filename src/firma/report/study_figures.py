"""Figures of any study: the metric over rounds, the clients in the last round, and what was sent for it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from firma.report.drawing import COLOURS, INK, PALETTE, Picture, Pictures, canvas, panels, tidy
from firma.report.groups import Group, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ACROSS, _PANELS = 4, 12  # panels per row, and per figure
_MOST_FIGURES = 4  # of a kind: drawing them takes time; the page shows every case
_MOST_POINTS = 200  # of a line


def study_figures(study: Study) -> Pictures:
    """Curves and clients, one panel per case, and the metric against traffic."""
    colours = line_colours(study.variants())
    cases = list(study.cases().items())
    pages = [cases[start : start + _PANELS] for start in range(0, len(cases), _PANELS)][:_MOST_FIGURES]
    left = len(cases) - sum(map(len, pages))
    more = f"; {left} of {len(cases)} cases are not drawn" if left > 0 else ""
    for place, page in enumerate(pages, 1):
        part = f"-{place}" if len(pages) > 1 else ""
        text = f"{study.main} over rounds; a band is one standard deviation over seeds{more}"
        yield _panelled(f"curves{part}", text, study, page, colours, _curve, "round")
    for place, page in enumerate(pages, 1):
        part = f"-{place}" if len(pages) > 1 else ""
        text = f"Clients in the last round, mean over seeds: worst, quartiles and best{more}"
        yield _panelled(f"clients{part}", text, study, page, colours, _clients, "")
    yield _traffic(study, colours)


def line_colours(values: Sequence[str]) -> Mapping[str, str]:
    """A colour per value; methods of the design table have the same one in every report."""
    taken = {COLOURS.get(value) for value in values}
    free = cycle([colour for colour in PALETTE if colour not in taken] or PALETTE)
    return {value: COLOURS.get(value) or next(free) for value in values}


def _panelled(
    name: str, caption: str, study: Study, cases: Sequence[tuple[str, list[Group]]],
    colours: Mapping[str, str], draw: "_Draw", across: str,
) -> Picture:  # fmt: skip
    """One panel per case, and the legend in the panel after the last."""
    from matplotlib.lines import Line2D

    columns = min(_ACROSS, len(cases) + 1)
    rows = -(-(len(cases) + 1) // columns)
    figure = canvas(3.3 * columns, 2.7 * rows + 0.3)
    axes = panels(figure, len(cases), columns)
    for panel, (title, groups) in zip(axes, cases, strict=False):
        draw(panel, study, groups, colours)
        panel.set_title(title or "all runs", fontsize=9)
        tidy(panel)
    for first in range(0, len(cases), columns):
        axes[first].set_ylabel(study.main, fontsize=9)
    if across:
        axes[(len(cases) - 1) // columns * columns].set_xlabel(across, fontsize=9)
    handles = [Line2D([], [], color=colour, label=value) for value, colour in colours.items()]
    axes[len(cases)].legend(handles=handles, loc="center", frameon=False, fontsize=9)
    return Picture(name, caption, figure)


def _curve(axes: "Axes", study: Study, groups: Sequence[Group], colours: Mapping[str, str]) -> None:
    """Mean over clients after each round, a line per group."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    for group in groups:
        rounds = min(len(result.history) for result in group.results)
        means = np.stack([result.history[:rounds].mean(axis=1) for result in group.results])
        shown = np.unique(np.linspace(0, rounds - 1, min(rounds, _MOST_POINTS)).astype(int))
        middle, colour = means.mean(axis=0)[shown], colours[study.variant(group)]
        mark = "o" if len(shown) == 1 else None  # one round is a point
        axes.plot(shown + 1, middle, color=colour, linewidth=1.4, marker=mark)
        if len(means) > 1:
            spread = means.std(axis=0, ddof=1)[shown]
            axes.fill_between(shown + 1, middle - spread, middle + spread, color=colour, alpha=0.15, linewidth=0)


def _clients(axes: "Axes", study: Study, groups: Sequence[Group], colours: Mapping[str, str]) -> None:
    """A box per group: the middle half of the clients, and lines to the worst and the best."""
    boxes, faces = [], []
    for group in groups:
        final = np.stack([np.quantile(result.history[-1], [0, 0.25, 0.5, 0.75, 1]) for result in group.results])
        low, first, middle, third, high = final.mean(axis=0)
        boxes.append({"whislo": low, "q1": first, "med": middle, "q3": third, "whishi": high, "fliers": []})
        faces.append(colours[study.variant(group)])
    drawn = axes.bxp(boxes, showfliers=False, patch_artist=True, widths=0.6, medianprops={"color": INK})
    for patch, face in zip(drawn["boxes"], faces, strict=True):
        patch.set_facecolor(face)
        patch.set_alpha(0.6)
    axes.set_xticks([])


def _traffic(study: Study, colours: Mapping[str, str]) -> Picture:
    """The main metric against what all clients sent together, a point per group."""
    figure = canvas(7, 4.2)
    axes = figure.add_subplot()
    for value, colour in colours.items():
        found = list(_points(study, value))
        axes.plot([x for x, _ in found], [y for _, y in found], "o", color=colour, alpha=0.7, label=value)
    axes.set(xlabel="MB sent in total, all clients together", ylabel=study.metric)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    tidy(axes)
    return Picture("traffic", f"{study.metric} and traffic; every point is one kind of run", figure)


def _points(study: Study, value: str) -> Iterator[tuple[float, float]]:
    for group in study.groups:
        found = group.statistic(study.metric)
        if study.variant(group) == value and found is not None:
            yield float(np.mean([sum(result.sent_bytes) for result in group.results])) / 1e6, found.mean


if TYPE_CHECKING:
    from collections.abc import Callable

    _Draw = Callable[[Axes, Study, Sequence[Group], Mapping[str, str]], None]
