"""`firma ring`: what 2-opt saves on a ring, and how fast the ring mixes."""

from typing import Annotated

import typer

from firma.cli import completion
from firma.cli.options import Changes, Clients, Dataset, Json, Participation, Preset, Scenario, Seed, changes
from firma.methods import DEFAULT_METHOD


def ring(
    dataset: Dataset = "digits",
    scenario: Scenario = None,
    clients: Clients = None,
    preset: Preset = "recommended",
    method: Annotated[
        str,
        typer.Option(
            help="A method with topology ring; its passes and retention are used.", autocompletion=completion.methods
        ),
    ] = DEFAULT_METHOD,
    participation: Participation = 1.0,
    seed: Seed = 0,
    set_: Changes = None,
    json: Json = False,
) -> None:
    """Show the cost of the ring before and after 2-opt, and how fast it mixes.

    Mixing is that of the last round, in which a client keeps the smallest share of its own parameters, provided that
    every neighbour passes the gate with the same accuracy.

    Example: firma ring --dataset digits --scenario dir-0.1
    """
    from rich.table import Table

    from firma.cli.console import print_json, print_table
    from firma.cli.reading import reading
    from firma.data.dataset import load_dataset
    from firma.ring_cost import ring_report

    with reading() as show:
        source = load_dataset(dataset, on_progress=show)
    report = ring_report(source, scenario, method, clients, preset, changes(set_), seed, participation)
    if json:
        print_json(report)
        return
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
    if "participants" in report:
        table.add_row("clients per round", str(report["participants"]))
    table.add_row("passes per round", str(report["passes"]))
    table.add_row("spectral radius, one pass", f"{report['spectral_radius_pass']:.4f}")
    table.add_row("spectral radius, whole round", f"{report['spectral_radius_round']:.4f}")
    table.add_row("smallest influence", f"{report['min_influence']:.2e}")
    print_table(table)
