"""From a configuration to results: `run` for one method and seed, `run_all` for a comparison.

A configuration is resolved before anything is trained: `resolve` checks it, loads the data once and gives every run
its row of the design table, its numbers and its seed. `execute` then trains one run after another.
"""

import platform
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import firma
from firma.algorithms.catalogue import algorithm_of, resolved
from firma.atomic_files import check_writable
from firma.attacks import drawn_attack, poisoned
from firma.data.dataset import Dataset, OnProgress, load_dataset
from firma.data.drift import Drift, DriftingPartition, check_drift, deal_over_rounds, parse_drift
from firma.data.partition import (
    Partition,
    client_inputs,
    client_standardisers,
    deal,
    default_scenario,
    input_form,
    label_proportions,
)
from firma.data.scenarios import parse
from firma.data.standardise import warn_of_scales
from firma.engines.drifting_data import drifting_data
from firma.engines.engine import EngineOptions, Federation, RoundOutcome, Start, started
from firma.errors import BadInput, unknown
from firma.graphs import check_graph
from firma.live_log import LivePlace, held, live_run
from firma.methods import Method, check, columns, in_table, lookup
from firma.mixing.combine import check_members
from firma.mixing.ring_order import neighbours, orders_over_rounds
from firma.mixing.wiring import Wiring, check_wiring, read_wiring
from firma.models.build import (
    SIZES_OF_MLP,
    VOCABULARY,
    ModelSpec,
    build_model,
    model_spec,
    run_settings,
    sized,
    with_data,
)
from firma.models.probe import InputSpec
from firma.models.record import ModelRecord, record
from firma.models.split_model import InputKind
from firma.privacy.message_audit import Audit
from firma.progress import in_notebook, shown
from firma.results import Result
from firma.run_config import OnRound, RunConfig, command_line, stated, takes_fields_of
from firma.schedule import graph_of, participant_count
from firma.settings import DEVICES, Hyper, Split, changed_settings, given_settings, hyper_for, split_for
from firma.tasks.diagnosis import at_chance, diverged, flattered, label_balance
from firma.tasks.losses import own_function, own_metrics
from firma.tasks.task import CLASSIFICATION, TITLES, Task
from firma.tracking import RunFacts, check_trackers, tracked
from firma.training.derived_head import with_possible_head
from firma.training.local_step import ClientData, as_tensor
from firma.training.private_parameters import with_private

__all__ = [
    "Experiment", "OnRound", "PlannedRun", "assemble", "device_of", "execute", "resolve", "run", "run_all",
]  # fmt: skip


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


@takes_fields_of(RunConfig)
def run(config: RunConfig) -> Result:
    """Train one federation, with one method and one seed, and return its result.

    `settings` maps names of settings, those that `--set` accepts, to values. `method` may be a `Method` of your own; it
    is trained with the hyperparameters of its `base`. Parameters:
    """
    if config.seeds > 1 or len(config.methods) != 1:
        raise BadInput("firma.run takes one method and one seed; use firma.run_all(firma.RunConfig(...)) for several")
    (result,) = run_all(config)
    return result


def run_all(config: RunConfig, on_round: OnRound | None = None) -> Iterator[Result]:
    """Train every method and seed of a configuration; yields one result at a time."""
    if not isinstance(config, RunConfig):
        raise TypeError(f"firma.run_all takes a firma.RunConfig, not {type(config).__name__}")
    experiment = resolve(config)
    if config.progress or (config.progress is None and in_notebook()):
        return _execute_visibly(experiment, on_round or config.on_round)
    return execute(experiment, on_round or config.on_round)


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
    if split.standardise == "none":
        warn_of_scales(dataset)
    if split.scored_on == "validation":
        from firma.data.user_arrays import validation

        dataset = validation(dataset)
    model = with_data(model, dataset.x_train, dataset.x_test)
    if split.standardise != "none" and VOCABULARY in model.settings:
        raise BadInput(
            f"--standardise {split.standardise} cannot be combined with model {model.name!r}: it reads tokens"
        )
    clients = dataset.clients if config.clients is None else config.clients
    scenario, rounds = config.scenario or default_scenario(dataset), config.rounds or dataset.rounds
    if drift is not None:
        check_drift(drift, scenario, split, rounds)
    for row, hyper in zip(rows, numbers, strict=True):
        _check_participation(config.participation, clients, row)
        _check_topology(config.participation, clients, row, hyper, wiring)
        taking_part = participant_count(config.participation, clients)
        check_members(row, hyper, taking_part, config.rounds or dataset.rounds, config.wire)
    _check_attack(config, clients, dataset.task)
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


