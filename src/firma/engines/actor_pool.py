"""The pool of Ray actors that a federation runs in: one per node, replaced when it is lost."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from firma.engines.client_group import Array, ClientGroup, read_only
from firma.engines.drifting_data import DriftingData
from firma.engines.engine import Federation
from firma.engines.ray_cluster import WorkerLost, answers, nodes, ray
from firma.engines.shipped_code import Code, provide
from firma.errors import BadInput
from firma.training.local_step import ClientData

Packed = list[tuple[Array, Array, Array, Array, float]]
_BITS = 40  # of a sum that count
_PATIENCE = 300  # seconds to wait for a cluster that gives no cores


def pack(data: Sequence[ClientData]) -> Packed:
    """Clients' data as plain arrays, which the processes of a node then share."""
    return [
        (each.inputs.numpy(), each.labels.numpy(), each.test_inputs.numpy(), each.test_labels.numpy(), each.scale)
        for each in data
    ]


class GroupActor:
    """What runs in an actor: one group of clients, by the same code as in the simulation."""

    _group: ClientGroup | None = None

    def provide(self, code: Code) -> None:
        """Make the user's own modules importable, which `begin` then needs."""
        provide(code)

    def begin(self, federation: Federation, numbers: Sequence[int], data: Packed | DriftingData) -> str:
        """Hold a group, in place of an earlier one; returns how it is trained."""
        if self._group is not None:
            self._group.close()
        self._group = None  # frees its memory before the next one is allocated
        if isinstance(data, DriftingData):
            first = [data.client(number, 0) for number in numbers]
            self._group = ClientGroup(replace(federation, drift=data), numbers, first)
            return self._group.described
        unpacked = [
            ClientData(read_only(x), read_only(y), read_only(x_test), read_only(y_test), scale)
            for x, y, x_test, y_test, scale in data
        ]
        self._group = ClientGroup(federation, numbers, unpacked)
        return self._group.described

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the group."""
        return getattr(self._group, name)(*arguments)

    def several(self, name: str, *arguments: Any) -> Any:
        """Call a method whose results are separate objects: Ray takes a list of one for a single result."""
        result = self.call(name, *arguments)
        return result[0] if len(result) == 1 else result

    def add(self, *parts: Array) -> Array:
        """The sum of float64 parts, in their order, as float32: the same however clients are grouped.

        A mean of samples can lie exactly between two float32 numbers, once in some hundred elements, and then the last
        bit of a sum would decide. So sums are rounded to 40 bits first, which makes it a tie again.
        """
        mantissa, exponent = np.frexp(np.asarray(sum(parts[1:], start=parts[0])))
        return np.asarray(np.ldexp(np.rint(np.ldexp(mantissa, _BITS)), exponent - _BITS), dtype=np.float32)

    def ready(self) -> int:
        """The process id, once all earlier calls are done."""
        return os.getpid()


@dataclass
class ActorSlot:
    """Where an actor runs and with how many threads; `claimed` cores are reserved for it in Ray."""

    node: str
    threads: int = 1
    claimed: int = 1
    actor: Any = None


class ActorPool:
    """One actor per node, or `count` in all, with one thread per core; `workers` limits the sum of threads."""

    def __init__(self, workers: int | None = None, count: int | None = None) -> None:
        self.slots = _layout(nodes(), workers, count)

    def __enter__(self) -> "ActorPool":
        self.repair()
        return self

    def __exit__(self, *_: object) -> None:
        for slot in self.slots:
            if slot.actor is not None:
                ray().kill(slot.actor)

    def repair(self) -> list[int]:
        """Replace every actor that is gone, on another node if necessary; returns their slots."""
        gone = [index for index, slot in enumerate(self.slots) if not _alive(slot)]
        for index in gone:
            self._fill(self.slots[index])
        self._wait([self.slots[index] for index in gone])
        return gone

    def _fill(self, slot: ActorSlot) -> None:
        there = nodes()
        if slot.node not in there:
            held = {node: sum(other.node == node for other in self.slots) for node in there}
            slot.node = min(there, key=lambda node: (held[node], -there[node]))
            # A node that already has a group has no cores left to claim: the two share them.
            slot.claimed = 0 if held[slot.node] else min(slot.claimed, there[slot.node])
        placed = ray().util.scheduling_strategies.NodeAffinitySchedulingStrategy(slot.node, soft=False)
        options = {"num_cpus": slot.claimed, "scheduling_strategy": placed, "max_restarts": 0}
        slot.actor = ray().remote(GroupActor).options(**options).remote()

    def _wait(self, slots: Sequence[ActorSlot]) -> None:
        """Wait until their processes run; a cluster whose cores are all taken is an error, not an endless wait."""
        references = [slot.actor.ready.remote() for slot in slots]
        if references and ray().wait(references, num_returns=len(references), timeout=_PATIENCE)[1]:
            wanted = sum(slot.claimed for slot in slots)
            raise BadInput(
                f"engine = 'ray': the cluster did not provide {wanted} cores within {_PATIENCE} s; free some, or "
                "use fewer with --workers"
            )


def _alive(slot: ActorSlot) -> bool:
    """Whether the actor answers, which it does once all earlier calls are done."""
    if slot.actor is None:
        return False
    try:
        answers(slot.actor.ready.remote())
    except WorkerLost:
        ray().kill(slot.actor)
        return False
    return True


def _layout(there: dict[str, int], workers: int | None, count: int | None) -> list[ActorSlot]:
    """Slots on the nodes with most free cores, and threads over the slots, at least one each."""
    room = dict(there)
    total = min(workers or sum(room.values()), sum(room.values()))
    slots: list[ActorSlot] = []
    for _ in range(min(count or len(room), total)):
        node = max(room, key=lambda node: room[node] - 1e-6 * sum(slot.node == node for slot in slots))
        slots.append(ActorSlot(node))
        room[node] -= 1
    for _ in range(total - len(slots)):
        open_ = [slot for slot in slots if room[slot.node]]
        if open_:
            slot = min(open_, key=lambda slot: slot.threads)
            slot.threads, slot.claimed = slot.threads + 1, slot.claimed + 1
            room[slot.node] -= 1
    return slots
