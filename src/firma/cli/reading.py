"""Progress of data that are read, on stderr: a bar on a terminal, a line every ten seconds in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

EVERY = 10.0  # seconds


@contextmanager
def reading(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[str, int, int], None]]:
    """Yields what `load_dataset` calls as `on_progress`; what is read within ten seconds leaves no trace in a log."""
    console = Console(stderr=True)
    if not console.is_terminal:
        last = clock()

        def log(what: str, done: int, total: int) -> None:
            nonlocal last
            if clock() - last >= EVERY:
                last = clock()
                console.print(f"firma: {what}: {done:,} of {total:,}", highlight=False, soft_wrap=True)

        yield log
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, visible=False)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total, visible=done < total)

        yield show
