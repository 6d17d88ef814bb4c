"""Printing: tables on stdout and notices on stderr for people, one JSON document on stdout for programs."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

out = Console()
err = Console(stderr=True)
_WIDEST = 1000  # columns


def print_table(table: Table) -> None:
    """A table on stdout, with every cell whole: a narrow terminal breaks its lines, which can still be read."""
    widest = out.options.update(max_width=_WIDEST)
    needed = Measurement.get(out, widest, table)
    width = max(needed.minimum, min(needed.maximum, 80))
    (out if needed.minimum <= out.width else Console(width=width)).print(table)


@contextmanager
def only_results_on_stdout(wanted: bool) -> Iterator[None]:
    """What code of the user's own prints, such as a hook or a model, goes to stderr: so with --json."""
    with redirect_stdout(sys.stderr) if wanted else nullcontext():
        yield


def print_json(document: Any) -> None:
    """One JSON document on stdout and nothing else there."""
    json.dump(document, sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")
