"""`firma.flower.run`: Flower clients in the simulation, by any method that an app can be trained with."""

import platform
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from firma.encoding import Wire, checked_wire
from firma.engines.engine import Federation, RoundOutcome
from firma.engines.simulation import Simulation
from firma.errors import BadInput
from firma.flower.arrays import Array, Template, listed
from firma.flower.description import FlowerApp, Scalar, described, read
from firma.flower.trainer import LoadedApp, backend, loaded, templates, unknown_data
from firma.methods import METHODS, Method, check, lookup
from firma.mixing.ring_order import neighbours
from firma.models.split_model import SplitModel
from firma.privacy.message_audit import Audit
from firma.results import Result
from firma.settings import Hyper, hyper_for
from firma.settings import settings as divided

OnRound = Callable[[RoundOutcome], None]
# Settings that matter to an app: those of mixing. How it trains, and what from, is in its own configuration.
MIXING_SETTINGS = (
    "threshold", "posterior", "retention", "retention_start", "retention_end", "warmup_rounds", "warmup_shares",
    "initial",
)  # fmt: skip


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
    check_head(row, hyper, made[0], ready)
    return _run(ready, made, row, hyper, rounds, seed, clients, checked_wire(wire), audit, on_round)


def arrays(result: Result, client: int) -> dict[str, Array]:
    """A client's trained arrays under the app's names, in float32; integer arrays stay with the client's training."""
    if result.parameters is None or result.template is None:
        raise BadInput("this result has no arrays: it was loaded from files, which do not contain the names")
    if not 0 <= client < len(result.parameters):
        raise BadInput(f"client = {client}: must be between 0 and {len(result.parameters) - 1}")
    flat = result.parameters[client]
    pieces = {piece.name.partition(".")[2]: piece for piece in result.template.layout().pieces}
    names = [name for name in result.config["flower"]["arrays"] if name in pieces]
    return {name: flat[pieces[name].start : pieces[name].stop].view(pieces[name].shape).numpy() for name in names}


def trainable(row: Method) -> Method:
    """A method that an app can be trained with, or a sentence that says why not.

    The app's training is one call, so it cannot be divided in phases; its optimiser is its own; and it does not tell
    which classes it holds.
    """
    row = check(row)
    for column, wrong, needed, why in (
        ("training", "two-phase", "joint", "a Flower app trains its whole model in one call"),
        ("order", "2-opt", "given", "a Flower app does not report its class proportions"),
    ):
        if getattr(row, column) == wrong:
            raise BadInput(
                f"method {row.name!r} has {column} = {wrong!r}, but {why}; use {changed(row)!r} instead, "
                f"which has {column} = {needed!r}"
            )
    if row.persistent == "yes":
        warnings.warn(
            f"method {row.name!r} keeps the optimiser between rounds, but a Flower app has an optimiser of its own; "
            "add persistent=no to the method to confirm",
            UserWarning,
            stacklevel=3,
        )
    return replace(row, persistent="no")


def changed(row: Method) -> str:
    """The nearest method that an app can be trained with, as a user writes it."""
    needed = {"training": "joint", "order": "given", "persistent": "no"}
    base = METHODS.get(row.base)
    name = row.name.partition(":")[0] if base is None else base.name
    own = dict(part.split("=", 1) for part in row.name.partition(":")[2].split(",") if "=" in part)
    for column, value in needed.items():
        if getattr(row, column) != value:
            own[column] = value
    return name + ":" + ",".join(f"{column}={value}" for column, value in own.items())


def hyper_of(row: Method, changes: Mapping[str, Any]) -> Hyper:
    """The numbers of a method; settings of local training are refused, for the app does not know them."""
    hyper, split = divided(changes)
    for name in (*hyper, *split):
        if name not in MIXING_SETTINGS:
            raise BadInput(
                f"setting {name!r} has no effect on a Flower app, which trains by its own run_config and train_config; "
                f"allowed are {', '.join(MIXING_SETTINGS)}"
            )
    return hyper_for(row, "recommended", changes)


