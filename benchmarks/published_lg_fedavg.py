"""LG-FedAvg on CIFAR-10 in the setting of its authors' code, from random weights: see docs/methods.md.

100 clients with two classes each (two shards of 250 samples), a tenth of them per round, one epoch of batches of 50 at
a rate of 0.1 with momentum 0.5, a LeNet. Run it with: python benchmarks/published_lg_fedavg.py [ROUNDS] [METHOD …]
"""

import sys

import numpy as np
from torch import Tensor, nn

import firma
from firma.engines.engine import RoundOutcome

CLIENTS, SHARDS = 100, 2


class Centred(nn.Module):
    """Pixels from [0, 1] to [-1, 1]."""

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, 32, 32) of the same shape."""
        return 2 * x - 1


def lenet() -> tuple[nn.Module, nn.Module]:
    """Two convolutions and two linear layers; the last linear layer is the head."""
    convolutions = (nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
    linear = (nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 100), nn.ReLU())
    return nn.Sequential(Centred(), *convolutions, *linear), nn.Linear(100, 10)


def shards(labels: np.ndarray, seed: int) -> np.ndarray:
    """(n,) the client of each sample: samples sorted by class, cut into equal shards, two shards for each client."""
    dealt = np.random.default_rng(seed).permutation(CLIENTS * SHARDS)
    clients = np.empty(len(labels), dtype=np.int64)
    for place, rows in enumerate(np.array_split(np.argsort(labels, kind="stable"), CLIENTS * SHARDS)):
        clients[rows] = dealt[place] // SHARDS
    return clients


def main(rounds: int, methods: list[str]) -> None:
    """Mean test accuracy over clients, each tested on its own classes."""
    data = firma.load_dataset("cifar10")
    mine = firma.natural(data, shards(data.y_train, 0))
    settings = {"rate": 0.1, "momentum": 0.5, "batch": 50, "epochs": 1}
    for method in methods:

        def show(name: str, _: int, outcome: RoundOutcome) -> None:
            if (outcome.number + 1) % 50 == 0:
                print(f"{name}, round {outcome.number + 1}: {outcome.scores.mean():.4f}", flush=True)

        firma.run(
            mine, "natural", method, rounds=rounds, participation=0.1, model=lenet, settings=settings, on_round=show
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300, sys.argv[2:] or ["lg-fedavg", "local", "fedavg"])
