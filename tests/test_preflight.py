"""Before training: integers or floats, models that cannot be used, lazy layers, batches of one."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from firma.errors import BadInput
from firma.models import SplitModel
from firma.models.architecture import describe
from firma.schedule import Phase
from firma.training.local_step import batches, epoch_orders
from firma.training.preflight import prepare
from tests.small_models import CPU, PLAIN, QUICK, by_hand, client_data, normed, numbers, seeded, stack, train, trained


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
