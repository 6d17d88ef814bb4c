"""`firma ring-file`: what all members of a ring agree on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firma.cli.options import HEAD_HELP, MODEL_HELP, WIRE_HELP, Changes, Json, ModelChanges, changes, model_changes
from firma.cli.peer_options import needs_extra
from firma.errors import BadInput
from firma.methods import RING_METHOD

if TYPE_CHECKING:
    from firma.peer.ring_file import Ring


def ring_file(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="Ring file to check, or with --member to write.")],
    member: Annotated[
        list[Path] | None,
        typer.Option(help="A site.toml written by firma init; repeat for each member, in ring order."),
    ] = None,
    bandwidth: Annotated[
        Path | None,
        typer.Option(
            help="Mbit/s between the members, a CSV file with a row and a column for each --member: orders them so "
            "that the slowest link of the ring is as fast as possible."
        ),
    ] = None,
    renews: Annotated[
        Path | None,
        typer.Option(
            metavar="STATE",
            help="State folder of a ring that has ended early: write the same ring with new certificates or addresses "
            "(--member), to continue after its last round.",
        ),
    ] = None,
    after: Annotated[
        int | None, typer.Option(min=1, help="With --renews: the round to continue after. Default: the last one there.")
    ] = None,
    federation: Annotated[str, typer.Option(help="Name of the federation; use each name once.")] = "",
    method: Annotated[
        str | None,
        typer.Option(
            help="A method on a ring or a graph that shares extractors only. Default: a robust one where members may "
            f"lie (--insiders), else {RING_METHOD}."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Number of rounds.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of initial weights and batches.")] = 0,
    shape: Annotated[str, typer.Option(help="Shape of one input, such as 28x28.")] = "",
    labels: Annotated[str, typer.Option(help="All labels, separated by commas, or the number of classes.")] = "",
    columns: Annotated[
        str,
        typer.Option(
            help="Names of the features of a table, in order, separated by commas, each with its type if that is "
            "agreed: age:integer,weight:number,smoker:binary; replaces --shape. A site whose columns are in another "
            "order is put right, one that lacks some or has other types is refused."
        ),
    ] = "",
    columns_of: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Take names, types and order of the columns from this table, and no value, in place of --columns; "
            "FILE:COLUMN names its label column.",
        ),
    ] = "",
    task: Annotated[
        str,
        typer.Option(
            help="classification, multi-label or regression; --labels then names the labels or the numbers to predict."
        ),
    ] = "classification",
    edges: Annotated[
        str, typer.Option(help="Values that cut a regression target into classes, to order the ring: 10,20,50.")
    ] = "",
    scale: Annotated[float, typer.Option(help="Factor by which byte inputs are multiplied.")] = 1 / 255,
    model: Annotated[str, typer.Option(help=f"{MODEL_HELP} Every site must have its code.")] = "mlp",
    model_set: ModelChanges = None,
    head: Annotated[str, typer.Option(help=HEAD_HELP)] = "",
    dtype: Annotated[
        str, typer.Option(help="What the model reads: float32, or int64 for tokens. Default: as the model requires.")
    ] = "",
    flower: Annotated[
        Path | None,
        typer.Option(
            help="A Flower app in place of --shape and --labels: its flower.toml, or the folder that holds it."
        ),
    ] = None,
    proportions: Annotated[
        str, typer.Option(help="What members publish about their classes: plain, noisy or none.")
    ] = "plain",
    wire: Annotated[str, typer.Option(help=f"{WIRE_HELP} A site may choose another for its own messages.")] = "float32",
    patience: Annotated[float, typer.Option(help="Seconds of silence after which a neighbour is left out.")] = 60.0,
    gathering: Annotated[float, typer.Option(help="Seconds within which all members must have appeared.")] = 600.0,
    insiders: Annotated[
        int | None,
        typer.Option(help="Members that may lie without harm to the agreement. Default: 1 of four or more, else 0."),
    ] = None,
    quorum: Annotated[int, typer.Option(help="Members without which the ring pauses; 0: as few as agree safely.")] = 0,
    summary: Annotated[
        str,
        typer.Option(
            metavar="none|accuracy|classes",
            help="What each site may choose to tell all members about its results (firma join --share-results): "
            "nothing, its accuracy and number of test samples, or also how many of them are of each class.",
        ),
    ] = "none",
    set_: Changes = None,
    json: Json = False,
) -> None:
    """Write a ring file from the members' site.toml files, or check one and show what it says, without signing it.

    Example: firma ring-file ring.toml --member a/site.toml --member b/site.toml --federation trial
    --shape 8x8 --labels 10
    """
    needs_extra()
    from firma.cli.agreed_file import ring_document, show_ring
    from firma.cli.console import print_json
    from firma.peer.agreed_model import stated
    from firma.peer.ring_file import checked, read_ring, read_site

    if not member:
        _refuse_options(context, "--member", ("path", "json"))
    if member and path.exists():
        raise BadInput(f"ring file {str(path)!r} already exists; choose another name")
    if renews is not None and member:
        _refuse_options(context, "", ("path", "json", "member", "renews", "after"))
        _write_ring(path, _renewed(renews, member, after))
    elif after is not None:
        raise BadInput("--after requires --renews")
    elif member:
        if len(member) < 2:
            raise BadInput("--member must be given at least twice: a ring has two or more members")
        settings, parameters = changes(set_), model_changes(model_set)
        if flower is not None:
            if (
                shape
                or columns
                or columns_of
                or labels
                or model != "mlp"
                or parameters
                or head
                or dtype
                or edges
                or task != "classification"
            ):
                raise BadInput(
                    "--flower cannot be combined with --shape, --columns, --columns-of, --labels, --task, --edges, "
                    "--model, --model-set, --head and --dtype: the app has its own data and model"
                )
            learnt: dict[str, Any] = {"flower": _app(flower)}
        else:
            if model == "mlp":  # its sizes are settings of the run
                settings, parameters = settings | parameters, {}
            features, types = _columns(columns, columns_of)
            agreed = {
                "shape": _shape(shape or str(len(features) or "")), "columns": features, "types": types,
                "labels": _labels(labels), "scale": scale, "model": model, "model_set": parameters, "head": head,
                "kind": task, "edges": _edges(edges),
            } | ({"dtype": dtype} if dtype else {})  # fmt: skip
            learnt = {"task": stated(agreed, seed)}
        values = {
            "federation": federation, "rounds": rounds, "seed": seed, "proportions": proportions,
            "wire": wire, "patience": patience, "gathering": gathering, "quorum": quorum, "set": settings,
            "summary": summary,
            **learnt, **({} if insiders is None else {"insiders": insiders}),
            **({} if method is None else {"method": method}),
            "members": [read_site(each).model_dump() for each in _by_bandwidth(member, bandwidth, method)],
        }  # fmt: skip
        _write_ring(path, checked(values))
    if json:
        print_json(ring_document(path, read_ring(path)))
        return
    show_ring(path, read_ring(path))
    typer.echo(f"Every member accepts it with: firma accept {path}")


def _by_bandwidth(member: list[Path], bandwidth: Path | None, method: str | None) -> list[Path]:
    """The members in the order of a ring whose slowest link is as fast as possible, if bandwidths are known."""
    from firma.method_lookup import lookup
    from firma.mixing.bandwidth import by_bandwidth, read_bandwidth

    if bandwidth is None:
        return member
    if method is not None and (order := lookup(method).order) != "given":
        raise BadInput(f"--bandwidth orders the members, but method {method!r} has order = {order!r}; add order=given")
    speeds = read_bandwidth(bandwidth)
    if len(speeds) != len(member):
        raise BadInput(f"--bandwidth: a table for {len(speeds)} members, but --member names {len(member)}")
    return [member[place] for place in by_bandwidth(speeds)]


def _refuse_options(context: typer.Context, needed: str, allowed: tuple[str, ...]) -> None:
    """Without members a ring file is only shown, and a renewed one is the same ring: no option must be ignored."""
    options = {each.name: each.opts[0] for each in context.command.params if each.name not in (None, *allowed)}
    sources = {name: context.get_parameter_source(str(name)) for name in options}
    given = [options[name] for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given and needed:
        raise BadInput(
            f"{given[0]} requires {needed}: without it a ring file is only shown; to change one, edit it or write "
            "another, and agree on its digest again"
        )
    if given:
        raise BadInput(f"{given[0]} cannot be combined with --renews: only certificates and addresses may change")


def _write_ring(path: Path, ring: "Ring") -> None:
    from firma.atomic_files import write_whole
    from firma.peer.ring_file import ring_toml

    try:
        write_whole(path, ring_toml(ring))
    except OSError as error:
        raise BadInput(f"ring file {str(path)!r}: cannot write there ({error.strerror})") from None


def _renewed(state: Path, member: list[Path], after: int | None) -> "Ring":
    """The ring of a state folder with these members' new certificates and addresses."""
    from firma.peer.ring_file import read_ring, read_site, renewed
    from firma.peer.runtime.checkpoint import latest

    done = latest(state)
    if not done:
        raise BadInput(f"--renews {str(state)!r}: no round is completed there, so there is nothing to continue")
    if after is not None and after > done:
        raise BadInput(f"--after {after}: state folder {str(state)!r} has {done} rounds only")
    return renewed(read_ring(state / "ring.toml"), [read_site(each) for each in member], after or done)


