"""The files that an app's code consists of, and their hashes: code never travels, so sites compare it.

The files of `module:attribute` are the .py files of the package that the module is in, or the module's own file. They
are found without importing anything.
"""

import hashlib
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path

from firma.errors import BadInput


def importable(folder: Path) -> None:
    """Let modules in a folder be imported, from now on, as Flower does with the folder of an app."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)


def code_files(reference: str) -> dict[str, str]:
    """SHA-256 of each file of an app, by its path from the folder that it was found in."""
    top = reference.partition(":")[0].partition(".")[0]
    spec = PathFinder.find_spec(top)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if spec is None or not (places or spec.origin):
        raise BadInput(
            f"app = {reference!r}: there is no module {top!r}; install the app with pip, or run the command in its "
            "folder"
        )
    origin = Path(places[0]) if places else Path(str(spec.origin))
    found = sorted(origin.rglob("*.py")) if places else [origin]
    return {path.relative_to(origin.parent).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}


def check_code(reference: str, agreed: Mapping[str, str]) -> None:
    """Refuse code that is not the agreed one; the sentence names the first file that differs."""
    here = code_files(reference)
    for name in sorted({*agreed, *here}):
        if here.get(name) != agreed.get(name):
            what = "is missing here" if name not in here else "exists only here" if name not in agreed else "differs"
            raise BadInput(
                f"app = {reference!r}: {name} {what}; install the app that the ring file was written with, or ask for "
                "a new ring file"
            )
