"""What runs is what the user wrote: own layers, hooks, frozen and tied parameters, buffers, integers, random draws."""

import hashlib
import json
import os
import random
import re
import signal
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint as recomputed

import firma
from firma.data.partition import deal
from firma.engines.checkpoint import RunCheckpoints, fingerprint
from firma.engines.simulation import Simulation
from firma.errors import BadInput
from firma.experiment import assemble
from firma.methods import METHODS, stable_columns
from firma.models import SplitModel, mlp
from firma.models.architecture import describe, digest
from firma.models.build import model_spec
from firma.peer.wire.terms import signature
from firma.schedule import Phase
from firma.seeds import generator, torch_seed
from firma.settings import hyper_for, split_for, stable_settings
from firma.training.autograd_trainer import AutogradTrainer
from firma.training.backend import choose
from firma.training.local_step import (
    ClientData,
    Job,
    Recipe,
    Sgd,
    batches,
    epoch_orders,
    new_client,
    private_buffers,
)
from firma.training.preflight import prepare

CPU = torch.device("cpu")
PLAIN = Recipe(Sgd(0.05, 0.9))
QUICK = {"epochs": 2, "head_epochs": 1, "extractor_epochs": 2, "batch": 16}


def numbers(samples=200, features=6, classes=3):
    """Inputs whose class is the largest of the first features."""
    x = np.random.default_rng(0).normal(size=(samples, features)).astype(np.float32)
    return x, x[:, :classes].argmax(axis=1)


def seeded(build):
    """The modules that a function builds, with torch's own initial weights and seed 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build()


def train(model, method="fedavg", data=None, clients=3, rounds=2, scenario="iid", settings=QUICK, **options):
    return firma.run(
        data or numbers(), scenario, method, clients=clients, rounds=rounds, model=model, settings=settings, **options
    )


def client_data(samples=20, features=6, classes=3):
    x, y = numbers(samples, features, classes)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    return ClientData(inputs, labels, inputs[:7], labels[:7])


def trained(model, data, trains="model", epochs=2, batch=8, parts=PLAIN, smallest=1):
    client = new_client(0, data, model.flat(), model, parts)
    AutogradTrainer(model, CPU, smallest).train(
        client, Job(parts, (Phase(trains, epochs),), batch), np.random.default_rng(1)
    )
    return client


def by_hand(model, data, epochs=2, batch=8, smallest=1):
    """The same epochs as a plain torch loop over what requires a gradient."""
    copy = model.copy()
    orders = epoch_orders(len(data.labels), epochs, np.random.default_rng(1))
    descend(nn.Sequential(copy.extractor, copy.head), data, batches(orders, batch, smallest), 0.05, 0.9)
    return copy


def descend(whole, data, orders, rate, momentum):
    """Gradient descent with momentum, in place; torch.optim's own takes seconds to import."""
    parameters = [each for each in whole.parameters() if each.requires_grad]
    velocities = [torch.zeros_like(each) for each in parameters]
    for rows in orders:
        loss = nn.functional.cross_entropy(whole(data.inputs[rows]), data.labels[rows])
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, velocity, gradient in zip(parameters, velocities, gradients, strict=True):
                parameter.sub_(velocity.mul_(momentum).add_(gradient), alpha=rate)


def federation(pair, method="fibfl", clients=3, rounds=3):
    """The federation that `train` runs."""
    dataset = firma.load_dataset(numbers())
    partition = deal(dataset, "iid", clients, split_for("recommended", QUICK), 0)
    return assemble(
        dataset, partition, METHODS[method], hyper_for(method, "recommended", QUICK), rounds, 0, model_spec(pair), "cpu"
    )


def accuracies(result):
    """Test accuracies of the models as exported, in evaluation mode."""
    found = []
    for client, data in enumerate(federation((result.template.extractor, result.template.head)).data):
        model = result.model(client)
        whole = nn.Sequential(model.extractor, model.head).eval()
        with torch.no_grad():
            found.append(int((whole(data.test_inputs).argmax(1) == data.test_labels).sum()) / len(data.test_labels))
    return found


# 1. The compiled kernels take plain stacks only, and prove themselves.


class Zero(nn.Linear):
    """A subclass that computes something else."""

    def forward(self, x):
        return super().forward(x) * 0


