"""Every row with a rate that falls, a limit of local steps and weight decay, against reference_float64.py."""

from dataclasses import replace

import pytest

from firma.engines.simulation import Simulation
from firma.methods import METHODS
from reference_float64 import ROWS, expected

FALLING = {
    "schedule": "cosine", "weight_decay": 0.5, "epochs": 4, "head_epochs": 2, "extractor_epochs": 4,
    "personal_epochs": 2,
}  # fmt: skip
# Clients, the share that takes part, backend and numbers. Clients of 16 samples take four steps, all others the limit.
CASES = {
    "some take part": (5, 0.6, "auto", {"local_steps": 5}),
    "all take part": (3, 1.0, "autograd", {"local_steps": 3, "batch": 64, "momentum": 0.0}),
}


def test_every_row_is_written_twice():
    assert ROWS.keys() == METHODS.keys()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("method", METHODS)
def test_agrees_in_float64_with_falling_rates_limited_steps_and_decay(make_federation, method, case):
    """Parameters differ by the rounding of float32, which is some millionths of what training has moved.

    A ReLU whose input is almost zero may be on in one of the two and off in the other, which makes it ten thousandths;
    a wrong rate, count, weight or decay makes it hundredths and more.
    """
    row, (clients, share, backend, changes) = METHODS[method], CASES[case]
    numbers = FALLING | changes | {"rate": 0.005 if row.optimiser == "adam" else 0.05}
    rounds, order = 6 if row.warmup == "yes" else 4, (0, 3, 1, 4, 2) if clients == 5 else (0, 2, 1)
    made = make_federation(row, clients, rounds, order=order, backend=backend, **numbers)
    federation = replace(made, participation=share)
    simulation = Simulation(federation)
    start = simulation.parameters.double()
    list(simulation.rounds())
    theirs = expected(federation)
    apart, moved = (simulation.parameters.double() - theirs).abs().max(), (theirs - start).abs().max()
    assert moved > 0.01
    assert apart / moved < 1e-3