def check_head(row: Method, hyper: Hyper, made: Template, app: LoadedApp) -> None:
    """What is head must be said where heads are private; where whole models are shared, a warning says so."""
    whole = row.shares == "model" or (row.warmup == "yes" and hyper.warmup_shares == "model")
    if app.described.head:
        return
    if row.shares == "extractor":
        allowed = [name for name, each in METHODS.items() if each.training == "joint" and each.shares != "extractor"]
        raise BadInput(
            f"method {row.name!r} shares extractors only, so head must name the arrays that stay private, such as "
            f"head = [{made.names[-1]!r}]; the arrays are {listed(made.names)}. Without a head: {', '.join(allowed)}"
        )
    if whole:
        warnings.warn(
            "no head is named, so whole models are shared; name the private arrays with head = [...] to keep them",
            UserWarning,
            stacklevel=3,
        )


def _source(app: str | Path | FlowerApp | object) -> tuple[FlowerApp, object]:
    """The description that an argument stands for, and the `ClientApp` itself where that was given."""
    if isinstance(app, FlowerApp):
        return app, None
    if isinstance(app, Path) or (isinstance(app, str) and ":" not in app):
        folder = Path(app) if Path(app).is_dir() else Path(app).parent
        beside(folder)
        return read(app), None
    if isinstance(app, str):
        return described({"app": app}, "flower app"), None
    return described({"app": f"{type(app).__module__}:{type(app).__name__}"}, "flower app"), app


def beside(folder: Path) -> None:
    """Let modules in a folder be imported, as Flower does with the folder of an app."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)


def _over(description: FlowerApp, key: str, value: object) -> object:
    """A configuration is changed key by key; anything else is replaced."""
    old = getattr(description, key)
    return dict(old) | dict(value) if isinstance(value, Mapping) and isinstance(old, Mapping) else value


def _run(
    app: LoadedApp, made: Sequence[Template], row: Method, hyper: Hyper, rounds: int, seed: int, clients: int,
    wire: Wire, audit: bool, on_round: OnRound | None,
) -> Result:  # fmt: skip
    began = time.perf_counter()
    models: list[SplitModel] = [each.model for each in made]
    federation = Federation(
        row, hyper, rounds, seed, tuple(range(clients)), [unknown_data()] * clients, models, torch.device("cpu"),
        backend(app, made[0]), wire=wire,
    )  # fmt: skip
    record = Audit(models[0].layout(), neighbours(federation.order)) if audit else None
    running = Simulation(federation, record)
    outcomes = []
    for outcome in running.rounds():
        outcomes.append(outcome)
        if on_round is not None:
            on_round(outcome)
    return Result(
        method=row.name,
        seed=seed,
        config=_config(app, made[0], running, hyper, clients, rounds, wire),
        history=np.stack([outcome.accuracies for outcome in outcomes]),
        order=federation.order,
        sent_bytes=tuple(outcome.sent_bytes for outcome in outcomes),
        messages=tuple(outcome.messages for outcome in outcomes),
        seconds=time.perf_counter() - began,
        backend=running.described,
        audit=record.summary() if record is not None else None,
        parameters=running.parameters,
        template=models[0],
    )


def _config(
    app: LoadedApp, made: Template, running: Simulation, hyper: Hyper, clients: int, rounds: int, wire: Wire
) -> dict[str, Any]:
    """All that decided a run and what it ran on."""
    return {
        "dataset": app.described.app,
        "flower": app.described.model_dump(mode="json") | {"arrays": list(made.names)},
        "clients": clients,
        "samples": running.sizes,
        "rounds": rounds,
        "hyper": {name: getattr(hyper, name) for name in MIXING_SETTINGS},
        "wire": wire,
        "versions": {
            "firma": version("firma"), "flwr": version("flwr"), "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }  # fmt: skip
