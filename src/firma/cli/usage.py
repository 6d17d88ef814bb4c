"""Mistakes in the words of a command, as sentences like those of every other error."""

import re
from typing import Any

import typer

from firma.errors import suggestion

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer exports its subclass only


def usage_sentence(error: Any) -> str:
    """What is wrong with the words of a command, and where its help is."""
    context = error.ctx
    text = error.format_message().rstrip(".")
    if text.startswith("No such command "):  # typer adds a suggestion of its own
        word, commands = text.split("'")[1], list(context.command.commands)
        return f"command {word!r} is unknown{suggestion(word, commands)}; choose from {', '.join(commands)}"
    return f"{_problem(error, text)}; see {context.command_path if context is not None else 'firma'} --help"


def _problem(error: Any, text: str) -> str:
    option, context = getattr(error, "option_name", None), error.ctx
    if type(error).__name__ == "NoSuchOption":
        known = [word for each in context.command.params for word in each.opts] if context is not None else []
        return f"option {option!r} is unknown{suggestion(option, known)}"
    text = re.sub(r"Invalid value for '?([^':]+)'?: ", r"\1: ", text)
    for theirs, ours in (
        (": Input should be", " must be"),
        ("greater than or equal to", "at least"),
        ("less than or equal to", "at most"),
        ("Got unexpected extra argument(s) (", "unexpected words ("),
        ("Got unexpected extra arguments (", "unexpected words ("),
        ("Got unexpected extra argument (", "unexpected word ("),
    ):
        text = text.replace(theirs, ours)
    text = text.partition(", unable to parse")[0]
    return text[0].lower() + text[1:]
