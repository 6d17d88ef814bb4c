"""Memory of a site whose extractor has 200 MB, on a real ring of three processes, against training alone.

    python benchmarks/large_model.py [--megabytes 200] [--sites 3] [--rounds 2] [--wire float32]

"Training alone" is one process with the same model, data, method and rounds that sends nothing. Both peaks are the
kernel's own (ru_maxrss). The ratio is (peak on the ring - peak alone) / bytes of the extractor.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

MODEL = """from torch import nn


def build(width=2000, outputs=10):
    extractor = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    return extractor, nn.Linear(width, outputs)
"""
ALONE = """import sys
from pathlib import Path
import torch
from firma.models.reference import importable_here
from firma.peer.ring_file import read_ring
from firma.peer.runtime import node  # what a site loads
from firma.peer.runtime.local_training import LocalSite, load_own
from firma.schedule import plan

torch.set_num_threads(1)
ring = read_ring(Path("ring.toml"))
with importable_here():
    site = LocalSite(ring, 0, load_own("0.npz", ring.task), torch.device("cpu"))
    for number in range(ring.rounds):
        site.train(plan(ring.row, ring.hyper, len(ring.members), ring.rounds, number))
        site.test()
"""


def measured(processes: list["subprocess.Popen[bytes]"]) -> list[int]:
    """Peak memory of each process in bytes, when all have ended well."""
    peaks = []
    for process in processes:
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"a process failed with status {status}")
        peaks.append(usage.ru_maxrss * 1024)
    return peaks


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--method", default="fibfl")
    parser.add_argument("--wire", default="float32")
    parser.add_argument("--port", type=int, default=28400)
    asked = parser.parse_args()
    width = round((asked.megabytes * 250_000) ** 0.5)
    firma = [sys.executable, "-m", "firma"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "wide.py").write_text(MODEL)
        rng = np.random.default_rng(0)
        members = []
        for site in range(asked.sites):
            x = rng.normal(size=(160, 64)).astype(np.float32)
            np.savez(folder / f"{site}.npz", x=x, y=np.arange(160) % 10)
            identity = folder / f"identity-{site}"
            words = ["init", f"site-{site}", f"127.0.0.1:{asked.port + site}", "--identity", str(identity)]
            subprocess.run([*firma, *words], check=True, cwd=folder, stdout=subprocess.DEVNULL)
            members += ["--member", str(identity / "site.toml")]
        words = ["ring-file", "ring.toml", *members, "--federation", "large", "--method", asked.method]
        words += ["--rounds", str(asked.rounds), "--shape", "64", "--labels", "10", "--model", "wide:build"]
        words += ["--model-set", f"width={width}", "--set", "extractor_epochs=1", "--set", "head_epochs=1"]
        subprocess.run([*firma, *words, "--wire", asked.wire], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        for site in range(asked.sites):
            words = ["accept", "ring.toml", "--identity", f"identity-{site}", "--yes"]
            subprocess.run([*firma, *words], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        (alone,) = measured([subprocess.Popen([sys.executable, "-c", ALONE], cwd=folder)])
        joins = [
            [*firma, "join", "ring.toml", "--data", f"{site}.npz", "--identity", f"identity-{site}",
             "--state", f"state-{site}", "--model", "wide:build"]
            for site in range(asked.sites)
        ]  # fmt: skip
        sites = measured([subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL) for words in joins])
    extractor = 4 * (64 * width + width + width * width + width)
    found = {
        "extractor_bytes": extractor, "alone_bytes": alone, "site_bytes": sites,
        "ratio": [round((peak - alone) / extractor, 3) for peak in sites],
    }  # fmt: skip
    print(json.dumps(vars(asked) | found, indent=1))


if __name__ == "__main__":
    main()
