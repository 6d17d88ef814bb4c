"""`firma stop`: ask the other members to end the ring before its last round."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from firma.cli.options import Json
from firma.cli.peer_options import DEFAULT_IDENTITY, IdentityFolder, PassphraseFile, needs_extra, passphrase_from
from firma.errors import BadInput


def stop(
    ring: Annotated[Path | None, typer.Argument(help="Ring file. Default: that of the state folder.")] = None,
    state: Annotated[Path, typer.Option(help="The state folder of firma join.")] = Path("firma-state"),
    identity: IdentityFolder = DEFAULT_IDENTITY,
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking.")] = False,
    passphrase_file: PassphraseFile = None,
    json: Json = False,
) -> None:
    """Ask that the ring ends before its last round. It does when a quorum of the members has asked.

    The request is signed and goes to the others by itself while firma join runs at this site; it cannot be taken back.
    Every site then ends with exit code 0 and its model after the last completed round. To leave the ring alone, end the
    process of firma join instead: the others continue.

    Example: firma stop --state firma-state
    """
    needs_extra()
    from firma.cli.console import print_json
    from firma.peer.identity import load_identity
    from firma.peer.ring_file import read_ring
    from firma.peer.runtime.state_folder import holder
    from firma.peer.statement_folder import StatementFolder

    copy = state / "ring.toml"
    if ring is None and not copy.exists():
        raise BadInput(
            f"state folder {str(state)!r}: no ring.toml there; pass the ring file, or the --state of firma join"
        )
    agreed = read_ring(ring or copy)
    own = load_identity(identity, passphrase_from(passphrase_file))
    name = agreed.names[agreed.place(own)]
    statements = StatementFolder(agreed, own)
    new = name not in statements.by("stop")
    if new and not yes:
        if not sys.stdin.isatty():
            raise BadInput("a request to stop cannot be taken back: run firma stop on a terminal, or pass --yes")
        if not typer.confirm(f"Ask all members of {agreed.federation} to stop?", err=True):
            raise typer.Exit(1)
    if new:
        statements.make(own, "stop")
    asked, running = statements.by("stop"), bool(holder(state))
    if json:
        print_json({"site": name, "asked": list(asked), "needed": agreed.needed, "running": running, "signed": new})
        return
    typer.echo(f"{name} {'has asked' if new else 'had already asked'} to stop {agreed.federation}.")
    if len(asked) >= agreed.needed:
        typer.echo(f"Asked by {', '.join(asked)}: enough; the ring ends.")
    else:
        typer.echo(f"Known here: {len(asked)} of the {agreed.needed} members that are needed ({', '.join(asked)}).")
    if not running:
        typer.echo("firma join does not run here; start it with --resume, so that the others are told.")
