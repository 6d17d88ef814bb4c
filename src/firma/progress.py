"""Progress of runs on stderr: a bar on a terminal, lines from time to time in a log, an updated line in a notebook."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:  # loading these would load torch
    from firma.engines.engine import RoundOutcome
    from firma.run_config import OnRound

FIRST, LONGEST = 10.0, 600.0  # seconds until the first line of a log, and between two lines at most
_RECENT = 20  # rounds from which the time left is estimated


class Pace:
    """When the next line of a log is due: every 10 s at first, then after a twentieth of the elapsed time.

    A run of a minute prints 6 lines and one of ten hours some 130, however many rounds they have.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.started = self.last = clock()

    def due(self) -> bool:
        """Whether to print now; if so, the time until the next line starts."""
        now = self.clock()
        if now - self.last < min(max(FIRST, (now - self.started) / 20), LONGEST):
            return False
        self.last = now
        return True


class _Count:
    """Rounds done of all rounds of all runs, and the time that the others will take."""

    def __init__(self, rounds: int, runs: int, metric: str = "accuracy") -> None:
        self.rounds, self.runs, self.metric, self.done = rounds, runs, metric, 0
        self.started = time.monotonic()
        self.recent = deque([self.started], _RECENT + 1)

    def add(self) -> None:
        """One more round is over."""
        self.done += 1
        self.recent.append(time.monotonic())

    def line(self, name: str, seed: int, outcome: "RoundOutcome") -> str:
        """The last round, for people."""
        run = f", run {(self.done - 1) // self.rounds + 1} of {self.runs}" if self.runs > 1 else ""
        return (
            f"{name} seed {seed}: round {outcome.number + 1} of {self.rounds}, "
            f"mean {self.metric} {outcome.scores.mean():.3f}{run}, {self._time_left()}"
        )

    def _time_left(self) -> str:
        """At the speed of the last rounds: the first ones may come from a checkpoint, or wait for a compiler."""
        left = self.rounds * self.runs - self.done
        if not left:
            return f"{duration(self.recent[-1] - self.started)} in total"
        times = list(self.recent)
        if times[0] == self.started and len(times) > 2:
            del times[0]  # the first round has waited for the start
        each = (times[-1] - times[0]) / (len(times) - 1)
        return f"about {duration(each * left)} left"


def duration(seconds: float) -> str:
    """90 as 2 min, 9000 as 2.5 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; if it is, IPython is loaded already, so it is not imported."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})


def interactive(console: Console) -> bool:
    """Whether stderr is a terminal that can redraw a line."""
    return console.is_terminal and not console.is_dumb_terminal


@contextmanager
def shown(rounds: int, runs: int, metric: str = "accuracy", note: str = "") -> "Iterator[OnRound]":
    """A function for `on_round` that shows the progress of `runs` runs of `rounds` rounds each.

    `metric` is what the scores of the task are called.
    `note` is shown on a terminal until the first round is over. In a log, the first line appears after ten seconds, so
    a short run prints nothing.
    """
    console, count = Console(stderr=True), _Count(rounds, runs, metric)
    if in_notebook():
        yield _notebook(count)
    elif not interactive(console):
        yield _log(count, console)
    else:
        with _bar(console) as bar:
            task = bar.add_task("starting", total=rounds * runs, note=note)

            def on_round(name: str, seed: int, outcome: "RoundOutcome") -> None:
                note = f"round {outcome.number + 1}: {outcome.scores.mean():.3f}"
                bar.update(task, advance=1, description=f"{name:8} seed {seed}", note=note)

            yield on_round


def _bar(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    return Progress(*columns, console=console, transient=True)


def _log(count: _Count, console: Console) -> "OnRound":
    """Lines at the pace of a log, for people who read the file later."""
    pace = Pace()

    def on_round(name: str, seed: int, outcome: "RoundOutcome") -> None:
        count.add()
        if pace.due():
            console.print(count.line(name, seed, outcome), soft_wrap=True, highlight=False, markup=False)

    return on_round


def _notebook(count: _Count) -> "OnRound":
    """One output of the cell, updated up to four times a second; the last round remains."""
    from IPython.display import display

    shown = display({"text/plain": "starting"}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    last = float("-inf")

    def on_round(name: str, seed: int, outcome: "RoundOutcome") -> None:
        nonlocal last
        count.add()
        if (now := time.monotonic()) - last > 0.25 or count.done == count.rounds * count.runs:
            shown.update({"text/plain": count.line(name, seed, outcome)}, raw=True)
            last = now

    return on_round
