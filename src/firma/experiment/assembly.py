"""The federation that an engine runs: data split, ring ordered, models initialised, dishonest clients drawn."""

import warnings
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from firma.algorithms.catalogue import algorithm_of
from firma.attacks import drawn_attack, poisoned
from firma.data.dataset import Dataset
from firma.data.drift import DriftingPartition
from firma.data.partition import Partition, client_inputs, input_form, label_proportions
from firma.engines.drifting_data import drifting_data
from firma.engines.engine import Federation
from firma.experiment.checks import check_attack, device_of
from firma.experiment.plan import Experiment
from firma.methods import Method
from firma.mixing.ring_order import orders_over_rounds
from firma.mixing.wiring import Wiring
from firma.models.build import ModelSpec, build_model, sized
from firma.models.probe import InputSpec
from firma.models.split_model import InputKind, SplitModel
from firma.run_config import RunConfig
from firma.settings import Hyper
from firma.training.derived_head import with_possible_head
from firma.training.local_step import ClientData, as_tensor
from firma.training.private_parameters import with_private


def assemble(
    dataset: Dataset, partition: Partition, method: Method, hyper: Hyper, rounds: int, seed: int,
    model: ModelSpec, device: str, wiring: Wiring | None = None, drift: tuple[str, DriftingPartition] | None = None,
) -> Federation:  # fmt: skip
    """The federation that an engine runs: data split, ring ordered, models initialised.

    `drift` is its spelling and the partition of every round, of which `partition` is the first.
    """
    clients = len(partition.train)
    count = clients if hyper.initial == "per-client" else 1
    method, models = _models(dataset, inputs_of(dataset, partition), method, hyper, seed, model, count)
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


def _models(
    dataset: Dataset, inputs: InputSpec, method: Method, hyper: Hyper, seed: int, model: ModelSpec, count: int
) -> tuple[Method, list[SplitModel]]:
    """The method as the model allows it, and what the first `count` clients start from."""
    wanted = sized(model, hyper.hidden, hyper.embedding)
    models = [build_model(wanted, inputs, dataset.classes, seed, client) for client in range(count)]
    method = with_possible_head(method, models[0], dataset.task)
    if method.head == "random":  # the same for all, also where extractors start from weights of their own
        models = [replace(each, head=models[0].head) for each in models]
    return method, [with_private(each, method, algorithm_of(method, hyper)) for each in models]


def check_models(experiment: Experiment) -> None:
    """Refuse methods that do not fit the model, and hooks that fail on it, before the first of several runs trains."""
    dataset = experiment.dataset
    inputs = inputs_of(dataset, Partition((), (), (), standardise=experiment.split.standardise))
    for planned in {run.method.name: run for run in reversed(experiment.runs)}.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the run itself says the same
            method, models = _models(dataset, inputs, planned.method, planned.hyper, planned.seed, experiment.model, 1)
        order, device = tuple(range(experiment.clients)), torch.device("cpu")
        run = Federation(
            method, planned.hyper, experiment.rounds, planned.seed, order, (), models, device, task=experiment.task
        )
        run.recipe.memory(models[0].flat())


def inputs_of(dataset: Dataset, partition: Partition) -> InputSpec:
    """Shape, form and scale of what the clients' models read."""
    return InputSpec(dataset.shape, *input_form(dataset, partition))


def attacked(run: Federation, config: RunConfig, classes: int) -> Federation:
    """The federation with dishonest clients, drawn by its seed."""
    check_attack(config, run.clients, run.task.name)  # again: clients with too few samples were left out
    attack = drawn_attack(config.attack, config.attackers, run.clients, run.seed)
    if attack is None:
        return run
    data = run.data
    if attack.kind == "label-flip":
        data = [poisoned(each, classes) if n in attack.clients else each for n, each in enumerate(run.data)]
    return replace(run, data=data, attack=attack)


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
