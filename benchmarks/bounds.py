"""How far apart the norms of honest members' extractors are: what the bounds of a real ring are derived from.

    python benchmarks/bounds.py            # about two minutes

For each run: the largest ratio of what one member trained to what another trained in the same round (what a receiver
compares), the same in the first round alone, and the largest ratio of what a member trained to what it started the
round from (how fast norms grow), over all rounds and pairs of members. The bounds in `firma.peer.runtime.bounds` must
lie far above all of them.
"""

import warnings
from collections import defaultdict
from typing import Any

import firma
from firma.data.dataset import load_dataset
from firma.engines import simulation
from firma.protocol import Exchanges, Participant
from firma.schedule import RoundPlan

RUNS: tuple[tuple[str, str, str, str, int, dict[str, Any]], ...] = (
    # data, scenario, method, preset, clients, settings
    ("digits", "iid", "fibfl++", "recommended", 5, {}),
    ("digits", "dir-0.5", "fibfl++", "recommended", 5, {}),
    ("digits", "dir-0.1", "fibfl++", "recommended", 5, {}),
    ("digits", "dir-0.1", "fibfl++", "paper", 5, {}),
    ("digits", "dir-0.1", "fibfl++", "recommended", 5, {"initial": "per-client"}),
    ("digits", "dir-0.1", "fibfl++:warmup=no", "paper", 5, {"initial": "per-client"}),
    ("digits", "dir-0.1", "frame", "recommended", 5, {}),
    ("digits", "dir-0.1", "gradient-tracking:shares=extractor", "recommended", 5, {}),
    ("digits", "dir-0.1", "fibfl++", "recommended", 20, {}),
    ("mnist", "dir-0.1", "fibfl++", "recommended", 5, {}),
    ("mnist", "dir-0.1", "fibfl++", "paper", 5, {}),
    ("mnist", "dir-0.1", "frame", "recommended", 5, {}),
    ("mnist", "dir-0.1", "fibfl++", "paper", 10, {"initial": "per-client"}),
)


def ratios(data: Any, scenario: str, method: str, preset: Any, clients: int, settings: dict[str, Any]) -> list[float]:
    """Largest ratio between members, the same in the first round, and largest growth in one round's training."""
    trained: dict[int, dict[int, float]] = defaultdict(dict)
    started: dict[int, dict[int, float]] = defaultdict(dict)
    inner = simulation.exchange

    def noted(plan: RoundPlan, one: Participant) -> Exchanges:
        trained[plan.number][one.me] = float(one.shared.double().norm())
        result = yield from inner(plan, one)
        started[plan.number + 1][one.me] = float(result.double().norm())
        return result

    simulation.exchange = noted  # type: ignore[assignment]
    try:
        firma.run(
            data, scenario, method, clients=clients, rounds=8, seed=0, settings=settings, preset=preset, workers=1,
            audit=True,
        )  # fmt: skip
    finally:
        simulation.exchange = inner
    apart = {number: max(norms.values()) / min(norms.values()) for number, norms in trained.items()}
    grown = [norm / started[r][me] for r, norms in trained.items() for me, norm in norms.items() if me in started[r]]
    return [max(apart.values()), apart[0], max(grown)]


def main() -> None:
    warnings.simplefilter("ignore", UserWarning)
    whole = load_dataset("mnist")
    part = (whole.x_train[:4000], whole.y_train[:4000], whole.x_test[:1000], whole.y_test[:1000])
    data: dict[str, Any] = {"digits": "digits", "mnist": part}
    print("| data | method | members | between members | in round 1 | growth in a round |\n|---|---|---|---|---|---|")
    for name, scenario, method, preset, clients, settings in RUNS:
        found = ratios(data[name], scenario, method, preset, clients, settings)
        told = ", ".join([scenario, preset, *(f"{key} {value}" for key, value in settings.items())])
        numbers = " | ".join(f"{each:.2f}" for each in found)
        print(f"| {name}, {told} | `{method}` | {clients} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
