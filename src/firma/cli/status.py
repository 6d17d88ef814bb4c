"""`firma status`: where a member is, read from its state folder."""

from pathlib import Path
from typing import Annotated

import typer

from firma.cli.options import Json
from firma.cli.peer_options import needs_extra


def status(
    state: Annotated[Path, typer.Argument(help="The state folder of firma join.")] = Path("firma-state"),
    json: Json = False,
) -> None:
    """Show where a member is: round, who is in, who is awaited, time left. Exit code 1: it is not running.

    It reads the state folder alone, so it may run at any time, beside firma join or after it.
    """
    needs_extra()
    from firma.cli.console import print_json
    from firma.peer.runtime.status import read_status

    found = read_status(state)
    if json:
        print_json(found.as_json())
    else:
        for line in found.lines():
            typer.echo(line)
    if not found.process and not found.finished:
        raise typer.Exit(1)
