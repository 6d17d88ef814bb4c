"""What a narrow wire saves and costs: bytes and accuracy of float32, bfloat16 and int8, every message passed for real.

    python benchmarks/wire.py --dataset digits --scenario dir-0.1 --scenario skew-1 --scenario iid --seeds 5
    python benchmarks/wire.py --dataset mnist --scenario dir-0.1 --rounds 6 --seeds 2
    python benchmarks/wire.py --blocks                     # how many elements should share one scale of int8?
    python benchmarks/wire.py --warmup                     # does rounding add up in the all-reduce?
    python benchmarks/wire.py --sums float32 --rounds 12   # the warm-up's sums as float32, whatever the rest is

Prints Markdown. "float32, one product" is the same run without messages, which rounds differently: how far it is from
float32 says how far apart two equally good runs are.
"""

import argparse
from dataclasses import replace
from statistics import mean, stdev

import numpy as np
import torch

import firma
from firma import encoding, protocol
from firma.encoding import WIRES
from firma.engines.message_passing import drive, transmitted
from firma.mixing.kind import exchange
from firma.models import SplitModel, mlp
from firma.protocol import Participant
from firma.schedule import RoundPlan


def train(arguments, scenario, method, seed, wire, audit):
    settings = dict(pair.split("=", 1) for pair in arguments.set)
    result = firma.run(
        arguments.dataset, scenario, method, clients=arguments.clients, rounds=arguments.rounds, seed=seed,
        settings=settings, wire=wire, audit=audit,
    )  # fmt: skip
    return result.metrics


def keep_sums(wire):
    """Write the sums of the warm-up's all-reduce as `wire` in every run."""
    original = protocol._all_reduce

    def changed(me, order, plan, shared, samples, _):
        return original(me, order, plan, shared, samples, wire)

    protocol._all_reduce = changed


def compare(arguments):
    """A row for every scenario, method and encoding; differences are taken seed by seed."""
    print("| scenario | method | wire | kB a round | bytes | accuracy | change | worst client's change |")
    print("|---|---|---|---|---|---|---|---|")
    for scenario in arguments.scenario or ("dir-0.1", "skew-1", "iid"):
        for method in arguments.method or ("fibfl++", "fibfl"):
            runs = {
                (wire, audit): [train(arguments, scenario, method, s, wire, audit) for s in range(arguments.seeds)]
                for wire, audit in ((WIRES[0], True), (WIRES[0], False), *((wire, True) for wire in WIRES[1:]))
            }
            base = runs["float32", True]
            for (wire, audit), found in runs.items():
                sent = mean(run["bytes_per_round"] for run in found)
                share = sent / mean(run["bytes_per_round"] for run in base)
                name = wire if audit else f"{wire}, one product"
                print(
                    f"| {scenario} | {method} | {name} | {sent / 1000:,.0f} | {share:.1%} "
                    f"| {mean(run['mean_accuracy'] for run in found):.4f} | {change(found, base, 'mean_accuracy')} "
                    f"| {change(found, base, 'worst_client')} |",
                    flush=True,
                )


def change(found, base, key):
    """Mean and deviation over seeds, in percentage points."""
    if found is base:
        return ""
    points = [100 * (one[key] - two[key]) for one, two in zip(found, base, strict=True)]
    return f"{mean(points):+.2f}" + (f" ± {stdev(points):.2f}" if len(points) > 1 else "")


def blocks(arguments):
    """Bytes and rounding error of one trained extractor for several sizes of a block."""
    settings = dict(pair.split("=", 1) for pair in arguments.set)
    result = firma.run(arguments.dataset, "dir-0.1", "fibfl++", rounds=arguments.rounds, settings=settings)
    layout = result.template.layout()
    values = result.parameters[0, : layout.extractor].numpy()
    stretches = np.split(values, np.cumsum(layout.counts(0, layout.extractor))[:-1])
    print("| elements to a scale | bytes an element | error / size of the parameters (rms) |")
    print("|---|---|---|")
    for block in (64, 256, 1024, 4096, 1 << 40):
        encoding.BLOCK = min(block, max(len(each) for each in stretches))
        back = np.concatenate([encoding.unpack("int8", encoding.pack("int8", e), len(e)) for e in stretches])
        sent = sum(encoding.size("int8", len(each)) for each in stretches) / len(values)
        error = np.sqrt(((back - values) ** 2).mean() / (values**2).mean())
        print(f"| {block if block < 1 << 40 else 'a whole tensor'} | {sent:.3f} | {error:.5f} |")


def warmup(_):
    """Error of one all-reduce against the exact average, by encoding and number of members.

    Members have a model in common and a tenth of it each for themselves, as after a round from common weights.
    """
    layout = SplitModel(*mlp((8, 8), 10, 256, 128)).layout()
    plan = RoundPlan(0, (), "all-reduce", "extractor")
    print("| members | " + " | ".join(WIRES) + " |\n|---|---|---|---|")
    for members in (2, 5, 10, 20, 50):
        dice = torch.Generator().manual_seed(0)
        vectors = torch.randn(layout.extractor, generator=dice) * 0.05
        vectors = vectors + torch.randn(members, layout.extractor, generator=dice) * 0.005
        exact, errors = vectors.double().mean(0), []
        for wire in WIRES:
            peers = {i: exchange(plan, Participant(i, range(members), vectors[i], 1.0, 100)) for i in range(members)}
            found = drive(peers, lambda *_: None, lambda said, wire=wire: transmitted(replace(said, wire=wire), layout))
            off = torch.stack([found[i] for i in range(members)]).double() - exact
            errors.append(float((off**2).mean().sqrt() / (exact**2).mean().sqrt()))
        print(f"| {members} | " + " | ".join(f"{error:.2e}" for error in errors) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--scenario", action="append")
    parser.add_argument("--method", action="append")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--sums", choices=WIRES)
    parser.add_argument("--blocks", action="store_true")
    parser.add_argument("--warmup", action="store_true")
    chosen = parser.parse_args()
    if chosen.sums is not None:
        keep_sums(chosen.sums)
    (blocks if chosen.blocks else warmup if chosen.warmup else compare)(chosen)
