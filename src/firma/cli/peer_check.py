"""`firma doctor` before a run and `firma audit` after it: each says that all is well, or what is not."""

from pathlib import Path
from typing import Annotated

import typer

from firma.cli.options import Json
from firma.cli.peer_options import DEFAULT_IDENTITY, IdentityFolder, Listen, RingPath, needs_extra


def doctor(
    ring: RingPath,
    identity: IdentityFolder = DEFAULT_IDENTITY,
    listen: Listen = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the others to answer.", min=0)] = 10.0,
) -> None:
    """Probe the ring before a run; exit code 1 if a line says what to do. Members may run it at the same time."""
    needs_extra()
    from firma.peer.doctor import probe
    from firma.peer.ring_file import read_ring

    agreed = read_ring(ring)
    typer.echo(f"ring file  sound, digest {agreed.digest.hex()}")
    failed = 0
    for finding in probe(agreed, identity, listen, wait):
        failed += not finding.passed
        typer.echo(f"{'pass' if finding.passed else 'FAIL'}  {finding.about}: {finding.says}")
    if failed:
        typer.echo(f"{failed} to put right before firma join")
        raise typer.Exit(1)
    typer.echo("all well: firma join can start")


def audit(
    file: Annotated[Path, typer.Argument(help="The audit.jsonl of a state folder.")],
    json: Json = False,
) -> None:
    """Say what left this site; exit code 1 if anything but the extractor and the agreed numbers did."""
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
        verdict = "FAILED" if found.breaches else "passed: the extractor and agreed numbers left, nothing else"
        typer.echo(f"audit {verdict}")
    if found.breaches:
        raise typer.Exit(1)
