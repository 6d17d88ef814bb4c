"""`firma evaluate`: the metrics of trained models on labelled data."""

from math import isfinite
from typing import TYPE_CHECKING

from firma.cli.options import Json
from firma.cli.trained_options import Client, Folder, LabelledData, Method, Model, Seed
from firma.tasks.task import METRICS, TITLES

if TYPE_CHECKING:
    from firma.trained import TrainedModel


def evaluate(
    folder: Folder,
    data: LabelledData,
    client: Client = None,
    method: Method = None,
    seed: Seed = None,
    model: Model = None,
    json: Json = False,
) -> None:
    """Test trained models on labelled data: the metrics of the task, for one client or for each.

    Example: firma evaluate results/dir --data test.csv --client 2
    """
    from firma.cli.console import only_results_on_stdout, print_json
    from firma.trained import evaluation, load_model, load_models

    with only_results_on_stdout(json):
        if client is None:
            models = list(load_models(folder, method, seed, model))
        else:
            models = [load_model(folder, client, method, seed, model)]
        found = list(evaluation(iter(models), data))
    if json:
        clients = [
            {"client": name, "samples": samples, "metrics": {key: _defined(value) for key, value in metrics.items()}}
            for name, samples, metrics in found
        ]
        print_json({"task": models[0].task, "clients": clients})
    else:
        _show(models[0], data, found)


def _defined(value: float) -> float | None:
    """None for a metric that the data do not define, such as the ROC AUC of a single class."""
    return value if isfinite(value) else None


def _show(model: "TrainedModel", data: str, found: list[tuple[str, int, dict[str, float]]]) -> None:
    from rich.table import Table

    from firma.cli.console import out

    names = METRICS[model.task]
    table = Table("client", title=f"{data}, {found[0][1]:,} samples")
    for name in names:
        table.add_column(TITLES[name], justify="right")
    for client, _, metrics in found:
        table.add_row(client, *(_cell(metrics[name]) for name in names))
    if len(found) > 1:
        table.add_section()
        means = [sum(metrics[name] for _, _, metrics in found) / len(found) for name in names]
        table.add_row("mean", *map(_cell, means))
    out.print(table)


def _cell(value: float) -> str:
    return f"{value:.4g}" if isfinite(value) else "n/a"
