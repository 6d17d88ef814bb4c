"""`firma topology`: how fast rings and graphs mix, what they send, and what an order of the ring saves."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from firma.cli import completion
from firma.cli.options import (
    MODEL_HELP,
    Changes,
    Clients,
    Dataset,
    Json,
    ModelChanges,
    Participation,
    Preset,
    Scenario,
    changes,
    model_changes,
)
from firma.errors import BadInput
from firma.method_lookup import lookup
from firma.methods import GRAPH_METHOD, GRAPHS, RING_METHOD


def topology(
    topology: Annotated[
        list[str] | None,
        typer.Option(
            help="A topology to compare, or all: ring, complete, torus, exponential, one-peer-exponential, regular, "
            "edges; repeatable. all leaves out edges, and what does not exist for so many clients. Without it, the "
            "ring of --method is shown with what 2-opt saves on it.",
            autocompletion=completion.topologies,
        ),
    ] = None,
    dataset: Dataset = "digits",
    scenario: Scenario = None,
    clients: Clients = None,
    preset: Preset = "recommended",
    method: Annotated[
        str | None,
        typer.Option(
            help=f"The method whose weights, passes and retention are used. Default: {RING_METHOD}; with --topology "
            f"{GRAPH_METHOD}. On a topology that is not its own it has Metropolis weights.",
            autocompletion=completion.methods,
        ),
    ] = None,
    graph: Annotated[Path | None, typer.Option(help="The edges of your own graph, for --topology edges.")] = None,
    bandwidth: Annotated[
        Path | None, typer.Option(help="Mbit/s between clients, a CSV file: also show the ring ordered by it.")
    ] = None,
    participation: Participation = 1.0,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of a random graph, and of the split with --set split_seed=none.")
    ] = 0,
    model: Annotated[str, typer.Option(help=MODEL_HELP, autocompletion=completion.models)] = "mlp",
    model_set: ModelChanges = None,
    set_: Changes = None,
    json: Json = False,
) -> None:
    """Show how fast a ring or a graph mixes, and what it sends; for a ring also its cost before and after 2-opt.

    Mixing is that of the last round, in which a client keeps the smallest share of its own parameters, provided that
    every neighbour passes the gate with the same accuracy.

    Example: firma topology --topology ring --topology exponential --clients 16
    """
    from firma.cli.console import only_results_on_stdout, print_json
    from firma.cli.reading import reading
    from firma.data.dataset import load_dataset

    row = lookup(method or (GRAPH_METHOD if topology else RING_METHOD))
    if not topology and row.topology in GRAPHS:
        topology = [row.topology]
    with reading() as show:
        source = load_dataset(dataset, on_progress=show)
    if not topology:
        from firma.ring_cost import ring_report

        given = changes(set_)
        report = ring_report(source, scenario, row.name, clients, preset, given, seed, participation, bandwidth)
        print_json(report) if json else _print_ring(report)
        return
    from firma.graphs import read_edges
    from firma.models.build import model_spec, run_settings
    from firma.settings import hyper_for
    from firma.topologies import COMPARED, elements_of, impossible, topology_report

    wanted = model_spec(model, model_changes(model_set))
    hyper = hyper_for(row, preset, run_settings(wanted, changes(set_)))
    edges = read_edges(graph) if graph is not None else ()
    count = source.clients if clients is None else clients
    with only_results_on_stdout(json):
        elements = elements_of(row, wanted, hyper, source)
    offered = [each for each in COMPARED if each not in topology] if "all" in topology else []
    left_out = impossible(row, offered, hyper, count, source.rounds, participation)
    if left_out and len(left_out) == len(offered):
        raise BadInput(next(iter(left_out.values())))
    asked = (each for name in topology for each in (COMPARED if name == "all" else (name,)))
    names = [each for each in dict.fromkeys(asked) if each not in left_out]
    found = topology_report(row, names, hyper, count, source.rounds, seed, elements, edges, participation)
    if json:
        report = {"method": row.name, "clients": count, "elements": elements, "topologies": found}
        print_json(report | ({"left_out": left_out} if left_out else {}))
    else:
        _print_topologies(f"{count} clients, {row.name}, {elements} numbers shared", found, left_out)


def _print_topologies(title: str, found: list[dict[str, Any]], left_out: Mapping[str, str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from firma.cli.console import out, print_table

    table = Table(title=title, box=SIMPLE_HEAD, padding=0)
    for heading in ("topology", "degree", "passes", "messages", "sent", "ρ, pass", "ρ, round", "influence"):
        table.add_column(heading, no_wrap=True, justify="left" if heading == "topology" else "right")
    for each in found:
        special = "" if each["weights"] == "metropolis" else f" ({each['weights']})"
        table.add_row(
            f"{each['topology']}{special}", str(each["degree"]), str(each["passes"]), str(each["messages"]),
            _size(each["bytes"]), f"{each['spectral_radius_pass']:.4f}", f"{each['spectral_radius_round']:.4f}",
            f"{each['min_influence']:.2e}",
        )  # fmt: skip
    print_table(table)
    out.print(
        "Messages and bytes are those of a round, all clients together. ρ is the spectral radius: what is left of the "
        "slowest disagreement; where links change from pass to pass, the mean over a cycle. Influence is the smallest "
        "weight of any client in any other after a round.",
        markup=False,
    )
    for name, why in left_out.items():
        out.print(f"Left out: {name} ({why}).", markup=False, highlight=False)


def _size(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _print_ring(report: dict[str, Any]) -> None:
    from rich.table import Table

    from firma.cli.console import print_table

    table = Table(
        "",
        "",
        title=f"Ring of {report['clients']} clients: {report['dataset']}, {report['scenario']}",
        show_header=False,
    )
    table.add_row(f"cost, identity ({report['ring_cost']})", f"{report['cost_identity']:.4f}")
    table.add_row("cost, 2-opt", f"{report['cost_optimised']:.4f}")
    table.add_row("saving", f"{report['saving_percent']:.1f} %")
    table.add_row("order", " ".join(str(client) for client in report["order"]))
    if "order_by_bandwidth" in report:
        table.add_row("order by bandwidth", " ".join(str(client) for client in report["order_by_bandwidth"]))
        table.add_row("slowest link, identity", f"{report['slowest_identity']:g} Mbit/s")
        table.add_row("slowest link, 2-opt", f"{report['slowest_optimised']:g} Mbit/s")
        table.add_row("slowest link, by bandwidth", f"{report['slowest_by_bandwidth']:g} Mbit/s")
    if "participants" in report:
        table.add_row("clients per round", str(report["participants"]))
    table.add_row("passes per round", str(report["passes"]))
    table.add_row("spectral radius, one pass", f"{report['spectral_radius_pass']:.4f}")
    table.add_row("spectral radius, whole round", f"{report['spectral_radius_round']:.4f}")
    table.add_row("smallest influence", f"{report['min_influence']:.2e}")
    print_table(table)
