"""Models that draw random numbers (dropout) on several cores: processes, as the engine uses them, against threads.

The alternative is one thread per client with a mode of torch's that passes a generator of the thread's own to every
operation that draws. Both must give the bits of one client after another.

    python benchmarks/draws.py                # a small CNN and a small MLP, both with dropout
    python benchmarks/draws.py --repeats 5
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from firma.engines.client_group import ClientGroup
from firma.engines.engine import Federation
from firma.engines.worker_pool import cores
from firma.methods import METHODS
from firma.models import SplitModel
from firma.seeds import generator, torch_seed
from firma.settings import Hyper
from firma.training.autograd_trainer import AutogradTrainer
from firma.training.backend import torch_threads
from firma.training.local_step import ClientData, Job

CLIENTS, SAMPLES, ROUNDS = 8, 512, 4


class OwnGenerator(TorchDispatchMode):
    """Operations that draw take their numbers from this generator; only those that have an argument for it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operation."""
        given = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags:
            given["generator"] = self.generator
        return func(*args, **given)


def cnn() -> SplitModel:
    """Two convolutions with dropout, for images of 28x28; 105,000 parameters."""
    extractor = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Dropout(0.5),
    )  # fmt: skip
    return SplitModel(extractor, nn.Linear(64, 10))


def small() -> SplitModel:
    """One hidden layer with dropout: mostly Python's own time."""
    extractor = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.GELU(), nn.Dropout(0.25))
    return SplitModel(extractor, nn.Linear(64, 10))


def federation(model: SplitModel, workers: int) -> Federation:
    """FedAvg, one epoch a round."""
    rng = np.random.default_rng(0)
    data = []
    for _ in range(CLIENTS):
        x = torch.from_numpy(rng.normal(size=(SAMPLES, 1, 28, 28)).astype(np.float32))
        y = torch.from_numpy(rng.integers(0, 10, SAMPLES))
        data.append(ClientData(x, y, x[:32], y[:32]))
    hyper = Hyper(epochs=1, batch=32)
    return Federation(
        METHODS["fedavg"], hyper, ROUNDS, 0, tuple(range(CLIENTS)), data, [model], torch.device("cpu"), workers=workers
    )


def by_engine(run: Federation) -> tuple[float, Tensor]:
    """Seconds of a round of training after the first, which forks and touches memory, and the parameters."""
    group = ClientGroup(run, range(CLIENTS), run.data)
    try:
        group.train(run.plan(0))
        began = time.perf_counter()
        for number in range(1, ROUNDS):
            group.train(run.plan(number))
        return (time.perf_counter() - began) / (ROUNDS - 1), group.backend.outward(group.stack)
    finally:
        group.close()


def by_threads(run: Federation, workers: int) -> tuple[float, Tensor]:
    """The same with threads and generators of their own."""
    group = ClientGroup(replace(run, workers=1), range(CLIENTS), run.data)
    job = Job(run.recipe, run.plan(0).phases, run.hyper.batch)
    trainers = [AutogradTrainer(run.models[0], run.device) for _ in range(CLIENTS)]

    def one(number: int, turn: int) -> None:
        with OwnGenerator(torch_seed(run.seed, "layers", number, turn)):
            trainers[number].train(group.clients[number], job, generator(run.seed, "batches", number, turn))

    with ThreadPoolExecutor(workers, initializer=lambda: torch.set_num_threads(1)) as pool, torch_threads(1):
        list(pool.map(one, range(CLIENTS), [0] * CLIENTS))
        began = time.perf_counter()
        for turn in range(1, ROUNDS):
            list(pool.map(one, range(CLIENTS), [turn] * CLIENTS))
        return (time.perf_counter() - began) / (ROUNDS - 1), group.stack.clone()


def main() -> None:
    """Print the best seconds of each way as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    workers, found = cores(), {}
    for name, build in (("cnn", cnn), ("mlp", small)):
        torch.manual_seed(0)
        model = build()
        ways: dict[str, Callable[[], tuple[float, Tensor]]] = {
            "one at a time": lambda model=model: by_engine(federation(model, 1)),  # type: ignore[misc]
            f"{workers} processes": lambda model=model: by_engine(federation(model, workers)),  # type: ignore[misc]
            f"{workers} threads": lambda model=model: by_threads(federation(model, 1), workers),  # type: ignore[misc]
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        bits: list[Tensor] = []
        for _ in range(repeats):
            for way, run in ways.items():
                took, parameters = run()
                seconds[way].append(took)
                bits.append(parameters)
        best = {way: min(each) for way, each in seconds.items()}
        found[name] = {
            "seconds": {way: round(each, 3) for way, each in best.items()},
            "speed-up": {way: round(best["one at a time"] / each, 2) for way, each in best.items()},
            "same bits": all(torch.equal(each, bits[0]) for each in bits),
        }
    print(json.dumps({"cores": workers, "load": os.getloadavg()[0], "clients": CLIENTS} | found, indent=1))


if __name__ == "__main__":
    main()
