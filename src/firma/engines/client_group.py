"""Clients that live together in one process: all of them in the simulation, a node's share of them on a cluster."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firma.engines.federation import ClientData, Federation
from firma.engines.local import train_round
from firma.engines.worker_pool import Workers
from firma.mixing.blocks import Blocks, apply
from firma.schedule import RoundPlan
from firma.training import Client, Job, Moments, Trainer, choose

Array = NDArray[Any]
State = dict[str, Any]  # arrays, and lists of an array a client


class Group:
    """Clients `numbers`, whose parameters are the (n, P) `stack`, a row each, in the layout of the training path.

    `data` and `federation.models` are those of these clients alone, in the same order.
    """

    def __init__(self, federation: Federation, numbers: Sequence[int], data: Sequence[ClientData]) -> None:
        self.federation, self.numbers = federation, list(numbers)
        models = federation.models
        self.layout = models[0].layout()
        self.backend = choose(models[0], federation.device, federation.hyper.batch, federation.backend)
        starts = torch.stack([self.backend.inward(model.flat()) for model in models])
        self.stack = _on_lines(starts, len(data), federation.device)
        self.clients = [self._client(row, number, data[row]) for row, number in enumerate(self.numbers)]
        self.workers = Workers(self.backend, len(data), federation.workers)

    def _client(self, row: int, number: int, data: ClientData) -> Client:
        device, models = self.federation.device, self.federation.models
        private = [each.detach().clone().to(device) for each in models[row % len(models)].buffers()]
        moments = None
        if self.federation.method.persistent == "yes":
            zeros = torch.zeros(self.layout.size, device=device)
            moments = Moments(zeros, zeros.clone())
        return Client(
            number, data.inputs.to(device), data.labels.to(device), data.test_inputs.to(device),
            data.test_labels.to(device), data.scale, self.stack[row], private, moments,
        )  # fmt: skip

    @property
    def described(self) -> str:
        """How clients are trained and why, for people."""
        return f"{self.backend.name}, {self.workers.count} at a time ({self.backend.reason})"

    def shared(self, plan: RoundPlan) -> Tensor:
        """(n, …) view of what the plan shares."""
        return self.stack[:, self.layout.span("model" if plan.shares == "model" else "extractor")]

    def train(self, plan: RoundPlan) -> list[float]:
        """Every client's local training; their training accuracies where a gate asks for them."""
        run = self.federation
        job = Job(run.method, run.hyper, plan.phases)

        def train(trainer: Trainer, client: Client) -> float:
            return train_round(trainer, client, job, plan, run.seed, self.backend)

        return self.workers.each(self.clients, train)

    def test(self) -> list[float]:
        """Every client's test accuracy."""
        return self.workers.each(self.clients, _test_accuracy)

    def rows(self, plan: RoundPlan, *wanted: Sequence[int]) -> list[Array]:
        """Copies of what some clients share, (clients, …) for each group that asked."""
        shared, row = self.shared(plan), {number: row for row, number in enumerate(self.numbers)}
        return [shared[[row[number] for number in numbers]].numpy() for numbers in wanted]

    def mix(self, plan: RoundPlan, blocks: Blocks, owners: Sequence[Sequence[int]] = (), *remote: Array) -> None:
        """This group's part of mixing by blocks; `remote` are rows of clients elsewhere, `owners` their numbers."""
        others: dict[int, Tensor] = {}
        for numbers, rows in zip(owners, remote, strict=True):
            others |= zip(numbers, read_only(rows), strict=True)
        apply(blocks, self.shared(plan), self.numbers, others, self.workers.spread)

    def total(self, plan: RoundPlan, weights: Mapping[int, float], pieces: int) -> list[Array]:
        """This group's part of a weighted sum over all clients, (…) in float64, cut in pieces.

        In float64, so that rounding it to float32 in the end gives the same however clients are grouped.
        """
        shared = self.shared(plan)
        total = torch.zeros(shared.shape[1], dtype=torch.float64)
        for number, row in zip(self.numbers, shared, strict=True):
            total.add_(row, alpha=weights[number])
        return [piece.numpy() for piece in total.tensor_split(pieces)]

    def adopt(self, plan: RoundPlan, *pieces: Array) -> None:
        """Everybody takes over what was averaged, given in pieces."""
        shared = self.shared(plan)
        shared.copy_(torch.cat([read_only(piece) for piece in pieces]).expand_as(shared))

    def outward(self) -> Array:
        """(n, P) parameters as torch lays them out."""
        return self.backend.outward(self.stack).numpy()

    def state(self) -> State:
        """All that clients keep between rounds; nothing is copied, so use it before they train on."""
        moments = [client.moments for client in self.clients if client.moments is not None]
        return {
            "numbers": self.numbers,
            "parameters": _array(self.stack),
            "first": [_array(each.first) for each in moments],
            "second": [_array(each.second) for each in moments],
            "steps": np.array([[m.steps["extractor"], m.steps["head"]] for m in moments], np.int64).reshape(-1, 2),
            "private": [[_array(each) for each in client.private] for client in self.clients],
        }

    def restore(self, state: State) -> None:
        """Be as the state says, for clients in the same order."""
        self.stack.copy_(read_only(state["parameters"]))
        for row, client in enumerate(self.clients):
            for own, kept in zip(client.private, state["private"][row], strict=True):
                own.copy_(read_only(kept))
            if client.moments is not None:
                client.moments.first.copy_(read_only(state["first"][row]))
                client.moments.second.copy_(read_only(state["second"][row]))
                extractor, head = (int(steps) for steps in state["steps"][row])
                client.moments.steps = {"extractor": extractor, "head": head}

    def close(self) -> None:
        """Let the threads go."""
        self.workers.close()


def read_only(array: Array) -> Tensor:
    """A tensor on an array's memory, which may be shared with other processes and must not be written to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def _array(tensor: Tensor) -> Array:
    """A tensor's memory as an array; on a GPU, a copy of it."""
    return tensor.detach().cpu().numpy()


def _on_lines(starts: Tensor, clients: int, device: torch.device) -> Tensor:
    """(n, P) rows that each begin on a cache line: vectors that straddle two lines cost a tenth of the time."""
    size = starts.shape[1]
    stack = torch.empty(clients, -(-size // 16) * 16, device=device)[:, :size]
    stack.copy_(starts.expand(clients, -1))
    return stack


def _test_accuracy(trainer: Trainer, client: Client) -> float:
    return trainer.correct(client, test=True) / len(client.test_labels)
