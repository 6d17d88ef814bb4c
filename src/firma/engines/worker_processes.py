"""Clients trained side by side in forked processes, for models that may draw random numbers.

torch's, NumPy's and Python's generators belong to the whole process. In a process of its own each client draws from
generators at its address, whatever its `forward` does, so the figures are the same for any number of workers. A fork
needs no copy of the model or the data and pickles neither; what training changes lies in memory that the processes
share. As with the workers of torch's DataLoader, a fork is safe as long as the child uses one thread, which it does.
"""

import builtins
import ctypes
import mmap
import multiprocessing
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import torch
from torch import Tensor

from firma.errors import BadInput
from firma.training.local_step import Client, Trainer

Outcome = TypeVar("Outcome")
_LINE = 64  # bytes of a cache line
_PATIENCE = 10  # seconds that a process may take to end
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def obstacle() -> str:
    """Why this process cannot fork workers, for people; empty if it can."""
    if sys.platform != "linux":
        return "worker processes are forked, which is safe on Linux only"
    if torch.cuda.device_count():
        return "autograd cannot be forked where torch uses a GPU"
    if multiprocessing.current_process().daemon:
        return "this process is itself a daemon"
    return ""


def shared_empty(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """An uninitialised tensor in memory that this process shares with those that it forks."""
    size = prod(shape) * dtype.itemsize
    return torch.frombuffer(mmap.mmap(-1, max(size, 1)), dtype=torch.uint8)[:size].view(dtype).view(*shape)


def share_memory(clients: Sequence[Client], there: Collection[str] = ()) -> None:
    """Move what clients remember between rounds to shared memory, one block for all: a kernel limits their number.

    What is named in `there` lies in shared memory already.
    """
    tensors = [
        (client, name, tensor) for client in clients for name, tensor in client.memory.items() if name not in there
    ]
    sizes = [-(-tensor.nbytes // _LINE) * _LINE for *_, tensor in tensors]
    block, start = shared_empty([sum(sizes)], torch.uint8), 0
    for (client, name, tensor), size in zip(tensors, sizes, strict=True):
        place = block[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        client.memory[name] = place.copy_(tensor)
        start += size


class WorkerProcesses:
    """Processes that work on clients one at a time; forked at the first call, from then on they wait for the next.

    They know the clients and `owner` from the fork. Work is a method of the owner or a function of a module: its name
    and its arguments are sent, and its result is sent back.
    """

    def __init__(self, count: int, owner: object, trainer: Trainer, clients: Sequence[Client]) -> None:
        self.trainer = trainer  # of which every process has a copy from the fork
        self._count, self._owner, self._clients = count, owner, list(clients)
        self._places = {client.number: place for place, client in enumerate(clients)}
        self._processes: dict[Connection, BaseProcess] = {}

    def can(self, work: Callable[..., object]) -> bool:
        """Whether the processes know this work by name."""
        return getattr(work, "__self__", None) is self._owner or "<" not in getattr(work, "__qualname__", "<")

    def each(
        self, clients: Sequence[Client], work: Callable[..., Outcome], arguments: tuple[object, ...]
    ) -> list[Outcome]:
        """`work(trainer, client, …)` on every client, the largest first; results in the clients' order.

        An error in a process is raised here, with its traceback as a note; then the processes are ended.
        """
        todo = sorted((self._places[each.number] for each in clients), key=self._size)  # the largest is last
        results: dict[int, Outcome] = {}
        task = (work.__name__ if getattr(work, "__self__", None) is self._owner else work, arguments)
        try:
            self._start()
            busy = set()
            for connection in list(self._processes)[: len(todo)]:
                connection.send((todo.pop(), *task))
                busy.add(connection)
            while busy:
                for ready in wait(list(busy)):
                    assert isinstance(ready, Connection)
                    place, outcome = self._received(ready)
                    results[place] = outcome
                    if todo:
                        ready.send((todo.pop(), *task))
                    else:
                        busy.remove(ready)
        except BaseException:
            self.close(at_once=True)
            raise
        return [results[self._places[each.number]] for each in clients]

    def close(self, at_once: bool = False) -> None:
        """End the processes, `at_once` in the middle of their work."""
        for connection, process in self._processes.items():
            connection.close()  # which a process takes for the end
            if at_once:
                process.kill()
            process.join(_PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()
        self._processes.clear()

    def _size(self, place: int) -> int:
        return len(self._clients[place].data.labels)

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        while len(self._processes) < self._count:
            here, there = context.Pipe()
            ends = (here, *self._processes)  # of the parent: a process that kept them would never see them closed
            process = context.Process(target=_serve, args=(there, ends, self), daemon=True)
            with _quiet_fork():
                process.start()
            there.close()
            self._processes[here] = process

    def _received(self, ready: Connection) -> tuple[int, Any]:
        """A client's place and its result; an error of the process is raised."""
        try:
            place, outcome, error = ready.recv()
        except (EOFError, OSError):
            process = self._processes[ready]
            process.join(_PATIENCE)
            raise BadInput(
                f"a worker process ended unexpectedly (exit code {process.exitcode}), perhaps for lack of memory; "
                "use fewer workers, or 1 to train in this process"
            ) from None
        if error is not None:
            kind, message, trace = error
            raise _rebuilt(kind, message, f"client {self._clients[place].number}:\n{trace}")
        return place, outcome


def _rebuilt(kind: str, message: str, about: str) -> Exception:
    """An error of a process as it is raised here: of the same type if that is one of Python's own."""
    known = BadInput if kind == BadInput.__name__ else getattr(builtins, kind, None)
    error: Exception = RuntimeError(f"{kind}: {message}")
    if isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, OSError | UnicodeError):
        error = known(message)
    error.add_note(f"raised in a worker process that trained {about}")
    return error


def _serve(there: Connection, parents: Sequence[Connection], known: WorkerProcesses) -> None:
    """What a process does until its parent closes the connection."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for connection in parents:
        connection.close()
    torch.set_num_threads(1)
    while True:
        try:
            place, task, arguments = there.recv()
        except (EOFError, OSError):
            return
        try:
            work = getattr(known._owner, task) if isinstance(task, str) else task
            there.send((place, work(known.trainer, known._clients[place], *arguments), None))
        except BaseException as error:
            there.send((place, None, (type(error).__name__, str(error), traceback.format_exc())))


@contextmanager
def _quiet_fork() -> Iterator[None]:
    """Python 3.12 warns of every fork of a process with threads; the child does not use what they may have locked."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*use of fork.*", DeprecationWarning)
        yield
