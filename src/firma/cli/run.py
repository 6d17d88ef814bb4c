"""`firma run`: train and compare methods."""

from collections.abc import Iterator, Mapping
from inspect import Parameter, Signature
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firma.cli.live import Live, Page, command_words, live_folder, live_page
from firma.cli.options import Json, changes, model_changes, run_parameters
from firma.errors import BadInput, counted
from firma.run_config import from_options, read_toml
from firma.tasks.task import TITLES, TaskName

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from firma.experiment import Experiment
    from firma.results import Result
    from firma.statistics import Statistic

_FAIRNESS = {"worst client": ("worst_client", "{:.3f}"), "Gini": ("gini", "{:.3f}")}
_TRAFFIC = {"kB sent per round": ("bytes_per_round", "{:,.0f}")}
_COLUMNS: Mapping[TaskName, Mapping[str, tuple[str, str]]] = {
    "classification": {
        "mean accuracy": ("mean_accuracy", "{:.3f}"),
        **_FAIRNESS,
        "rounds to half": ("rounds_to_half_of_final", "{:.0f}"),
        "plateau σ": ("plateau_std", "{:.4f}"),
        **_TRAFFIC,
    },
    "multi-label": {
        "mean micro F1": ("mean_f1_micro", "{:.3f}"),
        "macro F1": ("mean_f1_macro", "{:.3f}"),
        "exact match": ("mean_exact_match", "{:.3f}"),
        "ROC AUC": ("mean_roc_auc", "{:.3f}"),
        **_FAIRNESS,
        **_TRAFFIC,
    },
    "regression": {
        "mean R²": ("mean_r2", "{:.3f}"),
        "MAE": ("mean_mae", "{:.4g}"),
        "RMSE": ("mean_rmse", "{:.4g}"),
        **_FAIRNESS,
        **_TRAFFIC,
    },
}
_MOST = 500_000_000  # bytes of models that are saved without being asked for
_SaveModels = Annotated[
    bool | None,
    typer.Option(
        "--save-models/--no-save-models",
        help="With --out, also write the trained models, for firma predict, evaluate and export. Default: if all of "
        "them together are smaller than 500 MB.",
    ),
]
_Path = Annotated[str | None, typer.Option("--path", hidden=True)]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also show the backend and the duration of each run.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on stderr.")]


def run(
    config: Annotated[Path | None, typer.Argument(help="TOML file; its keys are the names of the options.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write results.json, a figure (accuracy.png) and the models into this folder.")
    ] = None,
    save_models: _SaveModels = None,
    verbose: _Verbose = False,
    quiet: _Quiet = False,
    live: Live = False,
    page: Page = None,
    json: Json = False,
    path: _Path = None,
    **options: Any,  # one for each field of RunConfig: see the signature below
) -> None:
    """Train one or more methods on a data set that is split among clients, and compare them.

    Example: firma run --dataset digits --scenario dir-0.1 --method all --seeds 3 --out results/dir
    """
    from firma.atomic_files import check_writable
    from firma.cli.console import only_results_on_stdout
    from firma.cli.reading import reading
    from firma.experiment import resolve

    values = read_toml(config) if config is not None else {}
    written = values.pop("out", None)
    if not isinstance(written, str | None):
        raise BadInput(f"out = {written!r}: must be the path of a folder")
    folder = out or (Path(written) if written is not None else None)
    wanted = save_models if save_models is not None else _switch(values, "save_models")
    if wanted and folder is None:
        raise BadInput("--save-models requires --out, the folder to save them in")
    values = _merged(values, options, path)
    live = live or page is not None
    with only_results_on_stdout(json), reading() as show:
        experiment = resolve(from_options(values), show)
    _say_unused(experiment)
    if folder is not None:
        check_writable(folder)
    with live_folder(folder, live) as place, live_page(place, live, page, _session(experiment, place)):
        results: list[Result] = []
        try:
            with only_results_on_stdout(json):
                for result in _trained(_followed(experiment, place), quiet):
                    results.append(result)  # those before an error are kept
        except (KeyboardInterrupt, Exception) as error:
            if results:
                _report(experiment, results, folder, wanted, json, verbose)
            if results or not isinstance(error, BadInput):
                _answer(error, _kept(experiment, len(results), folder))
            raise
        _report(experiment, results, folder, wanted, json, verbose)


def _say_unused(experiment: "Experiment") -> None:
    """Name the settings that were stated although none of the methods uses them."""
    from firma.cli.console import err
    from firma.experiment.unused_settings import without_effect
    from firma.settings import settings

    rows = {run.method.name: run.method for run in experiment.runs}
    if unused := without_effect(settings(experiment.config.settings)[0], rows.values()):
        has, these = ("has", "that") if len(unused) == 1 else ("have", "those")
        whom = next(iter(rows)) if len(rows) == 1 else f"any of {', '.join(rows)}"
        err.print(
            f"firma: warning: {', '.join(unused)} {has} no effect on {whom}; docs/methods.md says what {these} are for",
            soft_wrap=True, highlight=False, markup=False,
        )  # fmt: skip


