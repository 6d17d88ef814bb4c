"""How the numbers of the recommended preset are chosen: every method gets the same six tries, on validation data.

    python benchmarks/choose_numbers.py --dataset digits --seeds 3 >> benchmarks/choices.jsonl
    python benchmarks/choose_numbers.py --dataset mnist --every 5 --rounds 10 --best-of benchmarks/choices.jsonl >> more
    python benchmarks/choose_numbers.py --show benchmarks/choices.jsonl

Tests are never looked at: a fifth of the training data takes their place (`--set scored_on=validation`). `--every 5`
takes every fifth training sample and `--best-of` goes on with the better half of every method's tries on digits, so
that the large data sets can be tried in minutes.
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import mean

import firma

SCENARIOS = ("dir-0.1", "skew-1", "iid", "dir-0.5", "skew-2", "dir-0.8", "skew-3")
JOINT = [{"rate": rate, "epochs": epochs} for rate in (0.01, 0.03, 0.1) for epochs in (5, 10)]
PHASES = [
    {"rate": rate, "head_epochs": head, "extractor_epochs": extractor}
    for rate in (0.01, 0.03, 0.1)
    for head, extractor in ((2, 2), (5, 5))
]
RING = [
    {"rate": 0.001, "extractor_epochs": 5},
    {"rate": 0.001, "extractor_epochs": 10},
    {"rate": 0.003, "extractor_epochs": 5},
    {"rate": 0.001, "extractor_epochs": 5, "head_epochs": 2},
    {"rate": 0.001, "extractor_epochs": 5, "retention_start": 0.8, "retention_end": 0.3, "retention": 0.7},
    {
        "rate": 0.001,
        "extractor_epochs": 5,
        "head_epochs": 2,
        "retention_start": 0.8,
        "retention_end": 0.3,
        "retention": 0.7,
    },
]
TRIES = {"fibfl++": RING, "fedavg": JOINT, "local": JOINT, "fedrep": PHASES, "rdfl": JOINT, "fibfl": RING}


def score(arguments: argparse.Namespace) -> None:
    """One line of JSON a run."""
    whole = firma.load_dataset(arguments.dataset)
    step = arguments.every
    dataset = replace(whole, x_train=whole.x_train[::step], y_train=whole.y_train[::step])
    for scenario in arguments.scenario or SCENARIOS:
        for method in arguments.method or TRIES:
            for settings in _tries(method, arguments.best_of):
                for seed in range(arguments.seeds):
                    result = firma.run(
                        dataset, scenario, method, rounds=arguments.rounds, seed=seed,
                        settings=settings | {"scored_on": "validation"},
                    )  # fmt: skip
                    figures = {key: result.metrics[key] for key in ("mean_accuracy", "worst_client")}
                    line = {
                        "dataset": dataset.name,
                        "scenario": scenario,
                        "method": method,
                        "seed": seed,
                        "every": step,
                    }
                    print(
                        json.dumps(line | {"rounds": result.config["rounds"], "settings": settings} | figures),
                        flush=True,
                    )


def _tries(method: str, earlier: Path | None) -> list[dict[str, float]]:
    """All tries of a method, or the better half by what they scored on digits."""
    if earlier is None:
        return TRIES[method]
    scores: dict[str, list[float]] = defaultdict(list)
    for line in earlier.read_text().splitlines():
        run = json.loads(line)
        if (run["method"], run["dataset"]) == (method, "digits"):
            scores[json.dumps(run["settings"])].append(run["mean_accuracy"])
    ranked = sorted(TRIES[method], key=lambda settings: -mean(scores[json.dumps(settings)]))
    return ranked[: len(ranked) // 2]


def show(path: Path) -> None:
    """A table of every try that all data sets saw: validation accuracy (worst client) on each, and their mean."""
    runs: dict[tuple[str, str], dict[str, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for line in path.read_text().splitlines():
        run = json.loads(line)
        runs[run["method"], json.dumps(run["settings"])][run["dataset"]].append(run)
    names = list(dict.fromkeys(name for sets in runs.values() for name in sets))

    def score(sets: dict[str, list[dict[str, float]]], key: str) -> list[float]:
        return [mean(run[key] for run in sets[name]) for name in names]

    whole = {tried: sets for tried, sets in runs.items() if len(sets) == len(names)}
    order = sorted(whole, key=lambda tried: (tried[0], -mean(score(whole[tried], "mean_accuracy"))))
    sys.stdout.write(
        "| method | numbers | " + " | ".join(names) + " | mean |\n|---|---|" + "---|" * (len(names) + 1) + "\n"
    )
    for method, settings in order:
        accuracy, worst = (score(whole[method, settings], key) for key in ("mean_accuracy", "worst_client"))
        cells = [f"{100 * a:.1f} ({100 * w:.1f})" for a, w in zip(accuracy, worst, strict=True)]
        numbers = ", ".join(f"{key} {value:g}" for key, value in json.loads(settings).items())
        total = f"{100 * mean(accuracy):.2f} ({100 * mean(worst):.1f})"
        sys.stdout.write(f"| `{method}` | {numbers} | {' | '.join(cells)} | {total} |\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--scenario", action="append")
    parser.add_argument("--method", action="append")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--every", type=int, default=1, help="take every n-th training sample")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--best-of", type=Path, metavar="SCORES", help="only the better half of the tries in this file")
    parser.add_argument("--show", type=Path)
    arguments = parser.parse_args()
    if arguments.show:
        show(arguments.show)
    else:
        score(arguments)


if __name__ == "__main__":
    main()
