"""`firma run`: train and compare methods."""

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firma.cli.options import DATASET_HELP, ENGINE_HELP, SCENARIO_HELP, WIRE_HELP, Address, Changes, Json, changes
from firma.errors import BadInput
from firma.settings import Hyper, Split

if TYPE_CHECKING:
    from firma.experiment import Config
    from firma.results import Result, Summary

_COLUMNS = {
    "mean accuracy": ("mean_accuracy", "{:.3f}"),
    "worst client": ("worst_client", "{:.3f}"),
    "Gini": ("gini", "{:.3f}"),
    "rounds to half": ("rounds_to_half_of_final", "{:.0f}"),
    "plateau σ": ("plateau_std", "{:.4f}"),
    "kB sent a round": ("bytes_per_round", "{:,.0f}"),
}
SETTINGS = (
    "**Settings for --set** (their values in the paper preset for fibfl++; `--json` shows those of a run)\n\n"
    + "\n\n".join(
        f"`{name}` = {field.default}: {field.description}"
        for kind in (Hyper, Split)
        for name, field in kind.model_fields.items()
    )
)


def run(
    config: Annotated[Path | None, typer.Argument(help="A TOML file with the same names as the options.")] = None,
    dataset: Annotated[str | None, typer.Option(help=f"{DATASET_HELP} Default: digits.")] = None,
    scenario: Annotated[str | None, typer.Option(help=SCENARIO_HELP)] = None,
    method: Annotated[list[str] | None, typer.Option(help="A method, or all; repeatable. Default: fibfl++.")] = None,
    clients: Annotated[int | None, typer.Option(help="How many clients. Default: as the paper.")] = None,
    rounds: Annotated[int | None, typer.Option(help="How many rounds. Default: as the paper.")] = None,
    seed: Annotated[int | None, typer.Option(help="The (first) seed. Default: 0.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds; the table shows mean ± deviation.")] = None,
    preset: Annotated[str | None, typer.Option(help="recommended (default), paper or published.")] = None,
    set_: Changes = None,
    device: Annotated[str | None, typer.Option(help="A torch device, such as cuda. Default: cpu.")] = None,
    workers: Annotated[int | None, typer.Option(help="Clients trained at a time. Default: one a core.")] = None,
    path: Annotated[str | None, typer.Option(help="auto (default): compiled where it can be; or autograd.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say how each method was trained.")] = False,
    audit: Annotated[bool, typer.Option("--audit", help="Pass every message on the record and judge it.")] = False,
    engine: Annotated[str | None, typer.Option(help=ENGINE_HELP)] = None,
    address: Address = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Save every round in this folder; the same command goes on where a killed one stopped."),
    ] = None,
    recover: Annotated[
        int | None,
        typer.Option(help="ray: rounds after which states are kept for a lost worker; 0: start over. Default: 1."),
    ] = None,
    wire: Annotated[str | None, typer.Option(help=WIRE_HELP)] = None,
    out: Annotated[Path | None, typer.Option(help="Write results.json and accuracy.png into this folder.")] = None,
    json: Json = False,
) -> None:
    """Train one or more methods on a data set dealt to clients, and compare them.

    Example: firma run --dataset digits --scenario dir-0.1 --method all --seeds 3 --out results/dir
    """
    from firma.cli.console import print_json
    from firma.experiment import config as checked
    from firma.results import check_writable, write_whole

    given = {
        "dataset": dataset, "scenario": scenario, "method": method, "clients": clients, "rounds": rounds, "seed": seed,
        "seeds": seeds, "preset": preset, "device": device, "workers": workers, "path": path,
        "audit": audit or None, "engine": engine, "address": address, "recover": recover, "wire": wire,
        "checkpoint": None if checkpoint is None else str(checkpoint),
    }  # fmt: skip
    values = _file(config) if config is not None else {}
    folder = out or (Path(values.pop("out")) if "out" in values else None)
    values |= {key: value for key, value in given.items() if value is not None}
    values["set"] = dict(values.get("set", {})) | changes(set_)
    chosen = checked(values)
    if folder is not None:
        check_writable(folder)
    try:
        results = _train(chosen)
    except KeyboardInterrupt:
        if chosen.checkpoint is None:
            raise
        _interrupted(chosen.checkpoint)
        raise typer.Exit(130) from None
    document = {"config": chosen.model_dump(), "results": [result.as_dict() for result in results]}
    if folder is not None:
        import json as encoder

        from firma.report.curves import curves

        write_whole(folder / "results.json", encoder.dumps(document, indent=1, allow_nan=False) + "\n")
        curves(results, folder / "accuracy.png")
    if json:
        print_json(document)
    else:
        _show(chosen, results, folder)
        if verbose:
            _show_paths(results)