def execute(experiment: Experiment, on_round: OnRound | None = None) -> Iterator[Result]:
    """Train the runs of an experiment in order; an engine, such as a cluster, is started once for all of them."""
    with started(_engine_options(experiment.config)) as start:
        for planned in experiment.runs:
            yield _recorded(experiment, planned, on_round, start)


def _execute_visibly(experiment: Experiment, on_round: OnRound | None) -> Iterator[Result]:
    """`execute`, with progress on stderr."""
    with shown(experiment.rounds, len(experiment.runs), TITLES[experiment.task.main]) as show:

        def both(method: str, seed: int, outcome: RoundOutcome) -> None:
            show(method, seed, outcome)
            if on_round is not None:
                on_round(method, seed, outcome)

        yield from execute(experiment, both)


def _recorded(experiment: Experiment, planned: PlannedRun, on_round: OnRound | None, start: Start) -> Result:
    """One run, recorded by the trackers that were asked for; what `on_round` raises is passed on untouched."""
    config, calling = experiment.config, False
    facts = RunFacts(planned.method.name, planned.seed, _planned(experiment, planned), experiment.task.main)
    with tracked(config.tensorboard, config.mlflow, facts) as tracker:

        def after_round(method: str, seed: int, outcome: RoundOutcome) -> None:
            nonlocal calling
            tracker.round(outcome)
            if on_round is not None:
                calling = True
                on_round(method, seed, outcome)
                calling = False

        try:
            result = _execute(experiment, planned, after_round, start)
        except (MemoryError, RuntimeError) as error:
            if calling or not _is_out_of_memory(error):
                raise
            hyper = planned.hyper
            raise BadInput(
                f"not enough memory ({str(error).strip().splitlines()[0]}); use fewer clients, or a smaller model or "
                f"batch: hidden = {hyper.hidden}, embedding = {hyper.embedding}, batch = {hyper.batch}"
            ) from error
        tracker.finish(result)
    return result


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed; torch has a type for it on GPUs only."""
    signs = ("can't allocate memory", "Storage size calculation overflowed")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(sign in str(error) for sign in signs)


def assemble(
    dataset: Dataset, partition: Partition, method: Method, hyper: Hyper, rounds: int, seed: int,
    model: ModelSpec, device: str, wiring: Wiring | None = None, drift: tuple[str, DriftingPartition] | None = None,
) -> Federation:  # fmt: skip
    """The federation that an engine runs: data split, ring ordered, models initialised.

    `drift` is its spelling and the partition of every round, of which `partition` is the first.
    """
    clients = len(partition.train)
    own = hyper.initial == "per-client"
    wanted = sized(model, hyper.hidden, hyper.embedding)
    inputs = _inputs(dataset, partition)
    models = [build_model(wanted, inputs, dataset.classes, seed, client) for client in range(clients if own else 1)]
    method = with_possible_head(method, models[0], dataset.task)
    if method.head == "random":  # the same for all, also where extractors start from weights of their own
        models = [replace(each, head=models[0].head) for each in models]
    models = [with_private(each, method, algorithm_of(method, hyper)) for each in models]
    wiring = wiring or Wiring()
    orders = _ring_orders(dataset, partition, method, hyper, rounds, wiring, drift)
    edges = wiring.edges if method.topology == "edges" else ()
    changing = None
    if drift is not None:
        changing = drifting_data(drift[0], dataset, drift[1], models[0].inputs)
        data = [changing.client(client, 0) for client in range(clients)]
    else:
        data = _client_data(dataset, partition, models[0].inputs)
    return Federation(
        method, hyper, rounds, seed, orders[0][1], data, models, device_of(device), edges=edges, drift=changing,
        orders=orders if reorders(method, hyper) else (),
    )  # fmt: skip


def device_of(name: str) -> torch.device:
    """The torch device of that name, if this machine has it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown("device", name, DEVICES) from None
    if device.type == "meta":
        raise BadInput("device = 'meta': its tensors hold no data, so nothing can be trained on it")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"device = {name!r}: not available on this machine ({str(error).splitlines()[0]})") from None
    return device


