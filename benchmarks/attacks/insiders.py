"""Members with a valid certificate that misbehave: rows A, B, D, E and F."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from firma.methods import ROBUST_METHOD
from firma.peer.runtime import checkpoint
from firma.peer.runtime.promises import Promises
from tests.peer.conftest import NAMES

from .sites import (
    PATIENCE,
    SMALL,
    Found,
    Sites,
    back,
    five_sites,
    left_out_facts,
    longest_stop,
    mean,
    repeated,
    seconds,
    wall,
)

LIAR = 2
HONEST = (0, 1, 3, 4)
FROM = 3  # rounds that are honest before a member begins to misbehave
STATED = 9  # times the patience: the longest stop that docs/threat-model.md allows one liar
LEARNT = {"extractor_epochs": 10, "hidden": 64, "embedding": 32}  # a model that is worth poisoning


def _left_out(facts: dict[str, Any], rounds: int, either: tuple[str, ...] = (NAMES[LIAR],)) -> Found:
    kept = facts["codes"] == [0] * 4 and facts["went_on"] is not None and set(facts["out"]) <= set(either)
    now = (
        f"told after {seconds(facts['told'])}; the others went on without it after {seconds(facts['went_on'])}, "
        f"repeated {facts['repeated']} rounds and completed all {rounds}, exit codes {facts['codes']}"
    )
    return Found(kept, now, facts)


def _alive_and_silent(*fault: Any) -> Callable[[Path], Found]:
    """A member whose fault begins with the training after `FROM` rounds."""

    def run(folder: Path) -> Found:
        with five_sites(folder, 12) as sites:
            sites.start_all(LIAR, fault)
            sites.wait_round(LIAR, FROM)
            return _left_out(left_out_facts(sites, LIAR, sites.when_done(LIAR, FROM)), 12)

    return run


def one_way_line(folder: Path) -> Found:
    """Nothing but heartbeats gets from cat to ant; all other lines work. Which end is left out is not promised."""
    with five_sites(folder, 12) as sites:
        sites.start_all(LIAR, ("no data", FROM, 0))
        sites.wait_round(LIAR, FROM)
        since = sites.when_done(LIAR, FROM)
        sites.wait(lambda: max(sites.views(), default=0) > 1, "one end is left out")
        (out,) = {*range(5)} - {NAMES.index(name) for name in sites.views()[2][0]}
        found = _left_out(left_out_facts(sites, out, since), 12, (NAMES[0], NAMES[LIAR]))
        return Found(found.kept and out in (0, LIAR), f"{found.now}; left out: {NAMES[out]}", found.facts)


def behind_nat(folder: Path) -> Found:
    """Cat calls the others and they hear it, but nobody can call it: its port is closed from one moment on."""
    with five_sites(folder, 40, pace=0.3, proxied=LIAR) as sites:
        sites.start_all()
        sites.wait_round(LIAR, FROM)
        sites.proxy.shut()
        return _left_out(left_out_facts(sites, LIAR, wall()), 40)


mute = _alive_and_silent("no data", FROM)
byte_per_second = _alive_and_silent("slow data", FROM, 1.0)
never_acknowledges = _alive_and_silent("never acknowledges", FROM)
refuses_everything = _alive_and_silent("refuses", FROM)


def _unharmed(sites: Sites, rounds: int) -> tuple[bool, dict[str, Any]]:
    """What forged control messages did to four honest members, after they have finished."""
    codes = sites.finish(*HONEST, timeout=900)
    since = sites.when_done(0, FROM)
    facts: dict[str, Any] = {
        "codes": codes, "repeated": repeated(sites, HONEST), "back": back(sites, HONEST), "views": max(sites.views()),
        "longest_stop": longest_stop(sites, HONEST, since), "accuracies": sites.accuracies(),
        "promises": [Promises(sites.made.state(n), sites.made.ring).read() is not None for n in HONEST],
        "saved": [checkpoint.latest(sites.made.state(n)) for n in HONEST],
    }  # fmt: skip
    sites.end()
    kept = codes == [0] * 4 and all(facts["promises"]) and facts["saved"] == [rounds] * 4
    return kept and facts["back"] <= 1 and facts["longest_stop"] < STATED * PATIENCE, facts


def _insider(kind: str, rounds: int = 40) -> Callable[[Path], Found]:
    def run(folder: Path) -> Found:
        with five_sites(folder, rounds, pace=0.15) as sites:
            sites.start_all(LIAR, ("insider", kind, FROM))
            kept, facts = _unharmed(sites, rounds)
        now = (
            f"{facts['views'] - 1} new views, {facts['repeated']} rounds mixed again, nobody went back by more than "
            f"{facts['back']}; longest stop {seconds(facts['longest_stop'])}; {sum(facts['promises'])} of 4 promises "
            f"readable, rounds saved {facts['saved']}, exit codes {facts['codes']}"
        )
        return Found(kept, now, facts)

    return run


forged_views = _insider("forged views")
endless_proposals = _insider("endless proposals")


def old_backup(folder: Path) -> Found:
    """The state folder of bee after round 8 or so, promises included, is put back when the ring is beyond 30."""
    with five_sites(folder, 50, pace=0.6) as sites:
        sites.start_all()
        sites.wait_round(1, 8)
        process = sites.processes[1].pid
        os.kill(process, signal.SIGSTOP)  # a copy of one moment
        shutil.copytree(sites.made.state(1), folder / "backup")
        os.kill(process, signal.SIGCONT)
        old = checkpoint.latest(folder / "backup")
        sites.wait_round(1, 30)
        sites.kill(1)
        reached, number = sites.done(0), max(sites.views())
        shutil.rmtree(sites.made.state(1))
        shutil.copytree(folder / "backup", sites.made.state(1))
        sites.start(1, resume=True)
        codes = sites.finish(timeout=900)
        later = [start for each, (_, start) in sites.views().items() if each > number]
        others = [n for n in range(5) if n != 1]
        steps = back(sites, others)
        facts = {
            "codes": codes, "backup": old, "reached": reached, "views_start_at": later, "back": steps,
            "accuracies": sites.accuracies(),
        }  # fmt: skip
    kept = codes == [0] * 5 and steps <= 1 and min(later) >= reached - 2
    now = (
        f"the backup was of round {old}, the ring at {reached}: later views start after rounds {min(later)} to "
        f"{max(later)}; nobody went back by more than {steps} round; exit codes {codes}"
    )
    return Found(kept, now, facts)


def _poisoned(method: str, **changes: Any) -> Callable[[Path], Found]:
    """3e38 in every number of every message of cat, from the first exchange on."""

    def run(folder: Path) -> Found:
        with five_sites(folder / "honest", 6, method, set=LEARNT, **changes) as sites:
            sites.start_all()
            sites.finish(timeout=900)
            honest = mean(sites.accuracies()[n] for n in HONEST)
        with five_sites(folder / "attacked", 6, method, set=LEARNT, **changes) as sites:
            sites.start_all(LIAR, ("lie", "absurd", 3e38))
            codes = sites.finish(*HONEST, timeout=900)
            attacked = mean(sites.accuracies()[n] for n in HONEST)
            named = {n: sites.events(n, "absurd") for n in HONEST}
            largest = max(float(sites.parameters(n, 6).abs().max()) for n in HONEST)
        blamed = sorted({event["member"] for events in named.values() for event in events})
        first = min((event["round"] for events in named.values() for event in events), default=None)
        facts = {
            "codes": codes, "honest": honest, "attacked": attacked, "largest": largest, "blamed": blamed,
            "named_by": sum(1 for events in named.values() if events), "first_round": first,
        }  # fmt: skip
        kept = codes == [0] * 4 and honest - attacked < 0.02 and largest < 100 and blamed == [NAMES[LIAR]]
        now = (
            f"{NAMES[LIAR]} is named in round {first} by {facts['named_by']} of 4; honest accuracy {honest:.3f} "
            f"without and {attacked:.3f} with it; largest saved parameter {largest:.1f}; exit codes {codes}"
        )
        return Found(kept, now, facts)

    return run


poisoned_sums = _poisoned("fibfl++")
poisoned_gossip = _poisoned("fibfl++:warmup=no")
poisoned_default = _poisoned(ROBUST_METHOD)

LIES: dict[str, tuple[Any, ...]] = {
    "honest": (),
    "noise x100": ("lie", "noise", 100.0),
    "noise x10": ("lie", "noise", 10.0),
    "sign-flip": ("lie", "sign-flip"),
    "wrong labels": (),
}


def lied_to(folder: Path, scenario: str, seed: int, lie: str, method: str, numbers: dict[str, int]) -> Found:
    """One ring of the default file under one lie. Whatever it sends, the liar claims an accuracy of 1, if any."""
    changes: dict[str, Any] = {"set": numbers, "seed": seed, "draw": seed}
    with five_sites(folder, 8, method, scenario, **changes) as sites:
        if lie == "wrong labels":
            held = dict(np.load(sites.made.data(LIAR)))
            np.savez(sites.made.data(LIAR), **(held | {"y": 9 - held["y"]}))
        sites.start_all(LIAR, *([LIES[lie]] if LIES[lie] else []))
        codes = sites.finish(*HONEST, timeout=900)
        found = [sites.accuracies()[n] for n in HONEST]
        refused = sum(len(sites.events(n, "absurd")) for n in HONEST)
    facts = {
        "scenario": scenario, "seed": seed, "lie": lie, "model": "small" if numbers else "default", "codes": codes,
        "honest_mean": mean(found), "absurd": refused,
    }  # fmt: skip
    return Found(codes == [0] * 4, f"honest mean {mean(found):.4f}", facts)


SMALLER = SMALL | {"extractor_epochs": 5}
