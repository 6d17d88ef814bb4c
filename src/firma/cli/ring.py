"""`firma ring`: what ordering the ring saves, and how fast it mixes."""

from typing import Annotated

import typer

from firma.cli.options import Changes, Clients, Dataset, Json, Preset, Scenario, Seed, changes
from firma.methods import DEFAULT_METHOD


def ring(
    dataset: Dataset = "digits",
    scenario: Scenario = None,
    clients: Clients = None,
    preset: Preset = "recommended",
    method: Annotated[str, typer.Option(help="The ring method whose passes and retention are used.")] = DEFAULT_METHOD,
    seed: Seed = 0,
    set_: Changes = None,
    json: Json = False,
) -> None:
    """Show the ring: its cost as given and after 2-opt, and how much anyone hears of anyone.

    The mixing figures are those of the last round, when a client keeps least of itself, with every neighbour past
    the gate and equally accurate.
    """
    from rich.table import Table

    from firma.cli.console import out, print_json
    from firma.ring_report import ring_report

    report = ring_report(dataset, scenario, method, clients, preset, changes(set_), seed)
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
    table.add_row("passes a round", str(report["passes"]))
    table.add_row("spectral radius, one pass", f"{report['spectral_radius_pass']:.4f}")
    table.add_row("spectral radius, whole round", f"{report['spectral_radius_round']:.4f}")
    table.add_row("smallest influence", f"{report['min_influence']:.2e}")
    out.print(table)