class Backwards(nn.Sequential):
    """A container with a forward of its own."""

    def forward(self, x):
        return self[0](x).flip(1)


def stack(change=lambda layers: None, first=nn.Linear, container=nn.Sequential):
    layers = container(first(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU())
    change(layers)
    return layers, nn.Linear(6, 3)


def with_forward(layers):
    layers[0].forward = lambda x: x


def with_tied(layers):
    layers[2].weight = layers[0].weight


def with_one_memory(layers):
    layers[2].weight.data = layers[0].weight.data


def with_same_layer(layers):
    layers[2] = layers[0]


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


# 2. Frozen and tied parameters.


class Adapted(nn.Module):
    """A frozen linear layer plus a trainable product of two thin ones, as in LoRA."""

    def __init__(self, inputs, outputs, rank=2):
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.base.requires_grad_(False)
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def adapted(rank=2):
    return nn.Sequential(Adapted(6, 12, rank), nn.ReLU()), nn.Linear(12, 3)


@pytest.mark.parametrize("method", ["fedavg", "fibfl++", "fedrep"])
def test_frozen_parameters_stay_and_cost_nothing(method):
    pair = seeded(adapted)
    settings = QUICK | {"proximal": 0.1, "clip": 1.0}
    result = train(pair, method, settings=settings, rounds=3)
    small = 6 * 2 + 2 * 12
    assert result.parameters.shape[1] == small + 12 * 3 + 3
    wider = train(seeded(lambda: adapted(rank=3)), method, settings=settings, rounds=3)
    more = np.array(wider.sent_bytes) - np.array(result.sent_bytes)
    if method != "fibfl++":  # whose warm-up averages in pieces
        assert (more == 4 * (6 + 12) * np.array(result.messages)).all(), "nothing but the adapter is sent"
    for client in range(3):
        base = result.model(client).extractor[0].base
        assert torch.equal(base.weight, pair[0][0].base.weight)
        assert torch.equal(base.bias, pair[0][0].base.bias)
        assert not base.weight.requires_grad
        assert not torch.equal(result.model(client).extractor[0].up.weight, pair[0][0].up.weight)


@pytest.mark.parametrize("trains", ["model", "extractor", "head"])
def test_an_adapter_trains_as_in_a_plain_loop(trains):
    model, data = SplitModel(*seeded(adapted)), client_data()
    client = trained(model, data, trains)
    layout = model.layout()
    if trains == "model":
        torch.testing.assert_close(client.parameters, by_hand(model, data).flat(), rtol=1e-4, atol=1e-6)
    else:
        other = layout.span("head" if trains == "extractor" else "extractor")
        assert torch.equal(client.parameters[other], model.flat()[other])
    assert all(client.frozen[name].data_ptr() == own.data_ptr() for name, own in model.named_frozen()), "not copied"
    assert [piece.name for piece in layout.pieces][:2] == ["extractor.0.down.weight", "extractor.0.up.weight"]


def test_every_client_keeps_the_frozen_values_that_it_started_with(tmp_path):
    settings = QUICK | {"initial": "per-client"}
    result = train(adapted, settings=settings)
    bases = [result.model(client).extractor[0].base.weight for client in range(3)]
    assert not torch.equal(bases[0], bases[1])
    assert accuracies(result) == result.history[-1].tolist()
    again = firma.load(result.save(tmp_path / "run"))
    assert [set(each) for each in again.frozen] == [{"extractor.0.base.weight", "extractor.0.base.bias"}] * 3
    assert torch.equal(again.frozen[2]["extractor.0.base.weight"], bases[2])
    shared = train(adapted).save(tmp_path / "shared")
    assert "frozen.extractor.0.base.weight" in load_file(shared / "parameters.safetensors")


def test_parts_that_cannot_be_trained_are_told():
    def frozen(part):
        pair = seeded(adapted)
        pair[part].requires_grad_(False)
        return pair

    with pytest.raises(
        BadInput,
        match=r"extractor has no trainable parameters: all 4 are frozen, so .* nothing to share; put a layer",
    ):
        train(frozen(0))
    with pytest.raises(BadInput, match=r"head cannot be trained \(all its parameters are frozen\).*head_epochs"):
        train(frozen(1), "fedrep")
    with pytest.raises(BadInput, match=r"head cannot be trained \(all its parameters are frozen\)"):
        train(frozen(1), replace(METHODS["fedavg"], name="tuned", personal="tune-head"))
    for method, settings in (
        ("fedavg", QUICK), ("local", QUICK), ("fedrep", QUICK | {"head_epochs": 0}), ("per-fedavg", QUICK),
        ("fedavg-ft", QUICK),
    ):  # fmt: skip
        pair = frozen(1)
        result = train(pair, method, settings=settings)
        assert torch.equal(result.model(1).head.weight, pair[1].weight)
        assert torch.equal(result.model(1).extractor[0].up.weight, pair[0][0].up.weight) is False
    bare = (nn.Sequential(nn.Linear(6, 3)), nn.Identity())
    assert train(bare).parameters.shape[1] == 21
    with pytest.raises(BadInput, match="it has no parameters"):
        train(bare, "fedrep")


class Tied(nn.Module):
    """An autoencoder's layer: the same matrix there and back."""

    def __init__(self):
        super().__init__()
        self.there, self.back = nn.Linear(6, 6), nn.Linear(6, 6)
        self.back.weight = self.there.weight

    def forward(self, x):
        return self.back(torch.tanh(self.there(x)))


def test_tied_parameters_train_as_torch_trains_them():
    model, data = SplitModel(*seeded(lambda: (nn.Sequential(Tied(), nn.ReLU()), nn.Linear(6, 3)))), client_data()
    assert model.layout().size == 36 + 6 + 6 + 21
    torch.testing.assert_close(trained(model, data).parameters, by_hand(model, data).flat(), rtol=1e-4, atol=1e-6)
    exported = model.filled(trained(model, data).parameters).extractor[0]
    assert exported.back.weight is exported.there.weight
    twice = seeded(lambda: stack(with_same_layer))
    model = SplitModel(*twice)
    torch.testing.assert_close(trained(model, data).parameters, by_hand(model, data).flat(), rtol=1e-4, atol=1e-6)


def test_parameters_that_would_leave_or_overlap_are_refused():
    head = nn.Linear(6, 6)
    with pytest.raises(BadInput, match=r"share a parameter \('extractor.0.weight' is 'head.weight'\)"):
        train((nn.Sequential(head, nn.ReLU()), head))
    with pytest.raises(BadInput, match=r"'extractor.0.weight' and 'extractor.2.weight' share memory"):
        train(stack(with_one_memory))


# 3. Buffers.


def normed():
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU()), nn.Linear(12, 3)


