"""Figures of data: what each client holds in a split, and who its neighbours are on the ring."""

from collections.abc import Mapping, Sequence
from math import cos, pi, sin
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from firma.mixing.ring_order import neighbours
from firma.mixing.weights import Row
from firma.report.drawing import INK, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Ten classes need ten colours; these differ in lightness as well.
_CLASSES = (
    "#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#777777",
)  # fmt: skip


def ring_picture(
    proportions: NDArray[np.float64], orders: Sequence[tuple[str, Sequence[int]]], row: Row, title: str
) -> "Figure":
    """One ring per order; each client is a pie of its (N, C) class proportions, similar neighbours have dark lines.

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
    spot = {client: _spot(position, size) for position, client in enumerate(order)}
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


def _spot(position: int, size: int) -> tuple[float, float]:
    """Positions on the circle: the first on top, then clockwise."""
    angle = pi / 2 - 2 * pi * position / size
    return cos(angle), sin(angle)


_MOST_NUMBERS = 20  # rows and columns up to which every entry shows its number


def split_picture(
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    clients: Sequence[str],
    labels: Sequence[str],
    title: str,
    path: Path,
) -> None:
    """Two heat maps side by side of (N, C) samples, clients down and classes across; darker is more."""
    rows, columns = train.shape
    width = min(max(0.62 * columns, 3.0), 12.0) * 2 + 2.5
    figure = canvas(width, min(max(0.36 * rows, 2.0), 16.0) + 1.6)
    left, right = figure.subplots(1, 2)
    _heat_map(left, train, clients, labels, f"training: {train.sum():,} samples")
    _heat_map(right, test, clients, labels, f"test: {test.sum():,} samples")
    figure.suptitle(title)
    figure.savefig(path, dpi=150, format="png")


def drift_picture(
    counts: Mapping[str, NDArray[np.int64]], clients: Sequence[str], labels: Sequence[str], title: str, path: Path
) -> None:
    """A heat map of (N, C) training samples for each of some rounds, by their names, side by side."""
    rows, columns = next(iter(counts.values())).shape
    width = min(max(0.62 * columns, 3.0), 12.0) * len(counts) + 2.5
    figure = canvas(width, min(max(0.36 * rows, 2.0), 16.0) + 1.6)
    for axes, (name, each) in zip(figure.subplots(1, len(counts)), counts.items(), strict=True):
        _heat_map(axes, each, clients, labels, f"{name}: {each.sum():,} training samples")
    figure.suptitle(title)
    figure.savefig(path, dpi=150, format="png")


def _heat_map(
    axes: "Axes", counts: NDArray[np.int64], clients: Sequence[str], labels: Sequence[str], title: str
) -> None:
    rows, columns = counts.shape
    # The square root keeps small shares visible beside large ones; the numbers are exact.
    shade = np.sqrt(counts / max(int(counts.max()), 1))
    axes.imshow(shade, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    sizes = counts.sum(axis=1)
    every_row, every_column = -(-rows // 50), -(-columns // 50)  # beyond fifty, names would overlap
    axes.set_yticks(
        range(0, rows, every_row), [f"{clients[row]}  ({sizes[row]:,})" for row in range(0, rows, every_row)]
    )
    long = max(len(label) for label in labels) > 3 or columns > _MOST_NUMBERS
    axes.set_xticks(range(0, columns, every_column), labels[::every_column], rotation=60 if long else 0)
    axes.tick_params(length=0, labelsize=8)
    axes.set(title=title, xlabel="class", ylabel="client (samples)")
    if rows <= _MOST_NUMBERS and columns <= _MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shade[row, column] > 0.6 else "black"
            if count:
                axes.text(column, row, f"{count:,}", ha="center", va="center", fontsize=7, color=colour)