def _session(experiment: "Experiment", place: Path | None) -> "AbstractContextManager[None]":
    """The command's part of live.jsonl."""
    from contextlib import nullcontext

    from firma.live_log import session

    if place is None:
        return nullcontext()
    sizes = f"{counted(experiment.clients, 'client')}, {counted(experiment.rounds, 'round')}"
    data = f"{experiment.dataset.name}, {experiment.scenario}, {sizes}"
    return session(place, data, command_words(), len(experiment.runs))


def _followed(experiment: "Experiment", place: Path | None) -> "Experiment":
    """The experiment, with its progress written into a folder."""
    from dataclasses import replace

    return experiment if place is None else replace(experiment, config=replace(experiment.config, live=place))


def _report(
    experiment: "Experiment", results: "list[Result]", folder: Path | None, save: bool | None, json: bool, verbose: bool
) -> None:
    """Write and show what was found."""
    from firma.cli.console import print_json

    document = {
        "config": experiment.config.as_options(),
        "results": [result.as_dict() for result in results],
    }
    models = None
    if folder is not None:
        _write(document, results, folder)
        models = _write_models(results, folder, save)
    if json:
        print_json(document)
    else:
        _show(experiment, results, folder)
        if models is not None:
            from firma.cli.console import out as shown

            shown.print(f"Models: {models}, for firma predict, evaluate and export", soft_wrap=True, highlight=False)
        if verbose:
            _show_backends(results)


