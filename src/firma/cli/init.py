"""`firma init`: a site's key and certificate."""

from typing import Annotated

import typer

from firma.cli.options import Json
from firma.cli.peer_options import DEFAULT_IDENTITY, IdentityFolder, needs_extra


def init(
    name: Annotated[str, typer.Argument(help="This site's name, such as hospital-a.")],
    address: Annotated[str, typer.Argument(help="HOST:PORT under which the other sites reach this one.")],
    identity: IdentityFolder = DEFAULT_IDENTITY,
    days: Annotated[int, typer.Option(help="Days for which the certificate is valid.", min=1)] = 730,
    json: Json = False,
) -> None:
    """Create this site's key, which never leaves it, and its certificate; print what the other sites need."""
    needs_extra()
    from firma.cli.console import print_json
    from firma.peer.identity import check_address, fingerprint, make_identity
    from firma.peer.ring_file import Site, site_toml

    check_address(address)
    made = make_identity(identity, name, days)
    card = identity / "site.toml"
    card.write_text(site_toml(Site(name=name, address=address, certificate=made.certificate.decode())))
    if json:
        print_json(
            {
                "name": name, "address": address, "fingerprint": fingerprint(made.certificate), "site": str(card),
                "key": str(identity / "key.pem"), "days": days,
            }
        )  # fmt: skip
        return
    typer.echo(f"name         {name}\naddress      {address}\nfingerprint  {fingerprint(made.certificate)}")
    typer.echo(f"Send {card} to the other sites and read them the fingerprint by telephone.")
    typer.echo(f"The key stays in {identity / 'key.pem'}: never send it.")
