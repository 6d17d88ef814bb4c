"""Speed of FIRMA as ratios: to the machine's limit, to a good hand-written loop, to a naive one.

python benchmarks/run.py                        everything; table, and benchmarks/results.json
python benchmarks/run.py --work W1 --rounds 2 --json
python benchmarks/run.py --work scaling --json  time and memory over the number of clients
python benchmarks/run.py --work startup --json  imports and first results, with and without compiled code on disk
python benchmarks/run.py --check                all three contestants compute the same
"""

import argparse
import datetime
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import busy_seconds, described, peak_gflops, peak_per_core, wait_for_quiet
from work import WORKS

HERE = Path(__file__).parent
PARTS = ("ours", "hand", "naive")
SIZES = (10, 50, 200, 1000)
DISTURBED = 0.25  # cores that others used while something was measured
Json = dict[str, Any]


def child(part: str, work: str, rounds: int, patience: float) -> Json:
    """Run one contestant in a process of its own; once more if others were busy meanwhile and less so then."""
    first = _child(part, work, rounds, patience)
    if not patience or first["others_cores"] < DISTURBED:
        return first
    second = _child(part, work, rounds, patience)
    return min(first, second, key=lambda run: float(run["others_cores"]))


def _child(part: str, work: str, rounds: int, patience: float) -> Json:
    wait_for_quiet(patience)
    own, every, began = _children_seconds(), busy_seconds(), time.perf_counter()
    command = [sys.executable, str(HERE / "parts.py"), part, work, str(rounds)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    took = time.perf_counter() - began
    others = (busy_seconds() - every - (_children_seconds() - own)) / took
    result: Json = json.loads(done.stdout)
    return result | {"others_cores": round(max(others, 0.0), 2)}


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(name: str, rounds: int | None, repeats: int, patience: float) -> Json:
    """One piece of work by all three, in turns, with the machine's peak measured in between."""
    count = rounds or WORKS[name].rounds
    peaks, cores, runs = [peak_gflops()], [peak_per_core()], {part: [] for part in PARTS}
    for repeat in range(repeats):
        for part in PARTS:
            if part != "naive" or repeat == 0:  # it is slow, and its ratio needs no second digit
                runs[part].append(child(part, name, 1 if part == "naive" else count, patience))
                peaks.append(peak_gflops())
                cores.append(peak_per_core())
    return judged(name, runs, peaks, max(cores)) | {"rounds": count, "repeats": repeats}


def judged(name: str, runs: dict[str, list[Json]], peaks: list[float], core: float) -> Json:
    """Ratios of the best rounds, and of the median ones; a round of W4 is one round of every method.

    What is called cpu is in processor seconds, against the peak of a core in a second of its own: it leaves out time
    that other processes took, and also time in which a core had nothing to do.
    """
    best = {part: _over(runs[part], min) for part in PARTS}
    median = {part: _over(runs[part], statistics.median) for part in PARTS}
    first = runs["ours"][0]
    cpu = {part: _over(runs[part], min, "cpu_seconds") for part in PARTS}
    operations = sum(first["operations"].values())
    limit = operations / max(peaks) * 1e-9
    last = runs["ours"][-1]
    return {
        "work": name,
        "about": WORKS[name].about,
        "peak_gflops": max(peaks),
        "peaks_gflops": peaks,
        "limit_seconds": limit,
        "seconds_per_round": best,
        "seconds_per_round_median": median,
        "limit_share": limit / best["ours"],
        "limit_share_median": limit / median["ours"],
        "vs_hand": best["hand"] / best["ours"],
        "vs_hand_median": median["hand"] / median["ours"],
        "vs_naive": best["naive"] / best["ours"],
        "peak_core_gflops": core,
        "cpu_seconds_per_round": cpu,
        "cpu_limit_share": operations / core * 1e-9 / cpu["ours"],
        "cpu_vs_hand": cpu["hand"] / cpu["ours"],
        "naive_scaled": runs["naive"][0]["scaled"],
        "samples_per_second": sum(first["samples"].values()) / best["ours"],
        "peak_mb": last["peak_mb"],
        "base_mb": last["base_mb"],
        "parameters_mb": last["parameters_mb"],
        "all_seconds": {part: [run["seconds"] for run in runs[part]] for part in PARTS},
        "others_cores": {part: [run["others_cores"] for run in runs[part]] for part in PARTS},
    }


def _over(runs: list[Json], pick: Any, what: str = "seconds") -> float:
    return sum(pick([each for run in runs for each in run[what][method]]) for method in runs[0][what])


def scaling(rounds: int, repeats: int, patience: float) -> Json:
    """Seconds and memory of a round over the number of clients, 60 samples each; t = c · N^exponent fitted."""
    runs: dict[int, list[Json]] = {size: [] for size in SIZES}
    for _ in range(repeats):
        for size in SIZES:
            runs[size].append(child("ours", f"N={size}", rounds, patience))
    seconds = [_over(runs[size], min) for size in SIZES]
    memory = [min(run["peak_mb"] - run["base_mb"] for run in runs[size]) for size in SIZES]
    slope = np.polyfit(np.log(SIZES), np.log(seconds), 1)[0]
    return {
        "work": "scaling",
        "clients": SIZES,
        "seconds_per_round": seconds,
        "microseconds_per_sample": [
            1e6 * each / runs[n][0]["samples"]["fibfl++"] for n, each in zip(SIZES, seconds, strict=True)
        ],
        "exponent": float(slope),
        "exponent_from_50": float(np.polyfit(np.log(SIZES[1:]), np.log(seconds[1:]), 1)[0]),
        "memory_mb": memory,
        "parameters_mb": [runs[size][0]["parameters_mb"] for size in SIZES],
        "others_cores": [[run["others_cores"] for run in runs[size]] for size in SIZES],
    }


def startup(repeats: int, patience: float) -> Json:
    """Seconds until something happens: importing, and ten rounds of digits with and without compiled code on disk."""
    digits = ["-m", "firma", "run", "--dataset", "digits", "--method", "fibfl++", "--rounds", "1"]

    def seconds(arguments: list[str], cache: str | None = None) -> float:
        wait_for_quiet(patience)
        environment = os.environ | ({"NUMBA_CACHE_DIR": cache} if cache else {})
        with tempfile.TemporaryDirectory() as folder:
            before = time.perf_counter()
            subprocess.run(
                [sys.executable, *arguments], check=True, env=environment, cwd=folder, stdout=subprocess.DEVNULL
            )
            return time.perf_counter() - before

    with tempfile.TemporaryDirectory() as cache:
        cold = seconds(digits, cache)
        warm = [seconds(digits, cache) for _ in range(repeats)]
    return {
        "work": "startup",
        "import_torch": min(seconds(["-c", "import torch"]) for _ in range(repeats)),
        "import_firma": min(seconds(["-c", "import firma"]) for _ in range(repeats)),
        "digits_autograd": min(seconds([*digits, "--path", "autograd"]) for _ in range(repeats)),
        "digits_cold": cold,
        "digits_warm": min(warm),
    }


def table(results: list[Json]) -> str:
    """The results for people."""
    lines = [
        "| work | limit s | ours s | hand s | naive s | share of limit (median, CPU) | vs hand (median, CPU) "
        "| vs naive | samples/s | peak MB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in results:
        if "limit_share" not in each:
            continue
        ours, hand, naive = (each["seconds_per_round"][part] for part in PARTS)
        scaled = "" if each["naive_scaled"] == 1 else "*"
        lines.append(
            f"| {each['work']} {each['about']} | {each['limit_seconds']:.3g} | {ours:.3g} | {hand:.3g} "
            f"| {naive:.3g}{scaled} | {each['limit_share']:.2f} ({each['limit_share_median']:.2f}, "
            f"{each['cpu_limit_share']:.2f}) | {each['vs_hand']:.2f} ({each['vs_hand_median']:.2f}, "
            f"{each['cpu_vs_hand']:.2f}) | {each['vs_naive']:.1f} "
            f"| {each['samples_per_second']:,.0f} | {each['peak_mb']:.0f} |"
        )
    for each in results:
        if each["work"] == "scaling":
            seconds = ", ".join(
                f"{n:,}: {s:.3g} s" for n, s in zip(each["clients"], each["seconds_per_round"], strict=True)
            )
            lines += ["", f"Scaling: {seconds}; exponent {each['exponent']:.3f}."]
        if each["work"] == "startup":
            timed = ", ".join(f"{key} {value:.1f} s" for key, value in each.items() if key != "work")
            lines += ["", f"Start-up: {timed}."]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=[*WORKS, "scaling", "startup", "all"], default="all")
    parser.add_argument("--rounds", type=int, help="timed rounds of ours and of hand in each repetition")
    parser.add_argument("--repeats", type=int, default=3, help="how often the contestants take turns")
    parser.add_argument("--patience", type=float, default=20, help="seconds to wait for a quiet machine before each")
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    parser.add_argument("--check", action="store_true", help="compare what is computed, not how fast")
    parser.add_argument("--out", type=Path, help="file of results to put these into; for all work results.json here")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if given.check:
        from check import check

        sys.exit(check())
    names = [*WORKS, "scaling", "startup"] if given.work == "all" else [given.work]
    results: list[Json] = []
    out = given.out or (HERE / "results.json" if given.work == "all" else None)
    for name in names:
        if name == "scaling":
            results.append(scaling(given.rounds or 3, given.repeats, given.patience))
        elif name == "startup":
            results.append(startup(given.repeats, given.patience))
        else:
            results.append(compare(name, given.rounds, given.repeats, given.patience))
        if out is not None:
            store(out, results[-1])
        if not given.json:
            print(table(results[-1:]), flush=True)
    if given.json:
        print(json.dumps(results[0] if len(results) == 1 else {"results": results}))
    elif len(results) > 1:
        print(f"\n{datetime.date.today()}, {described()}\n\n{table(results)}")


def store(out: Path, result: Json) -> None:
    """Put a result into the document, in the place of an earlier one of the same work."""
    stored: list[Json] = json.loads(out.read_text())["results"] if out.exists() else []
    order = [*WORKS, "scaling", "startup"]
    stamped = result | {"date": datetime.date.today().isoformat(), "machine": described()}
    kept = [*(each for each in stored if each["work"] != result["work"]), stamped]
    document = {"results": sorted(kept, key=lambda each: order.index(each["work"]))}
    out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
