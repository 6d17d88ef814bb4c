"""The same work as research code usually does it: DataLoader, client after client, torch's defaults for all else."""

import copy
from collections.abc import Iterator

import hand
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from firma.engines.engine import Federation
from firma.schedule import Phase, RoundPlan
from firma.seeds import generator


class Client:
    """One client with a model, a data set and a state dict of its own."""

    def __init__(self, run: Federation, number: int) -> None:
        self.run, self.number = run, number
        model = run.models[number % len(run.models)]
        self.extractor, self.head = copy.deepcopy(model.extractor), copy.deepcopy(model.head)
        self.model = nn.Sequential(self.extractor, self.head)
        data = run.data[number]
        self.train_set = TensorDataset(hand.floats(data.inputs, data), data.labels)
        self.test_set = TensorDataset(hand.floats(data.test_inputs, data), data.test_labels)
        self.kept: dict[str, torch.optim.Optimizer] = {}

    def train(self, plan: RoundPlan) -> float:
        if self.run.method.persistent == "no":
            self.kept = {}
        shuffle = generator(self.run.seed, "batches", self.number, plan.number)
        self.model.train()
        for phase in plan.phases:
            orders = [shuffle.permutation(len(self.train_set)).tolist() for _ in range(phase.epochs)]
            self._phase(phase, orders)
        return self.accuracy(self.train_set) if plan.gate is not None else 1.0

    def test(self) -> float:
        return self.accuracy(self.test_set)

    def _phase(self, phase: Phase, orders: list[list[int]]) -> None:
        for parameter in self.extractor.parameters():
            parameter.requires_grad = phase.trains != "head"
        for parameter in self.head.parameters():
            parameter.requires_grad = phase.trains != "extractor"
        optimiser = self._optimiser(phase.trains)
        criterion = nn.CrossEntropyLoss()
        for order in orders:
            for x, y in DataLoader(self.train_set, self.run.hyper.batch, sampler=order):
                optimiser.zero_grad()
                loss = criterion(self.model(x), y)
                loss.backward()
                optimiser.step()

    def _optimiser(self, trains: str) -> torch.optim.Optimizer:
        if trains not in self.kept:
            hyper, trained = self.run.hyper, [own for own in self.model.parameters() if own.requires_grad]
            if self.run.method.optimiser == "sgd":
                self.kept[trains] = torch.optim.SGD(trained, lr=hyper.rate, momentum=hyper.momentum)
            else:
                self.kept[trains] = torch.optim.Adam(trained, lr=hyper.rate)
        return self.kept[trains]

    def accuracy(self, data: TensorDataset) -> float:
        self.model.eval()
        correct = 0
        with torch.no_grad():
            for x, y in DataLoader(data, self.run.hyper.batch):
                correct += (self.model(x).argmax(dim=1) == y).sum().item()
        return correct / len(data)


def rounds(run: Federation, measured: int) -> Iterator[tuple[list[float], Tensor]]:
    """As `hand.rounds`, for the first `measured` clients; with fewer than all, nothing is mixed."""
    clients = [Client(run, i) for i in range(measured)]
    yield [], torch.empty(0)
    for number in range(run.rounds):
        plan = run.plan(number)
        accuracies = [client.train(plan) for client in clients]
        if measured == run.clients:
            stack = torch.stack([flat(client.model) for client in clients])
            hand.mix(run, plan, stack, accuracies)
            for client, row in zip(clients, stack, strict=True):
                nn.utils.vector_to_parameters(row.clone(), client.model.parameters())
        yield [client.test() for client in clients], torch.stack([flat(client.model) for client in clients])


def flat(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()
