"""Which robust method a ring file takes by default: one liar of five under every attack, several seeds.

    python benchmarks/robust_default.py OUT.jsonl            # run what is missing, then print the tables
    python benchmarks/robust_default.py OUT.jsonl --table    # print the tables only

Digits (all of them, the method's own numbers) and a part of MNIST (4,000 training images, 64 and 32 units), dir-0.5,
eight rounds. `noise-100` is `noise` with a hundred times the root mean square of the parameters. A line of the file is
one run; the tables show the mean over the seeds, and what a method loses against the plain mean without an attack.
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import firma
import firma.attacks
from firma.data.dataset import load_dataset
from firma.methods import lookup

CLIENTS, ROUNDS, SCENARIO = 5, 8, "dir-0.5"
SEEDS = {"digits": (0, 1, 2, 3, 4), "mnist": (0, 1)}
SETTINGS = {"digits": {}, "mnist": {"extractor_epochs": 5, "hidden": 64, "embedding": 32}}
ATTACKS = ("none", "noise-100", "noise", "sign-flip", "lying-accuracy", "label-flip")
PLAIN = "fibfl++"
GATHER = "fibfl++:topology=all-gather,weights=equal,gate=no,order=given,combine="
COMPLETE = "fibfl++:topology=complete,weights=metropolis,retention=none,gate=no,order=given,combine=clipped"
METHODS = (
    PLAIN, "fibfl++:combine=clipped", "fibfl++:combine=clipped,gate=no", "fibfl++:combine=clipped,gate=no,warmup=no",
    "fibfl++:combine=trimmed,gate=no", f"{GATHER}clipped", f"{GATHER}trimmed", f"{GATHER}median",
    COMPLETE, f"{COMPLETE},warmup=no",
    "frame", "frame:topology=all-gather,combine=clipped", "frame:topology=all-gather,combine=trimmed",
    "frame:topology=all-gather,combine=median",
)  # fmt: skip


def same_as(method: str, attack: str) -> str:
    """An attack that is the same for this method, because there is no gate to lie to."""
    return "sign-flip" if attack == "lying-accuracy" and lookup(method).gate == "no" else attack


def trained(name: str, data: Any, method: str, attack: str, seed: int) -> dict[str, Any]:
    """One run, as a line of the file."""
    firma.attacks.STRENGTH = 100.0 if attack == "noise-100" else 10.0
    kind: Any = attack.removesuffix("-100")
    result = firma.run(
        data, SCENARIO, method, clients=CLIENTS, rounds=ROUNDS, seed=seed, settings=SETTINGS[name], workers=1,
        attack=kind, attackers=0 if attack == "none" else 1,
    )  # fmt: skip
    attacked = firma.attacks.drawn_attack("sign-flip", 1, CLIENTS, seed)
    assert attacked is not None
    honest = [float(each) for client, each in enumerate(result.history[-1]) if client not in attacked.clients]
    return {
        "data": name, "method": method, "attack": attack, "seed": seed, "honest_mean": sum(honest) / len(honest),
        "honest_worst": min(honest), "bytes": sum(result.sent_bytes) // ROUNDS, "seconds": round(result.seconds, 1),
    }  # fmt: skip


def table(lines: list[dict[str, Any]], name: str) -> str:
    """Mean accuracy of the honest clients in percent by method and attack, in Markdown."""

    def mean(method: str, attack: str) -> float | None:
        found = [
            each["honest_mean"]
            for each in lines
            if (each["data"], each["method"], each["attack"]) == (name, method, same_as(method, attack))
        ]
        return sum(found) / len(found) if found else None

    plain = mean(PLAIN, "none") or 0.0
    rows = [
        f"| {name}, 1 of {CLIENTS} | " + " | ".join(ATTACKS) + f" | against plain `{PLAIN}` | worst attack |",
        "|---|" + "---|" * (len(ATTACKS) + 2),
    ]
    for method in METHODS:
        found = [mean(method, attack) for attack in ATTACKS]
        texts = [f"{100 * each:.1f}" if each is not None else "" for each in found]
        known = [each for each in found if each is not None]
        if found[0] is not None and len(known) > 1:
            texts += [f"{100 * (found[0] - plain):+.1f}", f"{100 * (min(known[1:]) - found[0]):+.1f}"]
        rows.append(f"| `{method}` | " + " | ".join(texts) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    lines = [json.loads(line) for line in asked.file.read_text().splitlines()] if asked.file.exists() else []
    if not asked.table:
        warnings.simplefilter("ignore", UserWarning)  # runs at chance level are what this measures
        whole = load_dataset("mnist")
        part = (whole.x_train[:4000], whole.y_train[:4000], whole.x_test[:2000], whole.y_test[:2000])
        data: dict[str, Any] = {"digits": "digits", "mnist": part}
        done = {(each["data"], each["method"], each["attack"], each["seed"]) for each in lines}
        cells = [
            (name, method, attack, seed)
            for name, seeds in SEEDS.items()
            for seed in seeds
            for method in METHODS
            for attack in ATTACKS
            if same_as(method, attack) == attack
        ]
        for name, method, attack, seed in cells:
            if (name, method, attack, seed) not in done:
                lines.append(trained(name, data[name], method, attack, seed))
                with asked.file.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    print("\n\n".join(table(lines, name) for name in SEEDS))


if __name__ == "__main__":
    main()
