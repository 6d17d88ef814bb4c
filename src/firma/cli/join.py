"""`firma join`: take part in a real ring, round by round."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from firma.cli import completion
from firma.cli.options import Json, toml_values
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
from firma.errors import BadInput
from firma.settings import Wire
from firma.tasks.task import MAIN, TITLES

if TYPE_CHECKING:
    from firma.peer.ring_file import Sharing
    from firma.peer.runtime.node import Outcome, Setup
    from firma.peer.runtime.round_loop import RoundReport
    from firma.peer.runtime.site_page import SitePage

_WIRE = "Encoding of this site's extractor: float32, bfloat16 or int8. Default: as in the ring file."
_VERIFY = "Score neighbours' extractors on this site's training data instead of trusting their claimed accuracies."
_METRICS = "Serve Prometheus metrics at /metrics on [HOST:]PORT, such as 9100. Without HOST: this machine only."
_PAGE = (
    "Serve this site's page on [HOST:]PORT, such as 8050 (0: any free port): who is in, who is silent, rounds, audit, "
    "notices and what to do. Without HOST: this machine only; any other HOST is protected by a token, which is part of "
    "the printed address. firma watch STATE shows the page of a site from outside."
)
_NODE_CONFIG = "What a Flower app reads about this site in context.node_config, such as data-path='mine.csv'; repeat."
_BEGIN = "State folder of an earlier ring; start from its last round under a new ring file."
_DISK = (
    "Megabytes that the state folder may take: logs are cut and old rounds dropped, never the two newest. "
    "Default: 64 MB for each log, and two rounds more than there are members."
)
_LOG_JSON = (
    "Write the lines of log.jsonl on stderr, too, in place of sentences: JSON objects with time, level and event."
)
_SHARE = (
    "Tell all members this site's result after each round, for the table that firma status and the page show: accuracy "
    "(and the number of test samples), or classes (also how many of them are of each class). The ring file must agree "
    "(summary). Default: nothing."
)
_LAST_LOOK = 2.0  # seconds that a page stays after the last round
LOST = 3  # exit code: the other members did not appear or refuse; the checkpoint is whole


def join(
    ring: RingPath,
    data: Annotated[
        str, typer.Option(help="This site's samples: PATH.npz, PATH.csv, PATH.parquet or a folder of images.")
    ] = "",
    identity: IdentityFolder = DEFAULT_IDENTITY,
    state: Annotated[Path, typer.Option(help="Folder for checkpoints, log and audit file.")] = Path("firma-state"),
    listen: Listen = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last round that all members have.")
    ] = False,
    device: Annotated[str, typer.Option(help="torch device.", autocompletion=completion.devices)] = "cpu",
    wire: Annotated[str | None, typer.Option(help=_WIRE, autocompletion=completion.words(*get_args(Wire)))] = None,
    verify_gate: Annotated[bool, typer.Option("--verify-gate", help=_VERIFY)] = False,
    metrics: Annotated[str | None, typer.Option(help=_METRICS)] = None,
    page: Annotated[str | None, typer.Option(metavar="[HOST:]PORT", help=_PAGE)] = None,
    share_results: Annotated[
        str,
        typer.Option(
            metavar="none|accuracy|classes",
            help=_SHARE,
            autocompletion=completion.words("none", "accuracy", "classes"),
        ),
    ] = "none",
    begin_with: Annotated[Path | None, typer.Option(help=_BEGIN)] = None,
    model: AllowedModel = None,
    app: FlowerAppName = None,
    node_config: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help=_NODE_CONFIG)] = None,
    passphrase_file: PassphraseFile = None,
    disk: Annotated[float | None, typer.Option(metavar="MB", help=_DISK, min=1)] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help=_LOG_JSON)] = False,
    json: Json = False,
) -> None:
    """Train with the other members of the ring. Exit code 3: the other members did not appear, or refuse.

    Example: firma join ring.toml --data mine.npz --wire int8 --metrics 9100
    """
    needs_extra()
    from firma.encoding import checked_wire
    from firma.experiment import device_of
    from firma.peer.identity import check_address, load_identity, make_private
    from firma.peer.ring_file import read_ring
    from firma.peer.runtime.disk_budget import DiskBudget
    from firma.peer.runtime.node import Setup

    device_of(device)
    if listen is not None:
        check_address(listen)
    sends = checked_wire(wire) if wire is not None else None
    agreed = read_ring(ring)
    if not data and agreed.flower is None:
        raise BadInput("--data is missing: PATH.npz, PATH.csv or PATH.parquet with this site's samples")
    changed = make_private(identity)
    if changed:
        _log_line("warning", "notice", changed) if log_json else print(f"firma: {changed}", file=sys.stderr)
    own = load_identity(identity, passphrase_from(passphrase_file))
    setup = Setup(
        agreed, own, data, state, listen, resume, device, sends, verify_gate, metrics,
        begin_with, model, app, toml_values(node_config, "--node-config"),
        DiskBudget(None if disk is None else int(disk * 1e6)), sys.stderr if log_json else None,
        _sharing(share_results),
    )  # fmt: skip
    if log_json:
        import warnings

        warnings.showwarning = lambda message, *_, **__: _log_line("warning", "warning", str(message))
    try:
        outcome = _run(setup, json, page)
    except BadInput as error:
        if not log_json:
            raise
        _log_line("error", "failed", str(error))
        raise typer.Exit(2) from None
    _finish(setup, outcome, json)


def _sharing(text: str) -> "Sharing":
    from typing import cast

    from firma.peer.ring_file import Sharing

    if text not in get_args(Sharing):
        raise BadInput(f"--share-results {text!r}: must be {', '.join(get_args(Sharing)[:-1])} or classes")
    return cast("Sharing", text)


def _log_line(level: str, event: str, text: str) -> None:
    """A line on stderr as those of the log are, for what is said when the log is not open."""
    import json as encoder
    import time

    line = {"time": round(time.time(), 3), "level": level, "event": event, "says": text}
    print(encoder.dumps(line), file=sys.stderr)


def _run(setup: "Setup", quiet: bool, page: str | None = None) -> "Outcome":
    """Drive the node; each way to stop has its sentence and its exit code."""
    import signal
    from contextlib import nullcontext
    from functools import partial

    import torch

    from firma.peer.runtime.checkpoint import latest, participation
    from firma.peer.runtime.events import PeerLost
    from firma.peer.runtime.metrics import Registry, RoundMetrics, node_metrics, serving
    from firma.peer.runtime.node import Node
    from firma.peer.runtime.participation import sentence, spans

    registry, rounds = Registry(), RoundMetrics(setup.ring)

    def show(report: "RoundReport") -> None:
        rounds.note(report)
        if not quiet:
            typer.echo(_line(report))

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def notice(text: str) -> None:
        if setup.log_to is None:  # else it is a line of the log
            print(f"firma: {text}", file=sys.stderr)

    def say(text: str) -> None:
        print(f"firma: {text}", file=sys.stderr) if setup.log_to is None else _log_line("error", "ended", text)

    signal.signal(signal.SIGTERM, stop)
    if setup.device == "cpu":
        torch.set_num_threads(1)  # products are the compiled kernels'; for blending, threads only wait for each other
    try:
        with (
            serving(registry, setup.metrics) if setup.metrics is not None else nullcontext(),
            _page(setup, page) as site,
        ):
            node = Node(setup, show, notice)
            registry.register(rounds.collect, partial(node_metrics, node))
            site.attach(node)
            return node.run()
    except PeerLost as error:
        why, code = str(error), LOST
    except KeyboardInterrupt:
        why, code = "interrupted", 130
    done = latest(setup.state)
    if done:
        told = sentence(spans(participation(setup.state), setup.ring.names), setup.ring.names)
        say(f"took part: {told}")
    say(f"{why}; {done} rounds are saved in {setup.state}; continue with --resume")
    raise typer.Exit(code)


@contextmanager
def _page(setup: "Setup", address: str | None) -> "Iterator[SitePage]":
    """This site's page, served if an address was given; whoever has it open is shown the end before it closes."""
    import time

    from firma.page.server import serving
    from firma.peer.runtime.site_page import SitePage

    site = SitePage(setup.state)
    if address is None:
        yield site
        return
    with serving(site, address) as served:
        said = f"page: {served.url}"
        print(f"firma: {said}", file=sys.stderr, flush=True) if setup.log_to is None else _log_line(
            "info", "page", said
        )
        yield site
        time.sleep(_LAST_LOOK)


