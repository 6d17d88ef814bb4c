"""What the machine can do at its best, and whether it is ours alone at the moment."""

import os
import time
from pathlib import Path

import torch

_STAT = Path("/proc/stat")


def peak_gflops(seconds: float = 0.4) -> float:
    """Float32 GFLOP/s of the best of large square products on all cores."""
    best = 0.0
    for size in (1024, 2048, 4096):
        a, b, c = (torch.rand(size, size) for _ in range(3))
        torch.mm(a, b, out=c)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            before = time.perf_counter()
            torch.mm(a, b, out=c)
            best = max(best, 2e-9 * size**3 / (time.perf_counter() - before))
    return best


def peak_per_core(seconds: float = 0.4) -> float:
    """Float32 GFLOP of one core in a second of its own time: what others take of the core does not count."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    best, size = 0.0, 1024
    a, b, c = (torch.rand(size, size) for _ in range(3))
    torch.mm(a, b, out=c)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        before = time.thread_time()
        torch.mm(a, b, out=c)
        best = max(best, 2e-9 * size**3 / (time.thread_time() - before))
    torch.set_num_threads(threads)
    return best


def busy_seconds() -> float:
    """Processor seconds that all processes have used since the machine started; 0 where nobody counts them."""
    if not _STAT.exists():
        return 0.0
    user, nice, system = (int(field) for field in _STAT.read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def wait_for_quiet(patience: float, cores: float = 0.2) -> None:
    """Return when others use less than that many cores, or when patience ends."""
    until = time.perf_counter() + patience
    while time.perf_counter() < until:
        before = busy_seconds()
        time.sleep(1.0)
        if busy_seconds() - before < cores:
            return


def described() -> str:
    """The kind of machine, for the head of a table."""
    return f"{len(os.sched_getaffinity(0))} cores, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}"
