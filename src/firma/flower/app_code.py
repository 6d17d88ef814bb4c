"""The code of an app: where it is found, what is imported of it, and whether it is the code that a ring agreed on."""

import sys
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from firma.errors import BadInput
from firma.models import reference


def importable(folder: Path) -> None:
    """Let modules in a folder be imported, from now on, as Flower does with the folder of an app."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)


def imported(text: str, field: str) -> Any:
    """The object that `module:attribute` names; the current folder is searched, too."""
    named = _parsed(text, field)
    importable(Path.cwd())  # from now on: an app may import more of its modules when it is called
    try:
        module = reference.imported(named)
    except BadInput as error:
        raise _of(field, text, error) from None
    try:
        return reduce(getattr, named.function.split("."), module)
    except AttributeError:
        raise BadInput(f"{field} = {text!r}: module {named.module!r} has no {named.function!r}") from None


def code_files(text: str) -> dict[str, str]:
    """SHA-256 of each file of the app, found without importing anything; see `firma.models.reference`."""
    try:
        return reference.files(_parsed(text, "app"))
    except BadInput as error:
        raise _of("app", text, error) from None


def check_code(text: str, agreed: Mapping[str, str]) -> None:
    """Refuse code that is not the agreed one; the sentence names the files that differ."""
    differing = reference.differences(agreed, code_files(text), "in the ring file")
    if differing:
        raise BadInput(
            f"app = {text!r}: {'; '.join(differing)}; install the app that the ring file was written with, or ask for "
            "a new ring file"
        )


def _parsed(text: str, field: str) -> reference.Reference:
    named = reference.parsed(text)
    if named is None:
        raise BadInput(f"{field} = {text!r}: must be module:attribute, such as mypackage.client_app:app")
    return named


def _of(field: str, text: str, error: BadInput) -> BadInput:
    """A sentence about a model's code as one about this field."""
    return BadInput(f"{field} = {text!r}: {str(error).partition(': ')[2]}")
