"""The Ray engine: what it adds to the simulation on one machine, very many clients, two nodes instead of one.

python benchmarks/cluster.py overhead --work W2          rounds of both engines in turns; --processes 2, --recover 0
python benchmarks/cluster.py crowd --clients 10000       seconds and memory of rounds of very many clients
python benchmarks/cluster.py weak                        one node with its clients, two nodes with twice as many

(It is not called ray.py, for that name would hide the library from every script here.)
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from machine import busy_seconds, described, wait_for_quiet
from work import WORKS, Work, federations

from firma.data.dataset import Dataset, load_dataset
from firma.data.partition import deal
from firma.engines.actor_pool import ActorPool
from firma.engines.engine import Federation
from firma.engines.ray import RayFederation
from firma.engines.ray_cluster import answers, connected, ray
from firma.engines.simulation import Simulation
from firma.experiment import assemble
from firma.method_lookup import lookup
from firma.models import ModelSpec
from firma.settings import Split, hyper_for

Json = dict[str, Any]


def seconds(running: Any, used: list[float] | None = None) -> list[float]:
    """Of every round but the first, in which code is loaded and memory is touched for the first time.

    `used` gets the processor seconds of this process and of all that descend from it, Ray's own included.
    """
    marks, busy = [], []
    for _ in running.rounds():
        marks.append(time.perf_counter())
        busy.append(_family_seconds())
    if used is not None:
        used += [after - before for before, after in pairwise(busy)]
    print([round(after - before, 2) for before, after in pairwise(marks)], file=sys.stderr, flush=True)
    return [after - before for before, after in pairwise(marks)]


def _family_seconds() -> float:
    parents, own = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
        own[int(path.parent.name)] = int(fields[11]) + int(fields[12])
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(own[pid] for pid in family) / os.sysconf("SC_CLK_TCK")


def overhead(given: argparse.Namespace) -> Json:
    """Ray over simulation, seconds a round; both take turns while the cluster stands ready."""
    work = WORKS[given.work]
    (run,) = federations(replace(work, clients=given.clients or work.clients), given.rounds + 1)
    times: dict[str, list[float]] = {"simulation": [], "ray": []}
    used: dict[str, list[float]] = {"simulation": [], "ray": []}
    with connected(None), ActorPool(count=given.processes) as pool:
        for _ in range(given.repeats):
            wait_for_quiet(given.patience)
            times["simulation"] += seconds(Simulation(run), used["simulation"])
            wait_for_quiet(given.patience)
            times["ray"] += seconds(RayFederation(run, pool, recover=given.recover), used["ray"])
    facts = {"work": given.work, "clients": run.clients, "recover": given.recover, "processes": len(pool.slots)}
    return facts | {
        "overhead": min(times["ray"]) / min(times["simulation"]) - 1,
        "overhead_median": statistics.median(times["ray"]) / statistics.median(times["simulation"]) - 1,
        "overhead_cpu": min(used["ray"]) / min(used["simulation"]) - 1,
        "seconds": times,
        "cpu_seconds": used,
    }


def crowd(given: argparse.Namespace) -> Json:
    """Seconds of a round and the memory of all workers; digits drawn anew for everybody, 60 each."""
    run = _crowd(given.clients or 10_000, given.method, given.rounds, given.epochs)
    used: list[float] = []
    parameters = run.clients * run.models[0].layout().size * 4
    facts = {"work": "crowd", "clients": run.clients, "method": given.method, "parameters_gb": parameters / 2**30}
    if given.engine == "simulation":
        took = seconds(Simulation(run), used)
        facts |= {"engine": "simulation", "seconds": took, "cpu_seconds": used, "epochs": given.epochs}
        return facts | {"workers_gb": _memory_gb("self")}
    with connected(None), ActorPool(count=given.processes) as pool:
        started = time.perf_counter()
        took = seconds(RayFederation(run, pool, recover=given.recover), used)
        pids = answers([post.actor.ready.remote() for post in pool.slots])
        memory = [_memory_gb(pid) for pid in pids]
    return facts | {
        "engine": "ray", "recover": given.recover, "epochs": given.epochs, "seconds": took, "cpu_seconds": used,
        "all_seconds": time.perf_counter() - started,
        "workers_gb": sum(memory), "driver_gb": _memory_gb("self"),
    }  # fmt: skip


def weak(given: argparse.Namespace) -> Json:
    """100 clients on one node of one core, 200 on two; beside it the same in the simulation, with 1 and 2 threads."""
    small = Work("fibfl++, MNIST, 100 x 100", ("fibfl++",), "mnist", 100, 100, 0, 0)
    (one,) = federations(small, given.rounds + 1)
    (two,) = federations(WORKS["W5"], given.rounds + 1)
    times: dict[str, list[float]] = {"ray 1": [], "ray 2": [], "simulation 1": [], "simulation 2": []}
    used: dict[str, list[float]] = {name: [] for name in times}
    alone = {"simulation 1": replace(one, workers=1), "simulation 2": replace(two, workers=2)}
    with _two_nodes():
        for count, run in ((1, one), (2, two)):
            with ActorPool(workers=count) as pool:
                for _ in range(given.repeats):
                    wait_for_quiet(given.patience)
                    times[f"simulation {count}"] += seconds(
                        Simulation(alone[f"simulation {count}"]), used[f"simulation {count}"]
                    )
                    wait_for_quiet(given.patience)
                    engine = RayFederation(run, pool, recover=given.recover)
                    times[f"ray {count}"] += seconds(engine, used[f"ray {count}"])
    best = {name: min(each) for name, each in times.items()}
    return {
        "work": "weak", "recover": given.recover, "seconds": times, "cpu_seconds": used,
        "efficiency_ray": best["ray 1"] / best["ray 2"],
        "efficiency_simulation": best["simulation 1"] / best["simulation 2"],
    }  # fmt: skip


@contextmanager
def _two_nodes() -> Iterator[None]:
    library = ray()
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 3 * 10**9}
    cluster = Cluster(initialize_head=True, head_node_args=size | {"include_dashboard": False})
    cluster.add_node(**size)
    cluster.wait_for_nodes()
    library.init(cluster.address, log_to_driver=False, logging_level="error")
    try:
        yield
    finally:
        library.shutdown()
        cluster.shutdown()


def _crowd(clients: int, method: str, rounds: int, epochs: int) -> Federation:
    digits, rng = load_dataset("digits"), np.random.default_rng(0)

    def drawn(x: Any, y: Any, count: int) -> tuple[Any, Any]:
        rows = rng.integers(len(y), size=count)
        return x[rows], y[rows]

    train = drawn(digits.x_train, digits.y_train, 60 * clients)
    test = drawn(digits.x_test, digits.y_test, 12 * clients)
    dataset = Dataset("crowd", *train, *test, digits.classes, digits.scale)
    hyper = hyper_for(method, "paper", {"warmup_rounds": 0, "extractor_epochs": epochs})
    partition = deal(dataset, "iid", clients, Split(), 0)
    return assemble(dataset, partition, lookup(method), hyper, rounds + 1, 0, ModelSpec("mlp"), "cpu")


def _memory_gb(pid: int | str) -> float:
    """The most memory that a process has held."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overhead", "crowd", "weak"])
    parser.add_argument(
        "--work", choices=[name for name, work in WORKS.items() if len(work.methods) == 1], default="W2"
    )
    parser.add_argument(
        "--clients", type=int, help="10,000 in the crowd; fewer of the same than the work has, elsewhere"
    )
    parser.add_argument("--method", default="fibfl++:order=given", help="of the crowd")
    parser.add_argument("--engine", choices=["simulation", "ray"], default="ray", help="of the crowd")
    parser.add_argument("--epochs", type=int, default=5, help="of the extractor in a round of the crowd")
    parser.add_argument("--processes", type=int, help="actors on the machine; one a node otherwise")
    parser.add_argument("--recover", type=int, default=1, help="rounds after which states are kept; 0: never")
    parser.add_argument("--rounds", type=int, default=2, help="timed, after one that is not")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--patience", type=float, default=20, help="seconds to wait for a quiet machine before each")
    given = parser.parse_args()
    before, began = busy_seconds(), time.perf_counter()
    result = {"overhead": overhead, "crowd": crowd, "weak": weak}[given.what](given)
    busy = (busy_seconds() - before) / (time.perf_counter() - began)
    print(json.dumps(result | {"busy_cores": round(busy, 2), "machine": described()}))


if __name__ == "__main__":
    main()
