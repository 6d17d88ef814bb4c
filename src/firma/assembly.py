"""From data, numbers and a method to a federation that an engine can run."""

import numpy as np
import torch
from torch import Tensor

from firma.data.dataset import Array, Dataset
from firma.data.partition import Partition, class_proportions, client_inputs
from firma.engines.federation import Federation
from firma.errors import BadInput
from firma.methods import Method
from firma.mixing.order import similarity, two_opt
from firma.models.split import ModelSource, build_model
from firma.settings import Hyper
from firma.training.client import ClientData


def assemble(
    dataset: Dataset, partition: Partition, method: Method, hyper: Hyper, rounds: int, seed: int,
    source: ModelSource, device: str,
) -> Federation:  # fmt: skip
    """The federation that an engine runs: data dealt, ring ordered, models initialised."""
    clients = len(partition.train)
    own = hyper.initial == "per-client"
    sizes = (hyper.hidden, hyper.embedding)
    models = [
        build_model(source, dataset.shape, dataset.classes, sizes, seed, client)
        for client in range(clients if own else 1)
    ]
    return Federation(
        method, hyper, rounds, seed, ring_order(dataset, partition, method, hyper),
        _client_data(dataset, partition), models, device_of(device),
    )  # fmt: skip


def ring_order(dataset: Dataset, partition: Partition, method: Method, hyper: Hyper) -> tuple[int, ...]:
    """Who sits where: as given, or as 2-opt finds it from the class proportions of the training data."""
    if method.order == "given":
        return tuple(range(len(partition.train)))
    proportions = class_proportions(dataset.y_train, partition.train, dataset.classes)
    return tuple(two_opt(similarity(proportions, hyper.ring_cost)))


def _client_data(dataset: Dataset, partition: Partition) -> list[ClientData]:
    def tensor(stored: Array) -> Tensor:
        """Bytes stay bytes: a batch is scaled when it is used, see benchmarks/README.md."""
        return torch.from_numpy(np.ascontiguousarray(stored) if stored.dtype == np.uint8 else stored.astype(np.float32))

    def one(client: int) -> ClientData:
        x_train, x_test = client_inputs(dataset, partition, client)
        train, test = dataset.y_train[partition.train[client]], dataset.y_test[partition.test[client]]
        return ClientData(
            tensor(x_train), torch.from_numpy(train), tensor(x_test), torch.from_numpy(test), dataset.scale
        )

    return [one(client) for client in range(len(partition.train))]


def device_of(name: str) -> torch.device:
    """The torch device of that name, if this machine has it."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"device = {name!r}: not on this machine ({str(error).splitlines()[0]})") from None
    return device
