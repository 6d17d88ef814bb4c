"""The default engine: all clients in this process, all passes of a round in one matrix product."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from firma.engines.blend import woven
from firma.engines.carriage import carried
from firma.engines.federation import Federation, RoundOutcome
from firma.engines.group import Group
from firma.engines.keep import Keep
from firma.engines.lockstep import drive
from firma.engines.traffic import traffic
from firma.engines.workers import torch_threads
from firma.mixing import beside, size_weights
from firma.privacy.audit import Audit
from firma.protocol import SERVER, hub_round, peer_round
from firma.schedule import RoundPlan


class Simulation:
    """A federation in progress: `rounds` runs it, `parameters` is the (N, P) stack of all clients' models."""

    def __init__(self, federation: Federation, audit: Audit | None = None, keep: Keep | None = None) -> None:
        self.federation = federation
        self.audit, self._keep = audit, keep
        self.layout = federation.models[0].layout()
        self._group = Group(federation, range(federation.clients), federation.data)
        self.path = self._group.path

    @property
    def parameters(self) -> Tensor:
        """(N, P) parameters as torch lays them out: extractor first, head behind it."""
        return self.path.outward(self._group.stack)

    @property
    def described(self) -> str:
        """How clients are trained and why, for people."""
        return self._group.described

    def rounds(self) -> Iterator[RoundOutcome]:
        """Run all rounds, one outcome each; those that a checkpoint holds are not run again."""
        done = self._resumed()
        yield from done
        try:
            for number in range(len(done), self.federation.rounds):
                plan = self.federation.plan(number)
                accuracies = self._group.train(plan)
                messages, sent = self._mix(plan, accuracies)
                done.append(RoundOutcome(number, np.array(self._group.test()), sent, messages))
                if self._keep is not None:
                    self._keep.write([self._group.state()], done)
                yield done[-1]
        finally:
            self._group.close()

    def _resumed(self) -> list[RoundOutcome]:
        """What the checkpoint says was done, with clients as they were then."""
        done = self._keep.outcomes() if self._keep is not None else []
        if self._keep is not None and done:
            for state in self._keep.states([range(self.federation.clients)]):
                self._group.restore(state)
        return done

    def _mix(self, plan: RoundPlan, accuracies: list[float]) -> tuple[int, int]:
        """Blend what is shared, in place; returns messages and bytes."""
        if plan.mixing == "none":
            return 0, 0
        if self.audit is not None or self.federation.wire != "float32":
            audit = self.audit or Audit(self.layout, beside(self.federation.order))
            return self._exchange(plan, accuracies, audit)
        run, shared = self.federation, self._group.shared(plan)
        if plan.mixing == "ring":
            self._group.blend(plan, woven(plan, run.order, accuracies))
        else:
            weights = torch.from_numpy(size_weights(run.sizes)).to(shared)
            with torch_threads(1):  # as in blending: the same on any number of cores
                shared.copy_((weights @ shared).expand_as(shared))
        return traffic(plan, run.clients, shared.shape[1])

    def _exchange(self, plan: RoundPlan, accuracies: list[float], audit: Audit) -> tuple[int, int]:
        """The same by the protocol itself, message by message, on the record.

        Messages have torch's layout, as between real peers: pieces of an average are then cut at the same places.
        """
        run, whole = self.federation, self.parameters
        shared = whole[:, self.layout.span("model" if plan.shares == "model" else "extractor")]
        peers = {
            i: peer_round(i, run.order, plan, shared[i].clone(), accuracies[i], run.sizes[i], run.wire)
            for i in range(run.clients)
        }
        if plan.mixing == "star":
            peers[SERVER] = hub_round(range(run.clients), plan, torch.zeros_like(shared[0]), run.wire)
        before = len(audit.receipts)
        for number, values in drive(peers, audit.record, lambda message: carried(message, self.layout)).items():
            if number != SERVER:
                shared[number] = values
        self._group.stack.copy_(self.path.inward(whole))
        receipts = audit.receipts[before:]
        return len(receipts), sum(receipt.size for receipt in receipts)
