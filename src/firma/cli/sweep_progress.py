"""Progress of a sweep: a bar with the time left on a terminal, one line per cell in a log."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from firma.progress import Pace, duration, interactive

if TYPE_CHECKING:
    from firma.engines.engine import RoundOutcome
    from firma.sweep.cells import Cell
    from firma.sweep.runner import FailedCell, FinishedCell


def print_interrupted(written: int, left: int) -> None:
    """One line on stderr: what was saved and how to continue."""
    from firma.cli.console import err

    err.print(
        f"firma: interrupted; {written} of {left} cells were run and saved; run the same command again to continue",
        soft_wrap=True,
        highlight=False,
    )


class Tracker:
    """Progress of a sweep: after every round on a progress bar; after every cell, and during long ones, in a log."""

    def __init__(
        self, left: "Sequence[Cell]", wanted: int, say: Callable[[str, str, float], None], often: bool
    ) -> None:
        from firma.sweep.runner import cost

        self.cost, self.total = cost, sum(cost(cell) for cell in left)
        self.left, self.wanted, self.say, self.often = left, wanted, say, often
        self.finished, self.worked, self.part, self.started = 0, 0.0, 0.0, time.monotonic()
        self.pace = Pace()

    def start(self, cell: "Cell") -> None:
        """A cell has been started."""
        self.cell, self.part = cell, 0.0
        self._say(cell, "starting")

    def round(self, method: str, seed: int, outcome: "RoundOutcome") -> None:
        """A round of the running cell has been completed."""
        number, cell = outcome.number + 1, self.cell
        self.part = self.cost(cell) * number / cell.rounds
        self._say(cell, f"round {number}/{cell.rounds}: {outcome.scores.mean():.3f}")

    def finish(self, done: "FinishedCell") -> None:
        """A cell has been completed and saved."""
        value = next(iter(done.result.metrics.values()))  # the main metric
        said = "no value" if value is None else f"{value:.3f}"
        self._end(done.cell, f"{said} in {done.result.seconds:.1f} s")

    def fail(self, failed: "FailedCell") -> None:
        """A cell has failed."""
        first, *more = failed.error.splitlines() or [""]  # lines of the user's code follow at the end, with the others
        self._end(failed.cell, f"FAILED: {first}{' …' if more else ''}")

    def _end(self, cell: "Cell", what: str) -> None:
        self.finished, self.worked, self.part = self.finished + 1, self.worked + self.cost(cell), 0.0
        self._say(cell, what, whole=True)

    def _say(self, cell: "Cell", what: str, whole: bool = False) -> None:
        if whole or self.often or self.pace.due():
            count = self.wanted - len(self.left) + self.finished
            self.say(f"{count}/{self.wanted}", f"{cell.name}  {what}{self._time_left()}", self._share())

    def _share(self) -> float:
        """Work done over all work that there was at the start."""
        return (self.worked + self.part) / self.total

    def _time_left(self) -> str:
        share = self._share()
        if not 0 < share < 1:
            return ""
        return f", about {duration((time.monotonic() - self.started) * (1 - share) / share)} left"


@contextmanager
def tracked(left: "Sequence[Cell]", wanted: int, quiet: bool = False) -> Iterator[Tracker]:
    """A progress bar on a terminal, one line per cell in a log; nothing at all if `quiet`."""
    from rich.progress import BarColumn, Progress, TextColumn

    from firma.cli.console import err

    if quiet:
        yield Tracker(left, wanted, lambda count, what, share: None, False)
        return
    if not interactive(err):
        yield Tracker(left, wanted, _print_line, False)
        return
    columns = (TextColumn("{task.fields[count]}"), BarColumn(20), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", total=1.0, count="")

        def say(count: str, what: str, share: float) -> None:
            bar.update(task, completed=share, description=what, count=count)

        yield Tracker(left, wanted, say, True)


def _print_line(count: str, what: str, share: float) -> None:
    from firma.cli.console import err

    del share
    err.print(count, what, soft_wrap=True, highlight=False, markup=False)