def _columns(names: str, table: str) -> tuple[list[str], list[str]]:
    """The features of a table in order and their types, as named on the command line or as a file has them."""
    from typing import get_args

    from firma.peer.ring_file import ColumnType
    from firma.peer.runtime.site_data import column_types

    if names and table:
        raise BadInput("--columns cannot be combined with --columns-of")
    if not table:
        given = [name.strip().rpartition(":") for name in names.split(",")] if names else []
        split = [(name, kind) if name and kind in get_args(ColumnType) else (f"{name}{colon}{kind}", "")
                 for name, colon, kind in given]  # fmt: skip
        if any(kind for _, kind in split) and not all(kind for _, kind in split):
            untyped = next(name for name, kind in split if not kind)
            raise BadInput(f"--columns: {untyped!r} has no type, but others have; write {untyped}:number, for example")
        return [name for name, _ in split], [kind for _, kind in split if kind]
    from firma.data.dataset import load_dataset

    found = load_dataset(table, one_class=True)
    if not found.columns:
        raise BadInput(f"--columns-of {table!r}: its columns have no names; pass a .csv or .parquet file, or --columns")
    return list(found.columns), list(column_types(found))


def _app(flower: Path) -> dict[str, object]:
    """A Flower app with the hashes of its files."""
    from firma.flower.app_code import code_files, importable
    from firma.flower.description import read

    app = read(flower)
    importable(flower if flower.is_dir() else flower.parent)
    return app.model_dump(mode="json") | {"files": code_files(app.app)}


def _shape(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split("x")]
    except ValueError:
        raise BadInput(f"--shape {text!r}: must be numbers separated by x, such as 28x28") from None


def _edges(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")] if text else []
    except ValueError:
        raise BadInput(f"--edges {text!r}: must be numbers separated by commas, such as 10,20,50") from None


def _labels(text: str) -> list[str]:
    return [str(n) for n in range(int(text))] if text.isdigit() else [each.strip() for each in text.split(",")]
