"""Where the time of a training step goes: the kernels' own source, with a cycle counter read between its parts.

python benchmarks/where.py                MNIST's and CIFAR-10's model, both optimisers
python benchmarks/where.py --inputs 784 --optimiser adam --json

One thread, one client's data in bytes, batches of 64. The counters themselves cost one or two per cent.
"""

import argparse
import ast
import importlib.util
import json
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from machine import peak_per_core
from numba import types
from numba.extending import intrinsic

from firma.models.catalogue import mlp
from firma.models.split_model import SplitModel
from firma.training import compiled_trainer as compiled
from firma.training import kernels
from firma.training.backend import Stack, stack_of

PARTS = (
    "forward products", "gradients of activations", "weight gradients", "weight gradients and update",
    "norm, ReLU, bias forward", "the same backward", "descent of weights", "batch gathered from bytes", "loss",
    "small parameters", "loop",
)  # fmt: skip
SLOTS = {
    "_tiled_product": 0, "_tiled_product_back": 1, "_tiled_update": 3, "_activate": 4, "_activate_back": 5,
    "_descend": 6, "_gather": 7, "_loss_back": 8, "_momentum": 9,
}  # fmt: skip
BATCH, SAMPLES, EPOCHS = 64, 2560, 2
COUNTS = np.zeros(len(PARTS) + 1, np.int64)  # cycles of every part, and when the last part ended


@intrinsic
def tick(_: Any, slot: Any) -> Any:
    """Add the cycles since the last tick to a part."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        read = builder.module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(word, []))
        base = ir.Constant(word, COUNTS.ctypes.data)
        last = builder.inttoptr(builder.add(base, ir.Constant(word, 8 * len(PARTS))), ir.PointerType(word))
        place = builder.inttoptr(
            builder.add(base, builder.mul(arguments[0], ir.Constant(word, 8))), ir.PointerType(word)
        )
        now = builder.call(read, [])
        builder.store(builder.add(builder.load(place), builder.sub(now, builder.load(last))), place)
        builder.store(now, last)
        return context.get_dummy_value()

    return types.void(types.int64), generate


class Counted(ast.NodeTransformer):
    """Puts a tick behind every call of a kernel's part."""

    def __init__(self) -> None:
        self.function, self.inward = "", False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.function = node.name
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        self.inward = isinstance(node.test, ast.Name) and node.test.id == "k"
        found = self.generic_visit(node)
        self.inward = False
        return found

    def visit_Expr(self, node: ast.Expr) -> Any:
        name = node.value.func.id if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) else ""
        if self.function not in ("epochs", "_forward"):
            return node
        if name == "_product":
            slot = 0 if self.function == "_forward" else 1 if self.inward else 2
        elif name == "_adam":
            slot = 9 if "gradient" in ast.unparse(node) else 6
        elif name in SLOTS:
            slot = SLOTS[name]
        else:
            return node
        return [node, ast.parse(f"tick({slot})").body[0]]


def counted_kernels(folder: str) -> ModuleType:
    """The kernels with ticks, compiled anew."""
    tree = Counted().visit(ast.parse(Path(str(kernels.__file__)).read_text(encoding="utf-8")))
    loop = next(each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name == "epochs")
    first = next(n for n, each in enumerate(loop.body) if isinstance(each, ast.For))
    loop.body[first:first] = ast.parse(f"tick({len(PARTS) - 1})").body
    path = Path(folder) / "counted_kernels.py"
    path.write_text("from where import tick\n" + ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
    specification = importlib.util.spec_from_file_location("counted_kernels", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def step(counted: ModuleType, inputs: int, adam: bool) -> dict[str, Any]:
    """Microseconds of every part of a step, at its best of several tries; and the limit of its products."""
    model = SplitModel(*mlp((inputs,), 10))
    stack = stack_of(model)
    assert isinstance(stack, Stack)
    table, epsilons, places, space = compiled._tables(stack.blocks, BATCH)
    generator = np.random.default_rng(0)
    data = generator.integers(0, 256, (SAMPLES, inputs), dtype=np.uint8)
    labels = generator.integers(0, 10, SAMPLES)
    orders = np.stack([generator.permutation(SAMPLES) for _ in range(EPOCHS)])
    parameters = stack.turned(model.flat(), True).numpy().copy()
    moments = [compiled._aligned(len(parameters)) for _ in range(2)]
    work, best = compiled._aligned(space), None
    trained = len(table) - adam  # the long phase of the ring methods leaves the head alone
    for _ in range(6):
        COUNTS[:] = 0
        before = time.thread_time()
        counted.epochs(
            parameters, *moments, adam, trained, compiled._NO_FLOATS, data, np.float32(1 / 255), labels, orders, BATCH,
            table, epsilons, work, places, 0.001, 0.9, 0.0, np.zeros(2, np.int64),
        )  # fmt: skip
        seconds = time.thread_time() - before
        if best is None or seconds < best[0]:
            best = seconds, COUNTS[: len(PARTS)].copy()
    assert best is not None
    steps = EPOCHS * SAMPLES // BATCH
    cycles = best[1][:-1].astype(float)  # the last holds what was before the first step
    weights = [block.inputs * block.outputs for block in stack.blocks]
    products = 2 * sum(weights) + 2 * sum(weights[:trained]) + 2 * sum(weights[1:])
    each = 1e6 * best[0] / steps
    shares = dict(zip(PARTS[:-1], (each * cycles / cycles.sum()).tolist(), strict=True))
    return {
        "inputs": inputs,
        "optimiser": "adam" if adam else "momentum",
        "microseconds": each,
        "limit_microseconds": 1e-3 * BATCH * products / peak_per_core(),
        "parts": {name: value for name, value in shares.items() if value > 0},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, action="append")
    parser.add_argument("--optimiser", choices=["momentum", "adam"], action="append")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    with tempfile.TemporaryDirectory() as folder:
        counted = counted_kernels(folder)
        found = [
            step(counted, inputs, optimiser == "adam")
            for inputs in given.inputs or (784, 3072)
            for optimiser in given.optimiser or ("momentum", "adam")
        ]
    if given.json:
        print(json.dumps(found))
        return
    print("| µs of a step | " + " | ".join(f"{each['inputs']} inputs, {each['optimiser']}" for each in found) + " |")
    print("|---|" + "---:|" * len(found))
    for name in ["limit", "all", *PARTS[:-1]]:
        values = [
            each["limit_microseconds"] if name == "limit" else each["microseconds"] if name == "all"
            else each["parts"].get(name) for each in found
        ]  # fmt: skip
        print(f"| {name} | " + " | ".join("–" if value is None else f"{value:.0f}" for value in values) + " |")


if __name__ == "__main__":
    sys.modules["where"] = sys.modules["__main__"]
    main()
