"""`firma init`, `ring-file`, `doctor`, `join` and `audit`: a site's part in a real ring."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firma.cli.options import Changes, Json, changes
from firma.errors import BadInput

if TYPE_CHECKING:
    from firma.peer.report import Outcome, RoundReport, Setup
    from firma.peer.ringfile import Ring

LOST = 3  # exit code: the others are not there or refuse, the checkpoint is whole
IdentityFolder = Annotated[Path, typer.Option(help="The folder with this site's key and certificate.")]
RingPath = Annotated[Path, typer.Argument(help="The ring file that all members share.")]
_DEFAULT = Path("firma-identity")


def init(
    name: Annotated[str, typer.Argument(help="This site's name, such as hospital-a.")],
    address: Annotated[str, typer.Argument(help="HOST:PORT where the other sites reach this one.")],
    identity: IdentityFolder = _DEFAULT,
    days: Annotated[int, typer.Option(help="How long the certificate is valid.", min=1)] = 730,
) -> None:
    """Make this site's key, which never leaves it, and its certificate; print what the other sites need."""
    _needs_extra()
    from firma.peer.identity import check_address, fingerprint, make_identity
    from firma.peer.ringfile import Site, site_toml

    check_address(address)
    made = make_identity(identity, name, days)
    card = identity / "site.toml"
    card.write_text(site_toml(Site(name=name, address=address, certificate=made.certificate.decode())))
    typer.echo(f"name         {name}\naddress      {address}\nfingerprint  {fingerprint(made.certificate)}")
    typer.echo(f"Send {card} to the other sites and read them the fingerprint by telephone.")
    typer.echo(f"The key stays in {identity / 'key.pem'}: never send it.")


def ring_file(
    path: Annotated[Path, typer.Argument(help="The ring file to check, or with --member to write.")],
    member: Annotated[list[Path] | None, typer.Option(help="A site.toml of firma init; repeat, in order.")] = None,
    federation: Annotated[str, typer.Option(help="A name for the federation that is used once.")] = "",
    method: Annotated[str, typer.Option(help="A ring method whose heads stay.")] = "fibfl++",
    rounds: Annotated[int, typer.Option(help="How many rounds.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of initial weights and batches.")] = 0,
    shape: Annotated[str, typer.Option(help="Shape of one input, such as 28x28.")] = "",
    labels: Annotated[str, typer.Option(help="All labels, with commas, or a number of classes from 0.")] = "",
    scale: Annotated[float, typer.Option(help="Bytes are multiplied by this.")] = 1 / 255,
    proportions: Annotated[str, typer.Option(help="What is told of classes: plain, noisy or none.")] = "plain",
    patience: Annotated[float, typer.Option(help="Seconds of silence after which a neighbour is left out.")] = 60.0,
    gathering: Annotated[float, typer.Option(help="Seconds in which all must have appeared.")] = 600.0,
    quorum: Annotated[int, typer.Option(help="Members without whom nothing goes on; 0: a majority.")] = 0,
    set_: Changes = None,
) -> None:
    """Write a ring file from the members' site.toml files, or check one and show what was agreed.

    Example: firma ring-file ring.toml --member a/site.toml --member b/site.toml --federation trial
    --shape 8x8 --labels 10
    """
    _needs_extra()
    from firma.peer.ringfile import checked, read_ring, read_site, ring_toml
    from firma.results import write_whole

    if member:
        if path.exists():
            raise BadInput(f"ring file {str(path)!r}: it is there already; name another")
        values = {
            "federation": federation, "method": method, "rounds": rounds, "seed": seed, "proportions": proportions,
            "patience": patience, "gathering": gathering, "quorum": quorum, "set": changes(set_),
            "task": {"shape": _shape(shape), "labels": _labels(labels), "scale": scale},
            "members": [read_site(each).model_dump() for each in member],
        }  # fmt: skip
        try:
            write_whole(path, ring_toml(checked(values)))
        except OSError as error:
            raise BadInput(f"ring file {str(path)!r}: cannot write there ({error.strerror})") from None
    _show_ring(path, read_ring(path))


def doctor(
    ring: RingPath,
    identity: IdentityFolder = _DEFAULT,
    listen: Annotated[str | None, typer.Option(help="HOST:PORT to listen on, if not as in the ring file.")] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the others to answer.", min=0)] = 10.0,
) -> None:
    """Probe the ring before a run; exit code 1 if a line says what to do. Members may run it at the same time."""
    _needs_extra()
    from firma.peer.doctor import probe
    from firma.peer.ringfile import read_ring

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


