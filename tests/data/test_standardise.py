"""Standardisation per client, against scikit-learn, and the warning where it is missing."""

import json
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

import firma
from firma.data.catalogue import PUBLIC
from firma.data.dataset import Dataset, load_dataset
from firma.data.partition import client_inputs, client_standardisers, deal
from firma.data.standardise import fit_standardiser, standardiser_from_json, warn_of_scales
from firma.data.user_arrays import from_arrays, natural
from firma.errors import BadInput
from firma.settings import Split

RNG = np.random.default_rng(5)
UNEVEN = (RNG.normal(size=(9000, 4)) * [1, 5000, 0.01, 3] + [0, 1e4, 7, -2]).astype(np.float32)  # several chunks


def test_features_of_a_table_are_those_of_scikit_learn():
    known = StandardScaler().fit(UNEVEN[:7000].astype(np.float64))
    fitted = fit_standardiser(UNEVEN[:7000])
    np.testing.assert_allclose(fitted.mean, known.mean_, rtol=1e-9)
    np.testing.assert_allclose(fitted.deviation, known.scale_, rtol=1e-9)
    np.testing.assert_allclose(
        fitted.apply(UNEVEN[7000:]), known.transform(UNEVEN[7000:].astype(np.float64)), rtol=1e-6
    )


def test_a_constant_feature_becomes_zero():
    x = np.full((1000, 2), 0.1, np.float32)
    x[:, 1] = np.arange(1000)
    made = fit_standardiser(x).apply(x)
    assert (made[:, 0] == 0).all()
    assert abs(made[:, 1].std() - 1) < 1e-6


@pytest.mark.parametrize(("shape", "axes"), [((8, 8), (0, 1, 2)), ((3, 4, 4), (0, 2, 3)), ((2, 3, 4, 5), (0, 2, 3, 4))])
def test_images_have_one_mean_for_each_channel(shape, axes):
    x = RNG.integers(0, 256, (50, *shape), dtype=np.uint8)
    made = fit_standardiser(x, 1 / 255).apply(x)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made.mean(axis=axes), 0, atol=1e-6)
    np.testing.assert_allclose(made.std(axis=axes), 1, atol=1e-6)


def test_statistics_survive_json_to_the_bit():
    fitted = fit_standardiser(UNEVEN[:10])
    again = standardiser_from_json(fitted.as_json())
    assert np.array_equal(again.apply(UNEVEN), fitted.apply(UNEVEN))
    with pytest.raises(BadInput, match="not a document"):
        standardiser_from_json("{}")


def test_each_client_has_its_own_statistics_and_the_tests_use_them():
    labels, owner = np.arange(600) % 3, np.arange(600) // 300
    x = UNEVEN[:600] + 100 * owner[:, None]
    data = from_arrays(x, labels, client=owner)
    parts = deal(data, "natural", 2, Split(standardise="per-client"), 0)
    for client in range(2):
        raw = data.x_train[parts.train[client]].astype(np.float64)
        train, test = client_inputs(data, parts, client)
        np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-5)
        expected = (data.x_test[parts.test[client]] - raw.mean(axis=0)) / raw.std(axis=0)
        np.testing.assert_allclose(test, expected, rtol=1e-4, atol=1e-4)
    first, second = client_standardisers(data, parts)
    assert abs(second.mean[0] - first.mean[0] - 100) < 1
    # Another client's data change nothing: the statistics cannot hold anything about them.
    other = from_arrays(np.where(owner[:, None] == 1, 0.5 * x, x), labels, client=owner)
    assert np.array_equal(client_inputs(other, parts, 0)[0], client_inputs(data, parts, 0)[0])


def test_rotated_images_are_standardised_after_they_were_rotated():
    parts = deal(load_dataset("digits"), "rotate-90", 3, Split(standardise="per-client"), 0)
    train, _ = client_inputs(load_dataset("digits"), parts, 2)
    assert abs(train.mean()) < 1e-5


