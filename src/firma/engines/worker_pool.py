"""Workers that train clients side by side: threads, or processes where a model draws random numbers.

The compiled kernels release Python's lock while they work, and so do torch's, so threads are enough for models that
draw no random numbers.
"""

import os
import queue
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

import torch

from firma.engines.worker_processes import WorkerProcesses, obstacle, share_memory
from firma.training.backend import Backend, torch_threads
from firma.training.local_step import Client, Trainer

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Given = TypeVarTuple("Given")


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPool:
    """Trainers, and the threads or processes that use them, as many at a time as the backend allows.

    Threads have a trainer each. Processes are forked from this one, with the trainer that it has (`fork`).
    """

    def __init__(self, backend: Backend, clients: int, wanted: int | None) -> None:
        several = min(wanted or cores(), clients)
        self.obstacle = obstacle() if backend.parallel == "processes" else ""
        alone = clients == 1 or backend.parallel == "no" or bool(self.obstacle)
        self.count = 1 if alone else several
        self.forks = backend.parallel == "processes" and self.count > 1
        self._trainers: queue.SimpleQueue[Trainer] = queue.SimpleQueue()
        for _ in range(1 if self.forks else self.count):
            self._trainers.put(backend.make())
        # Alone, a large model may use all cores; among others, one core per client: the same bits for any number.
        self._threads = backend.threads if alone else 1
        threaded = backend.parallel == "threads"
        self._pool = ThreadPoolExecutor(self.count, initializer=_flush) if threaded else None
        self._processes: WorkerProcesses | None = None

    def fork(self, owner: object, clients: Sequence[Client], there: Collection[str]) -> None:
        """Let processes work on these clients, which lie in shared memory from now on; work is methods of `owner`.

        Those of their memories that are named in `there` lie in it already.
        """
        share_memory(clients, there)
        self._processes = WorkerProcesses(self.count, owner, self._trainers.get(), clients)
        self._trainers.put(self._processes.trainer)

    def each(
        self, clients: Sequence[Client], work: Callable[[Trainer, Client, *Given], Outcome], *arguments: *Given
    ) -> list[Outcome]:
        """`work(trainer, client, …)` on every client, the largest first to keep all workers busy, in clients' order.

        For processes, `work` must be a method of the owner or a function of a module; anything else is done here.
        """

        def one(client: Client) -> Outcome:
            trainer = self._trainers.get()
            try:
                return work(trainer, client, *arguments)
            finally:
                self._trainers.put(trainer)

        with torch_threads(self._threads):
            if self._processes is not None and len(clients) > 1 and self._processes.can(work):
                return self._processes.each(clients, work, arguments)
            if self._pool is None:
                return [one(client) for client in clients]
            largest_first = sorted(clients, key=lambda client: -len(client.data.labels))
            futures = {client.number: self._pool.submit(one, client) for client in largest_first}
            return [futures[client.number].result() for client in clients]

    def spread(self, work: Callable[[Item], None], items: Sequence[Item]) -> None:
        """`work` on every item, side by side; torch's products use one thread each: with two, some CPUs round
        differently, and a run would depend on the number of cores."""
        workers = self.count if self._pool is not None else 1

        def several(first: int) -> None:
            for item in items[first::workers]:
                work(item)

        with torch_threads(1):
            if self._pool is None:
                several(0)
            else:
                list(self._pool.map(several, range(workers)))

    def close(self) -> None:
        """Stop the workers; work that has not begun is dropped."""
        if self._processes is not None:
            self._processes.close()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _flush() -> None:
    """Flush denormal numbers to zero in this thread: Adam's moments of dead units decay into them, and arithmetic on
    them is three times slower."""
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
