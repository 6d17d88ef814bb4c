"""Errors that a user can cause, one sentence each."""

from collections.abc import Iterable
from difflib import get_close_matches


class BadInput(ValueError):
    """The user's input cannot be used; the message names the field, the value and what is allowed."""


def unknown(what: str, value: object, allowed: Iterable[str]) -> BadInput:
    """The error for a value that is not among the allowed ones, with the nearest of them as a suggestion."""
    names = list(allowed)
    near = get_close_matches(str(value), names, 1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return BadInput(f"{what} {value!r} is unknown{hint}; choose from {', '.join(names)}")