def _rows(config: RunConfig) -> list[Method]:
    """The rows of the design table that are trained, with their algorithms."""
    rows = [lookup(each) if isinstance(each, str) else _own(each) for each in config.methods]
    return [resolved(row) for row in rows]


def _own(row: Method) -> Method:
    """A row of the user's own, checked; where its numbers come from must not be a surprise."""
    if not check(row).base:
        warnings.warn(
            f"method {row.name!r} has no base, so it trains with the defaults of firma.Hyper; "
            "set base to the name of a method to use its hyperparameters",
            UserWarning,
            stacklevel=2,
        )
    return row


def _check_participation(share: float, clients: int, method: Method) -> None:
    """Refuse a method without a server of which one client of several takes part: it would mix with nobody."""
    if method.topology not in ("none", "star") and clients > 1 and participant_count(share, clients) == 1:
        raise BadInput(
            f"participation = {share}: 1 of {clients} clients would take part in a round, but {method.name} mixes "
            f"clients without a server and requires at least 2; use {2 / clients:.2g}, for example"
        )


def _check_topology(share: float, clients: int, method: Method, hyper: Hyper, wiring: Wiring) -> None:
    """Refuse a graph, or an order, that does not exist for so many clients."""
    wiring.check(clients)
    graph = graph_of(method, hyper, edges=wiring.edges)
    if graph is not None and graph.topology != "edges":
        check_graph(graph, participant_count(share, clients))


def _check_attack(config: RunConfig, clients: int, task: str) -> None:
    """Refuse attacks without an honest client, and wrong labels where there are no classes."""
    if config.attackers >= clients:
        raise BadInput(f"--attackers {config.attackers}: must be less than the number of clients, {clients}")
    if config.attack == "label-flip" and config.drift is not None:
        raise BadInput("--attack label-flip cannot be combined with --drift, which replaces the data in every round")
    if config.attack == "label-flip" and task != "classification":
        raise BadInput(f"--attack label-flip requires a classification task, and this is {task}; use another attack")


def _attacked(run: Federation, config: RunConfig, classes: int) -> Federation:
    """The federation with dishonest clients, drawn by its seed."""
    _check_attack(config, run.clients, run.task.name)  # again: clients with too few samples were left out
    attack = drawn_attack(config.attack, config.attackers, run.clients, run.seed)
    if attack is None:
        return run
    data = run.data
    if attack.kind == "label-flip":
        data = [poisoned(each, classes) if n in attack.clients else each for n, each in enumerate(run.data)]
    return replace(run, data=data, attack=attack)


def _warn_of_untrained(run: Federation) -> None:
    """Say how many clients are never drawn: whatever a server does not provide stays as it was initialised."""
    what = _never_provided(run)
    if run.participation == 1.0 or not what:
        return
    drawn = {client for number in range(run.rounds) for client in run.ring(run.plan(number))}
    if missing := run.clients - len(drawn):
        warnings.warn(
            f"participation = {run.participation}: {missing} of {run.clients} clients take part in none of the "
            f"{run.rounds} rounds (seed {run.seed}); {run.method.name} tests them with untrained {what}",
            UserWarning,
            stacklevel=2,
        )


def _never_provided(run: Federation) -> str:
    """What a client that is never drawn keeps as it was initialised, for people; empty if a server provides all."""
    layout, method = run.models[0].layout(), run.method
    if method.topology != "star":
        return "models"
    if method.shares == "model":
        return "private parameters" if sum(layout.private) else ""
    if method.head != "learnt":
        return ""  # the head is fixed, and known to all
    return "heads" if method.shares == "extractor" else "extractors"


