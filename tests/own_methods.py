"""Methods of the user's own: the recipes, algorithms that are made of some hooks, and short runs of them."""

from dataclasses import replace

import torch
from torch import nn

import firma
from firma.engines.simulation import Simulation
from firma.methods import METHODS
from firma.models import SplitModel
from tests.documents import ROOT

RECIPES = ROOT / "examples" / "methods"
SCAFFOLD = "fedavg:weights=equal,algorithm=scaffold:Scaffold"


def with_hooks(**hooks):
    """An algorithm that has these hooks."""
    return type("Mine", (firma.Algorithm,), hooks)()


def run(make_federation, algorithm, row="fedavg", **changes):
    """Parameters and traffic of two rounds."""
    return finish(make_federation(replace(METHODS[row], name="mine", algorithm=algorithm), 3, rounds=2, **changes))


def finish(federation, audit=None):
    """The parameters after the last round, and the messages and bytes of every round."""
    simulation = Simulation(federation, audit)
    outcomes = list(simulation.rounds())
    return simulation.parameters, [(outcome.messages, outcome.sent_bytes) for outcome in outcomes]


def with_norms():
    """A model with two kinds of normalisation."""
    torch.manual_seed(0)
    extractor = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.LayerNorm(16))
    return SplitModel(extractor, nn.Linear(16, 4))
