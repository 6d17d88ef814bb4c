"""`firma backup` and `firma restore`: what a site has learnt, kept in one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firma.cli.options import Json
from firma.cli.peer_options import needs_extra

if TYPE_CHECKING:
    from firma.peer.runtime.backup import Backup

_FILE = "Backup file; it holds this site's model with its head, so keep it private."


def backup(
    state: Annotated[Path, typer.Argument(help="The state folder of firma join.")],
    file: Annotated[Path, typer.Argument(help=_FILE)],
    json: Json = False,
) -> None:
    """Save the newest round of a state folder, its results and logs, in one file; firma join may run meanwhile.

    The file never holds the site's promises: an old copy of them, put back, would let the site break them. The key is
    not in it either; keep a copy of the identity folder elsewhere.

    Example: firma backup firma-state backup-2026-11-18.zip
    """
    needs_extra()
    from firma.peer.runtime.backup import make_backup

    made = make_backup(state, file)
    _show(made, json, {"file": str(file)}, f"Written: {file}")


def restore(
    file: Annotated[Path, typer.Argument(help="A file of firma backup.")],
    state: Annotated[Path, typer.Argument(help="A new state folder.")],
    json: Json = False,
) -> None:
    """Put a backup into a new state folder, to use the model or to take part again.

    A restored site has its model, but no promises: the other members treat it as one that is behind.

    Example: firma restore backup-2026-11-18.zip firma-state
    """
    needs_extra()
    from firma.peer.runtime.backup import restore_backup

    made = restore_backup(file, state)
    _show(made, json, {"state": str(state)}, f"Restored to {state}; its promises are not part of a backup.")


def _show(made: "Backup", json: bool, where: dict[str, Any], told: str) -> None:
    from firma.cli.console import print_json

    if json:
        found = {"federation": made.federation, "site": made.site, "rounds": made.rounds, "ring": made.ring}
        print_json(where | found | {"files": sorted(made.files)})
        return
    typer.echo(
        f"{made.federation}{f', {made.site}' if made.site else ''}: round {made.rounds}, {len(made.files)} files"
    )
    typer.echo(told)