def _engine_options(config: RunConfig) -> EngineOptions:
    folder = Path(config.checkpoint) if config.checkpoint is not None else None
    if folder is not None:
        check_writable(folder, "checkpoint")
    return EngineOptions(config.engine, config.address, config.workers, folder, config.recover)


def _execute(experiment: Experiment, planned: PlannedRun, on_round: OnRound | None, start: Start) -> Result:
    began = time.perf_counter()
    config, dataset = experiment.config, experiment.dataset
    method, hyper, seed = planned.method, planned.hyper, planned.seed
    partition, drift = _split(experiment, seed)
    experiment.wiring.check(len(partition.train), partition.dropped)
    assembled = assemble(
        dataset, partition, method, hyper, experiment.rounds, seed, experiment.model, config.device, experiment.wiring,
        drift,
    )  # fmt: skip
    federation = replace(
        assembled,
        backend=config.backend,
        workers=config.workers,
        wire=config.wire,
        task=experiment.task,
        participation=config.participation,
    )
    federation = _attacked(federation, config, dataset.classes)
    # Before training: files may be edited while it runs.
    wanted = sized(experiment.model, hyper.hidden, hyper.embedding)
    model = record(wanted, _inputs(dataset, partition), dataset.classes, federation.models[0])
    _check_participation(config.participation, federation.clients, method)
    _check_topology(config.participation, federation.clients, method, hyper, experiment.wiring)
    taking_part = participant_count(config.participation, federation.clients)
    check_members(method, hyper, taking_part, experiment.rounds, config.wire)  # again: some may have been left out
    _warn_of_untrained(federation)
    audit = Audit(neighbours(federation.order)) if config.audit else None
    with live_run(config.live) as live:
        if live.on:
            live.write("run", _live_facts(experiment, planned, partition, federation))
        running = start(federation, audit)
        outcomes = []
        for outcome in _watched(federation, f"{method.name}, seed {seed}", running.rounds()):
            outcomes.append(outcome)
            live.round(federation, outcome)
            if on_round is not None:
                on_round(method.name, seed, outcome)
        live.write("end", {"status": "finished", "seconds": round(time.perf_counter() - began, 3)})
    return Result(
        method=method.name,
        seed=seed,
        config=_described(experiment, partition, federation, model),
        history=np.stack([outcome.scores for outcome in outcomes]),
        order=federation.order,
        sent_bytes=tuple(outcome.sent_bytes for outcome in outcomes),
        messages=tuple(outcome.messages for outcome in outcomes),
        seconds=time.perf_counter() - began,
        backend=running.described,
        audit=audit.summary() if audit is not None else None,
        parameters=running.parameters,
        template=federation.models[0],
        buffers=tuple(running.buffers),
        frozen=tuple(dict(model.named_frozen()) for model in federation.models),
        curves=_curves(outcomes),
        standardisers=client_standardisers(dataset, partition),
        orders=tuple((number + 1, order) for number, order in federation.orders),
    )


def _split(experiment: Experiment, seed: int) -> tuple[Partition, tuple[str, DriftingPartition] | None]:
    """The data split among clients: in the first round and, where they drift, in every round."""
    how = experiment.dataset, experiment.scenario, experiment.clients, experiment.split, seed
    if experiment.drift is None or experiment.config.drift is None:
        return deal(*how), None
    changing = deal_over_rounds(*how, experiment.drift, experiment.rounds)
    return changing.at(0), (experiment.config.drift, changing)


def _inputs(dataset: Dataset, partition: Partition) -> InputSpec:
    return InputSpec(dataset.shape, *input_form(dataset, partition))


def _task(config: RunConfig, dataset: Dataset) -> Task:
    """What is learnt and how it is judged; functions of the user's own are imported."""
    loss = own_function(config.loss, "loss") if config.loss is not None else None
    return Task(dataset.task, loss, own_metrics(config.metric, dataset.task), config.train_curves)


