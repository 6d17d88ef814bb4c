"""The command line: the only place that prints."""

import functools
import sys
from collections.abc import Callable

import typer

from firma.cli.advise import advise
from firma.cli.data import get, list_sets
from firma.cli.methods import methods
from firma.cli.peer import join
from firma.cli.peer_check import audit, doctor
from firma.cli.peer_ring import init, ring_file
from firma.cli.report import report
from firma.cli.reproduce import reproduce
from firma.cli.ring import ring
from firma.cli.run import SETTINGS, run
from firma.cli.split import split
from firma.errors import BadInput

app = typer.Typer(
    help="Federated learning without a server: train on a ring, keep every head at home.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with Ctrl-C answered by one line and exit code 130."""

    @functools.wraps(command)
    def wrapped(*words: object, **options: object) -> None:
        try:
            command(*words, **options)
        except KeyboardInterrupt:
            print("\nfirma: interrupted; nothing was written", file=sys.stderr)
            raise typer.Exit(130) from None

    return wrapped


app.command(epilog=SETTINGS)(interruptible(run))
app.command()(interruptible(methods))
app.command(epilog=SETTINGS)(interruptible(ring))
app.command(epilog=SETTINGS)(interruptible(split))
app.command(epilog=SETTINGS)(interruptible(reproduce))
app.command()(interruptible(report))
app.command()(interruptible(advise))
app.command()(interruptible(init))
app.command("ring-file", epilog=SETTINGS)(interruptible(ring_file))
app.command()(interruptible(doctor))
app.command()(interruptible(join))
app.command()(interruptible(audit))
data = typer.Typer(help="Get public data sets, and see what is there.", no_args_is_help=True)
data.command()(interruptible(get))
data.command("list")(interruptible(list_sets))
app.add_typer(data, name="data")


def main() -> None:
    """Run the command line: 2 for bad input, 130 for Ctrl-C, never a traceback for either."""
    try:
        app()
    except BadInput as error:
        print(f"firma: {error}", file=sys.stderr)
        sys.exit(2)
