"""A file of lines that stays within a number of bytes: it is cut into parts, and the oldest part goes.

When `log.jsonl` has grown to a quarter of its budget it becomes `log.jsonl.1`, the one before that `log.jsonl.2`, and
`log.jsonl.3` is the oldest. A new part begins with the lines that `head` gives, so that each part can be read alone.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from firma.peer.runtime.json_lines import appended

PARTS = 4


class RotatingLines:
    """Appends lines; `before_drop` is called with the oldest part before it goes. Not for several threads at a time."""

    def __init__(
        self, path: Path, budget: int, head: Callable[[], Iterable[str]] = tuple,
        before_drop: Callable[[Path], None] = lambda path: None,
    ) -> None:  # fmt: skip
        self._path, self._most, self._head, self._before_drop = path, budget // PARTS, head, before_drop
        self._file = appended(path)

    @property
    def closed(self) -> bool:
        """Whether no more lines are taken."""
        return self._file.closed

    def write(self, line: str) -> None:
        """One line, flushed; `OSError` if the disk is full, `ValueError` if the file is closed.

        A line that is written is kept whatever happens to the rotation after it, which is tried again later.
        """
        self._file.write(line + "\n")
        self._file.flush()
        if self._file.tell() > self._most:
            with suppress(OSError):
                self._rotate()

    def _rotate(self) -> None:
        oldest = part(self._path, PARTS - 1)
        if oldest.exists():
            self._before_drop(oldest)
        self._file.close()
        try:
            for number in range(PARTS - 2, -1, -1):
                with suppress(FileNotFoundError):
                    part(self._path, number).replace(part(self._path, number + 1))
        finally:
            self._file = appended(self._path)
        self._file.writelines(line + "\n" for line in self._head())
        self._file.flush()

    def close(self) -> None:
        """No more lines."""
        with suppress(OSError):
            self._file.close()


def part(path: Path, number: int) -> Path:
    """The file, or its part of that number, 1 for the newest that is full."""
    return path.with_name(f"{path.name}.{number}") if number else path


def parts(path: Path) -> list[Path]:
    """All parts of a file that exist, oldest first."""
    found = [part(path, number) for number in range(PARTS - 1, -1, -1)]
    return [each for each in found if each.exists()]
