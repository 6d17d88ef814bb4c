"""What a configuration asks for, checked before training: the data, loaded, and every run with its numbers."""

import warnings
from dataclasses import dataclass, field

from firma.algorithms.catalogue import resolved
from firma.data.dataset import Dataset, OnProgress, load_dataset
from firma.data.drift import Drift, check_drift, parse_drift
from firma.data.partition import default_scenario
from firma.data.scenarios import parse
from firma.data.standardise import is_standardised, warn_of_scales
from firma.errors import BadInput
from firma.experiment.checks import check_attack, check_clients, device_of
from firma.method_lookup import check, check_used, lookup, own_columns
from firma.methods import Method
from firma.mixing.wiring import Wiring, check_wiring, read_wiring
from firma.models.build import VOCABULARY, ModelSpec, model_spec, run_settings, with_data
from firma.run_config import RunConfig
from firma.settings import Hyper, Split, hyper_for, split_for
from firma.tasks.losses import own_function, own_metrics
from firma.tasks.task import CLASSIFICATION, Task
from firma.tracking import check_trackers


@dataclass(frozen=True)
class PlannedRun:
    """One method with one seed: its row of the design table and its numbers."""

    method: Method
    hyper: Hyper
    seed: int


@dataclass(frozen=True)
class Experiment:
    """A configuration with all that follows from it: the data, loaded, how to split them, and the runs in order."""

    config: RunConfig
    dataset: Dataset
    scenario: str
    split: Split
    clients: int
    rounds: int
    runs: tuple[PlannedRun, ...]
    model: ModelSpec
    task: Task = CLASSIFICATION
    wiring: Wiring = field(default_factory=Wiring)
    drift: Drift | None = None


def resolve(config: RunConfig, on_progress: OnProgress | None = None) -> Experiment:
    """Check all that can be checked before training, load the data, and look up the numbers of every run.

    `on_progress` is called while data are read, see `load_dataset`.
    """
    if config.scenario is not None:
        parse(config.scenario)
    rows = _rows(config)
    model = model_spec(config.model, config.model_set, config.head)
    settings = run_settings(model, config.settings)
    numbers = [hyper_for(row, config.preset, settings) for row in rows]
    split = split_for(config.preset, settings)
    wiring = read_wiring(config.graph, config.order, config.bandwidth)
    check_wiring(wiring, rows)
    drift = parse_drift(config.drift) if config.drift is not None else None
    device_of(config.device)
    check_trackers(config.tensorboard, config.mlflow)
    dataset = load_dataset(config.dataset, task=config.task, on_progress=on_progress)
    task = _task(config, dataset)
    if config.method is None:
        config = config.with_method(dataset.task)
        rows = _rows(config)
        numbers = [hyper_for(row, config.preset, settings) for row in rows]
    if not is_standardised(dataset, split.standardise):
        warn_of_scales(dataset)
    if split.scored_on == "validation":
        from firma.data.user_arrays import validation

        dataset = validation(dataset)
    model = with_data(model, dataset.x_train, dataset.x_test)
    if is_standardised(dataset, split.standardise) and VOCABULARY in model.settings:
        raise BadInput(
            f"--standardise {split.standardise} cannot be combined with model {model.name!r}: it reads tokens"
        )
    clients = dataset.clients if config.clients is None else config.clients
    scenario, rounds = config.scenario or default_scenario(dataset), config.rounds or dataset.rounds
    if drift is not None:
        check_drift(drift, scenario, split, rounds)
    for row, hyper in zip(rows, numbers, strict=True):
        check_clients(config, clients, row, hyper, wiring, rounds)
    check_attack(config, clients, dataset.task)
    seeds = range(config.seed, config.seed + config.seeds)
    runs = tuple(PlannedRun(row, hyper, seed) for row, hyper in zip(rows, numbers, strict=True) for seed in seeds)
    return Experiment(
        config,
        dataset,
        scenario=scenario,
        split=split,
        clients=clients,
        rounds=rounds,
        runs=runs,
        task=task,
        model=model,
        wiring=wiring,
        drift=drift,
    )


def _rows(config: RunConfig) -> list[Method]:
    """The rows of the design table that are trained, with their algorithms."""
    rows = [lookup(each) if isinstance(each, str) else _own(each) for each in config.methods]
    return [resolved(row) for row in rows]


def _own(row: Method) -> Method:
    """A row of the user's own, checked; where its numbers come from must not be a surprise."""
    check_used(check(row), own_columns(row))
    if not row.base:
        warnings.warn(
            f"method {row.name!r} has no base, so it trains with the defaults of firma.Hyper; "
            "set base to the name of a method to use its hyperparameters",
            UserWarning,
            stacklevel=2,
        )
    return row


def _task(config: RunConfig, dataset: Dataset) -> Task:
    """What is learnt and how it is judged; functions of the user's own are imported."""
    loss = own_function(config.loss, "loss") if config.loss is not None else None
    return Task(dataset.task, loss, own_metrics(config.metric, dataset.task), config.train_curves)
