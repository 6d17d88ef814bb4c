"""A Ray cluster: joining or starting one, asking for results, and spreading independent work over it."""

import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from firma.engines.worker_pool import cores
from firma.errors import BadInput

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
_HERE = "local"  # as Ray calls a cluster that is started by the process that uses it
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no usage reports
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # the same priority as in a simulation; only for a cluster that is started here
}


class WorkerLost(BadInput):
    """A process of the cluster, or an object that it held, is gone."""


def ray() -> Any:
    """The library, imported only where a cluster is asked for."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise BadInput("engine = 'ray': requires Ray; install it with: pip install 'firma[ray]'") from None
    return ray


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A cluster: the one that this process has joined, else the one at the address, else a new one on this machine."""
    library = ray()
    if library.is_initialized():
        yield
        return
    wanted = address or os.environ.get("RAY_ADDRESS") or _HERE
    own: dict[str, Any] = {"num_cpus": cores(), "include_dashboard": False} if wanted == _HERE else {}
    _probe(wanted)
    try:
        library.init(wanted, log_to_driver=False, logging_level="error", **own)
    except (ConnectionError, ValueError, RuntimeError, library.exceptions.RayError) as error:
        hint = "a cluster with token authentication requires RAY_AUTH_MODE=token and the token: docs/scale.md"
        raise BadInput(f"address = {wanted!r}: cannot connect to a Ray cluster ({_sentence(error)}); {hint}") from None
    try:
        yield
    finally:
        library.shutdown()


def _probe(address: str) -> None:
    """Report at once if nobody listens at HOST:PORT; Ray itself would retry for minutes."""
    if found := re.fullmatch(r"(?:ray://)?(.+):(\d+)", address):
        try:
            socket.create_connection((found[1], int(found[2])), timeout=10).close()
        except OSError as error:
            raise BadInput(
                f"address = {address!r}: cannot connect ({error.strerror or error}); check the host and port"
            ) from None


def nodes() -> dict[str, int]:
    """Nodes that are alive, and how many cores each has."""
    found = {each["NodeID"]: int(each["Resources"].get("CPU", 0)) for each in ray().nodes() if each["Alive"]}
    if not any(found.values()):
        raise BadInput("engine = 'ray': no node of the cluster has a free core")
    return {node: count for node, count in found.items() if count}


def answers(references: Any) -> Any:
    """The results; `WorkerLost` if a process died, and the error itself if the work failed."""
    errors = ray().exceptions
    gone = (
        errors.RayActorError, errors.ActorUnschedulableError, errors.ObjectLostError, errors.WorkerCrashedError,
        errors.NodeDiedError,
    )  # fmt: skip
    try:
        return ray().get(references)
    except errors.RayError as error:
        cause = error.cause if isinstance(error, errors.RayTaskError) else error
    if isinstance(cause, gone):
        raise WorkerLost(_sentence(cause))
    if isinstance(cause, errors.ObjectStoreFullError | errors.OutOfDiskError):
        raise BadInput(
            f"engine = 'ray': the object store is full ({_sentence(cause)}); start Ray with a larger "
            "--object-store-memory, or save state less often with a larger --recover"
        )
    if isinstance(cause, errors.OutOfMemoryError):
        raise BadInput(
            f"engine = 'ray': a node ran out of memory ({_sentence(cause)}); use more nodes, or save no state with "
            "--recover 0"
        )
    raise cause


def spread(
    work: Callable[[Item, Any], Outcome], items: Sequence[Item], given: Callable[[Item], Any],
    started: Callable[[Item], None],
) -> Iterator[tuple[Item, Outcome]]:  # fmt: skip
    """(item, work(item, given(item))) for every item, as they finish: one per core, repeated if a process dies.

    An argument is sent to every node once, however many items share it.
    """
    task = ray().remote(work).options(num_cpus=1, max_retries=3)
    room = sum(nodes().values())
    left, sent = list(items), {}
    running: dict[Any, Item] = {}
    try:
        while left or running:
            while left and len(running) < room:
                item = left.pop(0)
                started(item)
                argument = given(item)
                if id(argument) not in sent:
                    sent[id(argument)] = (argument, ray().put(argument))  # held, so that no other takes its address
                running[task.remote(item, sent[id(argument)][1])] = item
            done, _ = ray().wait(list(running), num_returns=1)
            item = running.pop(done[0])
            yield item, answers(done[0])
    finally:
        for reference in running:
            ray().cancel(reference, force=True)


def _sentence(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
