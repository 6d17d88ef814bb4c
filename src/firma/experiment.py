"""From a configuration to results: `run` for one method and seed, `run_all` for a whole comparison."""

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, field_validator

from firma.assembly import assemble, device_of
from firma.data.arrays import validation
from firma.data.dataset import Dataset, DatasetSource, load_dataset
from firma.data.partition import Partition, deal, default_scenario
from firma.data.scenarios import parse
from firma.encoding import Wire
from firma.engines.engine import EngineName, EngineOptions, Start, started
from firma.engines.federation import Federation, RoundOutcome
from firma.errors import BadInput
from firma.methods import DEFAULT_METHOD, METHODS, Method, lookup
from firma.mixing.order import neighbours
from firma.models.split import ModelSource
from firma.privacy.audit import Audit
from firma.results import Result, check_writable
from firma.settings import Preset, Split, build, changed_settings, hyper_for, split_for

OnRound = Callable[[str, int, RoundOutcome], None]


class Config(BaseModel):
    """What to run: the options of `firma run`, or a TOML file of the same names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = "digits"
    scenario: str | None = None  # natural where the data say whose they are, else skew-1
    method: tuple[str, ...] = (DEFAULT_METHOD,)
    clients: int | None = Field(None, ge=1)
    rounds: int | None = Field(None, ge=1)
    seed: int = Field(0, ge=0)
    seeds: int = Field(1, ge=1)
    preset: Preset = "recommended"
    device: str = "cpu"
    path: Literal["auto", "autograd"] = "auto"
    workers: int | None = Field(None, ge=1)
    audit: bool = False
    engine: EngineName = "simulation"
    address: str | None = None
    checkpoint: str | None = None
    recover: int = Field(1, ge=0)
    wire: Wire = "float32"
    set: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("method", mode="before")
    @classmethod
    def _one_or_all(cls, value: object) -> object:
        names = [value] if isinstance(value, str) else value
        return tuple(METHODS) if isinstance(names, list | tuple) and "all" in names else names


def config(values: Mapping[str, Any]) -> Config:
    """A checked configuration; every mistake that can be seen before loading data is reported here."""
    checked = build(Config, values)
    if checked.scenario is not None:
        parse(checked.scenario)
    for name in checked.method:
        hyper_for(lookup(name).name, checked.preset, checked.set)
    split_for(checked.preset, checked.set)
    device_of(checked.device)
    if checked.engine == "ray" and (checked.audit or checked.device != "cpu" or checked.wire != "float32"):
        raise BadInput(
            "engine = 'ray': it trains on CPUs, keeps no audit and passes float32; take the simulation for --audit, "
            "--device or --wire"
        )
    if checked.engine != "ray" and checked.address is not None:
        raise BadInput(f"address = {checked.address!r}: it is of a Ray cluster; add --engine ray")
    if checked.checkpoint is not None and not checked.recover:
        raise BadInput("recover = 0: then there is nothing for the checkpoint; take 1 or more")
    if checked.audit and checked.checkpoint is not None:
        raise BadInput("checkpoint: an audit cannot be resumed; leave one of the two out")
    return checked


def run(
    dataset: DatasetSource = "digits",
    scenario: str | None = None,
    method: str | Method = DEFAULT_METHOD,
    *,
    clients: int | None = None,
    rounds: int | None = None,
    seed: int = 0,
    preset: Preset = "recommended",
    settings: Mapping[str, Any] | None = None,
    model: ModelSource = "mlp",
    device: str = "cpu",
    path: Literal["auto", "autograd"] = "auto",
    workers: int | None = None,
    audit: bool = False,
    engine: EngineName = "simulation",
    address: str | None = None,
    checkpoint: str | None = None,
    recover: int = 1,
    wire: Wire = "float32",
    on_round: OnRound | None = None,
) -> Result:
    """Train one federation and return its result.

    `dataset` is what `load_dataset` takes: a name, a file, a `Dataset`, arrays (x, y) or (x, y, x_test, y_test), or a
    torch Dataset. `scenario` is natural where the data say whose they are, else skew-1. `method` is a name, a changed
    row such as "fibfl++:order=given", or a `Method` of your own. `settings` are the fields of `Hyper` and `Split`, as
    `--set` takes them. `model` is "mlp", a pair of modules (extractor, head), or a function that returns such a pair.
    `path` "autograd" trains by torch even where compiled kernels could; `workers` clients are trained at a time, by
    default one a core. `wire` is how messages write parameters: "float32", "bfloat16" or "int8", all passed for real.
    `engine` "ray" runs on the Ray cluster at `address`, else on the one that this process has joined, else on one that
    it starts; `recover` is the number of rounds after which the state is kept there for the case that a worker is lost.
    With a folder `checkpoint` the same call goes on where a killed one stopped.
    `on_round(method, seed, outcome)` is called after every round.
    """
    name = method if isinstance(method, str) else DEFAULT_METHOD
    values = {"scenario": scenario, "method": [name], "clients": clients, "rounds": rounds, "seed": seed}
    how = {"device": device, "path": path, "workers": workers, "audit": audit, "wire": wire}
    where = {"engine": engine, "address": address, "checkpoint": checkpoint, "recover": recover}
    checked = config(values | how | where | {"preset": preset, "set": settings or {}})
    row = lookup(method) if isinstance(method, str) else method
    with started(_place(checked)) as start:
        return _run(checked, load_dataset(dataset), row, seed, model, on_round, start)


def run_all(checked: Config, on_round: OnRound | None = None) -> Iterator[Result]:
    """Every method and seed of a configuration, one result at a time."""
    dataset = load_dataset(checked.dataset)
    with started(_place(checked)) as start:
        for name in checked.method:
            for seed in range(checked.seed, checked.seed + checked.seeds):
                yield _run(checked, dataset, lookup(name), seed, "mlp", on_round, start)


def _place(checked: Config) -> EngineOptions:
    folder = Path(checked.checkpoint) if checked.checkpoint is not None else None
    if folder is not None:
        check_writable(folder, "checkpoint")
    return EngineOptions(checked.engine, checked.address, checked.workers, folder, checked.recover)


def _run(
    checked: Config,
    dataset: Dataset,
    method: Method,
    seed: int,
    source: ModelSource,
    on_round: OnRound | None,
    start: Start,
) -> Result:
    began = time.perf_counter()
    scenario = checked.scenario or default_scenario(dataset)
    hyper = hyper_for(method.name, checked.preset, checked.set)
    split = split_for(checked.preset, checked.set)
    if split.scored_on == "validation":
        dataset = validation(dataset)
    partition = deal(dataset, scenario, checked.clients or dataset.clients, split, seed)
    federation = replace(
        assemble(dataset, partition, method, hyper, checked.rounds or dataset.rounds, seed, source, checked.device),
        backend=checked.path,
        workers=checked.workers,
        wire=checked.wire,
    )
    audit = Audit(federation.models[0].layout(), neighbours(federation.order)) if checked.audit else None
    running = start(federation, audit)
    outcomes = []
    for outcome in running.rounds():
        outcomes.append(outcome)
        if on_round is not None:
            on_round(method.name, seed, outcome)
    return Result(
        method=method.name,
        seed=seed,
        config=describe(checked, dataset, partition, federation, split),
        history=np.stack([outcome.accuracies for outcome in outcomes]),
        order=federation.order,
        sent_bytes=tuple(outcome.sent_bytes for outcome in outcomes),
        messages=tuple(outcome.messages for outcome in outcomes),
        seconds=time.perf_counter() - began,
        path=running.described,
        audit=audit.summary() if audit is not None else None,
        parameters=running.parameters,
        template=federation.models[0],
    )


def describe(
    checked: Config, dataset: Dataset, partition: Partition, federation: Federation, split: Split
) -> dict[str, Any]:
    """All that decided a run and what it ran on: enough to repeat it."""
    return {
        "dataset": dataset.name,
        "scenario": checked.scenario or default_scenario(dataset),
        "clients": federation.clients,
        "dropped": list(partition.dropped),
        "samples": federation.sizes,
        "rounds": federation.rounds,
        "preset": checked.preset,
        "settings": changed_settings(federation.method.name, checked.preset, federation.hyper, split),
        "hyper": federation.hyper.model_dump(),
        "split": split.model_dump(),
        "device": checked.device,
        "wire": checked.wire,
        "versions": {
            "firma": version("firma"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
