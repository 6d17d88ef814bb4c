"""Five sites on one machine: real processes, real sockets, real TLS. `make ring` runs this.

It runs the commands that five organisations would run: init, ring-file, accept, join and audit;
docs/deploy.md explains them.

    python examples/ring/five_sites.py results/ring --dataset mnist --rounds 3    # more samples per site
"""

import argparse
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import firma
from firma.data.dataset import load_dataset
from firma.data.partition import client_inputs, deal
from firma.settings import split_for

NAMES = ("north", "east", "south", "west", "centre")
SCENARIO = "dir-0.5"
FIRMA = [sys.executable, "-m", "firma"]


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def prepare(folder, name_of_data, rounds):
    """Create each site's key, certificate and data, and the ring file that all share."""
    data = load_dataset(name_of_data)
    parts = deal(data, SCENARIO, len(NAMES), split_for("paper", {}), seed=0)
    members = []
    for number, (name, port) in enumerate(zip(NAMES, free_ports(len(NAMES)), strict=True)):
        site = folder / name
        site.mkdir(parents=True)
        command = [*FIRMA, "init", name, f"127.0.0.1:{port}", "--identity", str(site / "identity")]
        subprocess.run(command, check=True, capture_output=True)
        x, x_test = client_inputs(data, parts, number)
        y, y_test = data.y_train[parts.train[number]], data.y_test[parts.test[number]]
        np.savez(site / "data.npz", x=x, y=y, x_test=x_test, y_test=y_test)
        members += ["--member", str(site / "identity" / "site.toml")]
    command = [
        *FIRMA, "ring-file", str(folder / "ring.toml"), *members, "--federation", "five-sites",
        "--shape", "x".join(map(str, data.shape)), "--labels", str(data.classes), "--scale", repr(data.scale),
        "--rounds", str(rounds),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    for name in NAMES:  # each site consents; the signatures travel by themselves
        command = [*FIRMA, "accept", str(folder / "ring.toml"), "--identity", str(folder / name / "identity"), "--yes"]
        subprocess.run(command, check=True, capture_output=True)


def train(folder):
    """Run five processes until all are done; only the first site's output is shown."""
    running = []
    for number, name in enumerate(NAMES):
        site = folder / name
        command = [
            *FIRMA, "join", str(folder / "ring.toml"), "--data", str(site / "data.npz"),
            "--identity", str(site / "identity"), "--state", str(site / "state"),
        ]  # fmt: skip
        running.append(subprocess.Popen(command, stdout=None if number == 0 else subprocess.DEVNULL))
    codes = [process.wait() for process in running]
    if any(codes):
        sys.exit(f"a site failed; exit codes by site: {dict(zip(NAMES, codes, strict=True))}")


def summarise(folder):
    """Print a table with the result and the audit of each site."""
    table = Table(
        "site",
        "test accuracy",
        "kB sent",
        "seconds",
        "training",
        "training (CPU)",
        "audit",
        title="Five sites, no server",
    )
    verdicts = []
    for name in NAMES:
        state = folder / name / "state"
        result = json.loads((state / "result.json").read_text())
        verdict = subprocess.run([*FIRMA, "audit", str(state / "audit.jsonl")], capture_output=True, check=False)
        verdicts.append(verdict.returncode)
        table.add_row(
            name, f"{result['history'][-1]:.4f}", f"{result['bytes'] / 1000:,.0f}", f"{result['seconds']:.1f}",
            f"{result['training_seconds'] / result['seconds']:.0%}",
            f"{result['training_processor_seconds'] / result['processor_seconds']:.0%}",
            "FAILED" if verdict.returncode else "passed",
        )  # fmt: skip
    console = Console()
    console.print(table)
    passed = "passed: only extractors and agreed numbers left the sites, no head" if not any(verdicts) else "FAILED"
    console.print(f"ring {' - '.join(result['order'])}; audit {passed}")
    return int(any(verdicts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path("results/ring"), help="output folder; deleted first"
    )
    parser.add_argument("--dataset", default="digits", help="digits, or one that `firma data get` has fetched")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    prepare(arguments.folder, arguments.dataset, arguments.rounds)
    # The first run on a machine compiles the kernels: do it once here, not in five processes at the same time.
    firma.run("digits", SCENARIO, clients=len(NAMES), rounds=1, settings={"extractor_epochs": 1})
    train(arguments.folder)
    return summarise(arguments.folder)


if __name__ == "__main__":
    sys.exit(main())