def stand_in(name):
    """All bytes from 0 to 255 in images of the form of a public data set."""
    shape = PUBLIC[name].shape
    x = np.resize(np.arange(256, dtype=np.uint8), (20, *shape))
    y = np.arange(20) % 10
    return Dataset(name, x, y, x[:10], y[:10], 10, scale=1 / 255)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_constants_put_grey_images_between_minus_one_and_one(name):
    data = stand_in(name)
    parts = deal(data, "iid", 2, Split(standardise="constants"), 0)
    train, test = client_inputs(data, parts, 0)
    raw = data.x_train[parts.train[0]]
    np.testing.assert_allclose(train, raw / 127.5 - 1, atol=1e-6)
    assert (train.min(), train.max(), train.dtype, test.dtype) == (-1, 1, np.float32, np.float32)
    assert len(client_standardisers(data, parts)) == 2


def test_constants_of_cifar10_are_those_of_its_channels():
    data = stand_in("cifar10")
    parts = deal(data, "iid", 2, Split(standardise="constants"), 0)
    train, _ = client_inputs(data, parts, 1)
    raw = data.x_train[parts.train[1]] / 255
    for channel, (mean, deviation) in enumerate([(0.4914, 0.2023), (0.4822, 0.1994), (0.4465, 0.2010)]):
        np.testing.assert_allclose(train[:, channel], (raw[:, channel] - mean) / deviation, atol=1e-5)


def test_data_without_constants_stay_as_they_are():
    digits = load_dataset("digits")
    parts = deal(digits, "iid", 2, Split(standardise="constants"), 0)
    train, _ = client_inputs(digits, parts, 0)
    assert train.dtype == np.uint8
    assert client_standardisers(digits, parts) == ()
    # Neither has a table that is called as a public data set is.
    table = replace(from_arrays(UNEVEN[:40], np.arange(40) % 2), name="mnist")
    assert client_standardisers(table, deal(table, "iid", 2, Split(standardise="constants"), 0)) == ()


def test_a_run_with_constants_is_one_with_inputs_that_the_user_scaled():
    """Training on bytes with constants, and on numbers that were scaled by hand: the same history."""
    data = replace(stand_in("mnist"), x_train=RNG.integers(0, 256, (20, 28, 28), dtype=np.uint8))
    by_hand = [((x / 255 - 0.5) / 0.5).astype(np.float32) for x in (data.x_train, data.x_test)]
    scaled = replace(data, name="mine", x_train=by_hand[0], x_test=by_hand[1], scale=1.0)
    one, other = (
        firma.run(each, "iid", "fibfl", clients=2, rounds=2, settings={"min_samples": 1, **more})
        for each, more in ((data, {"standardise": "constants"}), (scaled, {}))
    )
    assert np.array_equal(one.parameters, other.parameters)


def test_a_table_that_fails_without_trains_with_it(tmp_path):
    labels = np.arange(600) % 3
    # The informative feature is a thousandth, noise is in thousands.
    x = np.stack([0.001 * labels, RNG.normal(size=600) * 3000], axis=1) + RNG.normal(size=(600, 2)) * [1e-4, 0]
    with pytest.warns(UserWarning, match="very different scales.*feature 1 is 3.*, that of feature 0 0.000"):
        plain = firma.run((x, labels), "iid", "local", clients=3, rounds=2)
    result = firma.run((x, labels), "iid", "local", clients=3, rounds=2, standardise="per-client")
    assert plain.metrics["mean_accuracy"] < 0.7
    assert result.metrics["mean_accuracy"] > 0.95
    assert result.config["settings"] == {"standardise": "per-client"}
    # The trained model with new data: what standardised the client's inputs is kept.
    firma.load(result.save(tmp_path / "run"))
    again = firma.load(tmp_path / "run")
    assert len(again.standardisers) == 3
    assert np.array_equal(again.standardisers[1].apply(x), result.standardisers[1].apply(x))
    assert not plain.standardisers


