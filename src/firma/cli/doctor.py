"""`firma doctor`: check a ring before a run."""

from typing import Annotated

import typer

from firma.cli.options import Json
from firma.cli.peer_options import (
    DEFAULT_IDENTITY,
    AllowedModel,
    FlowerAppName,
    IdentityFolder,
    Listen,
    PassphraseFile,
    RingPath,
    needs_extra,
    passphrase_from,
)


def doctor(
    ring: RingPath,
    identity: IdentityFolder = DEFAULT_IDENTITY,
    listen: Listen = None,
    model: AllowedModel = None,
    app: FlowerAppName = None,
    data: Annotated[str, typer.Option(help="Also look at this site's samples; nothing of them leaves it.")] = "",
    passphrase_file: PassphraseFile = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the other members to answer.", min=0)] = 10.0,
    json: Json = False,
) -> None:
    """Check the ring before a run. Exit code 1: a check failed. Members may run it at the same time."""
    needs_extra()
    from firma.cli.console import print_json
    from firma.peer.doctor import probe
    from firma.peer.ring_file import read_ring
    from firma.peer.spoken import spoken

    agreed = read_ring(ring)
    found = probe(agreed, identity, listen, wait, model, app, passphrase_from(passphrase_file), data)
    if json:
        findings = [{"about": each.about, "passed": each.passed, "says": each.says} for each in found]
        passed = all(each["passed"] for each in findings)
        print_json({"digest": agreed.digest.hex(), "passed": passed, "checks": findings})
        if not passed:
            raise typer.Exit(1)
        return
    typer.echo(f"ring file  valid, digest {agreed.digest.hex()}")
    typer.echo(f"           in words {spoken(agreed.digest)}")
    failed = 0
    for finding in found:
        failed += not finding.passed
        typer.echo(f"{'pass' if finding.passed else 'FAIL'}  {finding.about}: {finding.says}")
    if failed:
        checks, them = ("check", "it") if failed == 1 else ("checks", "them")
        typer.echo(f"{failed} {checks} failed: fix {them} before firma join")
        raise typer.Exit(1)
    typer.echo("all checks passed: firma join can start")
