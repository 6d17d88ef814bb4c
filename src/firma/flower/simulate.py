"""`firma.flower.run`: Flower clients in the simulation, by any method that an app can be trained with."""

import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from firma.encoding import Wire, checked_wire
from firma.engines.engine import Federation, RoundOutcome
from firma.engines.simulation import Simulation
from firma.errors import BadInput
from firma.flower.app_code import importable
from firma.flower.description import FlowerApp, Scalar, described, read
from firma.flower.named_arrays import CONTEXT, Array, ArraySpec, Template, unpacked
from firma.flower.requirements import MIXING_SETTINGS, check_head, hyper_of, trainable
from firma.flower.trainer import LoadedApp, backend, loaded, templates, unknown_data
from firma.graphs import check_graph
from firma.method_lookup import lookup
from firma.methods import Method
from firma.mixing.ring_order import neighbours
from firma.models.split_model import SplitModel
from firma.privacy.message_audit import Audit
from firma.results import Result
from firma.schedule import graph_of
from firma.settings import Hyper
from firma.tasks.diagnosis import diverged
from firma.training.local_step import BUFFER

OnRound = Callable[[RoundOutcome], None]


def run(
    app: str | Path | FlowerApp | object,
    method: str | Method,
    clients: int,
    rounds: int = 3,
    seed: int = 0,
    *,
    initial: object = None,
    head: Sequence[int | str] | None = None,
    run_config: Mapping[str, Scalar] | None = None,
    train_config: Mapping[str, Scalar] | None = None,
    evaluate_config: Mapping[str, Scalar] | None = None,
    node_config: Mapping[str, Scalar] | None = None,
    accuracy: str | None = None,
    train_accuracy: str | None = None,
    settings: Mapping[str, Any] | None = None,
    wire: Wire = "float32",
    audit: bool = False,
    on_round: OnRound | None = None,
) -> Result:
    """Train `clients` Flower clients with one of FIRMA's methods, in this process, and return the result.

    `app` is a `ClientApp`, a reference to one (`module:attribute`), a flower.toml or the folder that holds one, or a
    `FlowerApp`. The keywords named as fields of `FlowerApp` change its description; `initial` may also be a torch
    module, its class, arrays, or a function. A client sees partition-id and num-partitions in its node_config.
    """
    values: dict[str, object] = {
        "head": head, "run_config": run_config, "train_config": train_config, "evaluate_config": evaluate_config,
        "accuracy": accuracy, "train_accuracy": train_accuracy,
    }  # fmt: skip
    if isinstance(initial, str):
        values["initial"], initial = initial, None
    if clients < 1 or rounds < 1:
        raise BadInput(f"clients = {clients}, rounds = {rounds}: both must be at least 1")
    description, source = _source(app)
    merged = {key: _over(description, key, value) for key, value in values.items() if value is not None}
    description = described(description.model_dump() | merged, "flower app")
    row = trainable(method if isinstance(method, Method) else lookup(method))
    hyper = hyper_of(row, settings or {})

    def node(client: int) -> Mapping[str, Scalar]:
        return {"partition-id": client, "num-partitions": clients} | dict(node_config or {})

    ready = loaded(description if source is None else source, initial, description, node)
    made = templates(ready, seed, list(range(clients)) if hyper.initial == "per-client" else [0])
    check_head(row, description.head, made[0].names)
    return _run(
        ready, made, row, hyper, dict(settings or {}), rounds, seed, clients, checked_wire(wire), audit, on_round
    )


def arrays(result: Result, client: int) -> dict[str, Array]:
    """A client's trained arrays, head included, under the app's names and in its dtypes."""
    recorded = result.config.get("flower", {}).get("arrays")
    if result.parameters is None or recorded is None:
        raise BadInput("this result holds no arrays of a Flower app")
    if not 0 <= client < len(result.parameters):
        raise BadInput(f"client = {client}: must be between 0 and {len(result.parameters) - 1}")
    specs = tuple(ArraySpec.recorded(each) for each in recorded)
    memory = {BUFFER + name: tensor for name, tensor in result.buffers[client].items()} if result.buffers else {}
    return unpacked(specs, result.parameters[client], memory)


