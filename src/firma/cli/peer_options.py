"""Options that the commands of a real ring share, and the check that what they need is installed."""

from pathlib import Path
from typing import Annotated

import typer

from firma.errors import BadInput

IdentityFolder = Annotated[Path, typer.Option(help="Folder with this site's key and certificate.")]
RingPath = Annotated[Path, typer.Argument(help="Ring file that all members share.")]
Listen = Annotated[str | None, typer.Option(help="HOST:PORT to listen on. Default: as in the ring file.")]
FlowerAppName = Annotated[
    str | None,
    typer.Option(metavar="MODULE:ATTRIBUTE", help="Flower app that this site agrees to run, if the ring file has one."),
]
AllowedModel = Annotated[
    str | None,
    typer.Option(help="MODULE:FUNCTION that this site agrees to run; required if the ring file names such code."),
]
DEFAULT_IDENTITY = Path("firma-identity")


def needs_extra() -> None:
    """Refuse to run without the extra `peer`."""
    from importlib.util import find_spec

    if find_spec("grpc") is None or find_spec("cryptography") is None:
        raise BadInput("this command requires the extra packages of peers: pip install 'firma[peer]'")
