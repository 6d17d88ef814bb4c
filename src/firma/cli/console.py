"""Printing: tables on stdout and progress on stderr for people, one JSON document on stdout for programs."""

import json
import sys
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

out = Console()
err = Console(stderr=True)


def print_json(document: Any) -> None:
    """One JSON document on stdout and nothing else there."""
    json.dump(document, sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")


def progress() -> Progress:
    """A progress bar on stderr; silent if stderr is not a terminal."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )  # fmt: skip
    return Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