def _curves(outcomes: Sequence[RoundOutcome]) -> dict[str, NDArray[np.float64]]:
    """(rounds, N) of every metric but the main one; NaN for rounds that an earlier version saved without it."""
    names = dict.fromkeys(name for outcome in outcomes for name in outcome.metrics)
    missing = np.full(len(outcomes[0].scores), np.nan)
    return {name: np.stack([outcome.metrics.get(name, missing) for outcome in outcomes]) for name in names}


def _watched(run: Federation, name: str, outcomes: Iterable[RoundOutcome]) -> Iterator[RoundOutcome]:
    """The outcomes, with one warning at most: when a run goes wrong, or at its end if its accuracy flatters it."""
    balance = None
    if run.task.name == "classification":
        balance = label_balance([each.test_labels.cpu().numpy() for each in run.data])
    found, last = "", None
    for last in outcomes:  # the last one is looked at again
        if balance is not None and run.drift is not None:
            balance = label_balance(run.drift.test_labels(last.number))
        if not found:
            found = diverged(last.number, last.metrics, run.hyper.rate)
            found = found or at_chance(run.task, last.number, last.scores, last.metrics, balance)
            _warn(name, found)
        yield last
    if not found and last is not None and balance is not None and "balanced_accuracy" in last.metrics:
        _warn(name, flattered(float(last.scores.mean()), float(last.metrics["balanced_accuracy"].mean()), balance))


def _warn(name: str, text: str) -> None:
    if text:
        warnings.warn(f"{name}: {text}", UserWarning, stacklevel=2)


def _planned(experiment: Experiment, planned: PlannedRun) -> dict[str, Any]:
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


def _live_facts(experiment: Experiment, planned: PlannedRun, partition: Partition, run: Federation) -> dict[str, Any]:
    """What a live page shows of a run before its first round."""
    config, dataset, row = experiment.config, experiment.dataset, run.method
    place = config.live if isinstance(config.live, LivePlace) else LivePlace(Path())
    facts = RunFacts(row.name, run.seed, _planned(experiment, planned), run.task.main)
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


def _described(
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
        **_data_record(experiment, partition),
        **_task_record(federation.task),
        **_attack_record(federation),
    } | ({} if in_table(federation.method) else {"columns": columns(federation.method)})


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


def _ring_orders(
    dataset: Dataset, partition: Partition, method: Method, hyper: Hyper, rounds: int, wiring: Wiring,
    drift: tuple[str, DriftingPartition] | None,
) -> tuple[tuple[int, tuple[int, ...]], ...]:  # fmt: skip
    """The rounds (from 0) in which the ring is ordered, and the orders of clients on it.

    As given or by bandwidth, once; or by 2-opt of the label proportions, once or several times.
    """
    if method.order != "2-opt":
        return ((0, wiring.ring_order(len(partition.train), method)),)
    still = label_proportions(dataset, partition.train)

    def proportions(number: int) -> NDArray[np.float64]:
        return still if drift is None else drift[1].proportions(dataset, number)

    return tuple(orders_over_rounds(proportions, rounds, hyper.ring_cost, hyper.reorder_every, hyper.reorder_when))


def reorders(method: Method, hyper: Hyper) -> bool:
    """Whether 2-opt may order the ring more than once."""
    return method.order == "2-opt" and (hyper.reorder_every > 0 or hyper.reorder_when is not None)


def _client_data(dataset: Dataset, partition: Partition, kind: InputKind) -> list[ClientData]:
    _, scale = input_form(dataset, partition)

    def one(client: int) -> ClientData:
        x_train, x_test = client_inputs(dataset, partition, client)
        train, test = dataset.y_train[partition.train[client]], dataset.y_test[partition.test[client]]
        labels, test_labels = torch.from_numpy(train), torch.from_numpy(test)
        return ClientData(as_tensor(x_train, kind), labels, as_tensor(x_test, kind), test_labels, scale)

    return [one(client) for client in range(len(partition.train))]
