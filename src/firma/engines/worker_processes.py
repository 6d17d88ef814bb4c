"""Clients trained side by side in forked processes, for models that may draw random numbers.

torch's, NumPy's and Python's generators belong to the whole process. In a process of its own each client draws from
generators at its address, whatever its `forward` does, so the figures are the same for any number of workers. A fork
needs no copy of the model or the data and pickles neither; what training changes lies in memory that the processes
share. Processes live for one call. As with the workers of torch's DataLoader, a fork is safe as long as the child uses
one thread, which it does.
"""

import builtins
import ctypes
import mmap
import multiprocessing
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import torch
from torch import Tensor

from firma.errors import BadInput
from firma.training.local_step import Client

Outcome = TypeVar("Outcome")
_LINE = 64  # bytes of a cache line
_TOKEN = 4  # bytes of a client's place in the queue
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


def share_memory(clients: Sequence[Client]) -> None:
    """Move what clients remember between rounds to shared memory, one block for all: a kernel limits their number."""
    tensors = [(client, name, tensor) for client in clients for name, tensor in client.memory.items()]
    sizes = [-(-tensor.nbytes // _LINE) * _LINE for *_, tensor in tensors]
    block, start = shared_empty([sum(sizes)], torch.uint8), 0
    for (client, name, tensor), size in zip(tensors, sizes, strict=True):
        place = block[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        client.memory[name] = place.copy_(tensor)
        start += size


def run(count: int, clients: Sequence[Client], work: Callable[[Client], Outcome]) -> list[Outcome]:
    """`work` on every client in `count` processes, the largest first; results in the clients' order.

    An error in a process is raised here, with its traceback as text; the processes are gone when this returns.
    """
    context = multiprocessing.get_context("fork")
    queue, tokens = os.pipe()
    order = sorted(range(len(clients)), key=lambda place: -len(clients[place].data.labels))
    results: dict[int, Outcome] = {}
    waiting: dict[Connection, BaseProcess] = {}
    try:
        for _ in range(count):
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(queue, tokens, here, there, clients, work), daemon=True)
            with _quiet_fork():
                process.start()
            there.close()
            waiting[here] = process
        with os.fdopen(tokens, "wb") as line:
            tokens = -1
            line.write(b"".join(place.to_bytes(_TOKEN, "little") for place in order))
        while waiting:
            for ready in wait(list(waiting)):
                assert isinstance(ready, Connection)
                _receive(ready, waiting, clients, results)
    finally:
        for end in (queue, tokens):
            if end >= 0:
                os.close(end)
        for connection, left in waiting.items():
            left.kill()
            left.join()
            connection.close()
    return [results[place] for place in range(len(clients))]


def _receive(
    ready: Connection, waiting: dict[Connection, BaseProcess], clients: Sequence[Client], results: dict[int, Outcome]
) -> None:
    """Take one message of a process: a result, an error, or its end."""
    try:
        what, place, content = ready.recv()
    except (EOFError, OSError):
        waiting[ready].join()
        raise BadInput(
            f"a worker process ended unexpectedly (exit code {waiting[ready].exitcode}), perhaps for lack of memory; "
            "use fewer workers, or 1 to train in this process"
        ) from None
    if what == "error":
        kind, message, trace = content
        if kind == BadInput.__name__:
            raise BadInput(message)
        known = getattr(builtins, kind, RuntimeError)
        usable = (
            isinstance(known, type) and issubclass(known, Exception) and not issubclass(known, OSError | UnicodeError)
        )
        error = (known if usable else RuntimeError)(message)
        error.add_note(f"raised in a worker process that trained client {clients[place].number}:\n{trace}")
        raise error
    if what == "done":
        process = waiting.pop(ready)
        process.join()
        ready.close()
        return
    results[place] = content


def _child(
    queue: int,
    tokens: int,
    here: Connection,
    there: Connection,
    clients: Sequence[Client],
    work: Callable[[Client], Any],
) -> None:
    """What a process does: take the next client from the queue until there is none."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.close(tokens)
    here.close()
    torch.set_num_threads(1)
    place = -1
    try:
        while token := os.read(queue, _TOKEN):
            place = int.from_bytes(token, "little")
            there.send(("result", place, work(clients[place])))
        there.send(("done", place, None))
    except BaseException as error:
        there.send(("error", place, (type(error).__name__, str(error), traceback.format_exc())))


@contextmanager
def _quiet_fork() -> Iterator[None]:
    """Python 3.12 warns of every fork of a process with threads; the child does not use what they may have locked."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*use of fork.*", DeprecationWarning)
        yield