def test_an_exported_model_is_as_accurate_as_the_last_row_of_the_history(tmp_path):
    result = train(seeded(normed), "fibfl", rounds=3)
    assert accuracies(result) == result.history[-1].tolist()
    assert "3 buffers are private to each client" in result.backend
    again = firma.load(result.save(tmp_path / "run"))
    stored = load_file(tmp_path / "run" / "parameters.safetensors")
    name = "extractor.1.running_mean"
    assert torch.equal(stored[f"client.2.buffer.{name}"], result.model(2).extractor[1].running_mean)
    assert torch.equal(again.buffers[2][name], result.buffers[2][name])
    assert int(again.buffers[0]["extractor.1.num_batches_tracked"]) > 0
    restored = replace(again, template=result.template)
    assert accuracies(restored) == result.history[-1].tolist()


def sharing(what):
    extractor, head = normed()
    extractor.shared_buffers = what
    return extractor, head


@pytest.mark.parametrize("what", [True, ["running_mean", "running_var"], "1.running_mean"])
def test_buffers_travel_where_the_model_says_so(what):
    result = train(seeded(lambda: sharing(what)), rounds=2)
    layout = result.template.layout()
    shared = 12 if isinstance(what, str) else 24
    assert layout.buffers == shared
    assert layout.trained("extractor") == slice(shared, layout.extractor)
    assert signature(layout).tensors[0][0] == "extractor.1.running_mean"
    alone = train(seeded(normed), rounds=2)
    assert result.sent_bytes[0] - alone.sent_bytes[0] == 4 * shared * result.messages[0]
    means = [result.model(client).extractor[1].running_mean for client in range(3)]
    assert means[0].abs().sum() > 0
    assert torch.equal(means[0], means[1])
    assert set(result.buffers[0]) == {"extractor.1.num_batches_tracked"} | (
        {"extractor.1.running_var"} if isinstance(what, str) else set()
    )
    assert accuracies(result) == result.history[-1].tolist()
    assert not torch.equal(alone.buffers[0]["extractor.1.running_mean"], alone.buffers[1]["extractor.1.running_mean"])


