"""The three contestants do the same work: from one start, in one batch order, they arrive at the same place."""

import hand
import naive
import torch
from torch import Tensor
from work import first_rows

from firma.data.dataset import load_dataset
from firma.data.partition import deal
from firma.engines.engine import Federation
from firma.engines.simulation import Simulation
from firma.experiment import assemble
from firma.method_lookup import lookup
from firma.methods import METHODS
from firma.models import ModelSpec
from firma.settings import Split, hyper_for

_TOLERANCE = 1e-3  # of the distance that the parameters moved; float32 in another order makes 1e-6 to 1e-4


def small(method: str) -> Federation:
    """Four clients of 100 digits, two rounds, a rate at which rounding does not grow."""
    dataset = first_rows(load_dataset("digits"), 400)
    changes = {"warmup_rounds": 0, "rate": 0.001, "extractor_epochs": 3, "epochs": 3}
    hyper = hyper_for(method, "paper", changes)
    return assemble(dataset, deal(dataset, "iid", 4, Split(), 0), lookup(method), hyper, 2, 0, ModelSpec("mlp"), "cpu")


def check() -> str | None:
    """None if all agree, else what does not."""
    wrong = []
    for method in METHODS:
        run = small(method)
        start = run.models[0].flat()
        simulation = Simulation(run)
        tested = [list(outcome.accuracies) for outcome in simulation.rounds()]
        moved = (simulation.parameters - start).norm()
        for name, rounds in (("hand", hand.rounds(run, {})), ("naive", naive.rounds(run, run.clients))):
            states = [(accuracies, stack.clone()) for accuracies, stack in rounds][1:]
            apart = float((states[-1][1] - simulation.parameters).norm() / moved)
            same = _same(tested, [accuracies for accuracies, _ in states], run)
            print(f"{method:8} ours and {name:5}: apart {apart:.1e} of the distance moved; tests agree: {same}")
            if apart > _TOLERANCE or not same:
                wrong.append(f"{method}: {name}")
    return f"not the same: {', '.join(wrong)}" if wrong else None


def _same(left: list[list[float]], right: list[list[float]], run: Federation) -> bool:
    """Test accuracies that differ by one sample of a client at most."""
    one = max(1 / len(data.test_labels) for data in run.data) + 1e-9
    return bool((torch.tensor(left) - Tensor(right)).abs().max() <= one)
