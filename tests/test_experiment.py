"""Runs as a user calls them from Python."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import firma
from firma.errors import BadInput

QUICK = {"extractor_epochs": 2, "epochs": 1}


@pytest.mark.parametrize("scenario", ["iid", "dir-0.8", "dir-0.5", "dir-0.1", "skew-1", "skew-2", "skew-3"])
@pytest.mark.parametrize("preset", ["paper", "published"])
def test_every_scenario_runs_on_digits(scenario, preset):
    result = firma.run("digits", scenario, "fibfl++", rounds=2, preset=preset, settings=QUICK)
    assert result.history.shape == (2, result.config["clients"])
    assert 0 <= result.metrics["gini"] <= 1
    assert sorted(result.order) == list(range(result.config["clients"]))


def test_published_preset_drops_clients_below_a_batch_and_default_keeps_all():
    by_text = {**QUICK, "quota": "sequential"}
    published = firma.run("digits", "skew-3", "local", rounds=1, preset="published", settings=by_text)
    assert published.config["dropped"] == [3, 4]
    fair = firma.run("digits", "skew-3", "local", rounds=1, settings=QUICK)
    assert fair.config["dropped"] == []
    assert len(set(fair.config["samples"])) == 1


def test_training_learns():
    assert firma.run("digits", "iid", "fedavg", clients=2, rounds=3).metrics["mean_accuracy"] > 0.85


def test_shared_start_is_one_model_and_per_client_is_many():
    apart = {"initial": "per-client", "epochs": 0}
    models = firma.run("digits", "iid", "local", clients=2, rounds=1, settings=apart).parameters
    assert not torch.equal(models[0], models[1])
    models = firma.run("digits", "iid", "local", clients=2, rounds=1, settings={"epochs": 0}).parameters
    assert torch.equal(models[0], models[1])


def test_arrays_and_modules_of_the_users_own():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    x = rng.normal(size=(300, 5)) + 3 * np.eye(5)[y]
    pair = (nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.1), nn.BatchNorm1d(8), nn.Tanh()), nn.Linear(8, 3))
    before = [p.clone() for p in pair[0].parameters()]
    result = firma.run((x, y), "iid", "fibfl++", clients=3, rounds=6, preset="paper", model=pair)
    assert result.metrics["mean_accuracy"] > 0.8
    assert all(torch.equal(a, b) for a, b in zip(before, pair[0].parameters(), strict=True)), (
        "the user's stay as they were"
    )
    again = firma.run((x, y), "iid", "fibfl++", clients=3, rounds=6, preset="paper", model=pair)
    assert np.array_equal(result.history, again.history), "dropout too is drawn by address"


def test_a_function_that_builds_modules_is_seeded():
    def build():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 8)), nn.Linear(8, 10)

    runs = [
        firma.run("digits", "iid", "local", clients=2, rounds=1, seed=s, model=build, settings={"epochs": 0})
        for s in (0, 0, 1)
    ]
    assert torch.equal(runs[0].parameters, runs[1].parameters)
    assert not torch.equal(runs[0].parameters, runs[2].parameters)


@pytest.mark.parametrize("preset", ["recommended", "paper", "published"])
def test_a_row_from_python_is_the_same_row_of_the_command_line(command, preset):
    """A changed row has the numbers of the row that it was made from, whatever its name."""
    mine = replace(firma.METHODS["fibfl"], name="mine", weights="half", gate="yes")
    result = firma.run("digits", "skew-1", mine, clients=3, rounds=2, preset=preset, settings={"batch": 32})
    words = ["--scenario", "skew-1", "--clients", "3", "--rounds", "2", "--preset", preset, "--set", "batch=32"]
    code, out, _ = command("run", "--method", "fibfl:weights=half,gate=yes", *words, "--json")
    assert code == 0
    (theirs,) = json.loads(out)["results"]
    assert result.method == "mine"
    assert result.config["hyper"] == theirs["config"]["hyper"]
    assert result.history.tolist() == theirs["history"]


def test_a_row_without_a_base_has_the_defaults_and_says_so():
    mine = replace(firma.METHODS["fibfl"], name="mine", base="")
    with pytest.warns(UserWarning, match=r"'mine' has no base.*defaults of firma.Hyper"):
        result = firma.run("digits", "iid", mine, clients=2, rounds=1, settings=QUICK)
    assert result.config["hyper"] == firma.Hyper(**QUICK).model_dump()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weights": "size"}, ["weights", "'size'", "topology = 'ring'", "'half' or 'golden'"]),
        ({"gate": "maybe"}, ["gate", "'maybe'", "no, yes"]),
        ({"topology": "mesh"}, ["topology", "'mesh'", "none, star, ring"]),
        ({"retention": "none"}, ["retention", "ring", "'constant' or 'cosine'"]),
        ({"topology": "star"}, ["weights", "'golden'", "star", "size"]),
        ({"shares": "nothing"}, ["topology", "'ring'", "shares", "'nothing'"]),
        ({"base": "fibfl:gate=yes"}, ["base", "'fibfl:gate=yes'", "fibfl++"]),
    ],
)
def test_a_row_of_the_users_own_is_checked(changes, words):
    mine = replace(firma.METHODS["fibfl"], name="mine", **changes)
    with pytest.raises(BadInput) as caught:
        firma.run("digits", "iid", mine, clients=3, rounds=1)
    assert all(word in str(caught.value) for word in ["method 'mine'", *words]), str(caught.value)


def test_several_methods_are_for_run_all():
    config = firma.Config("digits", "iid", ["local", "fedavg"], clients=2, rounds=1, seeds=2, settings=QUICK)
    found = list(firma.run_all(config))
    assert [(result.method, result.seed) for result in found] == [
        ("local", 0), ("local", 1), ("fedavg", 0), ("fedavg", 1),
    ]  # fmt: skip
    with pytest.raises(BadInput, match="run_all"):
        firma.run("digits", "iid", ["local", "fedavg"])


def test_a_result_records_which_settings_were_changed():
    result = firma.run(
        "digits", "iid", "local", clients=2, rounds=1, settings={"lr": 0.01, "epochs": 1, "tests": "matched"}
    )
    assert result.config["preset"] == "recommended"
    assert result.config["settings"] == {"epochs": 1}, "the others are those of the preset"


def test_old_names_of_options_still_work():
    with pytest.warns(FutureWarning, match="path is deprecated; use backend"):
        old = firma.Config(path="autograd", set={"rate": 0.1})
    assert old == firma.RunConfig(backend="autograd", settings={"rate": 0.1})
    assert firma.Config is firma.RunConfig


def test_the_parameters_of_run_are_the_fields_of_the_configuration():
    import inspect
    from dataclasses import fields

    parameters = inspect.signature(firma.run).parameters
    assert list(parameters) == [field.name for field in fields(firma.RunConfig)]
    assert [name for name, each in parameters.items() if each.kind is not inspect.Parameter.KEYWORD_ONLY] == [
        "dataset", "scenario", "method",
    ]  # fmt: skip
    for name in parameters:
        assert f"{name}: " in firma.run.__doc__


def test_a_result_of_version_0_1_is_read(tmp_path):
    folder = firma.run("digits", "iid", "local", clients=2, rounds=1, settings=QUICK).save(tmp_path / "new")
    document = json.loads((folder / "result.json").read_text())
    assert "path" not in document
    document["path"] = document.pop("backend")
    (folder / "result.json").write_text(json.dumps(document))
    assert firma.load(folder).backend == document["path"] != ""


def test_a_run_can_be_saved_loaded_and_compared(tmp_path):
    result = firma.run("digits", "skew-1", "fibfl++", rounds=2, settings=QUICK)
    loaded = firma.load(result.save(tmp_path / "kept"))
    assert loaded.as_dict() == result.as_dict()
    assert torch.equal(loaded.parameters, result.parameters)
    assert firma.compare([result, loaded])["fibfl++"]["mean_accuracy"].deviation == 0
    with pytest.raises(BadInput, match="already exists"):
        result.save(tmp_path / "kept")
    with pytest.raises(BadInput, match="does not contain a saved result"):
        firma.load(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["kept"]


def test_a_trained_model_is_the_one_that_was_scored():
    result = firma.run("digits", "iid", "fedavg", clients=2, rounds=2)
    from firma.data.dataset import load_dataset
    from firma.data.partition import deal
    from firma.settings import split_for

    digits = load_dataset("digits")
    rows = deal(digits, "iid", 2, split_for("paper", {}), 0).test[1]
    model = result.model(1)
    logits = model.head(model.extractor(torch.tensor(digits.x_test[rows] / 16, dtype=torch.float32)))
    right = (logits.argmax(1).numpy() == digits.y_test[rows]).mean()
    assert right == pytest.approx(result.history[-1, 1])


SCRIPT = """
import firma, json
r = firma.run("digits", "dir-0.5", "fibfl++", rounds=2, settings={"extractor_epochs": 2})
print(json.dumps([r.history.tolist(), r.order, r.parameters.double().sum().item()]))
"""


def test_another_hash_seed_gives_the_same_figures():
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0])[1]


def test_torchs_threads_and_arithmetic_are_left_alone():
    before, tiny = torch.get_num_threads(), torch.tensor([1e-40])
    firma.run("digits", "iid", "fibfl", clients=2, rounds=1, settings=QUICK)
    assert torch.get_num_threads() == before
    assert (tiny * 0.5).item() > 0, "denormal numbers count in the user's thread"


def test_global_random_state_is_left_alone():
    torch.manual_seed(11)
    np.random.seed(11)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    firma.run("digits", "iid", "fibfl", clients=2, rounds=1, settings=QUICK)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dataset": "imagenet"}, ["dataset", "imagenet", "digits"]),
        ({"scenario": "dir-0"}, ["scenario", "dir-0", "dir-ALPHA"]),
        ({"scenario": "skew-5"}, ["scenario", "skew-5", "10"]),
        ({"clients": 0}, ["clients", "0"]),
        ({"clients": 1438}, ["clients", "1438", "1437"]),
        ({"clients": 900}, ["clients", "900", "min_samples"]),
        ({"rounds": 0}, ["rounds", "0"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"method": "fedagv"}, ["method", "fedagv", "did you mean 'fedavg'", "firma methods"]),
        ({"preset": "best"}, ["preset", "best", "paper"]),
        ({"device": "toaster"}, ["device", "toaster"]),
        ({"model": "resnett"}, ["model", "resnett", "did you mean 'resnet'", "mlp", "MODULE:FUNCTION"]),
        ({"model": (nn.Linear(3, 4), nn.Linear(4, 10))}, ["model", "(8, 8)"]),
        ({"model": (nn.LSTM(8, 4), nn.Linear(4, 10))}, ["model", "(8, 8)", "tuple"]),
        ({"model": nn.Linear(64, 10)}, ["model", "Linear", "single layer", "(extractor, head)"]),
        ({"model": (nn.Flatten(), nn.Linear(64, 4), nn.Linear(4, 10))}, ["model", "tuple", "(extractor, head)"]),
        ({"model": lambda: nn.Linear(64, 10)}, ["model", "Linear", "(extractor, head)"]),
        ({"model": (nn.Flatten(), nn.Linear(64, 10))}, ["model", "no parameters"]),
        ({"model": (nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), nn.Linear(4, 3))}, ["model", "(2, 10)"]),
        ({"dataset": (np.zeros((4, 2)),)}, ["dataset", "tuple", "(x, y)"]),
        ({"dataset": (np.zeros((4, 2)), np.zeros(3, int))}, ["dataset", "(3,)", "(4,)"]),
        ({"dataset": (np.zeros((40, 2)), np.zeros(40, int))}, ["dataset", "two classes"]),
        ({"dataset": (np.full((40, 2), np.nan), np.arange(40) % 2)}, ["dataset", "NaN"]),
    ],
)
def test_bad_input_is_one_clear_sentence(arguments, words):
    with pytest.raises(BadInput) as caught:
        firma.run(**({"dataset": "digits", "scenario": "iid", "method": "local", "rounds": 1} | arguments))
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_validation_leaves_the_tests_alone():
    """Tests that are nonsense change nothing where validation data are scored, and everything where tests are."""
    digits = firma.load_dataset("digits")
    nonsense = replace(digits, y_test=(digits.y_test + 1) % 10)
    settings = {"scored_on": "validation"}
    scores = [
        firma.run(data, "iid", "local", clients=2, rounds=2, settings=chosen).metrics["mean_accuracy"]
        for chosen in (settings, {})
        for data in (digits, nonsense)
    ]
    assert scores[0] == scores[1] > 0.5
    assert scores[2] > 0.5 > scores[3]


def test_validation_data_are_training_data_that_nobody_trains_on():
    from firma.data.user_arrays import validation

    digits = firma.load_dataset("digits")
    view = validation(digits)
    assert len(view.y_train) + len(view.y_test) == len(digits.y_train)
    both = np.concatenate([view.x_train, view.x_test]).reshape(len(digits.y_train), -1)
    assert sorted(map(bytes, both)) == sorted(map(bytes, digits.x_train.reshape(len(digits.y_train), -1)))
    assert abs(np.bincount(view.y_test) / np.bincount(digits.y_train) - 0.2).max() < 0.02


def test_the_old_name_of_a_results_backend_still_works():
    result = firma.run("digits", "iid", "local", clients=2, rounds=1, settings={"epochs": 1})
    with pytest.warns(DeprecationWarning, match=r"use Result\.backend"):
        assert result.path == result.backend
    assert result.backend.startswith("compiled")