def _line(report: "RoundReport") -> str:
    weights = " ".join(f"{name} {weight:.3f}" for name, weight in report.weights.items()) or "by number of samples"
    return (
        f"round {report.number}/{report.rounds}  ring {'-'.join(report.ring)}  weights {weights}  "
        f"{TITLES[report.main]} {report.accuracy:.4f}  sent {report.sent / 1000:,.1f} kB  {report.seconds:.2f} s "
        f"(training {report.training:.2f} s)"
    )


def _finish(setup: "Setup", outcome: "Outcome", json: bool) -> None:
    import json as encoder

    from firma.atomic_files import write_whole
    from firma.cli.console import print_json
    from firma.peer.runtime.participation import sentence
    from firma.peer.runtime.round_loop import plain_metrics

    document: dict[str, Any] = {
        "federation": setup.ring.federation, "method": setup.ring.method, "task": setup.ring.task.kind,
        "history": list(outcome.history), "metrics": plain_metrics(outcome.metrics),
        "order": list(outcome.order), "bytes": outcome.sent, "seconds": outcome.seconds,
        "training_seconds": outcome.training, "processor_seconds": outcome.processor,
        "training_processor_seconds": outcome.training_processor, "refused": outcome.refused,
        "checkpoint": str(outcome.checkpoint), "participation": [span.as_json() for span in outcome.participation],
        "stopped_by": list(outcome.stopped_by), "results": outcome.results and outcome.results.as_json(),
    }  # fmt: skip
    write_whole(setup.state / "result.json", encoder.dumps(document, indent=1) + "\n", private=True)
    if json:
        print_json(document)
        return
    share = outcome.training / outcome.seconds if outcome.seconds else 0.0
    worked = outcome.training_processor / outcome.processor if outcome.processor else 0.0
    done = [accuracy for accuracy in outcome.history if accuracy is not None]
    last = done[-1] if done else float("nan")
    spent = f"{share:.0%} of {outcome.seconds:.1f} s spent training, {worked:.0%} of the processor time"
    done_or_stopped = "done"
    if outcome.stopped_by:
        who, rounds = ", ".join(outcome.stopped_by), setup.ring.rounds
        done_or_stopped = f"stopped after round {len(outcome.history)} of {rounds}, as {who} asked"
    typer.echo(f"{done_or_stopped}: {TITLES[MAIN[setup.ring.task.kind]]} {last:.4f}, {spent}")
    typer.echo(f"took part: {sentence(outcome.participation, setup.ring.names)}")
    if outcome.results is not None:
        typer.echo(f"results of the federation: {outcome.results.line()}")
        for line in outcome.results.lines():
            typer.echo(f"  {line}")
    typer.echo(f"Written: {setup.state}")
