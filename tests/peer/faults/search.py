"""One ring from its seed to the verdict on it, many of them on all cores, and the least set of faults that fails."""

import time
from collections import Counter
from dataclasses import dataclass, field, replace

import torch

from .checker import RECOVER, completed, judged, over, recovery
from .effects import build
from .scenarios import draw, excused
from .world import NAMES


@dataclass(frozen=True)
class Verdict:
    """What became of one ring."""

    scenario: object
    violations: tuple
    known: tuple  # violations that a kind of fault in it explains
    rounds: int  # completed
    views: int
    recovery: float | None  # seconds from the last fault to the next completed round
    seconds: float  # of virtual time
    processor: float
    counts: Counter = field(default_factory=Counter)
    history: tuple = ()


def run_ring(scenario, mistakes=(), keep_history=False):
    """Run the ring of a scenario to its end, or until it has broken its promise to recover, and judge it."""
    began = time.process_time()
    world, calm = build(scenario, mistakes), scenario.calm
    patience, left = world.ring.patience, scenario.rounds * 1.5 + 2 * world.ring.gathering
    last = calm + RECOVER * patience + left

    def check():
        if recovery(world, calm) is None and not over(world, calm):
            world.stopped = True

    world.at(calm + RECOVER * patience, check)
    world.at(last, lambda: setattr(world, "stopped", True))
    failed = None
    try:
        world.run(until=last + 1)
    except Exception as error:  # a mistake in the members' code, or in the simulation
        failed = error
    violations = judged(world, calm, failed)
    may_break = excused(scenario)
    known = tuple(each for each in violations if each.excuse or each.promise in may_break)
    done = completed(world)
    counts = Counter({"lost writes": sum(disk.lost_writes for disk in world.disks.values())})
    return Verdict(
        scenario, tuple(each for each in violations if each not in known), known, len(done),
        len({number for number, _ in done}), recovery(world, calm), world.now, time.process_time() - began,
        counts + world.network.counts, tuple(world.history) if keep_history or violations else (),
    )  # fmt: skip


def shrunk(scenario, mistakes=(), promise=None):
    """The scenario with as few faults as still break the promise, one after the other left out."""

    def fails(candidate):
        verdict = run_ring(candidate, mistakes)
        return any(promise in (None, each.promise) for each in (*verdict.violations, *verdict.known))

    changed = True
    while changed:
        changed = False
        for fault in reversed(scenario.faults):
            fewer = replace(scenario, faults=tuple(each for each in scenario.faults if each is not fault))
            if fails(fewer):
                scenario, changed = fewer, True
    return scenario


def told(verdict, last=60):
    """A ring's history for people: its faults, what was violated, and who did what around that."""
    scenario = verdict.scenario
    yield (
        f"seed {scenario.seed}: {scenario.members} members, {scenario.rounds} rounds, {scenario.method}; "
        f"{verdict.rounds} rounds completed in {verdict.seconds:.1f} virtual seconds"
    )
    yield "faults:"
    yield from (f"  {fault}" for fault in scenario.faults)
    yield "violations:" if verdict.violations else "no violation"
    yield from (f"  {each}" for each in verdict.violations)
    if verdict.known:
        yield "known:"
        yield from (f"  {each}" for each in verdict.known)
    until = max((each.at for each in (*verdict.violations, *verdict.known)), default=verdict.seconds)
    entries = [entry for entry in verdict.history if entry[0] <= until + 1]
    yield f"history (the last {last} of {len(entries)} entries until then):"
    yield from (f"  {_line(entry)}" for entry in entries[-last:])


def _line(entry):
    at, who, what, *facts = entry
    if what in ("learnt", "entered"):
        view = facts[0]
        facts = [f"view {view.number}: {'-'.join(NAMES[n] for n in view.order)}, from round {view.start + 1}"]
    elif what in ("saved", "opened", "stored"):
        number, rounds = facts[:2]
        facts = [f"round {rounds} of view {number}", *(["after its promise"] if what == "saved" and facts[3] else [])]
    return f"{at:9.3f}  {who:<5} {what} {' '.join(map(str, facts))}".rstrip()


def one(seed, kinds=None, mistakes=(), keep_history=False, profile=None):
    """The verdict on a seed."""
    torch.set_num_threads(1)
    return run_ring(draw(seed, kinds, profile), mistakes, keep_history)
