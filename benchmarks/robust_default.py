"""Which robust method a ring file takes by default: one liar of five under every attack, several seeds.

    python benchmarks/robust_default.py OUT.jsonl            # run what is missing, then print the tables
    python benchmarks/robust_default.py OUT.jsonl --table    # print the tables only

Digits (all of them, the method's own numbers) and a part of MNIST (4,000 training images, 64 and 32 units), dir-0.5,
eight rounds; then the default and its nearest relatives on digits that are split in other ways, and with a small model
that has hardly learnt. `noise-100` is `noise` with a hundred times the root mean square of the parameters. A line of
the file is one run; the tables show the mean over the seeds, and what a method loses against the plain mean without an
attack. The paired tables show what each attack costs, seed by seed: the mean, its standard error, and the worst seed.
`absent` is no attack: the fifth client does not exist, so its data are missing; no defence can be expected to
do better. The rows of fibfl++ train with the constant learning rate that the recommended preset had at the time.
"""

import argparse
import json
import statistics
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import firma
import firma.attacks
from firma.data.dataset import Dataset, load_dataset
from firma.data.partition import deal
from firma.method_lookup import lookup
from firma.settings import split_for

CLIENTS = 5
ATTACKS = ("none", "noise-100", "noise", "sign-flip", "lying-accuracy", "label-flip")
FEWER = ("none", "absent", "noise", "sign-flip", "label-flip")
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
CONSTANT = {"schedule": "constant", "weight_decay": 0.0, "local_steps": None}
RELATIVES = (COMPLETE, COMPLETE.replace("clipped", "trimmed"), COMPLETE.replace("clipped", "median"))


@dataclass(frozen=True, slots=True)
class Case:
    """Data, how they are split, and what is run on them."""

    data: str
    scenario: str
    seeds: int
    methods: tuple[str, ...] = METHODS
    attacks: tuple[str, ...] = ATTACKS
    rounds: int = 8
    settings: Mapping[str, int] = field(default_factory=dict)
    first: int = 0  # seed


_SMALL = {"extractor_epochs": 5, "hidden": 32, "embedding": 16}
CASES = {
    "digits": Case("digits", "dir-0.5", 5),
    "mnist": Case("mnist", "dir-0.5", 2, settings={"extractor_epochs": 5, "hidden": 64, "embedding": 32}),
    "digits dir-0.5": Case("digits", "dir-0.5", 5, RELATIVES, FEWER),
    "digits dir-0.5 fresh": Case("digits", "dir-0.5", 5, RELATIVES[:1], FEWER, first=5),
    "digits small dir-0.5": Case("digits", "dir-0.5", 6, RELATIVES, FEWER, 6, _SMALL),
    "digits small dir-0.5 longer": Case("digits", "dir-0.5", 6, RELATIVES[:1], FEWER, 24, _SMALL),
    "digits dir-0.1": Case("digits", "dir-0.1", 5, RELATIVES, FEWER),
    "digits iid": Case("digits", "iid", 5, RELATIVES, FEWER),
    "digits skew-1": Case("digits", "skew-1", 5, RELATIVES, FEWER),
}


def same_as(method: str, attack: str) -> str:
    """An attack that is the same for this method, because there is no gate to lie to."""
    return "sign-flip" if attack == "lying-accuracy" and lookup(method).gate == "no" else attack


def trained(name: str, data: Any, method: str, attack: str, seed: int) -> dict[str, Any]:
    """One run, as a line of the file."""
    case = CASES[name]
    settings = {**case.settings, **(CONSTANT if method.startswith(PLAIN) else {})}
    attacked = firma.attacks.drawn_attack("sign-flip", 1, CLIENTS, seed)
    assert attacked is not None
    if attack == "absent":
        left = without(load_dataset(data), case.scenario, attacked.clients, seed)
        result = firma.run(left, "natural", method, rounds=case.rounds, seed=seed, settings=settings, workers=1)
        return line(name, method, attack, seed, [float(each) for each in result.history[-1]], result)
    firma.attacks.STRENGTH = 100.0 if attack == "noise-100" else 10.0
    kind: Any = attack.removesuffix("-100")
    result = firma.run(
        data, case.scenario, method, clients=CLIENTS, rounds=case.rounds, seed=seed, settings=settings, workers=1,
        attack=kind, attackers=0 if attack == "none" else 1,
    )  # fmt: skip
    honest = [float(each) for client, each in enumerate(result.history[-1]) if client not in attacked.clients]
    return line(name, method, attack, seed, honest, result)


def line(name: str, method: str, attack: str, seed: int, honest: list[float], result: Any) -> dict[str, Any]:
    """A run as it is written."""
    return {
        "data": name, "method": method, "attack": attack, "seed": seed, "honest_mean": sum(honest) / len(honest),
        "honest_worst": min(honest), "bytes": sum(result.sent_bytes) // CASES[name].rounds,
        "seconds": round(result.seconds, 1),
    }  # fmt: skip