def test_shared_buffers_are_not_touched_by_training():
    """Without mixing, sharing buffers changes nothing: no optimiser, clipping or proximal term reaches them."""
    settings = QUICK | {"proximal": 0.5, "clip": 0.1}
    runs = [train(seeded(lambda what=what: sharing(what)), "local", settings=settings) for what in (True, False)]
    assert torch.equal(runs[0].parameters[:, 24:], runs[1].parameters)
    assert torch.equal(runs[0].parameters[2, :12], runs[1].buffers[2]["extractor.1.running_mean"])
    assert np.array_equal(runs[0].history, runs[1].history)


def test_buffers_that_cannot_travel_are_told():
    with pytest.raises(BadInput, match=r"'running_men' is unknown .did you mean '1.running_mean'"):
        train(sharing(["running_men"]))
    with pytest.raises(BadInput, match="num_batches_tracked' is int64 and cannot be shared"):
        train(sharing(["num_batches_tracked"]))


class Moving(nn.Module):
    """A buffer that forward assigns anew, instead of changing it in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(dim=0)
        return x - self.mean


def test_a_buffer_that_forward_assigns_is_kept_per_client():
    model, data = (
        SplitModel(*seeded(lambda: (nn.Sequential(Moving(), nn.Linear(6, 4)), nn.Linear(4, 3)))),
        client_data(),
    )
    client = trained(model, data)
    expected = by_hand(model, data)
    torch.testing.assert_close(private_buffers(client)["extractor.0.mean"], expected.extractor[0].mean)
    result = train((model.extractor, model.head))
    assert not torch.equal(result.buffers[0]["extractor.0.mean"], result.buffers[1]["extractor.0.mean"])


def test_what_no_client_changes_is_not_shared_with_the_users_modules():
    pair = seeded(normed)
    train(pair)
    assert pair[0][1].running_mean.abs().sum() == 0
    assert int(pair[0][1].num_batches_tracked) == 0


# 4. Inputs, and models that the probe refuses.


def tokens(dtype=np.int64, samples=120):
    """Eight tokens of 40; the class is that of the first one."""
    x = np.random.default_rng(1).integers(0, 40, (samples, 8))
    return x.astype(dtype), x[:, 0] % 3


class Bag(nn.Module):
    """The first token's embedding and the mean of all; refuses anything but integers, and scaled bytes."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 12)

    def forward(self, x):
        assert x.dtype == torch.int64
        return torch.cat([self.words(x[:, 0]), self.words(x).mean(dim=1)], dim=1)


@pytest.mark.parametrize("dtype", [np.int16, np.uint8, np.uint16])
def test_tokens_stay_integers(dtype):
    pair = seeded(lambda: (Bag(), nn.Linear(24, 3)))
    settings = QUICK | {"rate": 0.3, "epochs": 5}
    result = train(pair, data=tokens(dtype), settings=settings, rounds=4)
    assert result.template.inputs == "int64"
    assert np.array_equal(result.history, train(pair, data=tokens(), settings=settings, rounds=4).history)
    assert result.metrics["mean_accuracy"] > 0.7
    assert describe(result.template)["inputs"] == "int64"


class Watching(nn.Module):
    """Floats: bytes of images scaled, other integers as they are."""

    def __init__(self, largest):
        super().__init__()
        self.largest, self.layer = largest, nn.Linear(8, 4)

    def forward(self, x):
        assert x.dtype == torch.float32
        assert x.max() <= self.largest
        return self.layer(x)


@pytest.mark.parametrize(("dtype", "largest"), [(np.uint8, 1), (np.int32, 39), (np.float64, 39)])
def test_a_model_that_takes_floats_gets_floats(dtype, largest):
    result = train((Watching(largest), nn.Linear(4, 3)), data=tokens(dtype))
    assert result.template.inputs == "float32"


