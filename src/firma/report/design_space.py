"""The design space: who needs a server, and whose head leaves the house."""

from typing import TYPE_CHECKING

from firma.methods import METHODS, Method
from firma.report.canvas import INK, canvas, colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_QUADRANTS = {
    (False, False): "server, head sent",
    (True, False): "server, head at home",
    (False, True): "no server, head sent",
    (True, True): "no server, head at home",
}


def design_space() -> "Figure":
    """Two by two, read off the columns of the design table."""
    from matplotlib.patches import Rectangle

    figure = canvas(6.4, 4.6)
    axes = figure.add_subplot()
    homes: dict[tuple[bool, bool], list[str]] = {place: [] for place in _QUADRANTS}
    for row in METHODS.values():
        homes[_place(row)].append(row.name)
    for (private, free), title in _QUADRANTS.items():
        fill = "#eef4fb" if private and free else "#f7f7f7"
        axes.add_patch(Rectangle((private, free), 1, 1, facecolor=fill, edgecolor="white", linewidth=3))
        axes.text(private + 0.05, free + 0.93, title, va="top", fontsize=9, color=INK)
        for rank, name in enumerate(homes[private, free]):
            across, down = rank % 2, rank // 2
            x, y = private + 0.12 + 0.44 * across, free + 0.62 - 0.26 * down
            axes.plot(x, y, marker="o", markersize=10, color=colour(name))
            axes.text(x + 0.06, y, name, va="center", fontsize=11, color=INK)
    axes.set(xlim=(0, 2), ylim=(0, 2), xticks=[0.5, 1.5], yticks=[0.5, 1.5])
    axes.set_xticklabels(["head is sent", "head stays private"])
    axes.set_yticklabels(["server", "no server"], rotation=90, va="center")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("Design space (local shares nothing at all)", fontsize=11)
    return figure


def _place(row: Method) -> tuple[bool, bool]:
    return row.shares != "model", row.topology != "star"
