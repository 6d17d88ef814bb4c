"""The default engine: all clients in this process, all passes of a round in one matrix product."""

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import assert_never

import torch
from torch import Tensor

from firma.engines.checkpoint import RunCheckpoints
from firma.engines.client_group import ClientGroup
from firma.engines.engine import Federation, RoundOutcome, round_outcome
from firma.engines.message_passing import drive, transmitted
from firma.mixing.combine import Common, Gossip
from firma.mixing.kind import Average, Cost, exchange, kind_of, neighbours_in
from firma.mixing.matrix_blocks import Blocks
from firma.mixing.ring_order import neighbours
from firma.privacy.message_audit import Audit
from firma.protocol import SERVER, Participant
from firma.schedule import RoundPlan
from firma.training.backend import torch_threads


class Simulation:
    """A federation in progress: `rounds` runs it, `parameters` is the (N, P) stack of all clients' models."""

    def __init__(
        self, federation: Federation, audit: Audit | None = None, checkpoints: RunCheckpoints | None = None
    ) -> None:
        self.federation = federation
        self.audit, self._checkpoints = audit, checkpoints
        self.layout = federation.models[0].layout()
        self._group = ClientGroup(federation, range(federation.clients), federation.data)
        self.backend = self._group.backend

    @property
    def parameters(self) -> Tensor:
        """(N, P) parameters as they are tested, as torch lays them out: extractor first, head behind it."""
        return self._group.outward()

    @property
    def sizes(self) -> list[int]:
        """Training samples of every client."""
        return self._group.sizes

    @property
    def buffers(self) -> list[dict[str, Tensor]]:
        """The private buffers of every client's model, such as running means, by name."""
        return [{name: torch.from_numpy(kept) for name, kept in each.items()} for each in self._group.buffers()]

    @property
    def described(self) -> str:
        """Which backend trains and why, for people."""
        return self._group.described

    def rounds(self) -> Iterator[RoundOutcome]:
        """Run all rounds, one outcome each; those that a checkpoint holds are not run again."""
        done = self._resumed()
        yield from done
        try:
            for number in range(len(done), self.federation.rounds):
                plan, marks = self.federation.plan(number), [time.perf_counter()]
                accuracies = self._group.train(plan)
                marks.append(time.perf_counter())
                self._group.before_mixing(plan)
                messages, sent = self._mix(plan, accuracies)
                self._group.after_mixing(plan)
                marks.append(time.perf_counter())
                tested, task = self._group.test(plan), self.federation.task
                marks.append(time.perf_counter())
                claimed = accuracies if plan.gate is not None else {}
                done.append(round_outcome(number, tested, task, sent, messages, marks, claimed))
                if self._checkpoints is not None:
                    self._checkpoints.write([self._group.state()], done)
                yield done[-1]
        finally:
            self._group.close()

    def _resumed(self) -> list[RoundOutcome]:
        """The rounds that the checkpoint holds, with clients restored to their end."""
        done = self._checkpoints.outcomes() if self._checkpoints is not None else []
        if self._checkpoints is not None and done:
            for state in self._checkpoints.states([range(self.federation.clients)]):
                self._group.restore(state)
        return done

    def _mix(self, plan: RoundPlan, accuracies: Mapping[int, float]) -> Cost:
        """Mix what is shared by those who take part, in place; returns what that sends."""
        run, kind = self.federation, kind_of(plan.mixing)
        if self.audit is not None or run.wire != "float32":
            return self._exchange(plan, accuracies, self.audit or Audit(neighbours(run.order)))
        shared, ring = self._group.shared(plan), run.ring(plan)
        match kind.mixture(plan, ring, self._group.sizes_in(plan), accuracies):
            case Blocks() as blocks:
                self._group.mix(plan, blocks)
            case Average(by_client) if self._group.server is not None:
                vector = self._group.serve(plan, dict(zip(sorted(ring), by_client.tolist(), strict=True)))
                self._group.take(plan, vector)
            case Average(by_client):
                weights = torch.from_numpy(by_client).to(shared)
                with torch_threads(1):  # as in mixing by blocks: the same on any number of cores
                    shared[self._group.changed(plan)] = weights @ shared[self._group.training(plan)]
                self._group.put(plan, shared)
            case Common(clients):
                self._group.combine_all(plan, clients)
            case Gossip() as gossip:
                for _ in range(gossip.passes):
                    self._group.combine(plan, gossip)
            case None:
                pass
            case other:
                assert_never(other)
        return kind.cost(plan, len(ring), shared.shape[1])

    def _exchange(self, plan: RoundPlan, accuracies: Mapping[int, float], audit: Audit) -> Cost:
        """The same by the protocol itself, message by message, on the record.

        Messages have torch's layout, as between real peers: pieces of an average are then cut at the same places.
        """
        run, shared = self.federation, self._group.outward_shared(plan)
        kind, ring, sizes = kind_of(plan.mixing), run.ring(plan), self._group.sizes_in(plan)
        if plan.participants is not None or plan.graph is not None or ring != run.order:
            audit.neighbours_in[plan.number] = neighbours_in(plan, ring)
        audit.on_graph = audit.on_graph or plan.graph is not None
        members = {
            i: exchange(plan, Participant(i, ring, shared[i].clone(), accuracies[i], sizes[i], run.wire))
            for i in sorted(ring)
        }
        own = None if self._group.server is None else partial(self._group.server.aggregate, plan, sorted(ring))
        everybody = Participant(SERVER, sorted(ring), torch.zeros_like(shared[0]), 0.0, 0, run.wire, aggregate=own)
        if (hub := kind.server(plan, everybody)) is not None:
            members[SERVER] = hub
        before = len(audit.receipts)
        sent = audit.layout = self.layout.of_shared(plan.part, self._group.mixed)
        results = drive(members, audit.record, lambda message: transmitted(message, sent))
        for number in ring:
            shared[number] = results[number]
        if kind.NEEDS_SERVER:  # what the server sends is the same for whoever asks
            shared[:] = results[ring[0]]
        self._group.put_outward(plan, shared)
        receipts = audit.receipts[before:]
        return Cost(len(receipts), sum(receipt.size for receipt in receipts))
