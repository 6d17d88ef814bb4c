"""What all figures share: a canvas without a window, colours and marks of methods, two file formats."""

from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from firma.methods import METHODS
from firma.report.curves import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Shapes as well as colours, for print and for eyes that see few colours.
MARKS = dict(zip(METHODS, "xosD^v*", strict=True))
DATASET_MARKS = {"digits": "o", "mnist": "s", "fashion-mnist": "^", "cifar10": "D"}
INK, PALE = "#333333", "#dddddd"


def canvas(width: float, height: float) -> "Figure":
    """An empty figure of so many inches that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: "Figure", folder: Path, name: str) -> list[Path]:
    """Write NAME.png and NAME.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    figure.savefig(paths[0], dpi=150)
    paths[1].write_bytes(as_svg(figure))
    return paths


def as_svg(figure: "Figure") -> bytes:
    """The figure as SVG; the same figure gives the same bytes."""
    from matplotlib import rc_context

    buffer = BytesIO()
    with rc_context({"svg.hashsalt": "firma"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def colour(method: str) -> str:
    """The colour of a method, everywhere."""
    return COLOURS.get(method, INK)


def panels(figure: "Figure", count: int, across: int = 4) -> "list[Axes]":
    """`count` axes in rows of `across`; the last place of the last row is left to the legend."""
    down = -(-(count + 1) // across)
    grid = figure.subplots(down, across, squeeze=False)
    axes = [each for row in grid for each in row]
    for each in axes[count:]:
        each.set_axis_off()
    return axes


def tidy(axes: "Axes") -> None:
    """Light grid, no frame above and to the right."""
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


def titled(axes: "Axes", scenario: str, there: bool) -> None:
    """The panel's scenario; an empty panel says so and draws nothing."""
    axes.set_title(scenario if there else f"{scenario}: not run", fontsize=10)
    if not there:
        axes.set_axis_off()


def in_order(methods: Iterable[str]) -> list[str]:
    """Known methods in the order of the design table; changed rows are left out."""
    there = set(methods)
    return [name for name in METHODS if name in there]
