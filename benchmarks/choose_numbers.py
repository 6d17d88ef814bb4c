"""How the numbers of the recommended preset are chosen: every method gets the same four tries, on validation data.

    python benchmarks/choose_numbers.py --out benchmarks/choices_30_rounds.jsonl             # goes on where it stopped
    python benchmarks/choose_numbers.py --show benchmarks/choices_30_rounds.jsonl

The tries are the method's epochs with a constant rate; the same with a rate that falls along a cosine; that with at
most 300 steps per phase of a round; and that with weight decay (rate · λ = 3e-4 in each step, for SGD and Adam alike).
Runs are of full length, 30 rounds, at the places where methods differ most: CIFAR-10 at iid and dir-0.1, MNIST at
dir-0.1. Tests are never looked at: a fifth of the training data takes their place (`--set scored_on=validation`).
`--every 3` takes every third training sample, and a third of the steps, so that clients make the same number of epochs.

`choices.jsonl` holds the tries of version 0.1: six for every method, ten rounds, a tenth of CIFAR-10.
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import mean

import firma
from firma.settings import hyper_for

PLACES = (("mnist", "dir-0.1"), ("cifar10", "dir-0.1"), ("cifar10", "iid"))
CHOSEN = ("frame", "fedavg", "fedrep", "fibfl++", "local", "rdfl")
EPOCHS = ("epochs", "head_epochs", "extractor_epochs")
DECAY = 3e-4  # rate · λ
STEPS = 300
PLAIN = {"schedule": "constant", "weight_decay": 0.0, "local_steps": None}


def tries(method, every):
    """The four sets of changes to the method's epochs and rate."""
    rate = hyper_for(method, "recommended", {}).rate
    cosine = {"schedule": "cosine"}
    short = cosine | {"local_steps": STEPS // every}
    return [{}, cosine, short, short | {"weight_decay": round(DECAY / rate, 6)}]


def score(arguments):
    """One line of JSON per run; runs that are in the file are not repeated."""
    path = arguments.out
    done = {_key(json.loads(line)) for line in path.read_text().splitlines()} if path.exists() else set()
    for dataset, scenario in PLACES:
        if dataset not in (arguments.dataset or [dataset]) or scenario not in (arguments.scenario or [scenario]):
            continue
        whole = firma.load_dataset(dataset)
        some = replace(
            whole, x_train=whole.x_train[:: arguments.every], y_train=whole.y_train[:: arguments.every]
        )  # fmt: skip
        own = [json.loads(each) for each in arguments.settings or ()]
        for number in range(len(own) or 4):
            for method in arguments.method or CHOSEN:
                settings = (own or tries(method, arguments.every))[number]
                line = {
                    "dataset": dataset, "scenario": scenario, "method": method, "seed": 0, "every": arguments.every,
                    "rounds": arguments.rounds, "settings": settings,
                }  # fmt: skip
                if _key(line) in done:
                    continue
                changes = PLAIN | settings | {"scored_on": "validation"}
                result = firma.run(some, scenario, method, rounds=arguments.rounds, settings=changes)
                curve = result.history.mean(axis=1)
                facts = {
                    "mean_accuracy": result.metrics["mean_accuracy"], "worst_client": result.metrics["worst_client"],
                    "best_round": int(curve.argmax()) + 1, "best": float(curve.max()),
                    "seconds": round(result.seconds, 1), "numbers": _numbers(result),
                }  # fmt: skip
                with path.open("a") as file:
                    file.write(json.dumps(line | facts) + "\n")
                sys.stderr.write(f"{dataset} {scenario} {method} {settings}: {facts['mean_accuracy']:.4f}\n")


def _numbers(result):
    """The hyperparameters that a run trained with, so that a line can be read when the defaults have changed."""
    names = (*EPOCHS, "rate", "schedule", "local_steps", "weight_decay", "personal_epochs")
    return {name: result.config["hyper"][name] for name in names}


def _key(line):
    return json.dumps({name: line[name] for name in ("dataset", "scenario", "method", "every", "rounds", "settings")})


def show(path):
    """A table of every try: validation accuracy (worst client) at each place, and the mean over places."""
    runs = defaultdict(dict)
    for line in path.read_text().splitlines():
        run = json.loads(line)
        runs[run["method"], run["every"], json.dumps(run["settings"])][run["dataset"], run["scenario"]] = run
    places = [place for place in PLACES if any(place in found for found in runs.values())]
    titles = " | ".join(f"{dataset} {scenario}" for dataset, scenario in places)
    sys.stdout.write(
        f"| method | samples | changes | {titles} | mean |\n|---|---|---|" + "---|" * (len(places) + 1) + "\n"
    )

    def average(found):
        return mean(run["mean_accuracy"] for run in found.values()) if len(found) == len(places) else 0.0

    def cell(run):
        if run is None:
            return "-"
        worst = "" if run["worst_client"] is None else f" ({100 * run['worst_client']:.1f})"
        return f"{100 * run['mean_accuracy']:.1f}{worst}"

    for method, every, settings in sorted(runs, key=lambda tried: (tried[:2], -average(runs[tried]))):
        found = runs[method, every, settings]
        cells = [cell(found.get(place)) for place in places]
        changes = ", ".join(f"{name} {value}" for name, value in json.loads(settings).items()) or "none"
        total = f"{100 * average(found):.2f}" if average(found) else "-"
        sys.stdout.write(f"| `{method}` | 1/{every} | {changes} | {' | '.join(cells)} | {total} |\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/choices_30_rounds.jsonl"))
    parser.add_argument("--dataset", action="append")
    parser.add_argument("--method", action="append")
    parser.add_argument("--scenario", action="append")
    parser.add_argument(
        "--settings",
        action="append",
        metavar="JSON",
        help='in place of the four tries, such as {"extractor_epochs": 5}',
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--every", type=int, default=1, help="take every n-th training sample")
    parser.add_argument("--show", type=Path)
    arguments = parser.parse_args()
    if arguments.show:
        show(arguments.show)
    else:
        score(arguments)


if __name__ == "__main__":
    main()
