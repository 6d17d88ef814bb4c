"""Errors that a user can cause, one sentence each."""

from collections.abc import Iterable
from difflib import get_close_matches


class BadInput(ValueError):
    """The user's input cannot be used; the message names the field, the value and what is allowed."""


def counted(count: int, noun: str) -> str:
    """A number of things: 1 round, 2 rounds."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def suggestion(value: object, allowed: Iterable[str]) -> str:
    """` (did you mean 'paper'?)` for the allowed word nearest to a misspelt one; empty if none is near."""
    names = list(allowed)
    word = str(value)
    near = get_close_matches(word, names, 1) or get_close_matches(word.lower(), names, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def unknown(what: str, value: object, allowed: Iterable[str]) -> BadInput:
    """The error for a value that is not among the allowed ones, with the nearest of them as a suggestion."""
    names = list(allowed)
    return BadInput(f"{what} {value!r} is unknown{suggestion(value, names)}; choose from {', '.join(names)}")
