"""`firma audit`: what left this site."""

from pathlib import Path
from typing import Annotated

import typer

from firma.cli.options import Json
from firma.cli.peer_options import needs_extra


def audit(
    file: Annotated[Path, typer.Argument(help="The audit.jsonl of a state folder.")],
    json: Json = False,
) -> None:
    """Report what left this site. Exit code 1: something other than the extractor and the agreed numbers left.

    Vectors that a method mixes with the extractor, such as a tracked gradient, belong to it and are named.
    """
    needs_extra()
    from firma.cli.console import print_json
    from firma.peer.runtime.audit_log import audit as read_audit

    found = read_audit(file)
    if json:
        print_json({key: getattr(found, key) for key in found.__dataclass_fields__})
    else:
        typer.echo(f"{found.site}: {found.messages} messages, {found.size:,} bytes")
        for name, size in found.receivers.items():
            typer.echo(f"  to {name}: {size:,} bytes")
        typer.echo(f"  tensors: {', '.join(found.tensors) or 'none'}")
        typer.echo(f"  numbers: {', '.join(found.numbers) or 'none'}")
        for breach in found.breaches:
            typer.echo(f"  BREACH {breach}")
        for line in found.unfinished:
            typer.echo(f"  unfinished: {line}, by a full disk or a crash; a message leaves only after its whole line")
        vectors = ", vectors mixed with it" if any(name.startswith("mixed.") for name in found.tensors) else ""
        passed = f"passed: the extractor{vectors} and agreed numbers left, nothing else"
        verdict = "FAILED" if found.breaches else passed
        typer.echo(f"audit {verdict}")
    if found.breaches:
        raise typer.Exit(1)
