"""What overlapping passes save: seconds of mixing in a round, over lines with delay. Needs root: network namespaces.

    python -m benchmarks.passes --delay 0.05      # 50 ms each way

Five members on this machine, each in a namespace of its own, three passes a round. "One by one" is the same peer made
to wait for the acknowledgement of a pass before it starts the next. Prints Markdown.
"""

import argparse
import tempfile
from pathlib import Path
from statistics import median

from tests.peer.conftest import made_ring
from tests.peer.crew import Crew
from tests.peer.network import Network

MEMBERS = 5


def mixing(delay, rounds, faults):
    """Median seconds of mixing over members and rounds but the first."""
    network = Network(MEMBERS)
    with tempfile.TemporaryDirectory() as folder:
        try:
            network.build(delay)
            made = made_ring(
                Path(folder), "fibfl++:warmup=no", MEMBERS, rounds, "iid", hosts=network.hosts, gathering=120.0,
                set={"extractor_epochs": 1},
            )  # fmt: skip
            crew = Crew(made, network.spaces)
            for number in range(MEMBERS):
                crew.start(number, *faults)
            if any(crew.finish(timeout=300)):
                raise SystemExit(crew.out(0))
            return median(event["mixing"] for number in range(MEMBERS) for event in crew.events(number, "round")[1:])
        finally:
            network.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay", type=float, action="append", help="seconds each way; repeatable")
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    print("| delay each way | one by one, s a round | overlapping, s a round | |")
    print("|---|---|---|---|")
    for delay in arguments.delay or (0.005, 0.05, 0.1):
        apart = mixing(delay, arguments.rounds, [("one by one",)])
        over = mixing(delay, arguments.rounds, [])
        print(f"| {delay * 1000:g} ms | {apart:.3f} | {over:.3f} | {over / apart - 1:+.0%} |", flush=True)


if __name__ == "__main__":
    main()
