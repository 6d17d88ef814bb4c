"""The default engine: all clients in this process, all passes of a round in one matrix product."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from firma.engines.blend import blend
from firma.engines.carriage import carried
from firma.engines.federation import Federation, RoundOutcome
from firma.engines.local import train_round
from firma.engines.lockstep import drive
from firma.engines.traffic import traffic
from firma.engines.workers import Workers
from firma.mixing import beside, power, ring_matrix, ring_row, size_weights
from firma.privacy.audit import Audit
from firma.protocol import SERVER, hub_round, peer_round
from firma.schedule import RoundPlan
from firma.training import Client, Job, Moments, Trainer, choose


class Simulation:
    """A federation in progress: `rounds` runs it, `parameters` is the (N, P) stack of all clients' models."""

    def __init__(self, federation: Federation, audit: Audit | None = None) -> None:
        self.federation = federation
        self.audit = audit
        self.layout = federation.models[0].layout()
        self.path = choose(federation.models[0], federation.device, federation.hyper.batch, federation.path)
        starts = torch.stack([self.path.inward(model.flat()) for model in federation.models])
        self._stack = starts.expand(federation.clients, -1).clone().to(federation.device)
        self._clients = [self._client(number) for number in range(federation.clients)]
        self._workers = Workers(self.path, federation.clients, federation.workers)

    @property
    def parameters(self) -> Tensor:
        """(N, P) parameters as torch lays them out: extractor first, head behind it."""
        return self.path.outward(self._stack)

    @property
    def described(self) -> str:
        """How clients are trained and why, for people."""
        return f"{self.path.name}, {self._workers.count} at a time ({self.path.reason})"

    def rounds(self) -> Iterator[RoundOutcome]:
        """Run all rounds, one outcome each."""
        try:
            for number in range(self.federation.rounds):
                plan = self.federation.plan(number)
                accuracies = self._train(plan)
                messages, sent = self._mix(plan, accuracies)
                tested = self._workers.each(self._clients, _test_accuracy)
                yield RoundOutcome(number, np.array(tested), sent, messages)
        finally:
            self._workers.close()

    def _client(self, number: int) -> Client:
        data, device = self.federation.data[number], self.federation.device
        models = self.federation.models
        private = [each.detach().clone().to(device) for each in models[number % len(models)].buffers()]
        moments = None
        if self.federation.method.persistent == "yes":
            zeros = torch.zeros(self.layout.size, device=device)
            moments = Moments(zeros, zeros.clone())
        return Client(
            number, data.inputs.to(device), data.labels.to(device), data.test_inputs.to(device),
            data.test_labels.to(device), data.scale, self._stack[number], private, moments,
        )  # fmt: skip

    def _train(self, plan: RoundPlan) -> list[float]:
        """Every client's local training; their training accuracies where a gate asks for them."""
        run = self.federation
        job = Job(run.method, run.hyper, plan.phases)

        def train(trainer: Trainer, client: Client) -> float:
            return train_round(trainer, client, job, plan, run.seed, self.path)

        return self._workers.each(self._clients, train)

    def _mix(self, plan: RoundPlan, accuracies: list[float]) -> tuple[int, int]:
        """Blend what is shared, in place; returns messages and bytes."""
        if plan.mixing == "none":
            return 0, 0
        span = self.layout.span("model" if plan.shares == "model" else "extractor")
        if self.audit is not None or self.federation.wire != "float32":
            audit = self.audit or Audit(self.layout, beside(self.federation.order))
            return self._exchange(plan, accuracies, span, audit)
        shared = self._stack[:, span]
        order = self.federation.order
        if plan.mixing == "ring":
            rows = [
                ring_row(plan.pair, plan.retention, plan.gate, accuracies[left], accuracies[right])
                for _, (left, right) in sorted(beside(order).items())
            ]
            blend(power(ring_matrix(order, rows), plan.passes), shared, order)
        else:
            weights = torch.from_numpy(size_weights(self.federation.sizes)).to(shared)
            shared.copy_((weights @ shared).expand_as(shared))
        return traffic(plan, self.federation.clients, shared.shape[1])

    def _exchange(self, plan: RoundPlan, accuracies: list[float], span: slice, audit: Audit) -> tuple[int, int]:
        """The same by the protocol itself, message by message, on the record.

        Messages have torch's layout, as between real peers: pieces of an average are then cut at the same places.
        """
        run, whole = self.federation, self.parameters
        shared = whole[:, span]
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
        self._stack.copy_(self.path.inward(whole))
        receipts = audit.receipts[before:]
        return len(receipts), sum(receipt.size for receipt in receipts)


def _test_accuracy(trainer: Trainer, client: Client) -> float:
    return trainer.correct(client, test=True) / len(client.test_labels)
