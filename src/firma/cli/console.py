"""Printing: tables on stdout and notices on stderr for people, one JSON document on stdout for programs."""

import json
import sys
from typing import Any

from rich.console import Console

out = Console()
err = Console(stderr=True)


def print_json(document: Any) -> None:
    """One JSON document on stdout and nothing else there."""
    json.dump(document, sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")
