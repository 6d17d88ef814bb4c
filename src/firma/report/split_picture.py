"""A picture of a split: how many samples of each class every client holds, to train and to test."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NUMBERS = 20  # rows and columns up to which every cell carries its number


def split_picture(
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    clients: Sequence[str],
    labels: Sequence[str],
    title: str,
    path: Path,
) -> None:
    """Two heat maps side by side of (N, C) samples, clients down and classes across; darker is more."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = train.shape
    width = min(max(0.62 * columns, 3.0), 12.0) * 2 + 2.5
    figure = Figure(figsize=(width, min(max(0.36 * rows, 2.0), 16.0) + 1.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _heat_map(left, train, clients, labels, f"training: {train.sum():,} samples")
    _heat_map(right, test, clients, labels, f"test: {test.sum():,} samples")
    figure.suptitle(title)
    figure.savefig(path, dpi=150, format="png")


def _heat_map(
    axes: "Axes", counts: NDArray[np.int64], clients: Sequence[str], labels: Sequence[str], title: str
) -> None:
    rows, columns = counts.shape
    # The square root keeps small shares visible beside large ones; the numbers tell the exact story.
    shade = np.sqrt(counts / max(int(counts.max()), 1))
    axes.imshow(shade, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    sizes = counts.sum(axis=1)
    every_row, every_column = -(-rows // 50), -(-columns // 50)  # beyond fifty, names would lie on one another
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
