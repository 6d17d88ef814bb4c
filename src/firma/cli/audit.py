"""`firma audit`: what left this site, and what others sent to it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from firma.cli.options import Json
from firma.cli.peer_options import needs_extra


def audit(
    file: Annotated[Path, typer.Argument(help="The audit.jsonl of a state folder, or its evidence.jsonl.")],
    json: Json = False,
) -> None:
    """Report what left this site. Exit code 1: something other than the extractor and the agreed numbers left.

    Vectors that a method mixes with the extractor, such as a tracked gradient, belong to it and are named. Of an
    evidence.jsonl: what other members sent, every signature verified. Exit code 1: something is not what was signed.
    """
    needs_extra()
    if file.name.startswith("evidence"):
        _evidence(file, json)
        return
    from firma.cli.console import print_json
    from firma.peer.runtime.audit_log import WORDS
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
        for name in (each for each in found.numbers if each in WORDS):
            typer.echo(f"    {name}: {WORDS[name]}")
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


def _evidence(file: Path, json: bool) -> None:
    """What other members sent to this site, and whether they signed it."""
    from firma.cli.console import print_json
    from firma.peer.runtime.evidence import examined

    found = examined(file)
    if json:
        print_json(asdict(found))
    else:
        typer.echo(f"what {found.site} received: {sum(found.messages.values())} messages, with signatures")
        for name, count in found.messages.items():
            first, last = found.rounds[name]
            typer.echo(f"  from {name}: {count} messages, rounds {first} to {last}")
            typer.echo(f"    certificate {found.fingerprints[name]}")
        for each in found.kept:
            numbers = {"accuracy": each.accuracy, "weight": each.weight}
            told = "".join(f", {name} {value:g}" for name, value in numbers.items() if value is not None)
            where = f"view {each.view}, round {each.round}, exchange {each.step + 1}"
            typer.echo(f"  kept: {where}, from {each.sender}: norm {each.norm:.4g}{told}")
        for text in found.forged:
            typer.echo(f"  FORGED {text}")
        for text in found.unfinished:
            typer.echo(f"  unfinished: {text}, by a full disk or a crash")
        verdict = "FAILED" if found.forged else "passed: every message is what its sender signed"
        typer.echo(f"evidence {verdict}")
    if found.forged:
        raise typer.Exit(1)
