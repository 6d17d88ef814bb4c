"""`firma accept`: read what the members agree on, and sign it."""

import sys
from typing import Annotated

import typer

from firma.cli.options import Json
from firma.cli.peer_options import (
    DEFAULT_IDENTITY,
    IdentityFolder,
    PassphraseFile,
    RingPath,
    needs_extra,
    passphrase_from,
)
from firma.errors import BadInput


def accept(
    ring: RingPath,
    identity: IdentityFolder = DEFAULT_IDENTITY,
    yes: Annotated[bool, typer.Option("--yes", help="Sign without asking; the ring file was read before.")] = False,
    passphrase_file: PassphraseFile = None,
    json: Json = False,
) -> None:
    """Show in plain words all that a ring file agrees on, ask for consent, and sign it with this site's key.

    The signature goes to the other members by itself, with firma doctor and firma join; a ring starts when all members
    have accepted the same file. A changed file is another file and must be accepted again.

    Example: firma accept ring.toml
    """
    needs_extra()
    from firma.cli.agreed_file import ring_document, show_ring
    from firma.cli.console import print_json
    from firma.peer.identity import load_identity
    from firma.peer.ring_file import read_ring
    from firma.peer.statement_folder import StatementFolder

    agreed = read_ring(ring)
    own = load_identity(identity, passphrase_from(passphrase_file))
    name = agreed.names[agreed.place(own)]
    statements = StatementFolder(agreed, own)
    before = name in statements.by("accept")
    if not json:
        show_ring(ring, agreed)
    if not before:
        _ask(yes or None, name)
        statements.make(own, "accept")
    if json:
        known = {"accepted": list(statements.by("accept")), "lacking": list(statements.lacking("accept"))}
        print_json(ring_document(ring, agreed) | {"site": name, "signed": not before} | known)
        return
    typer.echo(f"{name} {'had already accepted' if before else 'has accepted'} this ring file.")
    lacking = statements.lacking("accept")
    if lacking:
        typer.echo(f"Not yet known to have accepted: {', '.join(lacking)}. firma doctor and firma join exchange it.")
    else:
        typer.echo("All members have accepted it.")


def _ask(answer: bool | None, name: str) -> None:
    """Consent is a person's: without --yes it is asked for on the terminal."""
    if answer is None:
        if not sys.stdin.isatty():
            raise BadInput("accepting a ring file asks for consent: run firma accept on a terminal, or pass --yes")
        answer = typer.confirm(f"Does {name} accept all of this?", err=True)
    if not answer:
        typer.echo("Not accepted; nothing was signed.", err=True)
        raise typer.Exit(1)