def test_truth_values_are_integers_for_a_model_that_takes_them():
    x, y = tokens()
    result = train(seeded(lambda: (Bag(), nn.Linear(24, 3))), data=(x % 2 == 0, y))
    assert result.template.inputs == "int64"
    assert train("mlp", data=(x % 2 == 0, y)).template.inputs == "float32"


class Made(nn.Module):
    """Returns whatever `make` makes of its input."""

    def __init__(self, make):
        super().__init__()
        self.make, self.layer = make, nn.Linear(6, 4)

    def forward(self, x):
        return self.make(self.layer(x))


class Squeeze(nn.Module):
    """The usual slip: a batch of one loses its first dimension."""

    def forward(self, x):
        return x.squeeze(0)


HEAD = nn.Linear(4, 3)
FLOAT32 = "trainable parameters must be float32"
ODD = {
    "a tuple": ((Made(lambda x: (x, x)), HEAD), "the extractor returns a tuple of 2; must return one tensor"),
    "a dict": ((nn.Linear(6, 6), Made(lambda x: {"logits": x})), "the head returns a dict with keys logits"),
    "a list": ((Made(lambda x: [x]), HEAD), "extractor returns a list of 1"),
    "nothing": ((Made(lambda x: None), HEAD), "extractor returns None"),
    "squeezed": ((nn.Linear(6, 4), nn.Sequential(HEAD, Squeeze())), "logits of one sample have shape (3,); must be (1"),
    "doubles": ((nn.Linear(6, 4).double(), HEAD), f"'extractor.weight' is float64; {FLOAT32}"),
    "halves": ((nn.Linear(6, 4).half(), HEAD), f"is float16; {FLOAT32}"),
    "complex": ((nn.Linear(6, 4, dtype=torch.complex64), HEAD), f"is complex64; {FLOAT32}"),
    "no parameters": ((nn.Identity(), nn.Linear(6, 3)), "extractor has no parameters"),
    "embedded floats": ((Bag(), nn.Linear(24, 3)), "takes integers, but inputs are float32 (AssertionError"),
    "its own error": ((Made(lambda x: x.none), HEAD), "AttributeError: 'Tensor' object has no attribute 'none'"),
}


@pytest.mark.parametrize("case", ODD)
def test_a_model_that_cannot_be_used_gets_one_sentence(case):
    model, words = ODD[case]
    with pytest.raises(BadInput, match=re.escape(words)):
        train(model)


def test_a_model_that_fails_in_training_only_gets_one_sentence():
    class Failing(nn.Linear):
        def forward(self, x):
            if self.training:
                raise KeyError("no such layer")
            return super().forward(x)

    with pytest.raises(BadInput, match=r"a training step on two samples fails .KeyError: 'no such layer'"):
        train((Failing(6, 4), nn.Linear(4, 3)))


def test_lazy_layers_get_shapes_and_weights_by_the_seed():
    def build():
        return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU()), nn.LazyLinear(3)

    pair, state = build(), torch.get_rng_state()
    for model in (pair, build):
        runs = [train(model, seed=seed, settings=QUICK | {"epochs": 0}) for seed in (0, 0, 1)]
        assert torch.equal(runs[0].parameters, runs[1].parameters)
        assert not torch.equal(runs[0].parameters, runs[2].parameters)
        assert runs[0].parameters.shape[1] == 6 * 8 + 8 + 16 + 8 * 3 + 3
    assert torch.equal(torch.get_rng_state(), state)
    assert isinstance(pair[0][0], nn.LazyLinear), "the user's stay as they were"


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


# 5. Batches of one sample.


def test_a_last_batch_of_one_joins_the_one_before_it_where_it_must():
    orders = epoch_orders(17, 2, np.random.default_rng(0))
    assert [len(each) for each in batches(orders, 8)] == [8, 8, 1] * 2
    assert [len(each) for each in batches(orders, 8, 2)] == [8, 9] * 2
    assert [len(each) for each in batches(orders[:, :1], 8, 2)] == [1] * 2
    assert sorted(np.concatenate(list(batches(orders[:1], 8, 2))).tolist()) == list(range(17))
    model, data = SplitModel(*seeded(normed)), client_data(17)
    found = prepare([model], CPU, PLAIN, 8, [Phase("model", 1)], [data])
    assert found.smallest == 2
    assert "a last batch of one sample joins the one before it" in found.described(1)
    expected = by_hand(model, data, smallest=2)
    torch.testing.assert_close(trained(model, data, smallest=2).parameters, expected.flat(), rtol=1e-4, atol=1e-6)