def _source(app: str | Path | FlowerApp | object) -> tuple[FlowerApp, object]:
    """The description that an argument stands for, and the `ClientApp` itself where that was given."""
    if isinstance(app, FlowerApp):
        return app, None
    if isinstance(app, Path) or (isinstance(app, str) and ":" not in app):
        folder = Path(app) if Path(app).is_dir() else Path(app).parent
        importable(folder)
        return read(app), None
    if isinstance(app, str):
        return described({"app": app}, "flower app"), None
    return described({"app": f"{type(app).__module__}:{type(app).__name__}"}, "flower app"), app


def _over(description: FlowerApp, key: str, value: object) -> object:
    """A configuration is changed key by key; anything else is replaced."""
    old = getattr(description, key)
    return dict(old) | dict(value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value


def _run(
    app: LoadedApp, made: Sequence[Template], row: Method, hyper: Hyper, changes: Mapping[str, Any], rounds: int,
    seed: int, clients: int, wire: Wire, audit: bool, on_round: OnRound | None,
) -> Result:  # fmt: skip
    began = time.perf_counter()
    models: list[SplitModel] = [each.model for each in made]
    federation = Federation(
        row, hyper, rounds, seed, tuple(range(clients)), [unknown_data()] * clients, models, torch.device("cpu"),
        backend(app, made[0]), wire=wire,
    )  # fmt: skip
    if (graph := graph_of(row, hyper, seed)) is not None:
        check_graph(graph, clients)
    record = Audit(neighbours(federation.order)) if audit else None
    running = Simulation(federation, record)
    outcomes: list[RoundOutcome] = []
    warned = False
    for outcome in running.rounds():
        outcomes.append(outcome)
        found = diverged(outcome.number, outcome.metrics, hyper.rate).partition(";")[0]  # the rest is not for apps
        if found and not warned:
            warnings.warn(found, UserWarning, stacklevel=3)
            warned = True
        if on_round is not None:
            on_round(outcome)
    return Result(
        method=row.name,
        seed=seed,
        config=_config(app, made[0], running, hyper, changes, clients, rounds, wire),
        history=np.stack([outcome.accuracies for outcome in outcomes]),
        order=federation.order,
        sent_bytes=tuple(outcome.sent_bytes for outcome in outcomes),
        messages=tuple(outcome.messages for outcome in outcomes),
        seconds=time.perf_counter() - began,
        backend=running.described,
        audit=record.summary() if record is not None else None,
        parameters=running.parameters,
        template=models[0],
        curves=_curves(outcomes),
        buffers=tuple({name: each[name] for name in each if BUFFER + name != CONTEXT} for each in running.buffers),
    )


def _curves(outcomes: Sequence[RoundOutcome]) -> dict[str, NDArray[np.float64]]:
    """(rounds, N) of every other metric that the app reports; NaN where it does not."""
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.metrics)
    missing = np.full(len(outcomes[0].scores), np.nan)
    return {name: np.stack([outcome.metrics.get(name, missing) for outcome in outcomes]) for name in names}


def _config(
    app: LoadedApp,
    made: Template,
    running: Simulation,
    hyper: Hyper,
    changes: Mapping[str, Any],
    clients: int,
    rounds: int,
    wire: Wire,
) -> dict[str, Any]:
    """All that decided a run and what it ran on."""
    return {
        "dataset": app.described.app,
        "flower": app.described.model_dump(mode="json") | {"arrays": [spec.record() for spec in made.specs]},
        "scenario": "natural",  # as the app splits its data
        "clients": clients,
        "dropped": [],
        "samples": running.sizes,
        "rounds": rounds,
        "participation": 1.0,
        "preset": "recommended",
        "settings": changes,
        "set": changes,
        "hyper": {name: getattr(hyper, name) for name in MIXING_SETTINGS},
        "wire": wire,
        "versions": {
            "firma": version("firma"), "flwr": version("flwr"), "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }  # fmt: skip
