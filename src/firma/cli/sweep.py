"""`firma sweep`: run any grid of runs; continues where it was interrupted."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from firma.cli import completion
from firma.cli.live import Live, Page, command_words, live_page
from firma.cli.options import ENGINE_HELP, Address, Json
from firma.settings import EngineName

if TYPE_CHECKING:
    from firma.sweep.cells import Cell
    from firma.sweep.grid import Grid
    from firma.sweep.runner import FailedCell


def sweep(
    grid: Annotated[Path, typer.Argument(help="TOML file; its keys are the options of firma run, and may be lists.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Results folder; runs that it already contains are not run again. "
            "Default: the key out of the file, else results/NAME for NAME.toml."
        ),
    ] = None,
    only: Annotated[
        str,
        typer.Option(
            metavar="PATTERN",
            help="Only runs that all words match, such as 'method=fedavg seed=0' or 'rate=0.*'; --dry-run lists names.",
        ),
    ] = "*",
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds, instead of the file's.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds, instead of the file's.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of clients trained in parallel. Default: one per core.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help=f"{ENGINE_HELP} On ray, each run uses one core. Default: simulation.",
            autocompletion=completion.words(*get_args(EngineName)),
        ),
    ] = None,
    address: Address = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="List the runs that are missing, and their number, without running them.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on stderr.")] = False,
    live: Live = False,
    page: Page = None,
    json: Json = False,
) -> None:
    """Run a grid of methods, data sets, scenarios, models, settings and seeds, described in a TOML file.

    The keys of the file are the options of firma run. A list is an axis, and every combination is run; entries of [set]
    may be lists as well. Combinations that are no product go into [[grid]] tables: each is a product of its own, on top
    of the keys above it.

    ```
    dataset = ["digits", "data/mine.csv"]
    scenario = ["iid", "dir-0.1"]
    seeds = 5                        # 0 to 4; or a list of seeds
    [[grid]]
    method = ["local", "fedavg"]
    [[grid]]
    method = "fibfl++"
    set = {rate = [0.001, 0.003]}
    ```

    The sweep can be interrupted at any time; the same command continues from there. A run that fails is reported at the
    end, with exit code 1, and does not stop the others. Next: firma report FOLDER.

    Example: firma sweep grid.toml --dry-run, then firma sweep grid.toml --out results/mine
    """
    from firma.cli.console import only_results_on_stdout, print_json
    from firma.sweep.grid import read_grid, select
    from firma.sweep.store import GRID_FILE, missing

    changes = {"engine": engine, "address": address, "workers": workers, "rounds": rounds, "seeds": seeds}
    with only_results_on_stdout(json):
        found = read_grid(grid, {name: value for name, value in changes.items() if value is not None})
    wanted = select(found.cells, only)
    own = grid.parent if grid.name == GRID_FILE else Path("results") / grid.stem
    folder = out or found.out or own
    if dry:
        _list(missing(wanted, folder), wanted, found, json)
        return
    _say_same(found)
    with only_results_on_stdout(json):
        left, failed = _run(wanted, folder, found.execution, grid, (live or page is not None, page), quiet)
    if json:
        names = {cell.cell.name: cell.error for cell in failed}
        new = {cell.name for cell in left}
        runs = [
            {"name": cell.name, "status": "failed" if cell.name in names else "run" if cell.name in new else "existed"}
            | ({"error": names[cell.name]} if cell.name in names else {})
            for cell in wanted
        ]
        print_json({"out": str(folder), "runs": runs})
    else:
        _summarise(wanted, left, failed, folder)
    if failed:
        raise typer.Exit(1)


def _run(
    wanted: "Sequence[Cell]",
    folder: Path,
    execution: Mapping[str, Any],
    grid: Path,
    shown: tuple[bool, str | None],
    quiet: bool,
) -> "tuple[list[Cell], list[FailedCell]]":
    """Run what is missing: the cells that were left to run, and those of them that failed."""
    from firma.atomic_files import write_whole
    from firma.cli.sweep_progress import print_interrupted, tracked
    from firma.live_log import session
    from firma.sweep.runner import FailedCell, check_data, sweep_cells, sweep_cells_on_ray, sweep_execute
    from firma.sweep.store import GRID_FILE, copy_between_presets, missing, writing

    on_ray = execution.get("engine") == "ray"
    own = {name: value for name, value in execution.items() if name not in ("engine", "address")}
    failed: list[FailedCell] = []
    with writing(folder):
        write_whole(folder / GRID_FILE, grid.read_text(encoding="utf-8"))
        copy_between_presets(wanted, folder)
        left = missing(wanted, folder)
        check_data(left)
        written = 0
        name = f"Sweep {grid.stem}: {_runs(len(wanted))}, {len(wanted) - len(left)} of them from before"
        told = session(folder, name, command_words(), len(left))
        try:
            with live_page(folder, *shown, told), tracked(left, len(wanted), quiet) as tracker:
                finished = (
                    sweep_cells_on_ray(left, folder, tracker.start, execution.get("address"))
                    if on_ray and left
                    else sweep_cells(left, folder, tracker.start, tracker.round, sweep_execute(own, folder))
                )
                for done in finished:
                    if isinstance(done, FailedCell):
                        failed.append(done)
                        tracker.fail(done)
                    else:
                        written += 1
                        tracker.finish(done)
        except KeyboardInterrupt:
            print_interrupted(written, len(left))
            raise typer.Exit(130) from None
    return left, failed


def _list(left: "Sequence[Cell]", wanted: "Sequence[Cell]", grid: "Grid", json: bool) -> None:
    """What would be run, and how many that are."""
    from firma.cli.console import out, print_json

    if json:
        print_json({"missing": [cell.name for cell in left], "runs": len(wanted)})
        return
    for cell in left:
        out.print(cell.name, soft_wrap=True, highlight=False, markup=False)
    _say_same(grid)
    existed = len(wanted) - len(left)
    out.print(f"{_runs(len(left))} to do" + (f", {existed} of {len(wanted)} already exist" if existed else ""))


def _say_same(grid: "Grid") -> None:
    """Which runs are not run because another one is the same."""
    from firma.cli.console import err

    for name, first in grid.same:
        err.print(f"{name}: the same as {first}, and run once", soft_wrap=True, highlight=False, markup=False)


def _summarise(wanted: "Sequence[Cell]", left: "Sequence[Cell]", failed: "Sequence[FailedCell]", folder: Path) -> None:
    """What was done, what failed and why, and what to do next."""
    from firma.cli.console import err, out

    for each in failed:
        err.print(f"firma: {each.cell.name}: {each.error}", soft_wrap=True, highlight=False, markup=False)
    existed = f"{len(wanted) - len(left)} already existed"
    trouble = f", {len(failed)} failed (run the same command again to retry)" if failed else ""
    out.print(
        f"{_runs(len(left) - len(failed))} finished, {existed}{trouble}; results are in {folder}. "
        f"Next: firma report {folder}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"
