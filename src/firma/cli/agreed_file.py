"""A ring file as `firma ring-file` and `firma accept` show it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from firma.peer.ring_file import Ring


def ring_document(path: Path, ring: "Ring") -> dict[str, Any]:
    """All that was agreed, for --json."""
    from firma.peer.identity import fingerprint, fingerprint_bytes
    from firma.peer.spoken import spoken
    from firma.peer.used_settings import used_numbers

    members = [
        {
            "name": each.name, "address": each.address, "fingerprint": fingerprint(each.certificate.encode()),
            "words": spoken(fingerprint_bytes(each.certificate.encode())),
        }
        for each in ring.members
    ]  # fmt: skip
    agreed = ring.model_dump(mode="json", exclude={"members", *ring.absent})
    numbers = used_numbers(ring) if ring.flower is None else {}
    found = {
        "insiders": ring.insiders,
        "summary": ring.summary,
        "numbers": numbers,
        "needed": ring.needed,
        "members": members,
    }
    return {"path": str(path)} | agreed | found | {"digest": ring.digest.hex(), "words": spoken(ring.digest)}


def show_ring(path: Path, ring: "Ring") -> None:
    """All that was agreed, in plain words."""
    from firma.peer.agreed_text import agreed_lines, member_lines
    from firma.peer.spoken import spoken

    typer.echo(f"{path}: {ring.federation}, of {len(ring.members)} members:")
    for line in member_lines(ring):
        typer.echo(f"  {line}")
    for what, says in agreed_lines(ring):
        typer.echo(f"  {what}: {says}")
    typer.echo(f"valid; every member must see this digest: {ring.digest.hex()}")
    typer.echo(f"in words, for the telephone: {spoken(ring.digest)}")
