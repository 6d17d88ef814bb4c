"""The yardstick: a good hand-written PyTorch loop, one forked process a core with one thread each.

Modules over views of one shared (N, P) stack, batches by index from a float tensor, torch.optim with fused=True, the
frozen extractor's features computed once, subnormal numbers flushed. It takes models, plans, batch order and mixing
weights from FIRMA, so that both do the same work; it trains by autograd.
"""

import copy
import multiprocessing
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import numpy as np
import torch
from torch import Tensor, nn

from firma.engines.engine import Federation
from firma.mixing.ring import one_pass
from firma.mixing.ring_order import neighbours
from firma.mixing.spectrum import power
from firma.mixing.weights import by_size, pair, ring_row
from firma.schedule import Phase, RoundPlan
from firma.seeds import generator
from firma.training.local_step import ClientData


class Client:
    """One client inside its worker."""

    def __init__(self, run: Federation, number: int, parameters: Tensor) -> None:
        self.run, self.number = run, number
        model = run.models[number % len(run.models)]
        self.extractor, self.head = copy.deepcopy(model.extractor), copy.deepcopy(model.head)
        start = 0
        for own in [*self.extractor.parameters(), *self.head.parameters()]:
            own.data = parameters[start : start + own.numel()].view(own.shape)
            start += own.numel()
        data = run.data[number]
        self.inputs, self.tests = floats(data.inputs, data), floats(data.test_inputs, data)
        self.labels, self.test_labels = data.labels, data.test_labels
        self.optimisers: dict[str, torch.optim.Optimizer] = {}

    def train(self, plan: RoundPlan) -> float:
        """One round; the training accuracy if the gate asks for it."""
        if self.run.method.persistent == "no":
            self.optimisers = {}
        shuffle = generator(self.run.seed, "batches", self.number, plan.number)
        for phase in plan.phases:
            self._phase(phase, shuffle)
        return self.accuracy(self.inputs, self.labels) if plan.gate is not None else 1.0

    def test(self) -> float:
        return self.accuracy(self.tests, self.test_labels)

    def _phase(self, phase: Phase, shuffle: np.random.Generator) -> None:
        self.extractor.requires_grad_(phase.trains != "head")
        self.head.requires_grad_(phase.trains != "extractor")
        inputs, model = self.inputs, nn.Sequential(self.extractor, self.head)
        optimiser = self._optimiser(phase.trains, model)
        if phase.trains == "head":
            inputs, model = self._forward(self.extractor, inputs), nn.Sequential(self.head)
        orders = torch.from_numpy(np.stack([shuffle.permutation(len(inputs)) for _ in range(phase.epochs)]))
        loss = nn.CrossEntropyLoss()
        for order in orders:
            for chosen in order.split(self.run.hyper.batch):
                optimiser.zero_grad()
                loss(model(inputs[chosen]), self.labels[chosen]).backward()
                optimiser.step()

    def _optimiser(self, trains: str, model: nn.Module) -> torch.optim.Optimizer:
        """The optimiser of what trains in this phase, made when it is first used."""
        if trains not in self.optimisers:
            hyper, trained = self.run.hyper, [own for own in model.parameters() if own.requires_grad]
            if self.run.method.optimiser == "sgd":
                self.optimisers[trains] = torch.optim.SGD(trained, hyper.rate, hyper.momentum, fused=True)
            else:
                self.optimisers[trains] = torch.optim.Adam(trained, hyper.rate, fused=True)
        return self.optimisers[trains]

    def accuracy(self, inputs: Tensor, labels: Tensor) -> float:
        logits = self._forward(nn.Sequential(self.extractor, self.head), inputs)
        return int((logits.argmax(1) == labels).sum()) / len(labels)

    @staticmethod
    @torch.no_grad()
    def _forward(model: nn.Module, inputs: Tensor) -> Tensor:
        return torch.cat([model(chunk) for chunk in inputs.split(1000)])


def floats(inputs: Tensor, data: ClientData) -> Tensor:
    return inputs.float() * data.scale if inputs.dtype == torch.uint8 else inputs


def rounds(run: Federation, used: dict[int, float]) -> Iterator[tuple[list[float], Tensor]]:
    """Test accuracies and the (N, P) stack after every round; before the first round, once, when all is set up.

    `used` is told the processor seconds of every worker.
    """
    context = multiprocessing.get_context("fork")
    stack = torch.stack([model.flat() for model in run.models]).expand(run.clients, -1).clone().share_memory_()
    workers = min(len(os.sched_getaffinity(0)), run.clients)
    pipes, processes = [], []
    for worker in range(workers):
        ours, theirs = context.Pipe()
        numbers = range(worker, run.clients, workers)
        processes.append(context.Process(target=_work, args=(run, stack, numbers, theirs)))
        processes[-1].start()
        pipes.append(ours)

    def ask(plan: RoundPlan | None) -> list[float]:
        for pipe in pipes:
            pipe.send(plan)
        results: dict[int, float] = {}
        for worker, pipe in enumerate(pipes):
            answer, used[worker] = pipe.recv()
            results |= answer
        return [results[i] for i in range(run.clients)]

    ask(None)
    yield [], stack
    for number in range(run.rounds):
        plan = run.plan(number)
        mix(run, plan, stack, ask(plan))
        yield ask(None), stack
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send("stop")
        process.join()


def mix(run: Federation, plan: RoundPlan, stack: Tensor, accuracies: list[float]) -> None:
    """All passes of a round as one dense product."""
    layout = run.models[0].layout()
    shared = stack[:, layout.span("model" if plan.shares == "model" else "extractor")]
    if plan.mixing == "ring":
        rows = [
            ring_row(pair(plan.weights), plan.retention, plan.gate, accuracies[left], accuracies[right])
            for _, (left, right) in sorted(neighbours(run.order).items())
        ]
        matrix = torch.from_numpy(power(one_pass(run.order, rows), plan.passes)).float()
        shared.copy_(matrix @ shared)
    elif plan.mixing == "star":
        weights = torch.from_numpy(by_size(run.sizes)).float()
        shared.copy_((weights @ shared).expand_as(shared))


def _work(run: Federation, stack: Tensor, numbers: range, pipe: Connection) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    clients = {number: Client(run, number, stack[number]) for number in numbers}
    while (plan := pipe.recv()) != "stop":
        answer = {i: client.test() if plan is None else client.train(plan) for i, client in clients.items()}
        pipe.send((answer, time.process_time()))
