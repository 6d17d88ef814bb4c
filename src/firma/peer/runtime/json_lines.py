"""Files of one JSON object per line that survive a crash: a line that was cut off is kept, ended and marked.

The disk may be full, or the process killed, in the middle of a line. Nothing is removed: the next start ends that line
and adds a line `{"torn": BYTES}`, so that whoever reads the file knows which line is damaged, and why.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from firma.atomic_files import private_opener

TORN = "torn"


def appended(path: Path) -> TextIO:
    """The file, open to add lines, and private if it is new; a last line that was cut off is ended and marked."""
    torn, ended = _unfinished(path)
    file = open(path, "a", encoding="utf-8", opener=private_opener)  # noqa: SIM115, the caller closes it
    if torn:
        try:
            file.write(("" if ended else "\n") + _mark(torn) + "\n")
            file.flush()
        except OSError:
            file.close()
            raise
    return file


def _mark(size: int) -> str:
    """The line after one that was cut off after so many bytes."""
    return json.dumps({TORN: size})


def _unfinished(path: Path) -> tuple[int, bool]:
    """Bytes of a last line that was cut off, 0 if it was not; and whether its end was written, but no mark after it."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            end = _line_start(file, size)
            if end < size:
                return size - end, False
            start = _line_start(file, end - 1)  # a mark is written after the line's end, and may be cut off, too
            file.seek(start)
            last = file.read(max(end - 1 - start, 0))
            return (len(last), True) if last and _parsed(last) is None else (0, True)
    except FileNotFoundError:
        return 0, True


def _line_start(file: BinaryIO, end: int) -> int:
    """Where the line begins that ends before `end`."""
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file: an object, or None if it is damaged; `cut_off` says that a crash explains that."""

    number: int  # from 1
    size: int  # bytes
    value: dict[str, Any] | None
    cut_off: bool = False


def lines_of(path: Path) -> Iterator[Line]:
    """All lines of a file. Marks are not among them; a last line that only lacks its end is whole."""
    *whole, rest = path.read_bytes().split(b"\n")
    values = [_parsed(raw) for raw in whole]
    explained = False  # whether the line after this one says that this one was cut off
    found = [Line(len(whole) + 1, len(rest), _parsed(rest), _parsed(rest) is None)] if rest else []
    after, after_explained = rest, True  # the last line may be a mark that was cut off itself
    for place in range(len(whole) - 1, -1, -1):
        raw, value = whole[place], values[place]
        mark = _mark(len(raw)).encode()
        explained = after == mark or (after_explained and mark.startswith(after))
        if value is None or value.keys() != {TORN}:
            found.append(Line(place + 1, len(raw), value, value is None and explained))
        after, after_explained = raw, value is None and explained
    yield from reversed(found)


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
