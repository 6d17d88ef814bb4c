"""`firma flower`: simulate a Flower app with FIRMA's methods."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firma.cli.options import WIRE_HELP, Changes, Json, changes, toml_values
from firma.errors import BadInput

if TYPE_CHECKING:
    from firma.engines.engine import RoundOutcome
    from firma.flower.simulate import OnRound
    from firma.results import Result

_APP = "A Flower app: its flower.toml or the folder that holds it, or the ClientApp as MODULE:ATTRIBUTE."
_METHOD = "A method with joint training, such as fedavg or rdfl, or fibfl:training=joint,persistent=no; repeat."
_INITIAL = "What the model starts from, as MODULE:ATTRIBUTE: a torch module or its class, arrays, or a function."
_HEAD = "Array that stays private, by name or pattern such as fc.*; repeat."


def flower(
    app: Annotated[str, typer.Argument(help=_APP)],
    method: Annotated[list[str], typer.Option(help=_METHOD)],
    clients: Annotated[int, typer.Option(help="Number of clients, the app's num-partitions.", min=1)] = 5,
    rounds: Annotated[int, typer.Option(help="Number of rounds.", min=1)] = 3,
    seed: Annotated[int, typer.Option(help="Seed of initial weights and of the app's randomness.", min=0)] = 0,
    initial: Annotated[str | None, typer.Option(help=_INITIAL)] = None,
    head: Annotated[list[str] | None, typer.Option(help=_HEAD)] = None,
    run_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Change context.run_config; repeat.")
    ] = None,
    train_config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Change the configuration of each training; repeat.")
    ] = None,
    accuracy: Annotated[str | None, typer.Option(help="Metric of evaluate that is the test accuracy.")] = None,
    set_: Changes = None,
    wire: Annotated[str, typer.Option(help=WIRE_HELP)] = "float32",
    audit: Annotated[bool, typer.Option("--audit", help="Record every message; say whether a head was sent.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for results and trained arrays; must not exist.")] = None,
    json: Json = False,
) -> None:
    """Train an unchanged Flower ClientApp with methods of FIRMA, without a server. See docs/flower.md.

    Example: firma flower examples/flower_app --method fedavg --method fibfl:training=joint,persistent=no
    """
    from firma.cli.console import print_json
    from firma.encoding import checked_wire
    from firma.flower.simulate import run

    if out is not None and out.exists():
        raise BadInput(f"--out {str(out)!r} already exists; choose another folder")
    results = []
    for name in method:
        result = run(
            app, name, clients, rounds, seed, initial=initial, head=_entries(head), accuracy=accuracy,
            run_config=toml_values(run_config, "--run-config"),
            train_config=toml_values(train_config, "--train-config"),
            settings=changes(set_), wire=checked_wire(wire), audit=audit,
            on_round=None if json else _show(name, rounds),
        )  # fmt: skip
        results.append(result)
        if not json:
            typer.echo(_line(result))
        if out is not None:
            result.save(out / name.replace(":", "-"))
    if json:
        print_json({"results": [result.as_dict() for result in results]})
    elif out is not None:
        typer.echo(f"Written: {out}")


def _show(name: str, rounds: int) -> "OnRound":
    def show(outcome: "RoundOutcome") -> None:
        typer.echo(f"{name}  round {outcome.number + 1}/{rounds}  accuracy {outcome.accuracies.mean():.4f}")

    return show


def _line(result: "Result") -> str:
    metrics = result.metrics
    text = f"{result.method}: accuracy {metrics['mean_accuracy']:.4f}, worst client {metrics['worst_client']:.4f}"
    if result.audit is not None:
        text += f", head {'private' if result.audit['head_private'] else 'SENT'} in {result.audit['messages']} messages"
    return text


def _entries(head: list[str] | None) -> list[int | str] | None:
    """Names and patterns; a whole number is an index."""
    return [int(each) if each.lstrip("-").isdigit() else each for each in head] if head else None
