"""Runs, one after another: trained, watched, recorded, and returned as results."""

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from firma.atomic_files import check_writable
from firma.data.drift import DriftingPartition, deal_over_rounds
from firma.data.partition import Partition, client_standardisers, deal
from firma.engines.engine import EngineOptions, Federation, RoundOutcome, Start, started
from firma.errors import BadInput
from firma.experiment.assembly import assemble, attacked, check_models, inputs_of
from firma.experiment.checks import check_clients
from firma.experiment.doubts import warn_of_doubts
from firma.experiment.plan import Experiment, PlannedRun, resolve
from firma.experiment.records import described, live_facts, planned_facts
from firma.live_log import live_run
from firma.mixing.ring_order import neighbours
from firma.models.build import sized
from firma.models.record import record
from firma.privacy.message_audit import Audit
from firma.progress import in_notebook, shown
from firma.results import Result
from firma.run_config import OnRound, RunConfig, takes_fields_of
from firma.tasks.diagnosis import at_chance, diverged, flattered, label_balance
from firma.tasks.task import TITLES
from firma.tracking import RunFacts, tracked
from firma.training.algorithm import PERSONAL, is_plain


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


def execute(experiment: Experiment, on_round: OnRound | None = None) -> Iterator[Result]:
    """Train the runs of an experiment in order; an engine, such as a cluster, is started once for all of them."""
    if len(experiment.runs) > 1:  # what would end a later run must not cost the time of those before it
        check_models(experiment)
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
    facts = RunFacts(planned.method.name, planned.seed, planned_facts(experiment, planned), experiment.task.main)
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
    federation = attacked(federation, config, dataset.classes)
    # Before training: files may be edited while it runs.
    wanted = sized(experiment.model, hyper.hidden, hyper.embedding)
    model = record(wanted, inputs_of(dataset, partition), dataset.classes, federation.models[0])
    # Again: clients with too few samples were left out.
    check_clients(config, federation.clients, method, hyper, experiment.wiring, experiment.rounds)
    _warn_of_untrained(federation)
    warn_of_doubts(federation)
    audit = Audit(neighbours(federation.order)) if config.audit else None
    with live_run(config.live) as live:
        if live.on:
            live.write("run", live_facts(experiment, planned, partition, federation))
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
        config=described(experiment, partition, federation, model),
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


def _engine_options(config: RunConfig) -> EngineOptions:
    folder = Path(config.checkpoint) if config.checkpoint is not None else None
    if folder is not None:
        check_writable(folder, "checkpoint")
    return EngineOptions(config.engine, config.address, config.workers, folder, config.recover)


def _split(experiment: Experiment, seed: int) -> tuple[Partition, tuple[str, DriftingPartition] | None]:
    """The data split among clients: in the first round and, where they drift, in every round."""
    how = experiment.dataset, experiment.scenario, experiment.clients, experiment.split, seed
    if experiment.drift is None or experiment.config.drift is None:
        return deal(*how), None
    changing = deal_over_rounds(*how, experiment.drift, experiment.rounds)
    return changing.at(0), (experiment.config.drift, changing)


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


def _warn_of_untrained(run: Federation) -> None:
    """Say how many clients are never drawn: whatever a server does not provide stays as it was initialised."""
    what = _never_provided(run)
    if run.participation == 1.0 or not what:
        return
    drawn = {client for number in range(run.rounds) for client in run.ring(run.plan(number))}
    if missing := run.clients - len(drawn):
        warnings.warn(
            f"participation = {run.participation}: {missing} of {run.clients} clients take part in none of the "
            f"{run.rounds} rounds (seed {run.seed}); {run.method.name} tests them with {what}",
            UserWarning,
            stacklevel=2,
        )


def _never_provided(run: Federation) -> str:
    """What a client that is never drawn keeps as it was initialised, for people; empty if a server provides all."""
    layout, method = run.models[0].layout(), run.method
    if method.topology != "star":
        return "untrained models"
    if _trains_personal(run):
        return "personal models that they have not trained"
    if method.shares == "model":
        return "untrained private parameters" if sum(layout.private) else ""
    if method.head != "learnt":
        return ""  # the head is fixed, and known to all
    return "untrained heads" if method.shares == "extractor" else "untrained extractors"


def _trains_personal(run: Federation) -> bool:
    """Whether the algorithm keeps a personal model that only the client's own rounds train."""
    recipe = run.recipe
    if is_plain(recipe.algorithm) or recipe.personal is not None:
        return False
    # That of feature debiasing is the server's model with a bias, which is 0 at first.
    return run.method.algorithm != "debiased" and PERSONAL in recipe.memory(run.models[0].flat())
