"""The default engine: all clients in this process, all passes of a round in one matrix product."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from firma.engines.federation import Federation, RoundOutcome
from firma.engines.lockstep import drive
from firma.engines.traffic import traffic
from firma.mixing import beside, power, ring_matrix, ring_row, size_weights
from firma.models.learner import AutogradLearner
from firma.privacy.audit import Audit
from firma.protocol import SERVER, hub_round, peer_round
from firma.schedule import RoundPlan
from firma.seeds import generator, torch_seed
from firma.training import Client, Moments, accuracy, train


class Simulation:
    """A federation in progress; `rounds` runs it, `parameters` is the (N, P) stack of all clients' models."""

    def __init__(self, federation: Federation, audit: Audit | None = None) -> None:
        self.federation = federation
        self.audit = audit
        device = federation.device
        template = federation.models[0]
        self.layout = template.layout()
        self.learner = AutogradLearner(template, device)
        starts = [model.flat() for model in federation.models]
        self.parameters = torch.stack([starts[i % len(starts)] for i in range(federation.clients)]).to(device)
        self.gradients = torch.zeros(self.layout.size, device=device)
        self.scratch = self._moments()
        self.clients = [self._client(number) for number in range(federation.clients)]

    def rounds(self) -> Iterator[RoundOutcome]:
        """Run all rounds, one outcome each."""
        for number in range(self.federation.rounds):
            plan = self.federation.plan(number)
            accuracies = self._train(plan)
            messages, sent = self._mix(plan, accuracies)
            tested = [accuracy(client, self.learner, self.gradients, test=True) for client in self.clients]
            yield RoundOutcome(number, np.array(tested), sent, messages)

    def _moments(self) -> Moments:
        zeros = torch.zeros(self.layout.size, device=self.federation.device)
        return Moments(zeros, zeros.clone())

    def _client(self, number: int) -> Client:
        data, device = self.federation.data[number], self.federation.device
        models = self.federation.models
        private = [each.detach().clone().to(device) for each in models[number % len(models)].buffers()]
        moments = self._moments() if self.federation.method.persistent == "yes" else None
        return Client(
            number, data.inputs.to(device), data.labels.to(device), data.test_inputs.to(device),
            data.test_labels.to(device), self.parameters[number], private, moments,
        )  # fmt: skip

    def _train(self, plan: RoundPlan) -> list[float]:
        """Every client's local training; their training accuracies where a gate asks for them."""
        run, accuracies = self.federation, []
        for client in self.clients:
            shuffle = generator(run.seed, "batches", client.number, plan.number)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(torch_seed(run.seed, "layers", client.number, plan.number))  # dropout and its like
                train(
                    client,
                    self.learner,
                    self.gradients,
                    self.scratch,
                    run.method,
                    run.hyper,
                    plan.phases,
                    shuffle,
                )
            gated = plan.gate is not None
            accuracies.append(accuracy(client, self.learner, self.gradients, test=False) if gated else 1.0)
        return accuracies

    def _mix(self, plan: RoundPlan, accuracies: list[float]) -> tuple[int, int]:
        """Blend what is shared, in place; returns messages and bytes."""
        if plan.mixing == "none":
            return 0, 0
        span = self.layout.span("model" if plan.shares == "model" else "extractor")
        shared = self.parameters[:, span]
        if self.audit is not None:
            return self._exchange(plan, accuracies, shared, self.audit)
        if plan.mixing == "ring":
            rows = [
                ring_row(plan.pair, plan.retention, plan.gate, accuracies[left], accuracies[right])
                for _, (left, right) in sorted(beside(self.federation.order).items())
            ]
            matrix = power(ring_matrix(self.federation.order, rows), plan.passes)
            shared.copy_(torch.from_numpy(matrix).to(shared) @ shared)
        else:
            weights = torch.from_numpy(size_weights(self.federation.sizes)).to(shared)
            shared.copy_((weights @ shared).expand_as(shared))
        return traffic(plan, self.federation.clients, shared.shape[1])

    def _exchange(self, plan: RoundPlan, accuracies: list[float], shared: Tensor, audit: Audit) -> tuple[int, int]:
        """The same by the protocol itself, message by message, on the record."""
        run = self.federation
        peers = {
            i: peer_round(i, run.order, plan, shared[i].clone(), accuracies[i], run.sizes[i])
            for i in range(run.clients)
        }
        if plan.mixing == "star":
            peers[SERVER] = hub_round(range(run.clients), plan, torch.zeros_like(shared[0]))
        before = len(audit.receipts)
        for number, values in drive(peers, audit.record).items():
            if number != SERVER:
                shared[number] = values
        receipts = audit.receipts[before:]
        return len(receipts), sum(receipt.size for receipt in receipts)
