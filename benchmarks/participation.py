"""What a round costs when a tenth of the clients take part, against all: MNIST, 1,000 clients with 60 samples each.

    python benchmarks/participation.py

The two take turns, in one process. Printed are medians of the processor time of a round after the first (which tests
every client), and their ratio; processor time hardly depends on what else runs on the machine.
"""

import time
from dataclasses import replace
from statistics import median

from firma.data.partition import deal
from firma.engines.simulation import Simulation
from firma.experiment import assemble, resolve
from firma.models.build import ModelSpec
from firma.run_config import RunConfig

SHARES, ROUNDS = (1.0, 0.1), 4


def main() -> None:
    for method in ("fibfl", "fedavg"):
        asked = resolve(RunConfig("mnist", "iid", method, clients=1000, rounds=ROUNDS))
        split, (planned,) = deal(asked.dataset, asked.scenario, asked.clients, asked.split, 0), asked.runs
        run = assemble(asked.dataset, split, planned.method, planned.hyper, ROUNDS, 0, ModelSpec("mlp"), "cpu")
        engines = {share: Simulation(replace(run, participation=share)).rounds() for share in SHARES}
        took: dict[float, list[float]] = {share: [] for share in SHARES}
        for _ in range(ROUNDS):
            for share, rounds in engines.items():
                began = time.process_time()
                next(rounds)
                took[share].append(time.process_time() - began)
        full, part = (median(took[share][1:]) for share in SHARES)
        print(f"{method}: {full:.2f} s with all clients, {part:.2f} s with a tenth, ratio {part / full:.3f}")


if __name__ == "__main__":
    main()