def without(whole: Dataset, scenario: str, absent: tuple[int, ...], seed: int) -> Dataset:
    """The data of all other clients, dealt as if they were there, as those of clients of their own."""
    parts = deal(whole, scenario, CLIENTS, split_for("recommended", {}), seed)
    here = [client for client in range(CLIENTS) if client not in absent]
    train, test = (np.concatenate([each[client] for client in here]) for each in (parts.train, parts.test))
    owners = [np.repeat(here, [len(each[client]) for client in here]) for each in (parts.train, parts.test)]
    x, x_test = (
        np.asarray(each, dtype=np.float32) * whole.scale for each in (whole.x_train[train], whole.x_test[test])
    )
    return firma.natural((x, whole.y_train[train], x_test, whole.y_test[test]), *owners)


def found(lines: list[dict[str, Any]], name: str, method: str, attack: str) -> dict[int, float]:
    """Mean accuracy of the honest clients, by seed."""
    cell = (name, method, same_as(method, attack))
    return {
        each["seed"]: each["honest_mean"] for each in lines if (each["data"], each["method"], each["attack"]) == cell
    }


def table(lines: list[dict[str, Any]], name: str) -> str:
    """Mean accuracy of the honest clients in percent by method and attack, in Markdown."""
    case = CASES[name]
    plain = statistics.mean(found(lines, name, PLAIN, "none").values() or [0.0])
    rows = [
        f"| {name}, 1 of {CLIENTS} | " + " | ".join(case.attacks) + f" | against plain `{PLAIN}` | worst attack |",
        "|---|" + "---|" * (len(case.attacks) + 2),
    ]
    for method in case.methods:
        means = [statistics.mean(each.values()) if each else None for each in
                 (found(lines, name, method, attack) for attack in case.attacks)]  # fmt: skip
        texts = [f"{100 * each:.1f}" if each is not None else "" for each in means]
        known = [each for each in means if each is not None]
        if means[0] is not None and len(known) > 1:
            texts += [f"{100 * (means[0] - plain):+.1f}", f"{100 * (min(known[1:]) - means[0]):+.1f}"]
        rows.append(f"| `{method}` | " + " | ".join(texts) + " |")
    return "\n".join(rows)


def paired(lines: list[dict[str, Any]], name: str) -> str:
    """What each attack costs the honest clients in points, seed by seed: mean ± standard error (worst seed)."""
    case = CASES[name]
    rows = [
        f"| {name}, 1 of {CLIENTS} | seeds | honest | " + " | ".join(case.attacks[1:]) + " |",
        "|---|---|---|" + "---|" * (len(case.attacks) - 1),
    ]
    for method in case.methods:
        honest = found(lines, name, method, "none")
        texts = []
        for attack in case.attacks[1:]:
            attacked = found(lines, name, method, attack)
            costs = [100 * (attacked[seed] - honest[seed]) for seed in sorted(honest.keys() & attacked.keys())]
            spread = statistics.stdev(costs) / len(costs) ** 0.5 if len(costs) > 1 else 0.0
            texts.append(f"{statistics.mean(costs):+.2f} ± {spread:.2f} ({min(costs):+.1f})" if costs else "")
        if honest:
            mean = 100 * statistics.mean(honest.values())
            rows.append(f"| `{lookup(method).combine}` | {len(honest)} | {mean:.1f} | " + " | ".join(texts) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--case", action="append", choices=CASES, help="only these (default: all)")
    asked = parser.parse_args()
    lines = [json.loads(line) for line in asked.file.read_text().splitlines()] if asked.file.exists() else []
    chosen = asked.case or list(CASES)
    if not asked.table:
        warnings.simplefilter("ignore", UserWarning)  # runs at chance level are what this measures
        data: dict[str, Any] = {"digits": "digits"}
        if any(CASES[name].data == "mnist" for name in chosen):
            whole = load_dataset("mnist")
            data["mnist"] = (whole.x_train[:4000], whole.y_train[:4000], whole.x_test[:2000], whole.y_test[:2000])
        done = {(each["data"], each["method"], each["attack"], each["seed"]) for each in lines}
        cells = [
            (name, method, attack, seed)
            for number in range(max(CASES[name].seeds for name in chosen))
            for name in chosen
            if number < CASES[name].seeds
            for seed in [CASES[name].first + number]
            for method in CASES[name].methods
            for attack in CASES[name].attacks
            if same_as(method, attack) == attack and (attack != "absent" or method == COMPLETE)
        ]
        for name, method, attack, seed in cells:
            if (name, method, attack, seed) not in done:
                lines.append(trained(name, data[CASES[name].data], method, attack, seed))
                with asked.file.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    print("\n\n".join((table if CASES[name].methods == METHODS else paired)(lines, name) for name in chosen))


if __name__ == "__main__":
    main()
