"""The ring: who sits where, what each client holds, and what it takes from its neighbours."""

from collections.abc import Sequence
from math import cos, pi, sin
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from firma.mixing.order import neighbours
from firma.mixing.weights import Row
from firma.report.canvas import INK, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Ten classes need ten colours; these are told apart by lightness as well.
_CLASSES = (
    "#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#777777",
)  # fmt: skip


def ring_picture(
    proportions: NDArray[np.float64], orders: Sequence[tuple[str, Sequence[int]]], row: Row, title: str
) -> "Figure":
    """One ring an order, each client a pie of its (N, C) class proportions; alike neighbours are joined by dark lines.

    The weights of one pass are written at the client on top.
    """
    figure = canvas(5.2 * len(orders), 4.7)
    figure.suptitle(title, fontsize=11)
    for axes, (name, order) in zip(figure.subplots(1, len(orders), squeeze=False)[0], orders, strict=True):
        _ring(axes, proportions, order, row)
        axes.set_title(name, fontsize=10)
    return figure


def _ring(axes: "Axes", proportions: NDArray[np.float64], order: Sequence[int], row: Row) -> None:
    size = len(order)
    unit = proportions / np.linalg.norm(proportions, axis=1, keepdims=True)
    spot = {client: _spot(place, size) for place, client in enumerate(order)}
    for client, (_, following) in neighbours(order).items():
        alike = float(unit[client] @ unit[following])
        (x, y), (to_x, to_y) = spot[client], spot[following]
        axes.plot([x, to_x], [y, to_y], color=str(0.85 - 0.85 * alike), linewidth=1 + 3 * alike, zorder=1)
    for client, (x, y) in spot.items():
        _pie(axes, (x, y), proportions[client], min(0.24, 0.9 / size + 0.1))
        side = "center" if abs(x) < 0.2 else "left" if x > 0 else "right"
        axes.text(1.32 * x, 1.34 * y, f"client {client}", ha=side, va="center", fontsize=9, color=INK)
    left, right = spot[order[-1]], spot[order[1 % size]]
    top = spot[order[0]]
    for (x, y), weight in ((left, row.left), (right, row.right)):
        axes.text(
            0.5 * (x + top[0]), 0.5 * (y + top[1]), f"{weight:.3f}", ha="center", va="center", fontsize=9, color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )  # fmt: skip
    axes.text(top[0], top[1] - 0.38, f"keeps {row.own:.3f}", ha="center", va="center", fontsize=9, color=INK)
    axes.set(xlim=(-1.8, 1.8), ylim=(-1.3, 1.5), aspect="equal")
    axes.set_axis_off()


def _pie(axes: "Axes", centre: tuple[float, float], shares: NDArray[np.float64], radius: float) -> None:
    from matplotlib.patches import Circle, Wedge

    axes.add_patch(Circle(centre, radius, facecolor="white", edgecolor="white", linewidth=4, zorder=2))
    angle = 90.0
    for label, share in enumerate(shares):
        if share > 0:
            face = _CLASSES[label % len(_CLASSES)]
            axes.add_patch(Wedge(centre, radius, angle - 360 * share, angle, facecolor=face, zorder=3))
            angle -= 360 * share


def _spot(place: int, size: int) -> tuple[float, float]:
    """Places on the circle, the first on top, then clockwise."""
    angle = pi / 2 - 2 * pi * place / size
    return cos(angle), sin(angle)
