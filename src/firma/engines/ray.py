"""The engine for a Ray cluster: groups of clients in actors, and what passes between them.

Only numbers (accuracies) pass through the driver. Parameters go from node to node through the object store as flat
buffers: on a ring, those of clients that another group reads; in an average, one weighted sum per group.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firma.algorithms.catalogue import algorithm_of
from firma.engines.actor_pool import ActorPool, Packed, pack
from firma.engines.checkpoint import RunCheckpoints
from firma.engines.client_group import backend_for
from firma.engines.drifting_data import DriftingData
from firma.engines.engine import Federation, RoundOutcome, round_outcome
from firma.engines.placement import groups, sent_between, transfers
from firma.engines.ray_cluster import WorkerLost, answers, ray
from firma.engines.shipped_code import code_of
from firma.errors import BadInput
from firma.mixing.combine import Common, Gossip
from firma.mixing.kind import Average, kind_of
from firma.mixing.matrix_blocks import Blocks
from firma.schedule import RoundPlan
from firma.training.algorithm import overrides

_FITS = 2 * 2**30  # bytes of parameters that are collected in this process at the end
_ATTEMPTS = 5  # per round, each with new processes for those that were lost
Refs = list[Any]


class RayFederation:
    """A federation in progress: `rounds` runs it; afterwards `parameters` is the (N, P) stack, where that fits.

    Every `recover` rounds the state of all groups is copied to the driver's node, and to disk if there are
    `checkpoints`. When a process or a node is lost, all groups return to the last copy; with 0 there is none, and they
    start over.
    """

    def __init__(
        self, run: Federation, pool: ActorPool, checkpoints: RunCheckpoints | None = None, recover: int = 1
    ) -> None:
        self.federation, self.layout = run, run.models[0].layout()
        self.parameters: Tensor | None = None
        self.buffers: list[dict[str, Tensor]] = []
        self._pool, self._checkpoints, self._recover = pool, checkpoints, recover
        self._groups = groups(run.order, run.sizes, [slot.threads for slot in pool.slots])
        self._data = [ray().put(self._group_data(numbers)) for numbers in self._groups]
        algorithm = algorithm_of(run.method, run.hyper)
        self._code = code_of(run.models, (*run.task.functions, *type(algorithm).__mro__))
        self._has_server = overrides(algorithm, "aggregate")
        self._kept: tuple[Refs, Any] = ([], None)  # states of the groups, and the same held in this node's store
        backend = backend_for(run, run.data)
        threads = [1 if backend.parallel == "no" else slot.threads for slot in pool.slots[: len(self._groups)]]
        self.described = f"{backend.described(sum(threads))} in {len(self._groups)} processes on Ray"

    def _group_data(self, numbers: Sequence[int]) -> Packed | DriftingData:
        """What a group needs: its clients' data, or, where they change, the rows of all rounds."""
        drift = self.federation.drift
        return pack([self.federation.data[n] for n in numbers]) if drift is None else drift.for_clients(numbers)

    def rounds(self) -> Iterator[RoundOutcome]:
        """Run all rounds, one outcome each; those that a checkpoint holds are not run again."""
        done = self._resumed()
        yield from done
        told, kept, failures, entered = len(done), list(done), 0, False
        while True:
            try:
                if not entered:
                    self._enter()
                    entered = True
                if len(done) == self.federation.rounds:
                    self.parameters, self.buffers = self._collected()
                    return
                done.append(self._round(len(done)))
                if self._recover and len(done) % self._recover == 0:
                    self._save(done)
                    kept = list(done)
            except WorkerLost as error:
                failures, entered, done = failures + 1, False, list(kept)
                if failures == _ATTEMPTS:
                    raise BadInput(
                        f"engine = 'ray': round {told + 1} failed {failures} times; last error: {error}"
                    ) from None
                continue
            if len(done) > told:
                told, failures = len(done), 0
                yield done[-1]

    def _resumed(self) -> list[RoundOutcome]:
        """The rounds that the checkpoint holds; their states are ready for `_enter`."""
        done = self._checkpoints.outcomes() if self._checkpoints is not None else []
        if self._checkpoints is not None and done:
            self._kept = [ray().put(state) for state in self._checkpoints.states(self._groups)], None
        return done

    def _enter(self) -> None:
        """Every group in a running process, in the last saved state."""
        self._pool.repair()
        run, started = self.federation, []
        if self._code:
            answers([slot.actor.provide.remote(self._code) for slot in self._pool.slots[: len(self._groups)]])
        for group, numbers in enumerate(self._groups):
            models = run.models if len(run.models) == 1 else [run.models[number] for number in numbers]
            slot = self._pool.slots[group]
            part = replace(run, data=(), drift=None, models=models, workers=slot.threads)
            try:
                started.append(slot.actor.begin.remote(part, numbers, self._data[group]))
            except (TypeError, RuntimeError, AttributeError) as error:  # from the model's own pickling
                reason = str(error).strip().partition("\n")[0]
                raise BadInput(
                    f"engine = 'ray': the model cannot be sent to other processes ({reason}); use the simulation"
                ) from error
        try:
            answers(started)
        except ray().exceptions.RaySystemError as error:
            if missing := re.search(r"No module named '([\w.]+)'", str(error)):
                raise BadInput(
                    f"engine = 'ray': a worker cannot import {missing[1]!r}, which the model needs; "
                    "install it on every node"
                ) from None
            raise
        answers([self._call(group, "restore", state) for group, state in enumerate(self._kept[0])])

    def _save(self, done: Sequence[RoundOutcome]) -> None:
        """Copy the states to this node; the previous ones are released once all have arrived."""
        states = self._ask("state")
        self._kept = states, answers(states)
        if self._checkpoints is not None:
            self._checkpoints.write(self._kept[1], done)

    def _round(self, number: int) -> RoundOutcome:
        run = self.federation
        plan, marks = run.plan(number), [time.perf_counter()]
        accuracies = {client: found for part in answers(self._ask("train", plan)) for client, found in part.items()}
        marks.append(time.perf_counter())
        before = self._ask("before_mixing", plan)
        mixed = self._mix(plan, accuracies)
        after = self._ask("after_mixing", plan)
        tested = self._ask("test", plan)
        answers([*before, *mixed, *after])
        marks.append(time.perf_counter())  # tests of groups that had finished mixing have begun before
        messages, sent = kind_of(plan.mixing).cost(plan, len(run.ring(plan)), run.sent_elements(plan))
        parts = answers(tested)
        metrics = {name: self._by_client([part[name] for part in parts]) for name in parts[0]}
        marks.append(time.perf_counter())
        claimed = accuracies if plan.gate is not None else {}
        return round_outcome(number, metrics, run.task, sent, messages, marks, claimed)

    def _mix(self, plan: RoundPlan, accuracies: Mapping[int, float]) -> Refs:
        run = self.federation
        ring = run.ring(plan)
        match kind_of(plan.mixing).mixture(plan, ring, run.sizes_in(plan.number), accuracies):
            case Blocks() as blocks:
                return self._by_blocks(plan, blocks)
            case Average(weights):
                shares = dict(zip(sorted(ring), weights.tolist(), strict=True))
                return self._serve(plan, shares) if self._has_server else self._average(plan, shares)
            case Common(clients):
                return self._combine_all(plan, clients)
            case Gossip() as gossip:
                return [each for _ in range(gossip.passes) for each in self._combine(plan, gossip)]
            case None:
                return []
            case other:
                assert_never(other)

    def _by_blocks(self, plan: RoundPlan, whole: Blocks) -> Refs:
        """Each group sends every other the rows that it reads, then all mix their own."""
        parts = [whole.for_group(numbers) for numbers in self._groups]
        remote = self._rows(plan, transfers(parts, self._groups))
        return [self._call(group, "mix", plan, part, *remote[group]) for group, part in enumerate(parts) if part.blocks]

    def _combine(self, plan: RoundPlan, gossip: Gossip) -> Refs:
        """One pass that is not linear: each group sends every other the rows that it reads, then all combine."""
        read = [
            [other for number in numbers if number in gossip.reads for other in gossip.reads[number].others]
            for numbers in self._groups
        ]
        remote = self._rows(plan, sent_between(read, self._groups))
        return [
            self._call(group, "combine", plan, gossip, *remote[group])
            for group, numbers in enumerate(self._groups)
            if any(number in gossip.reads for number in numbers)
        ]

    def _combine_all(self, plan: RoundPlan, clients: tuple[int, ...]) -> Refs:
        """Every group gets all rows and combines them for its own clients."""
        remote = self._rows(plan, sent_between([clients for _ in self._groups], self._groups))
        return [self._call(group, "combine_all", plan, clients, *remote[group]) for group in range(len(self._groups))]

    def _rows(self, plan: RoundPlan, sent: Sequence[Mapping[int, list[int]]]) -> list[list[Any]]:
        """Rows that groups send each other, by reader: the clients of each block of rows, then the blocks."""
        remote: list[list[tuple[list[int], Any]]] = [[] for _ in self._groups]
        for sender, wanted in enumerate(sent):
            rows = self._several(sender, len(wanted), "rows", plan, *wanted.values()) if wanted else []
            for (reader, clients), block in zip(wanted.items(), rows, strict=True):
                remote[reader].append((clients, block))
        return [[[clients for clients, _ in each], *(block for _, block in each)] for each in remote]

    def _average(self, plan: RoundPlan, weights: Mapping[int, float]) -> Refs:
        """The average of those who take part: each group sums its clients, then each adds up one piece of all sums."""
        count = len(self._groups)
        parts = [
            self._several(group, count, "total", plan, {n: weights[n] for n in numbers if n in weights}, count)
            for group, numbers in enumerate(self._groups)
        ]
        mean = [self._pool.slots[piece].actor.add.remote(*(part[piece] for part in parts)) for piece in range(count)]
        return self._ask("adopt", plan, *mean)

    def _serve(self, plan: RoundPlan, weights: Mapping[int, float]) -> Refs:
        """A server with an `aggregate` of its own, in the first group's process: all others send it what they have."""
        owners = [[number for number in numbers if number in weights] for numbers in self._groups[1:]]
        there = [(group, numbers) for group, numbers in enumerate(owners, 1) if numbers]
        rows = [self._call(group, "sent", plan, numbers) for group, numbers in there]
        vector = self._call(0, "serve", plan, weights, [numbers for _, numbers in there], *rows)
        return self._ask("take", plan, vector)

    def _collected(self) -> tuple[Tensor | None, list[dict[str, Tensor]]]:
        """(N, P) parameters as torch lays them out and private buffers; nothing if too much for one process."""
        run = self.federation
        kept = sum(buffer.numel() for _, buffer in run.models[0].named_buffers())
        if 4 * run.clients * (self.layout.size + kept) > _FITS:
            return None, []
        stack = torch.empty(run.clients, self.layout.size)
        for numbers, part in zip(self._groups, answers(self._ask("outward")), strict=True):
            stack[list(numbers)] = part
        buffers: list[dict[str, Tensor]] = [{} for _ in range(run.clients)]
        if kept:
            for numbers, group in zip(self._groups, answers(self._ask("buffers")), strict=True):
                for number, held in zip(numbers, group, strict=True):
                    buffers[number] = {name: torch.from_numpy(array.copy()) for name, array in held.items()}
        return stack, buffers

    def _by_client(self, parts: Sequence[Sequence[float]]) -> NDArray[np.float64]:
        """Numbers that groups returned, in the order of the clients."""
        result = np.empty(self.federation.clients)
        for numbers, part in zip(self._groups, parts, strict=True):
            result[list(numbers)] = part
        return result

    def _call(self, group: int, name: str, *arguments: Any) -> Any:
        return self._pool.slots[group].actor.call.remote(name, *arguments)

    def _ask(self, name: str, *arguments: Any) -> Refs:
        return [self._call(group, name, *arguments) for group in range(len(self._groups))]

    def _several(self, group: int, count: int, name: str, *arguments: Any) -> Refs:
        method = self._pool.slots[group].actor.several.options(num_returns=count)
        result = method.remote(name, *arguments)
        return [result] if count == 1 else list(result)
