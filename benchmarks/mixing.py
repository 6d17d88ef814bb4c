"""A round's mixing: spans of parameters side by side, one thread each, against torch's own threads.

    python benchmarks/mixing.py            # on the cores as they are
    python benchmarks/mixing.py --busy 2   # while two processes take all that they can get

Ten clients of the paper's MLP (MNIST, and a wide one for CIFAR-10), and 1,000; the two ways take turns.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median

import torch

from firma.engines.worker_pool import WorkerPool, cores
from firma.mixing.matrix_blocks import Blocks, apply
from firma.mixing.ring import all_passes
from firma.mixing.weights import pair, ring_row
from firma.models import SplitModel, mlp
from firma.training.backend import choose, torch_threads
from firma.training.local_step import Recipe, Sgd

CASES = ((10, (784,), 128, 64), (10, (3072,), 512, 128), (1000, (784,), 128, 64))


def spin() -> None:
    while True:
        pass


@contextmanager
def others(count: int) -> Iterator[None]:
    busy = [multiprocessing.Process(target=spin, daemon=True) for _ in range(count)]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.join()


def by_torch(mixing: Blocks, shared: torch.Tensor) -> None:
    with torch_threads(cores()):
        apply(mixing, shared, range(len(shared)))


def side_by_side(workers: WorkerPool, mixing: Blocks, shared: torch.Tensor) -> None:
    apply(mixing, shared, range(len(shared)), spread=workers.spread)


def seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, default=0, help="processes that keep a core busy meanwhile")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    print(f"median of {arguments.repeats}, {cores()} cores, {arguments.busy} other busy processes")
    for clients, shape, hidden, embedding in CASES:
        model = SplitModel(*mlp(shape, 10, hidden, embedding))
        shared = torch.randn(clients, model.layout().span("extractor").stop)
        mixing = all_passes([ring_row(pair("golden"), 0.5, None, 1, 1)] * clients, range(clients), -(-clients // 2))
        workers = WorkerPool(choose(model, torch.device("cpu"), Recipe(Sgd(0.01, 0.9)), 64), clients, None)
        ways = (partial(by_torch, mixing, shared), partial(side_by_side, workers, mixing, shared))
        with others(arguments.busy):
            taken = [[seconds(way) for way in ways] for _ in range(arguments.repeats)]
        torchs, ours = (median(each) for each in zip(*taken, strict=True))
        print(
            f"{clients} clients x {shared.shape[1]:,}: torch's threads {1000 * torchs:.1f} ms, "
            f"side by side {1000 * ours:.1f} ms, ratio {torchs / ours:.2f}"
        )
        workers.close()


if __name__ == "__main__":
    main()
