"""Losses and metrics of one's own: found by name, used in training, checked, and part of what identifies a run."""

import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

import firma
from firma.engines.checkpoint import fingerprint
from firma.engines.shipped_code import code_of
from firma.errors import BadInput
from firma.tasks.losses import own_function, own_metrics
from firma.tasks.task import OwnFunction, Task
from tests.task_data import PRICE, SMALL, flat_run


def pinball(outputs, targets):
    """Quantile regression at 0.9."""
    errors = targets - outputs
    return torch.maximum(0.9 * errors, -0.1 * errors).mean()


def bias(outputs, targets):
    return float((outputs - targets).mean())


def test_own_loss_and_metric(tmp_path, monkeypatch):
    source = (
        "import torch\n\n\ndef pinball(outputs, targets):\n    errors = targets - outputs\n"
        "    return torch.maximum(0.9 * errors, -0.1 * errors).mean()\n\n\n"
        "def bias(outputs, targets):\n    return float((outputs - targets).mean())\n"
    )
    (tmp_path / "my_losses_of_a_test.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(tmp_path)])
    model = (nn.Sequential(nn.Linear(5, 8), nn.ReLU()), nn.Linear(8, 1))  # which the compiled kernels could train
    named = flat_run(
        "regression", PRICE, model, loss="my_losses_of_a_test:pinball", metric=["my_losses_of_a_test:bias"]
    )  # fmt: skip
    given = flat_run("regression", PRICE, model, loss=pinball, metric=[bias])
    usual = flat_run("regression", PRICE, model)
    assert torch.equal(named.parameters, given.parameters)
    assert not torch.equal(usual.parameters, given.parameters)
    assert named.curves["bias"][-1, 0] == given.curves["bias"][-1, 0] > 0.1, "most targets must lie below"
    assert named.config["loss"] == "my_losses_of_a_test:pinball"
    task = Task("regression", own_function("my_losses_of_a_test:pinball", "loss"))
    assert code_of((), task.functions) == {"my_losses_of_a_test.py": source.encode()}, "what Ray's workers are sent"
    assert "a custom loss" in named.backend
    outputs, targets = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [1.0]])
    assert pinball(outputs, targets) == pytest.approx((0.9 * 2 + 0.1 * 1) / 2)


def test_a_loss_of_ones_own_also_trains_classes_on_any_backend():
    def smooth(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.2)

    options = {"scenario": "iid", "method": "fedavg", "clients": 2, "rounds": 2, "settings": SMALL}
    result = firma.run("digits", loss=smooth, **options)
    assert result.backend.startswith("autograd")
    assert "do not support a custom loss" in result.backend
    assert result.metrics["mean_accuracy"] > 0.3


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere_at_all:f", "module 'nowhere_at_all' cannot be imported"),
        ("math:nothing", "module 'math' has no 'nothing'"),
        ("math:pi", "'pi' is not a function"),
        ("math", "must have the form package.module:function"),
        (3, "must be a function"),
    ],
)
def test_functions_that_cannot_be_found(source, words):
    with pytest.raises(BadInput, match=words):
        own_function(source, "loss")


def test_functions_that_do_not_return_what_they_must():
    model = (nn.Sequential(nn.Linear(5, 8)), nn.Linear(8, 1))
    for wrong, words in (
        (lambda outputs, targets: (outputs - targets) ** 2, r"returned shape \(32, 1\); must return a scalar"),
        (lambda outputs, targets: 1.0, "returned float; must return a scalar tensor"),
        (lambda outputs, targets: (outputs.detach() - targets).mean(), "it has no gradient"),
    ):
        with pytest.raises(BadInput, match=words):
            flat_run("regression", PRICE, model, loss=wrong)
    with pytest.raises(BadInput, match="returned str; must return a number"):
        flat_run("regression", PRICE, model, metric=[lambda outputs, targets: "good"])
    with pytest.raises(BadInput, match="there already is a metric 'bias'"):
        own_metrics([bias, bias], "regression")


def test_the_loss_is_part_of_what_identifies_a_run(make_federation):
    plain = make_federation("fibfl", 2)
    own = replace(plain, task=Task(loss=OwnFunction("m:pinball", pinball)))
    other = replace(plain, task=Task(loss=OwnFunction("m:pinball", bias)))
    assert len({fingerprint(plain), fingerprint(own), fingerprint(other)}) == 3
    assert fingerprint(replace(plain, task=Task(train_curves=True))) == fingerprint(plain)
