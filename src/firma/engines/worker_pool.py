"""Clients trained side by side in threads: the compiled kernels release Python's lock while they work."""

import os
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from firma.training.backend import Backend
from firma.training.client import Client, Trainer

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
        """`work` on every item, side by side; torch's products take one thread each, for with two some CPUs round them
        otherwise, and a run would not be the same on another number of cores."""

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
    """Numbers below 1e-38 count as nothing in this thread: Adam's memory of dead units decays into them, and
    arithmetic on them is three times slower."""
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