def test_batch_normalisation_runs_whatever_the_sizes_are():
    x, y = numbers(66)
    result = train(seeded(normed), data=(x, y, x, y), clients=2, settings=QUICK | {"batch": 16})
    assert np.isfinite(result.history).all()
    images = np.random.default_rng(0).normal(size=(66, 1, 4, 4)).astype(np.float32)

    def build():
        return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten()), nn.Linear(64, 3)

    wide = train(seeded(build), data=(images, y, images, y), clients=2)
    assert "joins the one before" not in wide.backend, "16 values per channel are enough for one sample"


def test_a_client_with_one_sample_is_told_before_training():
    data = [client_data(9), client_data(1)]
    model = SplitModel(*seeded(normed))
    with pytest.raises(BadInput, match=r"client 1 has one training sample.*more than 1 value per channel.*min_samples"):
        prepare([model], CPU, PLAIN, 8, [Phase("model", 1)], data)
    with pytest.raises(BadInput, match="batch = 1: this model cannot be trained on a batch of one sample"):
        prepare([model], CPU, PLAIN, 1, [Phase("model", 1)], data[:1])
    plain = SplitModel(*seeded(stack))
    assert prepare([plain], CPU, PLAIN, 1, [Phase("model", 1)], data).smallest == 1
    untracked = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, track_running_stats=False))
    one = [replace(client_data(9), test_inputs=data[0].test_inputs[:1], test_labels=data[0].test_labels[:1])]
    with pytest.raises(BadInput, match="client 0 would be tested on a single sample at a time"):
        prepare([SplitModel(untracked, nn.Linear(4, 3))], CPU, PLAIN, 8, [Phase("model", 1)], one)


# 6. Models that draw.


class Noisy(nn.Module):
    """Draws from wherever it is told, in training, and in evaluation if `always`."""

    def __init__(self, draw, always=False):
        super().__init__()
        self.draw, self.always, self.layer = draw, always, nn.Linear(6, 12)

    def forward(self, x):
        return self.layer(x) + (self.draw(x) if self.training or self.always else 0)


