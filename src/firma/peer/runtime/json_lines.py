"""Files of one JSON object per line that survive a crash: a line that was cut off is kept, ended and marked.

The disk may be full, or the process killed, in the middle of a line. Nothing is removed: the next start ends that line
and adds a line `{"torn": BYTES}`, so that whoever reads the file knows which line is damaged, and why.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from firma.atomic_files import private_opener

TORN = "torn"


def appended(path: Path) -> TextIO:
    """The file, open to add lines, and private if it is new; a last line that was cut off is ended and marked."""
    torn = _unfinished(path)
    file = open(path, "a", encoding="utf-8", opener=private_opener)  # noqa: SIM115, the caller closes it
    if torn:
        try:
            file.write("\n" + json.dumps({TORN: torn}) + "\n")
            file.flush()
        except OSError:
            file.close()
            raise
    return file


def _unfinished(path: Path) -> int:
    """Bytes after the last line's end."""
    try:
        with path.open("rb") as file:
            size = end = file.seek(0, os.SEEK_END)
            while end > 0:
                start = max(0, end - 65536)
                file.seek(start)
                found = file.read(end - start).rfind(b"\n")
                if found >= 0:
                    return size - (start + found + 1)
                end = start
            return size
    except FileNotFoundError:
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
    for place, (raw, value) in enumerate(zip(whole, values, strict=True)):
        after = values[place + 1] if place + 1 < len(values) else None
        if value is not None and value.keys() == {TORN}:
            continue
        marked = after is not None and after.get(TORN) == len(raw)
        yield Line(place + 1, len(raw), value, value is None and marked)
    if rest:
        value = _parsed(rest)
        yield Line(len(whole) + 1, len(rest), value, value is None)


def _parsed(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
