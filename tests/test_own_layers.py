"""Own layers, hooks and computed weights take part: the compiled kernels step aside for all but plain stacks."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from firma.models import SplitModel, mlp
from firma.schedule import Phase
from firma.training.backend import choose
from firma.training.preflight import prepare
from tests.small_models import (
    CPU,
    PLAIN,
    QUICK,
    by_hand,
    client_data,
    seeded,
    stack,
    train,
    trained,
    with_one_memory,
    with_same_layer,
)


class Zero(nn.Linear):
    """A subclass that computes something else."""

    def forward(self, x):
        return super().forward(x) * 0


class Backwards(nn.Sequential):
    """A container with a forward of its own."""

    def forward(self, x):
        return self[0](x).flip(1)


def with_forward(layers):
    layers[0].forward = lambda x: x


def with_tied(layers):
    layers[2].weight = layers[0].weight


def hooking(register):
    """A stack whose layers `register` gives a hook that does nothing."""
    return lambda: stack(lambda layers: register(layers)(lambda *_: None))


SPECIAL = {
    "a subclass": (lambda: stack(first=Zero), "plain stack"),
    "a container's own forward": (lambda: stack(container=Backwards), "plain stack"),
    "forward hook": (hooking(lambda m: m[0].register_forward_hook), "'extractor.0' has a forward hook"),
    "hook of a container": (hooking(lambda m: m.register_forward_hook), "'extractor' has a forward hook"),
    "forward pre-hook": (hooking(lambda m: m[2].register_forward_pre_hook), "'extractor.2' has a forward pre-hook"),
    "backward hook": (hooking(lambda m: m[0].register_full_backward_hook), "has a backward hook"),
    "backward pre-hook": (hooking(lambda m: m[0].register_full_backward_pre_hook), "has a backward pre-hook"),
    "hook of a parameter": (hooking(lambda m: m[0].weight.register_hook), "has a hook on its parameter 'weight'"),
    "forward of an instance": (lambda: stack(with_forward), "'extractor.0' has a forward method of its own"),
    "weight_norm of old": (lambda: stack(lambda m: nn.utils.weight_norm(m[0])), "forward pre-hook"),
    "spectral_norm of old": (lambda: stack(lambda m: nn.utils.spectral_norm(m[0])), "forward pre-hook"),
    "weight_norm": (lambda: stack(lambda m: parametrizations.weight_norm(m[0])), "a parametrization"),
    "tied weights": (lambda: stack(with_tied), "are tied"),
    "one memory": (lambda: stack(with_one_memory), "are tied"),
    "a layer used twice": (lambda: stack(with_same_layer), "are tied"),
    "a frozen parameter": (lambda: stack(lambda m: m[0].bias.requires_grad_(False)), "'extractor.0.bias' is frozen"),
    "a buffer": (lambda: stack(lambda m: m[1].register_buffer("own", torch.ones(1))), "buffer, 'extractor.1.own'"),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("case", SPECIAL)
def test_the_compiled_kernels_step_aside_for_anything_special(case):
    build, words = SPECIAL[case]
    found = choose(SplitModel(*seeded(build)), CPU, PLAIN, 8)
    assert found.name == "autograd"
    assert words in found.reason
    assert choose(SplitModel(*seeded(stack)), CPU, PLAIN, 8).name == "compiled"


def test_hooks_for_all_modules_are_seen():
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert choose(SplitModel(*stack()), CPU, PLAIN, 8).reason == "hooks for all modules are registered with torch"
    finally:
        handle.remove()
    assert choose(SplitModel(*stack()), CPU, PLAIN, 8).name == "compiled"


def test_a_layer_that_returns_zero_learns_nothing():
    def learnt(layer):
        pair = seeded(lambda: (nn.Sequential(layer(6, 16), nn.ReLU()), nn.Linear(16, 3)))
        return train(pair, rounds=4, settings=QUICK | {"rate": 0.1}).metrics["mean_accuracy"]

    assert learnt(Zero) < 0.5
    assert learnt(nn.Linear) > 0.7


def test_a_forward_hook_and_a_hook_of_a_parameter_take_part():
    def build(hooked):
        layers, head = stack()
        if hooked:
            layers[0].register_forward_hook(lambda module, args, out: out.flip(1))
            layers[2].weight.register_hook(lambda gradient: gradient * 0)
        return layers, head

    hooked, plain = (train(seeded(lambda on=on: build(on)), "local") for on in (True, False))
    expected = train(seeded(lambda: build(True)), "local", backend="autograd")
    assert torch.equal(hooked.parameters, expected.parameters)
    assert not torch.allclose(hooked.parameters, plain.parameters, atol=1e-3)
    start = seeded(stack)[0]
    assert torch.equal(hooked.model(0).extractor[2].weight, start[2].weight), "its gradient was zero"


def test_the_kernels_prove_themselves_and_fall_back(monkeypatch):
    """A layer of the exact type whose class was changed: nothing in its structure tells."""
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x.clamp(max=0))
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    with pytest.warns(UserWarning, match="compiled kernels do not compute what this model computes.*autograd"):
        ours = train("mlp")
    assert ours.backend.startswith("autograd"), ours.backend
    assert torch.equal(ours.parameters, train("mlp", backend="autograd").parameters)
    after = torch.get_rng_state(), np.random.get_state()[1], random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0])
    assert np.array_equal(before[1], after[1])
    assert before[2] == after[2]


@pytest.mark.parametrize("phases", [("model",), ("head", "extractor")])
@pytest.mark.parametrize("stored", [True, False])
def test_a_plain_stack_passes_its_proof(phases, stored):
    model, data = SplitModel(*seeded(lambda: mlp((6,), 3, 33, 17))), client_data(3)
    if stored:
        x = torch.randint(0, 256, (3, 6), dtype=torch.uint8)
        data = replace(data, inputs=x, test_inputs=x, scale=1 / 255)
    found = prepare([model], CPU, PLAIN, 8, [Phase(each, 1) for each in phases], [data])
    assert found.name == "compiled"


class Doubled(nn.Module):
    """A parametrization."""

    def forward(self, x):
        return 2 * x


NORMS = {
    "weight_norm of old": nn.utils.weight_norm,
    "spectral_norm of old": nn.utils.spectral_norm,
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "own": lambda layer: parametrize.register_parametrization(layer, "weight", Doubled()),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("norm", NORMS)
def test_reparametrised_layers_train_as_in_a_plain_loop(norm):
    pair = seeded(lambda: (nn.Sequential(NORMS[norm](nn.Linear(6, 4)), nn.Tanh()), nn.Linear(4, 3)))
    nn.Sequential(*pair)(torch.zeros(2, 6))  # what was computed before must not matter
    model, data = SplitModel(*pair), client_data()
    torch.testing.assert_close(trained(model, data).parameters, by_hand(model, data).flat(), rtol=1e-4, atol=1e-6)
    assert train(pair, clients=2, rounds=1).metrics["mean_accuracy"] > 0


def test_one_module_with_hooks_and_computed_weights_is_cut_as_it_is():
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.fc = parametrizations.weight_norm(nn.Linear(6, 4)), nn.Linear(4, 3)
            self.layer.bias.register_hook(lambda gradient: gradient * 0)
            self.kept = self.layer.weight  # computed, which deepcopy alone refuses

        def forward(self, x):
            return self.fc(torch.tanh(self.layer(x)))

    module = seeded(Whole)
    result = train(module, "local", head="fc")
    assert torch.equal(result.model(0).extractor.layer.bias, module.layer.bias), "its gradient was zero"


def test_unused_parameters_are_told_and_stay():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(6, 4), nn.Linear(6, 4)

        def forward(self, x):
            return self.used(x)

    pair = seeded(lambda: (Half(), nn.Linear(4, 3)))
    with pytest.warns(UserWarning, match="'extractor.unused.weight', 'extractor.unused.bias' got no gradient"):
        result = train(pair, "local", settings=QUICK | {"proximal": 0.1})
    assert torch.equal(result.model(0).extractor.unused.weight, pair[0].unused.weight)