class Recomputed(nn.Module):
    """Dropout whose activations are computed again in the backward pass, from the generator's saved state."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.5), nn.ReLU())

    def forward(self, x):
        return recomputed(self.body, x, use_reentrant=False)


DRAWING = {
    "dropout": lambda: nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.3)),
    "torch": lambda: Noisy(lambda x: torch.rand(len(x), 1)),
    "numpy": lambda: Noisy(lambda x: float(np.random.rand())),  # noqa: NPY002
    "python": lambda: Noisy(lambda x: random.random()),
    "in evaluation": lambda: Noisy(lambda x: torch.randn(len(x), 12), always=True),
    "checkpointing": Recomputed,
}


@pytest.mark.parametrize("case", DRAWING)
def test_any_number_of_workers_gives_the_same_bits(case):
    pair = seeded(lambda: (DRAWING[case](), nn.Linear(12, 3)))
    runs = [train(pair, "fibfl++", workers=workers, clients=4) for workers in (1, 2, 3)]
    for workers, result in zip((1, 2, 3), runs, strict=True):
        assert f"autograd, {workers} at a time" in result.backend
        assert torch.equal(result.parameters, runs[0].parameters)
        assert np.array_equal(result.history, runs[0].history)
        for client, buffers in enumerate(result.buffers):
            assert all(torch.equal(kept, runs[0].buffers[client][name]) for name, kept in buffers.items())


def test_what_a_client_draws_is_torchs_own_at_its_address():
    """A plain loop after torch.manual_seed, at the address of client and round, draws the same numbers."""
    model = SplitModel(*seeded(lambda: (nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.5)), nn.Linear(12, 3))))
    result = train((model.extractor, model.head), "local", clients=2, rounds=1, workers=2)
    data = federation((model.extractor, model.head), "local", clients=2).data[1]
    copy = model.copy()
    whole = nn.Sequential(copy.extractor, copy.head)
    hyper = result.config["hyper"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(0, "layers", 1, 0))
        orders = batches(epoch_orders(len(data.labels), 2, generator(0, "batches", 1, 0)), 16)
        descend(whole, data, orders, hyper["rate"], hyper["momentum"])
    torch.testing.assert_close(result.parameters[1], copy.flat(), rtol=1e-4, atol=1e-6)


def test_a_loss_of_the_users_own_may_draw_too():
    def noisy(outputs, targets):
        return nn.functional.cross_entropy(outputs + torch.rand_like(outputs), targets)

    pair = seeded(lambda: (nn.Sequential(nn.Linear(6, 12), nn.Tanh()), nn.Linear(12, 3)))
    runs = [train(pair, clients=4, workers=workers, loss=noisy) for workers in (1, 2, 3)]
    assert all(torch.equal(each.parameters, runs[0].parameters) for each in runs)
    assert "autograd, 3 at a time" in runs[2].backend


def test_batch_normalisation_trains_on_all_cores():
    runs = [train(seeded(normed), workers=workers, clients=4) for workers in (1, 2, 3)]
    assert "autograd, 3 at a time" in runs[2].backend
    assert all(torch.equal(each.parameters, runs[0].parameters) for each in runs)


def test_what_hooks_record_stays_in_this_process():
    seen = []
    pair = seeded(lambda: (nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.2)), nn.Linear(12, 3)))
    pair[0][1].register_forward_hook(lambda module, args, out: seen.append(len(out)))
    result = train(pair, workers=2)
    assert "one at a time because layer 'extractor.1' has a forward hook" in result.backend
    assert sum(seen) > 3 * 2 * 50


def test_state_outside_buffers_is_told_and_does_not_depend_on_workers():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.steps = nn.Linear(6, 12), 0

        def forward(self, x):
            self.steps += self.training
            return self.layer(x) / (1 + 0.1 * self.steps)

    pair = seeded(lambda: (Counting(), nn.Linear(12, 3)))
    with pytest.warns(UserWarning, match="a training step changes 'extractor.steps', which is not a buffer"):
        runs = [train(pair, workers=workers) for workers in (1, 2)]
    assert torch.equal(runs[0].parameters, runs[1].parameters)
    assert "one at a time because a step changes 'extractor.steps'" in runs[1].backend


def test_an_error_in_a_worker_process_is_raised_here_with_its_traceback():
    class Strict(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 12)

        def forward(self, x):
            if len(x) > 10:
                raise ValueError(f"too many samples: {len(x)}")
            return self.layer(x)

    with pytest.raises(ValueError, match="too many samples: 16") as caught:
        train((Strict(), nn.Linear(12, 3)), workers=2)
    assert "in a worker process that trained client" in "".join(caught.value.__notes__)
    assert "in forward" in "".join(caught.value.__notes__)


def test_a_worker_process_that_is_killed_is_one_sentence():
    parent = os.getpid()

    class Dying(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 12)

        def forward(self, x):
            if os.getpid() != parent:
                os.kill(os.getpid(), signal.SIGKILL)
            return self.layer(x)

    with pytest.raises(BadInput, match=r"a worker process ended unexpectedly \(exit code -9\).*fewer workers"):
        train((Dying(), nn.Linear(12, 3)), workers=2)


# 7. A checkpoint belongs to one architecture.


def federation_of(make_federation, extractor):
    torch.manual_seed(0)
    return replace(make_federation("fedavg", 3), models=[SplitModel(extractor(), nn.Linear(16, 4))])


class Own(nn.Module):
    """Its option is an attribute that `extra_repr` does not show."""

    def __init__(self, power=1, act=torch.relu):
        super().__init__()
        self.layer, self.power, self.act = nn.Linear(12, 16), power, act

    def forward(self, x):
        return self.act(self.layer(x)) ** self.power


def closed_over(number):
    class Local(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(12, 16)

        def forward(self, x):
            return self.layer(x) * number

    return Local


def layered(*more):
    return lambda: nn.Sequential(nn.Linear(12, 16), *more)


def hooked():
    extractor = layered(nn.GELU())()
    extractor[1].register_forward_hook(lambda module, args, out: out * 2)
    return extractor


def frozen():
    extractor = layered(nn.GELU())()
    extractor[0].bias.requires_grad_(False)
    return extractor


def test_equal_shapes_are_not_equal_runs(make_federation):
    extractors = [
        layered(nn.GELU()), layered(nn.GELU(approximate="tanh")), layered(nn.Tanh()), layered(nn.Dropout(0.1)),
        layered(nn.Dropout(0.9)), layered(nn.ReLU()), layered(), hooked, frozen, Own, lambda: Own(power=2),
        lambda: Own(act=torch.tanh), lambda: Own(act=nn.functional.gelu), lambda: Own(act=lambda x: x + 1),
        lambda: Own(act=lambda x: x + 2), closed_over(1), closed_over(2),
    ]  # fmt: skip
    prints = [fingerprint(federation_of(make_federation, each)) for each in extractors]
    assert len(set(prints)) == len(prints)
    assert prints == [fingerprint(federation_of(make_federation, each)) for each in extractors]


def test_frozen_values_and_initial_buffers_decide_a_run_too(make_federation):
    prints = set()
    for change in (0.0, 1.0):
        run = federation_of(make_federation, lambda: nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16)))
        run.models[0].extractor[1].running_mean.add_(change)
        prints.add(fingerprint(run))
        run = federation_of(make_federation, frozen)
        run.models[0].extractor[0].bias.data.add_(change)
        prints.add(fingerprint(run))
    assert len(prints) == 4


def test_the_built_in_mlp_has_the_name_that_versions_0_1_and_0_2_gave_it(make_federation):
    """The formula of those versions, so that their checkpoints are found."""
    run = make_federation("fibfl++", 3)
    facts = {
        "method": {"name": run.method.name} | stable_columns(run.method), "hyper": stable_settings(run.hyper),
        "rounds": run.rounds, "seed": run.seed, "order": list(run.order), "wire": run.wire, "path": "compiled",
        "pieces": [asdict(piece) for piece in run.models[0].layout().pieces],
    }  # fmt: skip
    expected = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    expected.update(run.models[0].flat().numpy().tobytes())
    for each in run.data:
        for tensor in (each.inputs, each.labels, each.test_inputs, each.test_labels):
            expected.update(tensor.numpy().tobytes())
    assert fingerprint(run) == expected.hexdigest()


def test_a_checkpoint_is_not_taken_by_another_architecture(tmp_path):
    def build(act):
        return seeded(lambda: (nn.Sequential(nn.Linear(6, 12), act), nn.Linear(12, 3)))

    with_tanh = train(build(nn.Tanh())).history
    train(build(nn.GELU()), checkpoint=tmp_path)
    assert np.array_equal(train(build(nn.Tanh()), checkpoint=tmp_path).history, with_tanh)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_description_is_plain_data_and_values_are_not_in_it():
    model = SplitModel(*seeded(lambda: sharing(["running_mean"])))
    text = json.dumps(describe(model))
    assert '"buffer": "shared"' in text
    assert '"buffer": "private"' in text
    moved = model.filled(model.flat() + 1)
    assert digest(moved) == digest(model)
    tied = describe(SplitModel(nn.Sequential(Tied()), nn.Linear(6, 3)))
    assert [each.get("tied") for module in tied["modules"] for each in module.get("tensors", [])].count(
        "extractor.0.there.weight"
    ) == 1  # fmt: skip


def test_shared_and_frozen_tensors_survive_a_checkpoint(tmp_path):
    def build():
        extractor, head = sharing(True)
        extractor[0].bias.requires_grad_(False)
        return extractor, head

    pair = seeded(build)
    whole = train(pair, "fibfl", rounds=3)
    run = federation(pair)
    rounds = Simulation(run, checkpoints=RunCheckpoints(tmp_path, run)).rounds()
    next(rounds)
    rounds.close()
    again = Simulation(run, checkpoints=RunCheckpoints(tmp_path, run))
    history = np.stack([outcome.accuracies for outcome in again.rounds()])
    assert np.array_equal(history, whole.history)
    assert torch.equal(again.parameters, whole.parameters)
