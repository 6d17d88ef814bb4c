"""Small federations whose data drift."""

from dataclasses import replace

import firma
from firma.data.drift import deal_over_rounds, parse_drift
from firma.experiment import assemble
from firma.method_lookup import lookup
from firma.models.build import ModelSpec, sized
from firma.settings import Split, hyper_for

ROUNDS = 6


def few_digits(train=500, test=200):
    """Some of the digits."""
    digits = firma.load_dataset("digits")
    return replace(
        digits, x_train=digits.x_train[:train], y_train=digits.y_train[:train], x_test=digits.x_test[:test],
        y_test=digits.y_test[:test],
    )  # fmt: skip


def drifting_federation(method, drift, scenario="dir-0.5", clients=4, rounds=ROUNDS, dataset=None, **settings):
    """A federation on a few digits that drift."""
    dataset = dataset or few_digits()
    base = {"epochs": 1, "head_epochs": 1, "extractor_epochs": 1, "batch": 16}
    row = lookup(method)
    hyper = hyper_for(row, "recommended", base | settings)
    found = deal_over_rounds(dataset, scenario, clients, Split(), 0, parse_drift(drift), rounds)
    model = sized(ModelSpec("mlp"), 16, 12)
    return assemble(dataset, found.at(0), row, hyper, rounds, 5, model, "cpu", drift=(drift, found))