def _signature() -> Signature:
    """The signature of the command: a parameter per field of `RunConfig`, around those of the command itself."""
    own = [each for each in Signature.from_callable(run).parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    config, *others = (each.replace(kind=Parameter.KEYWORD_ONLY) for each in own)
    return Signature([config, *run_parameters(), *others], return_annotation=None)


run.__signature__ = _signature()  # type: ignore[attr-defined]


def _merged(values: dict[str, Any], given: dict[str, Any], path: str | None) -> dict[str, Any]:
    """The options of the file with those of the command line on top."""
    values = {key.replace("-", "_"): value for key, value in values.items()}
    settings = _table(values, "set", "{rate = 0.001}") | changes(given.pop("settings"))
    model_set = _table(values, "model_set", "{width = 64}") | model_changes(given.pop("model_set"))
    old = path or values.pop("path", None)
    if old is not None:
        from firma.cli.console import err

        err.print("firma: path is deprecated; use backend", highlight=False)
        values["backend"] = old
    stated = {name: value for name, value in given.items() if not _missing(value)}
    return values | stated | {"set": settings, "model_set": model_set}


def _switch(values: dict[str, Any], name: str) -> bool | None:
    """A switch of the command itself that a TOML file may state too."""
    stated = values.pop(name, values.pop(name.replace("_", "-"), None))
    if stated is not None and not isinstance(stated, bool):
        raise BadInput(f"{name} = {stated!r}: must be true or false")
    return stated


def _table(values: dict[str, Any], key: str, example: str) -> dict[str, Any]:
    table = values.get(key, {})
    if not isinstance(table, dict):
        raise BadInput(f"{key} = {table!r}: must be a table of settings, such as {example}")
    return table


def _missing(value: object) -> bool:
    """Whether an option was not given; 0 was."""
    return value is None or value is False or value == []


def _answer(error: BaseException, kept: str) -> None:
    """Say what is left of a command that ends before its time; any error but bad input has a traceback of its own."""
    from firma.cli.console import err

    if isinstance(error, KeyboardInterrupt):
        err.print(f"firma: interrupted; {kept or 'no results were written'}", soft_wrap=True, highlight=False)
        raise typer.Exit(130) from None
    if isinstance(error, BadInput):
        joint = "\n" if "\n" in str(error) else "; "  # lines of the user's own code stand by themselves
        raise BadInput(f"{error}{joint}{kept}") from None
    if kept:
        err.print(f"firma: {kept}", soft_wrap=True, highlight=False)


def _kept(experiment: "Experiment", finished: int, folder: Path | None) -> str:
    """Which runs and rounds are not lost, for people; empty if none are kept."""
    runs, saved = len(experiment.runs), experiment.config.checkpoint
    said = []
    if finished:
        where = f"written to {folder}" if folder is not None else "shown above; --out FOLDER would have kept them"
        said.append(f"{finished} of {runs} runs {'was' if finished == 1 else 'were'} finished and {where}")
    if saved is not None:
        said.append(f"completed rounds are saved in {saved}; run the same command again to continue")
    return "; ".join(said)


def _trained(experiment: "Experiment", quiet: bool) -> "Iterator[Result]":
    """All runs, one after another, with their progress on stderr."""
    from firma.experiment import execute
    from firma.progress import shown

    if quiet:
        yield from execute(experiment)
        return
    note = "the first run on a machine compiles the kernels"
    if experiment.config.engine == "ray":
        note = "Ray and its workers take about ten seconds to start"
    metric = TITLES[experiment.task.main]
    with shown(experiment.rounds, len(experiment.runs), metric, note) as on_round:
        yield from execute(experiment, on_round)


def _write(document: dict[str, Any], results: "list[Result]", folder: Path) -> None:
    import json

    from firma.atomic_files import write_whole
    from firma.report.curves import curves

    write_whole(folder / "results.json", json.dumps(document, indent=1, allow_nan=False) + "\n")
    curves(results, folder / f"{results[0].main}.png")


def _write_models(results: "list[Result]", folder: Path, wanted: bool | None) -> Path | None:
    """Write the trained models and return their folder, unless there is too much of them.

    Models of an earlier run in this folder are removed.
    """
    from shutil import rmtree

    from firma.cli.console import err
    from firma.trained import MODELS_FOLDER, save_models, size_of

    size = sum(size_of(result) for result in results)
    held = all(result.parameters is not None for result in results)
    if wanted is not False and held and (wanted or size < _MOST):
        save_models(results, folder / MODELS_FOLDER)
        return folder / MODELS_FOLDER
    rmtree(folder / MODELS_FOLDER, ignore_errors=True)
    if wanted is None and held:
        err.print(
            f"firma: the trained models were not saved, they are {size / 1e6:,.0f} MB; pass --save-models to save them",
            soft_wrap=True, highlight=False,
        )  # fmt: skip
    elif wanted is not False:
        err.print("firma: the trained models were not saved, no process holds all of them", highlight=False)
    return None


def _show(experiment: "Experiment", results: "list[Result]", folder: Path | None) -> None:
    """The comparison table and, where asked for, the audit's findings."""
    from rich.table import Column, Table

    from firma.cli.console import out, print_table
    from firma.comparison import compare
    from firma.schedule import participant_count

    config, facts = experiment.config, results[0].config
    seeds = f", {config.seeds} seeds" if config.seeds > 1 else f", seed {config.seed}"
    drawn = f" ({participant_count(config.participation, facts['clients'])} per round)"
    clients = f"{counted(facts['clients'], 'client')}{drawn if config.participation < 1 else ''}"
    attacked = f" ({config.attackers} dishonest: {config.attack})" if config.attackers else ""
    drift = f", drift {facts['drift']}" if "drift" in facts else ""
    rounds = counted(facts["rounds"], "round")
    title = f"{facts['dataset']}, {facts['scenario']}{drift}, {clients}{attacked}, {rounds}{seeds}"
    table = Table(Column("method", overflow="fold"), title=f"{title} (preset {config.preset})")
    columns = _COLUMNS[results[0].task]
    if config.attackers:
        main = results[0].main
        columns = {
            "honest mean": (f"honest_mean_{main}", "{:.3f}"),
            "honest worst": ("honest_worst_client", "{:.3f}"),
            "mean of all": (f"mean_{main}", "{:.3f}"),
            **_TRAFFIC,
        }
    for column in columns:
        table.add_column(column, justify="right")
    for name, metrics in compare(results).items():
        table.add_row(name, *(_cell(metrics[key], form, key) for key, form in columns.values()))
    print_table(table)
    if facts["dropped"]:
        dropped = ", ".join(map(str, facts["dropped"]))
        out.print(f"Clients left out, too few samples: {dropped} (--set min_samples=1 includes all).")
    for result in results:
        if result.audit is not None:
            out.print(_audited(result.method, result.audit), soft_wrap=True)
    if folder is not None:
        figure = folder / f"{results[0].main}.png"
        out.print(f"Written: {folder / 'results.json'}, {figure}", soft_wrap=True)


def _show_backends(results: "list[Result]") -> None:
    """How each run was trained and how long it took."""
    from firma.cli.console import out

    for result in results:
        out.print(f"{result.method}, seed {result.seed}: {result.backend}; {result.seconds:.1f} s", soft_wrap=True)


def _cell(value: "Statistic", form: str, key: str) -> str:
    """Mean, and ± deviation over seeds."""
    if isnan(value.mean):
        return "never" if key.startswith("rounds") else "n/a"
    scale = 1000 if key == "bytes_per_round" else 1
    text = form.format(value.mean / scale)
    return text if value.deviation is None else f"{text} ± {form.format(value.deviation / scale)}"


def _audited(method: str, audit: Any) -> str:
    """One line of the audit."""
    heads = "none contains a head" if audit["head_private"] else f"{audit['messages_with_head']} contain a head"
    beyond = audit["messages_beyond_neighbours"]
    near = "neighbours on the graph" if "degree" in audit else "ring neighbours"
    server = f"all between {near}" if audit["server_free"] else f"{beyond} not between {near}"
    if "degree" in audit:
        server += f" (degree {audit['degree']}; a client received from up to {audit['most_senders']} others)"
    elif audit.get("most_senders", 0) > 2:  # the ring closes up around those who take part
        server += f" of the round (a client received from up to {audit['most_senders']} others)"
    return f"audit {method}: {audit['messages']} messages, {heads}, {server}"