def test_runs_of_today_keep_their_bits_and_the_setting_is_the_option():
    plain = firma.run("digits", "dir-0.5", "fedavg", rounds=1)
    said = firma.run("digits", "dir-0.5", "fedavg", rounds=1, standardise="none")
    assert np.array_equal(plain.history, said.history)
    set_ = firma.run("digits", "dir-0.5", "fedavg", rounds=1, settings={"standardise": "per-client"})
    option = firma.run("digits", "dir-0.5", "fedavg", rounds=1, standardise="per-client")
    assert np.array_equal(set_.parameters, option.parameters)
    assert not np.array_equal(plain.parameters, option.parameters)
    with pytest.raises(BadInput, match="set one of them"):
        firma.RunConfig(standardise="none", settings={"standardise": "per-client"})
    with pytest.raises(BadInput, match="standardise = 'yes'"):
        firma.RunConfig(standardise="yes")


def test_the_command_line_and_toml(command, tmp_path):
    (tmp_path / "run.toml").write_text('standardise = "per-client"\nrounds = 1\nmethod = "local"\n')
    code, out, _ = command("run", tmp_path / "run.toml", "--json")
    assert (code, '"standardise": "per-client"' in out) == (0, True)
    code, option, _ = command("run", "--standardise", "per-client", "--rounds", 1, "--method", "local", "--json")
    assert code == 0
    first, second = (json.loads(each)["results"][0]["history"] for each in (out, option))
    assert first == second


def test_bytes_images_and_even_tables_never_warn():
    rare = (np.arange(20_000) == 3).astype(np.float32)  # one row in 20,000
    binary = from_arrays(np.stack([rare, UNEVEN[np.arange(20_000) % 9000, 0]], axis=1), np.arange(20_000) % 2)
    floats = from_arrays(UNEVEN[:100].reshape(100, 2, 2), np.arange(100) % 2)
    constant = from_arrays(np.ones((50, 3), np.float32), np.arange(50) % 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for data in (load_dataset("digits"), binary, floats, constant):
            warn_of_scales(data)


@pytest.mark.filterwarnings("always")
def test_the_warning_names_the_columns(tmp_path, command):
    path = tmp_path / "people.csv"
    rows = [f"{row % 50},{row * 1000},{row % 3}" for row in range(300)]
    path.write_text("\n".join(["age,income,label", *rows]))
    _, _, err = command("run", "--dataset", path, "--rounds", 1, "--method", "local")
    assert re.search(r"column 'income' is 8.*e.04, that of column 'age' 14.*--standardise per-client", err)
    code, _, err = command("run", "--dataset", path, "--rounds", 1, "--method", "local", "--standardise", "per-client")
    assert (code, "scales" in err) == (0, False)


def test_natural_data_with_very_unequal_clients_and_classes_that_others_lack():
    """Three clients of 600, 60 and 12 rows; one class lives at one client only; labels are words."""
    sizes = (600, 60, 12)
    owner = np.repeat(["large", "medium", "small"], sizes)
    words = np.concatenate(
        [
            np.array(pair)[np.arange(size) % len(pair)]
            for pair, size in zip((["oak", "ash", "elm"], ["ash", "oak"], ["oak", "yew"]), sizes, strict=True)
        ]
    )
    centres = {"oak": 0, "ash": 3, "elm": 6, "yew": 9}
    x = np.array([centres[word] for word in words])[:, None] + RNG.normal(size=(672, 5))
    data = from_arrays(x, words, client=owner)
    result = firma.run(data, method="fibfl++", rounds=4, standardise="per-client")
    assert list(result.config["samples"]) == [480, 48, 10]
    assert result.metrics["mean_accuracy"] > 0.9
    assert natural((x, words), owner).labels == ("ash", "elm", "oak", "yew")
