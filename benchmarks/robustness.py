"""Accuracy of honest clients by attack, method and combine: MNIST, one dishonest client of five and of ten.

    python benchmarks/robustness.py OUT.jsonl            # run what is missing, then print the tables
    python benchmarks/robustness.py OUT.jsonl --table    # print the tables only

4,000 training and 2,000 test images, a model with 64 and 32 units, dir-0.5, five rounds of five epochs, one seed. A
line of the file is one run. The liar is the same client in all runs of a size, drawn by the seed, so a column compares
like with like.
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import firma
from firma.data.dataset import load_dataset

TRAIN, TEST, ROUNDS, SCENARIO, SEED = 4000, 2000, 5, "dir-0.5", 0
SETTINGS = {"epochs": 5, "extractor_epochs": 5, "hidden": 64, "embedding": 32}
CLIENTS = (5, 10)
ATTACKS = ("none", "sign-flip", "noise", "scaled", "label-flip", "lying-accuracy")
GATHER = "frame:topology=all-gather,combine="
METHODS = (
    "local", "fibfl++", "fibfl++:combine=clipped", "fibfl++:combine=trimmed",
    "fedavg", "fedavg:combine=trimmed", "fedavg:combine=median", "fedavg:combine=krum",
    "frame", f"{GATHER}clipped", f"{GATHER}trimmed", f"{GATHER}median", f"{GATHER}krum",
)  # fmt: skip


def same_as(method: str, attack: str) -> str:
    """An attack that is the same for this method: nobody sees what is not shared, and no gate is lied to."""
    if firma.METHODS[method.partition(":")[0]].gate == "no" and attack == "lying-accuracy":
        return "sign-flip"
    return attack


def cells() -> list[tuple[int, str, str]]:
    """(clients, method, attack) of every run; training alone is run once, for nobody can attack it."""
    return [
        (clients, method, attack)
        for clients in CLIENTS
        for method in METHODS
        for attack in (ATTACKS if method != "local" else ("none",))
        if same_as(method, attack) == attack
    ]


def trained(data: Any, clients: int, method: str, attack: str) -> dict[str, Any]:
    """One run, as a line of the file."""
    options = {"attack": attack, "attackers": 1} if attack != "none" else {}
    result = firma.run(
        data, SCENARIO, method, clients=clients, rounds=ROUNDS, seed=SEED, settings=SETTINGS, workers=1, **options
    )
    # Without an attack too, the mean is over those that are honest in the others.
    liars = result.config.get("dishonest") or list(drawn(clients))
    honest = [float(each) for client, each in enumerate(result.history[-1]) if client not in liars]
    return {
        "clients": clients, "method": method, "attack": attack, "dishonest": liars,
        "honest_mean": sum(honest) / len(honest), "honest_worst": min(honest), "seconds": round(result.seconds, 1),
    }  # fmt: skip


def drawn(clients: int) -> tuple[int, ...]:
    """Who would be dishonest."""
    from firma.attacks import drawn_attack

    attack = drawn_attack("sign-flip", 1, clients, SEED)
    assert attack is not None
    return attack.clients


def table(lines: list[dict[str, Any]], clients: int) -> str:
    """Mean (worst) accuracy of the honest clients in percent, in Markdown."""
    known = {(each["method"], each["attack"]): each for each in lines if each["clients"] == clients}
    rows = [f"| 1 of {clients} dishonest | " + " | ".join(ATTACKS) + " |", "|---|" + "---|" * len(ATTACKS)]
    for method in METHODS:
        found = [known.get((method, same_as(method, attack))) for attack in ATTACKS]
        if method == "local":
            found = [found[0]] * len(ATTACKS)
        texts = [f"{each['honest_mean']:.1%} ({each['honest_worst']:.0%})" if each else "" for each in found]
        rows.append(f"| `{method}` | " + " | ".join(text.replace("%", "") for text in texts) + " |")
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
        data = (whole.x_train[:TRAIN], whole.y_train[:TRAIN], whole.x_test[:TEST], whole.y_test[:TEST])
        done = {(each["clients"], each["method"], each["attack"]) for each in lines}
        for cell in cells():
            if cell not in done:
                lines.append(trained(data, *cell))
                with asked.file.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    print("\n\n".join(table(lines, clients) for clients in CLIENTS))


if __name__ == "__main__":
    main()
