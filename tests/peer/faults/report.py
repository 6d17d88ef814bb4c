"""The figures of a search: as JSON, and as lines for people."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from .checker import PROMISES
from .scenarios import KINDS, KNOWN
from .search import one


@dataclass
class Report:
    """Sums over rings; `add` takes what `figures` says of one."""

    rings: int = 0
    rounds: int = 0
    views: int = 0
    virtual: float = 0.0  # seconds
    processor: float = 0.0
    faults: Counter = field(default_factory=Counter)
    counts: Counter = field(default_factory=Counter)
    violations: Counter = field(default_factory=Counter)
    known: Counter = field(default_factory=Counter)
    seeds: dict = field(default_factory=dict)  # first seeds of each promise that was broken
    known_seeds: dict = field(default_factory=dict)
    recovered: list = field(default_factory=list)  # seconds

    def add(self, figures):
        self.rings += 1
        self.rounds += figures["rounds"]
        self.views += figures["views"]
        self.virtual += figures["virtual"]
        self.processor += figures["processor"]
        self.faults.update(figures["faults"])
        self.counts.update(figures["counts"])
        self.violations.update(figures["violations"])
        self.known.update(figures["known"])
        for promise in figures["violations"]:
            self.seeds.setdefault(promise, []).append(figures["seed"])
        for promise in figures["known"]:
            self.known_seeds.setdefault(promise, []).append(figures["seed"])
        if figures["recovery"] is not None:
            self.recovered.append(figures["recovery"])

    def percentile(self, share):
        ordered = sorted(self.recovered)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None

    def as_json(self):
        return {
            "rings": self.rings, "rounds": self.rounds, "views": self.views, "virtual_seconds": round(self.virtual),
            "processor_seconds": round(self.processor),
            "faults": {kind: self.faults[kind] for kind in KINDS},
            "violations": {promise: self.violations[promise] for promise in PROMISES},
            "known": {promise: self.known[promise] for promise in PROMISES},
            "seeds": {promise: seeds[:20] for promise, seeds in self.seeds.items()},
            "known_seeds": {promise: seeds[:20] for promise, seeds in self.known_seeds.items()},
            "recovery_seconds": {
                "rings": len(self.recovered), "median": self.percentile(0.5), "p99": self.percentile(0.99),
                "longest": self.percentile(1.0),
            },
            "calls": dict(sorted(self.counts.items())),
        }  # fmt: skip

    def write(self, path):
        Path(path).write_text(json.dumps(self.as_json(), indent=1) + "\n")

    def lines(self):
        found = self.as_json()
        yield (
            f"{self.rings} rings, {self.rounds} rounds completed in {self.views} views, {self.virtual / 3600:.1f} "
            f"hours of virtual time in {self.processor / 60:.1f} minutes of a core"
        )
        total = sum(self.faults.values())
        yield f"{total} faults: " + ", ".join(f"{kind} {count}" for kind, count in found["faults"].items() if count)
        if self.recovered:
            median, late, longest = (self.percentile(share) for share in (0.5, 0.99, 1.0))
            yield (
                f"recovery after the last fault, {len(self.recovered)} rings: median {median:.2f} s, 99th percentile "
                f"{late:.2f} s, longest {longest:.2f} s (patience 2 s)"
            )
        broken = {promise: count for promise, count in self.violations.items() if count}
        yield f"violations: {broken or 'none'}"
        for promise, seeds in self.seeds.items():
            yield f"  {promise}: seeds {', '.join(map(str, seeds[:10]))}; repeat with make faults SEED={seeds[0]}"
        if self.known:
            yield f"excused violations (by {', '.join(KNOWN)}): {dict(self.known)}"


def figures_of(seed, kinds=None, profile=None):
    """What a report needs of a ring, small enough to be sent from one process to another."""
    verdict = one(seed, kinds, profile=profile)
    scenario = verdict.scenario
    return {
        "seed": scenario.seed, "rounds": verdict.rounds, "views": verdict.views, "virtual": verdict.seconds,
        "processor": verdict.processor, "recovery": verdict.recovery,
        "faults": Counter(fault.kind for fault in scenario.faults), "counts": verdict.counts,
        "violations": Counter({each.promise: 1 for each in verdict.violations}),
        "known": Counter({each.promise: 1 for each in verdict.known}),
    }  # fmt: skip
