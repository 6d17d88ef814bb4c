"""Options that several commands share, and how their values are read."""

from typing import Annotated, Any

import typer

from firma.errors import BadInput

DATASET_HELP = "digits, mnist, fashion-mnist, cifar10, or a file: PATH.npz, PATH.csv, PATH.parquet (PATH.csv:LABEL)."
SCENARIO_HELP = (
    "iid, dir-ALPHA, skew-K, quantity-ALPHA, rotate-DEGREES or natural. "
    "Default: natural where the data name clients, else skew-1."
)
ENGINE_HELP = (
    "simulation (default): in this process; ray: on a Ray cluster, whose workers take some ten seconds to start. "
    "Needs pip install 'firma[ray]'."
)
WIRE_HELP = (
    "How what is shared is written in messages: float32 (default), bfloat16 (half the bytes) or int8 (a quarter)."
)
Dataset = Annotated[str, typer.Option(help=DATASET_HELP)]
Scenario = Annotated[str | None, typer.Option(help=SCENARIO_HELP)]
Clients = Annotated[int | None, typer.Option(help="How many clients; by default as the paper for this data set.")]
Preset = Annotated[str, typer.Option(help="paper: its numbers, sound switches; published: all as in its study.")]
Seed = Annotated[int, typer.Option(help="Seed of initial weights and batches.")]
Address = Annotated[
    str | None,
    typer.Option(help="The Ray cluster to run on, HOST:PORT or auto. Default: RAY_ADDRESS, else one is started here."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as rate=0.001; repeatable."),
]


def changes(pairs: list[str] | None) -> dict[str, Any]:
    """`["rate=0.001"]` as a dictionary."""
    settings = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise BadInput(f"--set {pair!r}: write KEY=VALUE, such as rate=0.001")
        settings[key] = value
    return settings
