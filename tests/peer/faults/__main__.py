"""`python -m tests.peer.faults`: thousands of rings on all cores, or one seed again with its history.

python -m tests.peer.faults --seconds 600 --first 0 --out faults.json
python -m tests.peer.faults --seed 4711                # its history, and the least set of faults that fails
python -m tests.peer.faults --mistake "a head leaves"  # how many rings it takes to find a planted mistake
"""

import argparse
import multiprocessing
import os
import sys
import time
from functools import partial

from .mistakes import MISTAKES, found_by
from .report import Report, figures_of
from .scenarios import KINDS, PROFILES, draw
from .search import run_ring, shrunk, told


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.peer.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to search")
    parser.add_argument("--rings", type=int, help="how many rings to run, in place of --seconds")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kinds", help=f"comma-separated kinds of faults, of {', '.join(KINDS)}")
    parser.add_argument("--profile", choices=tuple(PROFILES))
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--out", default="faults.json")
    parser.add_argument("--seed", type=int, help="run one ring again and print its history")
    parser.add_argument(
        "--all-faults", action="store_true", help="with --seed: do not look for the least set of faults"
    )
    parser.add_argument("--mistake", choices=sorted(MISTAKES), help="plant a mistake and look for it")
    asked = parser.parse_args()
    kinds = tuple(asked.kinds.split(",")) if asked.kinds else None
    if unknown := set(kinds or ()) - set(KINDS):
        parser.error(f"--kinds {','.join(sorted(unknown))}: must be of {', '.join(KINDS)}")
    if asked.mistake:
        return _control(asked)
    return _again(asked, kinds) if asked.seed is not None else _search(asked, kinds)


def _again(asked, kinds):
    scenario = draw(asked.seed, kinds, asked.profile)
    verdict = run_ring(scenario, keep_history=True)
    broken = [*verdict.violations, *verdict.known]
    if broken and not asked.all_faults:
        print(f"{len(scenario.faults)} faults; leaving out what is not needed ...", file=sys.stderr)
        verdict = run_ring(shrunk(scenario, promise=broken[0].promise), keep_history=True)
    print("\n".join(told(verdict)))
    return 1 if verdict.violations else 0


def _control(asked):
    mistake = MISTAKES[asked.mistake]
    rings = asked.rings or 200
    seed = found_by(mistake, range(asked.first, asked.first + rings))
    print(f"{asked.mistake}: {f'not found in {rings} rings' if seed is None else f'found with seed {seed}'}")
    return 1 if seed is None else 0


def _seeds(asked):
    """Seeds until there are enough rings, or time is up."""
    last, seed = time.monotonic() + asked.seconds, asked.first
    while seed < asked.first + asked.rings if asked.rings else time.monotonic() < last:
        yield seed
        seed += 1


def _search(asked, kinds):
    report, began, said = Report(), time.monotonic(), 0.0
    with multiprocessing.get_context("spawn").Pool(asked.cores) as pool:
        queued, seeds = [], _seeds(asked)
        while True:
            while len(queued) < 4 * asked.cores and (seed := next(seeds, None)) is not None:
                queued.append(pool.apply_async(partial(figures_of, seed, kinds, asked.profile)))
            if not queued:
                break
            report.add(queued.pop(0).get())
            if time.monotonic() - said > 10:
                said = time.monotonic()
                print(f"{said - began:6.0f} s  {report.rings} rings, {report.rounds} rounds, "
                      f"violations: {dict(report.violations) or 'none'}", flush=True)  # fmt: skip
    print("\n".join(report.lines()))
    report.write(asked.out)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