def _file(path: Path) -> dict[str, Any]:
    """The options in a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"config = {str(path)!r}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"config = {str(path)!r}: not valid TOML ({error})") from None


def _train(chosen: "Config") -> "list[Result]":
    """All runs, behind a progress bar that counts rounds."""
    from firma.cli.console import progress
    from firma.data.dataset import load_dataset
    from firma.engines.federation import RoundOutcome
    from firma.experiment import run_all

    rounds = chosen.rounds or load_dataset(chosen.dataset).rounds
    with progress() as bar:
        waiting = "the first run on a machine compiles its kernels"
        if chosen.engine == "ray":
            waiting = "Ray and its workers take some ten seconds to start"
        task = bar.add_task("starting", total=rounds * len(chosen.method) * chosen.seeds, note=waiting)

        def on_round(name: str, seed: int, outcome: RoundOutcome) -> None:
            note = f"round {outcome.number + 1}: {outcome.accuracies.mean():.3f}"
            bar.update(task, advance=1, description=f"{name:8} seed {seed}", note=note)

        return list(run_all(chosen, on_round))


def _interrupted(folder: str) -> None:
    """One line on stderr: what is kept and how to go on."""
    from firma.cli.console import err

    what = f"the rounds that were done are kept in {folder}, the same command goes on from there"
    err.print(f"firma: interrupted; {what}", soft_wrap=True, highlight=False)


def _show(chosen: "Config", results: "list[Result]", folder: Path | None) -> None:
    """The comparison table and, where asked for, the audit's verdicts."""
    from rich.table import Table

    from firma.cli.console import out
    from firma.results import compare

    facts = results[0].config
    seeds = f", {chosen.seeds} seeds" if chosen.seeds > 1 else f", seed {chosen.seed}"
    title = f"{facts['dataset']}, {facts['scenario']}, {facts['clients']} clients, {facts['rounds']} rounds{seeds}"
    table = Table("method", title=f"{title} (preset {chosen.preset})")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for name, metrics in compare(results).items():
        table.add_row(name, *(_cell(metrics[key], form, key) for key, form in _COLUMNS.values()))
    out.print(table)
    if facts["dropped"]:
        dropped = ", ".join(map(str, facts["dropped"]))
        out.print(f"Clients with too few samples sat out: {dropped} (--set min_samples=1 lets all in).")
    for result in results:
        if result.audit is not None:
            out.print(_verdict(result.method, result.audit))
    if folder is not None:
        out.print(f"Written: {folder / 'results.json'}, {folder / 'accuracy.png'}", soft_wrap=True)


def _show_paths(results: "list[Result]") -> None:
    """How each run was trained and how long it took."""
    from firma.cli.console import out

    for result in results:
        out.print(f"{result.method}, seed {result.seed}: {result.path}; {result.seconds:.1f} s", soft_wrap=True)


def _cell(value: "Summary", form: str, key: str) -> str:
    """Mean, and ± deviation over seeds."""
    if value.mean is None:
        return "never"
    scale = 1000 if key == "bytes_per_round" else 1
    text = form.format(value.mean / scale)
    return text if value.deviation is None else f"{text} ± {form.format(value.deviation / scale)}"


def _verdict(method: str, audit: Any) -> str:
    """One line of the audit."""
    heads = "no head received" if audit["head_private"] else f"{audit['messages_with_head']} messages held a head"
    beyond = audit["messages_beyond_neighbours"]
    server = "neighbours only" if audit["server_free"] else f"{beyond} messages beyond ring neighbours"
    return f"audit {method}: {audit['messages']} messages, {heads}, {server}"
