"""What the machine can do at its best, and whether it is ours alone at the moment.

The best rate is that of large square products, or of multiply-adds that wait for nothing, whichever is higher: on some
processors the products of torch's library use half of each vector.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import torch
from llvmlite import ir
from numba.extending import intrinsic

from firma.training.tiles import LANES

_STAT = Path("/proc/stat")
_CHAINS, _STEPS = 16, 4_000_000
_VECTOR = ir.VectorType(ir.FloatType(), LANES)


@intrinsic
def _multiply_adds(_: Any, steps: Any) -> Any:
    """So many steps of 16 independent chains a ← a · b + c of vectors; their sum, so that none is left out."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        function = ir.Function(builder.module, kind, f"llvm.fma.v{LANES}f32")
        factor, term, word = (
            ir.Constant(_VECTOR, [0.999] * LANES),
            ir.Constant(_VECTOR, [0.001] * LANES),
            ir.IntType(64),
        )
        before, loop, done = builder.block, *(builder.append_basic_block(name) for name in ("chains", "chained"))
        builder.branch(loop)
        builder.position_at_end(loop)
        step, chains = builder.phi(word), [builder.phi(_VECTOR) for _ in range(_CHAINS)]
        step.add_incoming(ir.Constant(word, 0), before)
        following = builder.add(step, ir.Constant(word, 1))
        step.add_incoming(following, loop)
        for number, chain in enumerate(chains):
            chain.add_incoming(ir.Constant(_VECTOR, [0.1 * number] * LANES), before)
            chain.add_incoming(builder.call(function, [chain, factor, term]), loop)
        builder.cbranch(builder.icmp_signed("<", following, arguments[0]), loop, done)
        builder.position_at_end(done)
        total = chains[0]
        for chain in chains[1:]:
            total = builder.fadd(total, chain)
        return builder.extract_element(total, ir.IntType(32)(0))

    return numba.types.float32(numba.types.int64), generate


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def _chained(steps: int) -> float:
    return float(_multiply_adds(steps))


def _chain_gflops(cores: int, clock: Callable[[], float]) -> float:
    """GFLOP/s of multiply-adds on that many cores at the same time."""
    _chained(1)
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(_chained, [_STEPS // 10] * cores))
        before = clock()
        list(pool.map(_chained, [_STEPS] * cores))
        return 2e-9 * LANES * _CHAINS * _STEPS * cores / (clock() - before)


def peak_gflops(seconds: float = 0.4) -> float:
    """Float32 GFLOP/s of all cores at their best."""
    best = max(_chain_gflops(len(os.sched_getaffinity(0)), time.perf_counter) for _ in range(3))
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
    best, size = max(_chain_gflops(1, time.process_time) for _ in range(3)), 1024
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
