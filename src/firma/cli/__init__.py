"""The command line: the only package that prints."""

import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from firma.errors import BadInput


class Entry(NamedTuple):
    """Where a command is found: a module of this package, and a function or a group of commands in it."""

    module: str
    attribute: str
    settings: bool = False  # its help lists the settings for --set


COMMANDS = {
    "run": Entry("run", "run", settings=True),
    "methods": Entry("methods", "methods"),
    "models": Entry("models", "models"),
    "ring": Entry("ring", "ring", settings=True),
    "split": Entry("split", "split", settings=True),
    "sweep": Entry("sweep", "sweep", settings=True),
    "reproduce": Entry("reproduce", "reproduce", settings=True),
    "report": Entry("report", "report"),
    "predict": Entry("predict", "predict"),
    "evaluate": Entry("evaluate", "evaluate"),
    "export": Entry("export", "export"),
    "advise": Entry("advise", "advise"),
    "init": Entry("init", "init"),
    "ring-file": Entry("ring_file", "ring_file", settings=True),
    "doctor": Entry("doctor", "doctor"),
    "join": Entry("join", "join"),
    "audit": Entry("audit", "audit"),
    "data": Entry("data", "commands"),
}


class _LazyCommands(Mapping[str, Any]):
    """The commands by name; the module of a command is imported when the command is asked for, not before."""

    def __getitem__(self, name: str) -> Any:
        return command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS


def main() -> None:
    """Run the command line: exit code 2 for bad input, 130 for Ctrl-C, never a traceback for either."""
    group = typer.main.get_command(_app())
    group.commands = _LazyCommands()  # type: ignore[attr-defined]  # the group has no commands of its own
    usual, warnings.formatwarning = warnings.formatwarning, _warning
    try:
        group()
    except BadInput as error:
        print(f"firma: {error}", file=sys.stderr)
        sys.exit(2)
    finally:
        warnings.formatwarning = usual


def _warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as one line, without the place in the source from which it comes."""
    return f"firma: warning: {message}\n"


def interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with Ctrl-C answered by one line and exit code 130.

    A command that knows what it had written by then says so itself.
    """

    @functools.wraps(command)
    def wrapped(*words: object, **options: object) -> None:
        try:
            command(*words, **options)
        except KeyboardInterrupt:
            print("\nfirma: interrupted", file=sys.stderr)
            raise typer.Exit(130) from None

    return wrapped


def _app() -> typer.Typer:
    app = typer.Typer(
        help="Server-free federated learning: train on a ring, keep every head private.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from firma import __version__

        print(f"firma {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of `firma` itself; the work is in its callback."""


@functools.cache
def command(name: str) -> Any:
    """The command or group of that name, as typer builds it."""
    entry = COMMANDS[name]
    found = getattr(import_module(f"firma.cli.{entry.module}"), entry.attribute)
    if isinstance(found, typer.Typer):
        group = typer.main.get_command(found)
        group.name = name
        return group
    from firma.cli.options import SETTINGS

    alone = typer.Typer(add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False)
    alone.command(name, epilog=SETTINGS if entry.settings else None)(interruptible(found))
    return typer.main.get_command(alone)
