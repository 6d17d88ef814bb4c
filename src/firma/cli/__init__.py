"""The command line: the only place that prints."""

import sys

import typer

from firma.cli.methods import methods
from firma.cli.ring import ring
from firma.cli.run import run
from firma.errors import BadInput

app = typer.Typer(
    help="Federated learning without a server: train on a ring, keep every head at home.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command()(methods)
app.command()(ring)


def main() -> None:
    """Run the command line: 2 for bad input, 130 for Ctrl-C, never a traceback for either."""
    try:
        app()
    except BadInput as error:
        print(f"firma: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nfirma: interrupted; nothing was written", file=sys.stderr)
        sys.exit(130)
