"""The real public sets, where this machine has them: official facts, fast opening, little memory."""

import time

import numpy as np
import pytest

from firma.data.cache import cache_folder, open_cached, present, wrong_content
from firma.data.catalogue import PUBLIC, SIZES
from firma.data.dataset import load_dataset


def needs(name):
    if not present(PUBLIC[name], cache_folder()):
        pytest.skip(f"{name} is not in {cache_folder()}; download it with: firma data get {name}")


@pytest.mark.parametrize("name", PUBLIC)
def test_content_is_as_published(name):
    needs(name)
    assert wrong_content(PUBLIC[name], open_cached(PUBLIC[name], cache_folder())) is None


@pytest.mark.parametrize("name", PUBLIC)
def test_opening_is_fast_and_reads_no_pixels(name):
    needs(name)
    started = time.perf_counter()
    data = load_dataset(name)
    assert time.perf_counter() - started < 0.5
    assert isinstance(data.x_train, np.memmap)
    assert data.x_train.dtype == np.uint8
    assert data.labels == PUBLIC[name].labels


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_the_data(name):
    if name in PUBLIC:
        needs(name)
    data, size = load_dataset(name), SIZES[name]
    assert (len(data.y_train), data.shape, data.classes) == (size.train, size.shape, size.classes)
    assert (data.clients, data.rounds) == (size.clients, size.rounds)


def test_mnist_facts():
    needs("mnist")
    data = load_dataset("mnist")
    assert np.bincount(data.y_train).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert data.x_train.mean() / 255 == pytest.approx(0.1307, abs=5e-5)


def test_fashion_mnist_facts():
    needs("fashion-mnist")
    data = load_dataset("fashion-mnist")
    assert np.bincount(data.y_train).tolist() == [6000] * 10
    assert data.x_train.mean() / 255 == pytest.approx(0.2860, abs=5e-5)


def test_cifar10_facts():
    needs("cifar10")
    data = load_dataset("cifar10")
    assert np.bincount(data.y_train).tolist() == [5000] * 10
    assert np.bincount(data.y_test).tolist() == [1000] * 10
    assert data.y_train[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    for channel, (mean, deviation) in enumerate([(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)]):
        pixels = data.x_train[:, channel]
        assert pixels.mean() / 255 == pytest.approx(mean, abs=5e-5)
        assert pixels.std() / 255 == pytest.approx(deviation, abs=5e-5)
