"""`firma init`: a site's key and certificate."""

from pathlib import Path
from typing import Annotated

import typer

from firma.cli.options import Json
from firma.cli.peer_options import DEFAULT_IDENTITY, IdentityFolder, PassphraseFile, needs_extra, passphrase_from
from firma.errors import BadInput


def init(
    name: Annotated[str, typer.Argument(help="This site's name, such as hospital-a.")] = "",
    address: Annotated[str, typer.Argument(help="HOST:PORT under which the other sites reach this one.")] = "",
    identity: IdentityFolder = DEFAULT_IDENTITY,
    days: Annotated[int, typer.Option(help="Days for which the certificate is valid.", min=1)] = 730,
    renew: Annotated[
        Path | None,
        typer.Option(
            metavar="OLD",
            help="Identity folder whose certificate ends or whose key is lost: a new key and certificate with its name "
            "and address, in another folder (--identity).",
        ),
    ] = None,
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Encrypt the key with a passphrase, asked for here or read from a file.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    json: Json = False,
) -> None:
    """Create this site's key, which never leaves it, and its certificate; print what the other sites need.

    Example: firma init hospital-a ring.hospital-a.org:7443
    """
    needs_extra()
    from firma.cli.console import print_json
    from firma.peer.identity import check_address, fingerprint, fingerprint_bytes, make_identity
    from firma.peer.ring_file import Site, read_site, site_toml
    from firma.peer.spoken import spoken

    if renew is not None:
        if not (renew / "site.toml").exists():
            raise BadInput(f"--renew {str(renew)!r}: no site.toml there; pass the identity folder of this site")
        before = read_site(renew / "site.toml")
        if name not in ("", before.name):
            raise BadInput(f"--renew {str(renew)!r}: is of {before.name}, not of {name}; a site keeps its name")
        name, address = before.name, address or before.address
    if not name or not address:
        raise BadInput("NAME and ADDRESS are missing: firma init hospital-a ring.hospital-a.org:7443")
    check_address(address)
    if passphrase_file is not None and not encrypt:
        raise BadInput("--passphrase-file requires --encrypt")
    made = make_identity(identity, name, days, passphrase_from(passphrase_file, twice=True)() if encrypt else b"")
    card = identity / "site.toml"
    card.write_text(site_toml(Site(name=name, address=address, certificate=made.certificate.decode())))
    if json:
        print_json(
            {
                "name": name, "address": address, "fingerprint": fingerprint(made.certificate), "site": str(card),
                "key": str(identity / "key.pem"), "encrypted": encrypt, "days": days,
                "words": spoken(fingerprint_bytes(made.certificate)),
            }
        )  # fmt: skip
        return
    typer.echo(f"name         {name}\naddress      {address}\nfingerprint  {fingerprint(made.certificate)}")
    typer.echo(f"in words     {spoken(fingerprint_bytes(made.certificate))}")
    typer.echo(f"Send {card} to the other sites and read them the words, or the fingerprint, by telephone.")
    typer.echo(f"The key stays in {identity / 'key.pem'}: never send it.")
