"""Clients that share a process, and the threads that train them side by side.

All clients in the simulation, one node's part of them on a cluster. The compiled kernels release Python's lock while
they work, so threads are enough.
"""

import os
import queue
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypedDict, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firma.engines.engine import Federation
from firma.mixing.matrix_blocks import Blocks, apply
from firma.schedule import RoundPlan
from firma.tasks.scores import scores
from firma.training.backend import Backend, choose, train_round
from firma.training.local_step import Client, ClientData, Job, Trainer, new_client

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPool:
    """A trainer for every worker, and a pool of threads where the backend allows it."""

    def __init__(self, backend: Backend, clients: int, wanted: int | None) -> None:
        self.count = min(wanted or cores(), clients) if backend.parallel else 1
        self._trainers: queue.SimpleQueue[Trainer] = queue.SimpleQueue()
        for _ in range(self.count):
            self._trainers.put(backend.make())
        self._threads = backend.threads
        self._pool = ThreadPoolExecutor(self.count, initializer=_flush) if backend.parallel else None

    def each(self, clients: Sequence[Client], work: Callable[[Trainer, Client], Outcome]) -> list[Outcome]:
        """`work` on every client, the largest first to keep all threads busy; results in the clients' order."""

        def one(client: Client) -> Outcome:
            trainer = self._trainers.get()
            try:
                return work(trainer, client)
            finally:
                self._trainers.put(trainer)

        with torch_threads(self._threads):
            if self._pool is None:
                return [one(client) for client in clients]
            largest_first = sorted(clients, key=lambda client: -len(client.data.labels))
            futures = {client.number: self._pool.submit(one, client) for client in largest_first}
            return [futures[client.number].result() for client in clients]

    def spread(self, work: Callable[[Item], None], items: Sequence[Item]) -> None:
        """`work` on every item, side by side; torch's products use one thread each: with two, some CPUs round
        differently, and a run would depend on the number of cores."""

        def several(first: int) -> None:
            for item in items[first :: self.count]:
                work(item)

        with torch_threads(1):
            if self._pool is None:
                several(0)
            else:
                list(self._pool.map(several, range(self.count)))

    def close(self) -> None:
        """Stop the threads; work that has not begun is dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _flush() -> None:
    """Flush denormal numbers to zero in this thread: Adam's moments of dead units decay into them, and arithmetic on
    them is three times slower."""
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """torch (and the sgemm in it) with that many threads of its own, for a while; None changes nothing."""
    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count is not None and count != before:
            torch.set_num_threads(before)


Array = NDArray[Any]


class GroupState(TypedDict):
    """All that clients keep between rounds: (n, P) parameters, and each client's memory as named arrays."""

    numbers: list[int]
    parameters: Array
    memory: list[dict[str, Array]]


class ClientGroup:
    """Clients `numbers`, whose parameters are the rows of the (n, P) `stack`, in the layout of the backend.

    `data` and `federation.models` are those of these clients alone, in the same order.
    """

    def __init__(self, federation: Federation, numbers: Sequence[int], data: Sequence[ClientData]) -> None:
        self.federation, self.numbers = federation, list(numbers)
        models = federation.models
        self.layout = models[0].layout()
        self._recipe = federation.recipe
        self.backend = choose(models[0], federation.device, self._recipe, federation.hyper.batch, federation.backend)
        starts = torch.stack([self.backend.inward(model.flat()) for model in models])
        self.stack = _on_lines(starts, len(data), federation.device)
        self.clients = [
            new_client(number, data[row], self.stack[row], models[row % len(models)], self._recipe)
            for row, number in enumerate(self.numbers)
        ]
        self.workers = WorkerPool(self.backend, len(data), federation.workers)

    @property
    def described(self) -> str:
        """How clients are trained and why, for people."""
        return f"{self.backend.name}, {self.workers.count} at a time ({self.backend.reason})"

    def shared(self, plan: RoundPlan) -> Tensor:
        """(n, …) view of what the plan shares."""
        return self.stack[:, self.layout.span(plan.part)]

    def train(self, plan: RoundPlan) -> list[float]:
        """Every client's local training; their training accuracies where a gate asks for them."""
        run = self.federation
        job = Job(self._recipe, plan.phases, run.hyper.batch)

        def train(trainer: Trainer, client: Client) -> float:
            return train_round(self.backend, trainer, client, job, plan, run.seed)

        return self.workers.each(self.clients, train)

    def test(self) -> dict[str, NDArray[np.float64]]:
        """(n,) every metric of the task on every client's test data, and where asked for on its training data."""
        task = self.federation.task

        def test(trainer: Trainer, client: Client) -> dict[str, float]:
            found = scores(task, trainer.outputs(client, test=True), client.data.test_labels)
            if not task.train_curves:
                return found
            seen = scores(task, trainer.outputs(client, test=False), client.data.labels)
            return found | {f"train_{name}": seen[name] for name in ("loss", task.main)}

        by_client = self.workers.each(self.clients, test)
        return {name: np.array([each[name] for each in by_client]) for name in by_client[0]}

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
        """Every client takes over the average, given in pieces."""
        shared = self.shared(plan)
        shared.copy_(torch.cat([read_only(piece) for piece in pieces]).expand_as(shared))

    def outward(self) -> Array:
        """(n, P) parameters as torch lays them out."""
        return self.backend.outward(self.stack).numpy()

    def state(self) -> GroupState:
        """All that clients keep between rounds; nothing is copied, so use it before they train on."""
        memory = [{name: _array(tensor) for name, tensor in client.memory.items()} for client in self.clients]
        return {"numbers": self.numbers, "parameters": _array(self.stack), "memory": memory}

    def restore(self, state: GroupState) -> None:
        """Continue from a state of the same clients in the same order."""
        self.stack.copy_(read_only(state["parameters"]))
        for client, saved in zip(self.clients, state["memory"], strict=True):
            for name, tensor in client.memory.items():
                tensor.copy_(read_only(saved[name]))

    def close(self) -> None:
        """Stop the threads."""
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
