"""The command line: the only package that prints on stdout."""

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TextIO

import typer

from firma.cli.usage import UsageError, usage_sentence
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
    "flower": Entry("flower", "flower"),
    "topology": Entry("topology", "topology", settings=True),
    "ring": Entry("topology", "topology", settings=True),  # its name before there were graphs
    "split": Entry("split", "split", settings=True),
    "sweep": Entry("sweep", "sweep", settings=True),
    "reproduce": Entry("reproduce", "reproduce", settings=True),
    "report": Entry("report", "report"),
    "watch": Entry("watch", "watch"),
    "predict": Entry("predict", "predict"),
    "evaluate": Entry("evaluate", "evaluate"),
    "export": Entry("export", "export"),
    "advise": Entry("advise", "advise"),
    "init": Entry("init", "init"),
    "ring-file": Entry("ring_file", "ring_file", settings=True),
    "accept": Entry("accept", "accept"),
    "doctor": Entry("doctor", "doctor"),
    "join": Entry("join", "join"),
    "status": Entry("status", "status"),
    "stop": Entry("stop", "stop"),
    "audit": Entry("audit", "audit"),
    "backup": Entry("backup", "backup"),
    "restore": Entry("backup", "restore"),
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
    """Run the command line: exit code 2 for bad input, 130 for Ctrl-C, 1 for a full disk; none has a traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as in `firma run >&-`
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        if isinstance(stream := getattr(sys, name), TextIOWrapper):
            stream.reconfigure(errors="replace")  # σ is ? where the terminal knows ASCII only
    group = typer.main.get_command(_app())
    group.commands = _LazyCommands()  # type: ignore[attr-defined]  # the group has no commands of its own
    with warnings.catch_warnings():
        warnings.showwarning = _print_warning
        sys.exit(_exit_code(group))


def _exit_code(group: Any) -> int:
    try:
        code = group(standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BadInput as error:
        print(f"firma: {error}", file=sys.stderr)
    except UsageError as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # typer has printed the help by then
            print(f"firma: {usage_sentence(error)}", file=sys.stderr)
    except BrokenPipeError:  # whoever reads the output has seen enough, as in `firma methods | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # else Python tries, and fails, to write the rest when it exits
        return 1
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        print(f"firma: {error.strerror or error}{where}", file=sys.stderr)
        return 1
    return 2


def _print_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
    line: str | None = None,
) -> None:  # fmt: skip
    """A warning as one line; which line of the source it comes from means nothing to the user of a command."""
    print(f"firma: warning: {message}", file=file or sys.stderr)


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