def join(
    ring: RingPath,
    data: Annotated[str, typer.Option(help="This site's samples: PATH.npz, PATH.csv or PATH.parquet.")],
    identity: IdentityFolder = _DEFAULT,
    state: Annotated[Path, typer.Option(help="Folder for checkpoints, log and audit file.")] = Path("firma-state"),
    listen: Annotated[str | None, typer.Option(help="HOST:PORT to listen on, if not as in the ring file.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last round that all have.")] = False,
    device: Annotated[str, typer.Option(help="A torch device.")] = "cpu",
    json: Json = False,
) -> None:
    """Train with the other members of the ring; exit code 3 says that the others did not come or refuse."""
    _needs_extra()
    from firma.experiment import device_of
    from firma.peer.identity import check_address, load_identity
    from firma.peer.report import Setup
    from firma.peer.ringfile import read_ring

    device_of(device)
    if listen is not None:
        check_address(listen)
    setup = Setup(read_ring(ring), load_identity(identity), data, state, listen, resume, device)
    outcome = _run(setup, quiet=json)
    _finish(setup, outcome, json)


def audit(
    file: Annotated[Path, typer.Argument(help="The audit.jsonl of a state folder.")],
    json: Json = False,
) -> None:
    """Say what left this site; exit code 1 if anything but the extractor and the agreed numbers did."""
    _needs_extra()
    from firma.cli.console import print_json
    from firma.peer.ledger import judge

    found = judge(file)
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


def _run(setup: "Setup", quiet: bool) -> "Outcome":
    """Drive the node; each way to stop has its sentence and its exit code."""
    import signal
    import sys

    from firma.peer.checkpoint import latest
    from firma.peer.desk import PeerLost
    from firma.peer.node import Node

    def show(report: "RoundReport") -> None:
        if not quiet:
            typer.echo(_line(report))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def notice(text: str) -> None:
        print(f"firma: {text}", file=sys.stderr)

    signal.signal(signal.SIGTERM, stop)
    try:
        return Node(setup, show, notice).run()
    except PeerLost as error:
        why, code = str(error), LOST
    except KeyboardInterrupt:
        why, code = "interrupted", 130
    done = latest(setup.state)
    print(f"firma: {why}; {done} rounds are safe in {setup.state}; go on with --resume", file=sys.stderr)
    raise typer.Exit(code)


def _line(report: "RoundReport") -> str:
    weights = " ".join(f"{name} {weight:.3f}" for name, weight in report.weights.items()) or "all by size"
    return (
        f"round {report.number}/{report.rounds}  ring {'-'.join(report.ring)}  weights {weights}  "
        f"accuracy {report.accuracy:.4f}  sent {report.sent / 1000:,.1f} kB  {report.seconds:.2f} s "
        f"(training {report.training:.2f} s)"
    )


def _finish(setup: "Setup", outcome: "Outcome", json: bool) -> None:
    import json as encoder

    from firma.cli.console import print_json
    from firma.results import write_whole

    document: dict[str, Any] = {
        "federation": setup.ring.federation, "method": setup.ring.method, "history": list(outcome.history),
        "order": list(outcome.order), "bytes": outcome.sent, "seconds": outcome.seconds,
        "training_seconds": outcome.training, "refused": outcome.refused, "checkpoint": str(outcome.checkpoint),
    }  # fmt: skip
    write_whole(setup.state / "result.json", encoder.dumps(document, indent=1) + "\n")
    if json:
        print_json(document)
        return
    share = outcome.training / outcome.seconds if outcome.seconds else 0.0
    done = [accuracy for accuracy in outcome.history if accuracy is not None]
    last = done[-1] if done else float("nan")
    typer.echo(f"done: accuracy {last:.4f}, {share:.0%} of {outcome.seconds:.1f} s spent training")
    typer.echo(f"Written: {setup.state}")


def _show_ring(path: Path, ring: "Ring") -> None:
    from firma.peer.identity import fingerprint

    typer.echo(f"{path}: {ring.federation}, {ring.method}, {ring.rounds} rounds, seed {ring.seed}")
    for member in ring.members:
        typer.echo(f"  {member.name}  {member.address}  {fingerprint(member.certificate.encode())}")
    typer.echo(f"sound; every member must see this digest: {ring.digest.hex()}")


def _shape(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split("x")]
    except ValueError:
        raise BadInput(f"shape = {text!r}: write it as 28x28") from None


def _labels(text: str) -> list[str]:
    return [str(n) for n in range(int(text))] if text.isdigit() else [each.strip() for each in text.split(",")]


def _needs_extra() -> None:
    from importlib.util import find_spec

    if find_spec("grpc") is None or find_spec("cryptography") is None:
        raise BadInput("peers need more packages: pip install 'firma[peer]'")
