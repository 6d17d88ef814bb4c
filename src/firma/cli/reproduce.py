"""`firma reproduce`: run the paper's study, or a part of it; continues where it was interrupted."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from firma.cli import completion
from firma.cli.live import Live, Page, command_words, live_page
from firma.cli.options import ENGINE_HELP, Address, Changes, Json, changes
from firma.errors import BadInput, suggestion
from firma.settings import EngineName

if TYPE_CHECKING:
    from firma.sweep.cells import Cell

Several = list[str] | None
ENGINES = get_args(EngineName)


def reproduce(
    dataset: Annotated[
        Several,
        typer.Option(
            help="digits, mnist, fashion-mnist, cifar10 or all; repeatable.", autocompletion=completion.study_datasets
        ),
    ] = None,
    scenario: Annotated[
        Several,
        typer.Option(help="A scenario; repeatable. Default: the paper's seven.", autocompletion=completion.scenarios),
    ] = None,
    method: Annotated[
        Several,
        typer.Option(
            help="A method, or one with changed columns; repeatable. Default: the seven of the paper's study.",
            autocompletion=completion.methods,
        ),
    ] = None,
    preset: Annotated[
        Several,
        typer.Option(
            help="published, paper or recommended; repeatable. Default: published and paper.",
            autocompletion=completion.presets,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds N; they are 0 to N-1.")] = 3,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds. Default: as in the paper.")] = None,
    clients: Annotated[int | None, typer.Option(min=1, help="Number of clients. Default: as in the paper.")] = None,
    only: Annotated[
        str,
        typer.Option(
            help="Only cells whose name contains this text or matches this pattern: 'digits/*/fedavg/paper/0'."
        ),
    ] = "*",
    ablations: Annotated[
        bool,
        typer.Option(
            "--ablations", help="Also run ablations: each part of the paper's method switched off, or on, alone."
        ),
    ] = False,
    out: Annotated[Path, typer.Option(help="Results folder; cells that it already contains are not run again.")] = (
        Path("results/study")
    ),
    set_: Changes = None,
    engine: Annotated[
        str,
        typer.Option(
            help=f"{ENGINE_HELP} On ray, each cell runs on one core.", autocompletion=completion.words(*ENGINES)
        ),
    ] = "simulation",
    address: Address = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="List the cells that would be run, without running them.")
    ] = False,
    rings: Annotated[
        bool,
        typer.Option(
            "--rings", help="Only order the rings of these cells, without training, and write what 2-opt saves."
        ),
    ] = False,
    live: Live = False,
    page: Page = None,
    json: Json = False,
) -> None:
    """Run the paper's study: data sets x scenarios x methods x presets x seeds.

    It can be interrupted at any time; the same command continues from there. `firma report` then writes the tables.

    Example: firma reproduce --dataset digits --seeds 3 --out results/study
    """
    from firma.cli.console import out as console
    from firma.cli.console import print_json
    from firma.cli.sweep_progress import print_interrupted, tracked
    from firma.live_log import session
    from firma.paper.grid import Choice, cells
    from firma.sweep.runner import run_cells, run_cells_on_ray, simulate
    from firma.sweep.store import copy_between_presets, missing, writing

    choice = Choice(
        dataset or (), scenario or (), method or (), preset or (), seeds, rounds, clients, only, ablations,
        changes(set_),
    )  # fmt: skip
    if engine not in ENGINES:
        raise BadInput(f"engine = {engine!r}: must be 'simulation' or 'ray'{suggestion(engine, ENGINES)}")
    if address is not None and engine != "ray":
        raise BadInput("--address requires --engine ray")
    wanted = cells(choice)
    if dry:
        names = [cell.name for cell in missing(wanted, out)]
        if json:
            print_json({"results": str(out), "cells": names})
        else:
            for name in names:
                console.print(name, soft_wrap=True, highlight=False)
        return
    if rings:
        _order_rings(wanted, out, json)
        return
    with writing(out):
        copied = copy_between_presets(wanted, out)
        left = missing(wanted, out)
        written = 0
        try:
            told = session(out, f"The paper's study: {len(wanted)} cells", command_words(), len(left))
            with live_page(out, live or page is not None, page, told), tracked(left, len(wanted)) as tracker:
                finished = (
                    run_cells_on_ray(left, out, tracker.start, address)
                    if engine == "ray" and left
                    else run_cells(left, out, tracker.start, tracker.round, partial(simulate, live=out))
                )
                for done in finished:
                    written += 1
                    tracker.finish(done)
        except KeyboardInterrupt:
            print_interrupted(written, len(left))
            raise typer.Exit(130) from None
    existing = len(wanted) - len(left) - copied
    if json:
        print_json({"results": str(out), "run": written, "existed": existing, "copied": copied})
        return
    existed = f"{existing} already existed"
    same = f", {copied} copied from another preset with the same settings" if copied else ""
    console.print(
        f"{written} cells run, {existed}{same}; results are in {out}. Next: firma report {out}", soft_wrap=True
    )


def _order_rings(cells: "Sequence[Cell]", folder: Path, json: bool) -> None:
    """Write what 2-opt saves for every preset, data set and scenario of the cells, without training."""
    from firma.cli.console import out as console
    from firma.cli.console import print_json
    from firma.data.catalogue import SIZES
    from firma.sweep.ring_savings import order_rings, save_ring_orders
    from firma.sweep.store import writing

    if any(cell.settings or cell.clients != SIZES[cell.dataset].clients for cell in cells):
        raise BadInput(
            "--rings cannot be combined with --set or --clients; firma ring shows the ring of any federation"
        )
    with writing(folder):
        found = list(order_rings(cells))
        path = save_ring_orders(folder, found)
    if json:
        print_json({"results": str(folder), "rings": len(found), "written": [str(path)]})
        return
    console.print(f"{len(found)} rings ordered: {path}. Next: firma report {folder}", soft_wrap=True)
