"""What is recorded of a run: before it, for trackers and live pages, and with its result, enough to repeat it."""

import platform
from pathlib import Path
from typing import Any

import torch

import firma
from firma.data.partition import Partition, label_proportions
from firma.engines.engine import Federation
from firma.experiment.plan import Experiment, PlannedRun
from firma.live_log import LivePlace, held
from firma.method_lookup import in_table
from firma.methods import Method, columns
from firma.mixing.wiring import is_ordered
from firma.models.build import SIZES_OF_MLP, run_settings
from firma.models.record import ModelRecord
from firma.run_config import RunConfig, command_line, stated
from firma.settings import changed_settings, given_settings
from firma.tasks.task import TITLES, Task
from firma.tracking import RunFacts


def planned_facts(experiment: Experiment, planned: PlannedRun) -> dict[str, Any]:
    """What is known about a run before its data are split, by the names that its result will use."""
    config, model = experiment.config, experiment.model
    unused = () if model.name == "mlp" else SIZES_OF_MLP
    return {
        "dataset": experiment.dataset.name,
        "scenario": experiment.scenario,
        "clients": experiment.clients,
        "rounds": experiment.rounds,
        "participation": config.participation,
        **_drift_record(config),
        **_unusual_record(experiment, planned.method, experiment.wiring.order),
        "preset": config.preset,
        "task": experiment.task.name,
        **_task_record(experiment.task),
        "model": {"name": model.name, **model.settings},
        "device": config.device,
        "wire": config.wire,
        **({"attack": config.attack, "attackers": config.attackers} if config.attackers else {}),
        "hyper": {name: value for name, value in planned.hyper.model_dump().items() if name not in unused},
        "split": experiment.split.model_dump(),
    }


def live_facts(experiment: Experiment, planned: PlannedRun, partition: Partition, run: Federation) -> dict[str, Any]:
    """What a live page shows of a run before its first round."""
    config, dataset, row = experiment.config, experiment.dataset, run.method
    place = config.live if isinstance(config.live, LivePlace) else LivePlace(Path())
    facts = RunFacts(row.name, run.seed, planned_facts(experiment, planned), run.task.main)
    options = stated(config.as_options()) | {"method": row.name, "seed": run.seed}
    found: dict[str, Any] = {
        "name": place.name, "key": place.key, "method": row.name, "seed": run.seed, "rounds": run.rounds,
        "clients": run.clients, "main": run.task.main, "title": TITLES[run.task.main], "settings": facts.settings,
        "command": place.command or command_line(options), "topology": row.topology, "samples": run.sizes,
        "orders": [[start + 1, list(order)] for start, order in run.orders or ((0, run.order),)],
        "holds": held(label_proportions(dataset, partition.train).tolist(), run.sizes),
        "dropped": list(partition.dropped), "engine": config.engine,
    }  # fmt: skip
    if run.attack is not None:
        found["dishonest"] = list(run.attack.clients)
    return found | _data_record(experiment, partition)


def described(
    experiment: Experiment, partition: Partition, federation: Federation, model: ModelRecord
) -> dict[str, Any]:
    """All that decided a run and what it ran on: enough to repeat it."""
    config = experiment.config
    unused = () if model["name"] == "mlp" else SIZES_OF_MLP  # they do not matter to any other model
    return {
        "dataset": experiment.dataset.name,
        "scenario": experiment.scenario,
        "clients": federation.clients,
        "dropped": list(partition.dropped),
        "samples": federation.sizes,
        "rounds": federation.rounds,
        "participation": federation.participation,
        **_drift_record(config),
        "preset": config.preset,
        "settings": changed_settings(federation.method, config.preset, federation.hyper, experiment.split),
        "set": given_settings(run_settings(experiment.model, config.settings), federation.hyper, experiment.split),
        "hyper": {name: value for name, value in federation.hyper.model_dump().items() if name not in unused},
        "split": experiment.split.model_dump(),
        "model": model,
        "device": config.device,
        "wire": config.wire,
        "versions": {
            "firma": firma.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        **({"edges": [list(edge) for edge in federation.edges]} if federation.edges else {}),
        **_unusual_record(experiment, federation.method, federation.order),
        **_data_record(experiment, partition),
        **_task_record(federation.task),
        **_attack_record(federation),
    } | ({} if in_table(federation.method) else {"columns": columns(federation.method)})


def _unusual_record(experiment: Experiment, method: Method, order: tuple[int, ...] | None) -> dict[str, str]:
    """Backend, bandwidths and order of clients that were asked for; the usual, never recorded before, is left out."""
    config = experiment.config
    found: dict[str, str] = {"backend": config.backend} if config.backend != "auto" else {}
    if method.order == "bandwidth":
        found["bandwidth"] = Path(str(config.bandwidth)).name
    stated = method.order == "given" and experiment.wiring.order is not None and is_ordered(method)
    if order is not None and (stated or method.order == "bandwidth"):
        found["order"] = ",".join(map(str, order))
    return found


def _attack_record(run: Federation) -> dict[str, Any]:
    """What dishonest clients did, and which they were; nothing, as in earlier versions, where all were honest."""
    if run.attack is None:
        return {}
    return {"attack": run.attack.kind, "attackers": len(run.attack.clients), "dishonest": list(run.attack.clients)}


def _drift_record(config: RunConfig) -> dict[str, str]:
    """The drift; its absence, which earlier versions did not record, is left out."""
    return {} if config.drift is None else {"drift": config.drift}


def _task_record(task: Task) -> dict[str, str]:
    """The task and the user's own loss; classification, which earlier versions did not record, is left out."""
    found = {} if task.name == "classification" else {"task": task.name}
    return found | ({"loss": task.loss.name} if task.loss is not None else {})


def _data_record(experiment: Experiment, partition: Partition) -> dict[str, list[str]]:
    """What the data call their classes, features and clients, which whoever uses the models needs; if they do."""
    dataset = experiment.dataset
    clients: list[str] = []
    if experiment.scenario == "natural":
        clients = [name for number, name in enumerate(dataset.client_names) if number not in partition.dropped]
    found = {"labels": list(dataset.labels), "features": list(dataset.columns), "client_names": clients}
    return {name: values for name, values in found.items() if values}
