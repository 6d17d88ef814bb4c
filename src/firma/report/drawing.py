"""What all figures share: a canvas without a window, colours and marks of methods, two file formats."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from firma.data.catalogue import SIZES
from firma.methods import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which the colour-blind can tell apart, with Tol's wine in place of yellow, which is too pale
# for a line on white; and a shape per method, for print. A method has the same colour and shape in every figure: that
# of its row in the design table.
PALETTE = ("#999999", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#882255", "#000000")
COLOURS = dict(zip(METHODS, cycle(PALETTE), strict=False))
MARKS = dict(zip(METHODS, cycle("xosD^v*Ph"), strict=False))
DATASET_MARKS = dict(zip(SIZES, "os^D", strict=True))
INK = "#333333"


@dataclass(frozen=True)
class Picture:
    """A figure, the name of its file, and what it shows in words."""

    name: str
    caption: str
    figure: "Figure"


Pictures = Iterator[Picture]


def canvas(width: float, height: float) -> "Figure":
    """An empty figure of a size in inches that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def as_svg(picture: Picture) -> bytes:
    """The picture as SVG; the same results give the same bytes."""
    from matplotlib import rc_context

    buffer = BytesIO()
    with rc_context({"svg.hashsalt": "firma", "svg.fonttype": "none"}):
        picture.figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def save_png(picture: Picture, folder: Path) -> Path:
    """Write NAME.png, in the 128 colours that suit it best: a third of the bytes, and no difference to be seen."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    path, buffer = folder / f"{picture.name}.png", BytesIO()
    picture.figure.savefig(buffer, dpi=150)
    with Image.open(buffer) as image:
        few = image.convert("RGB").quantize(128, dither=Image.Dither.NONE)
        few.save(path, optimize=True, dpi=(150, 150))
    return path


def colour(method: str) -> str:
    """The colour of a method, in every figure."""
    return COLOURS.get(method, INK)


def panels(figure: "Figure", count: int, across: int = 4) -> "list[Axes]":
    """`count` axes in rows of `across`, and at least one empty one for the legend."""
    down = -(-(count + 1) // across)
    grid = figure.subplots(down, across, squeeze=False)
    axes = [each for row in grid for each in row]
    for each in axes[count:]:
        each.set_axis_off()
    return axes


def label_outer(axes: "list[Axes]", count: int, x: str = "", y: str = "", across: int = 4) -> None:
    """Axis labels at the first panel of each row (y) and of the last row (x)."""
    firsts = range(0, count, across)
    for first in firsts:
        if y:
            axes[first].set_ylabel(y)
    if x:
        axes[firsts[-1]].set_xlabel(x)


def tidy(axes: "Axes") -> None:
    """Light grid, no frame above and to the right."""
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def titled(axes: "Axes", scenario: str, run: bool) -> None:
    """The panel's scenario; a panel without runs says so and draws nothing."""
    axes.set_title(scenario if run else f"{scenario}: not run", fontsize=10)
    if not run:
        axes.set_axis_off()


def table_rows(methods: Iterable[str]) -> list[str]:
    """Methods of the design table, in its order; changed rows are left out."""
    there = set(methods)
    return [name for name in METHODS if name in there]
