"""One contestant on one piece of work, alone in its process: `python parts.py ours W1 2` prints JSON."""

import json
import resource
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import hand
import naive
import torch
from work import WORKS, Work, federations, operations, scaling, trained_samples

import firma
from firma.engines.engine import Federation
from firma.engines.simulation import Simulation


def work_of(name: str) -> Work:
    """A piece of work by name; N=200 is one of the scaling series."""
    return scaling(int(name[2:])) if name.startswith("N=") else WORKS[name]


def memory_mb() -> float:
    """The most memory that this process has held. (ru_maxrss remembers the process that started it.)"""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ours(run: Federation) -> Iterator[object]:
    """FIRMA's engine: yields when set up, then after every round."""
    simulation = Simulation(run)
    yield None
    yield from simulation.rounds()


def timed(steps: Iterator[object], used: dict[int, float]) -> tuple[list[float], list[float]]:
    """Seconds and processor seconds of every step after the first, which is the set-up."""
    marks = []
    for _ in steps:
        marks.append((time.perf_counter(), time.process_time() + sum(used.values())))
    walls, cpus = zip(*marks, strict=True)
    return [b - a for a, b in pairwise(walls)], [b - a for a, b in pairwise(cpus)]


def measure(part: str, name: str, rounds: int) -> dict[str, object]:
    """Seconds of every round, method by method, and what the process needed."""
    work = work_of(name)
    scale, parameters = 1.0, 0.0
    seconds, cpu, flops, samples = {}, {}, {}, {}
    if part == "ours":  # compiled code is loaded from disk once a process, at its first use
        for method in ("fedavg", "fibfl++"):
            firma.run("digits", "iid", method, clients=2, rounds=1, settings={"epochs": 1, "extractor_epochs": 1})
    base = memory_mb()
    started = time.perf_counter()
    for run in federations(work, rounds):
        used: dict[int, float] = {}
        match part:
            case "ours":
                steps = ours(run)
            case "hand":
                steps = hand.rounds(run, used)
            case _:
                scale = run.clients / work.naive
                steps = naive.rounds(run, work.naive)
        walls, cpus = timed(steps, used)
        seconds[run.method.name] = [each * scale for each in walls]
        cpu[run.method.name] = [each * scale for each in cpus]
        flops[run.method.name] = operations(run)
        samples[run.method.name] = trained_samples(run)
        held = 3 if run.method.persistent == "yes" else 1  # parameters and two moments
        parameters = max(parameters, held * run.clients * run.models[0].layout().size * 4 / 2**20)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "operations": flops,
        "samples": samples,
        "scaled": scale,
        "elapsed": time.perf_counter() - started,
        "base_mb": base,
        "peak_mb": memory_mb(),
        "parameters_mb": parameters,
        "threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
