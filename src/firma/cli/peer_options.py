"""Options that the commands of a real ring share, and the check that what they need is installed."""

from collections.abc import Callable
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
PassphraseFile = Annotated[
    Path | None,
    typer.Option(help="File that holds the passphrase of an encrypted key; /dev/fd/3 is file descriptor 3."),
]
DEFAULT_IDENTITY = Path("firma-identity")


def passphrase_from(file: Path | None, twice: bool = False) -> Callable[[], bytes]:
    """How to get the passphrase of a key: from a file, or else from the person at the terminal, who is not shown it."""

    def ask() -> bytes:
        if file is not None:
            return _read_passphrase(file)
        import sys

        if not sys.stdin.isatty():
            raise BadInput("the key's passphrase is missing: pass --passphrase-file, or run this on a terminal")
        word = str(typer.prompt("passphrase of the key", hide_input=True, confirmation_prompt=twice, err=True))
        return word.encode()

    return ask


def _read_passphrase(file: Path) -> bytes:
    try:
        found = file.read_bytes()
    except OSError as error:
        raise BadInput(f"--passphrase-file {str(file)!r}: cannot be read ({error.strerror})") from None
    found = found.removesuffix(b"\n").removesuffix(b"\r")
    if not found:
        raise BadInput(f"--passphrase-file {str(file)!r}: is empty")
    return found


def needs_extra() -> None:
    """Refuse to run without the extra `peer`."""
    from importlib.util import find_spec

    if find_spec("grpc") is None or find_spec("cryptography") is None:
        raise BadInput(
            "this command requires the extra packages of peers: pip install 'firma[peer]', or in a clone of the "
            "repository: pip install -c constraints.txt '.[peer]'"
        )
