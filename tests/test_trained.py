"""Trained models after a run: they predict what the run measured, whatever they are loaded from."""

import csv
import io
import json
import subprocess
import sys
import warnings
from contextlib import suppress

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

import firma
from firma.cli import main
from firma.data.new_rows import ROWS, Wanted, new_rows
from firma.data.partition import client_inputs, deal
from firma.errors import BadInput
from firma.export import export
from firma.settings import split_for
from firma.trained import client_number, load, load_model, trained
from tests.peer.conftest import made_ring
from tests.processes import running

SMALL = {"extractor_epochs": 2, "hidden": 32, "embedding": 16}
# A model in a file of its own, with running statistics.
CODE = """
from torch import nn


def build(shape, outputs, width=12):
    body = nn.Sequential(nn.Flatten(), nn.Linear(shape[0], width), nn.BatchNorm1d(width), nn.ReLU())
    return body, nn.Linear(width, outputs)
"""


def digits_run(**changes):
    options = {"clients": 3, "rounds": 2, "settings": SMALL} | changes
    return firma.run("digits", "dir-0.5", "fibfl", **options)


def own_tests(clients=3, scenario="dir-0.5"):
    """Test inputs and labels of each client of `digits_run`."""
    digits = firma.load_dataset("digits")
    parts = deal(digits, scenario, clients, split_for("recommended", {}), 0)
    return [(client_inputs(digits, parts, each)[1], digits.y_test[parts.test[each]]) for each in range(clients)]


def assert_as_measured(result, measured):
    """The accuracy of each model on its client's test data is that of the last round, to the last bit."""
    for client, (x, y) in enumerate(own_tests()):
        right = trained(result, client).predict(x) == y.astype(str)
        assert right.sum() / len(y) == measured.history[-1, client]


def flowers(path, rows=240, order=(0, 1, 2), seed=0):
    """A table with words as labels, as people have it; the first feature has a large scale."""
    rng = np.random.default_rng(seed)
    names, kinds = ("width", "length", "height"), ("rose", "lily", "iris")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(names[place] for place in order), "label"])
        for row in range(rows):
            kind = row % 3
            values = (kind + rng.normal(size=3) * 0.4) * np.array([5, 1, 1])
            writer.writerow([*(f"{values[place]:.4f}" for place in order), kinds[kind]])
    return path


def parsed(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def flower_run(tmp_path_factory):
    """`firma run --out` of a table, two seeds, standardised; its folder."""
    folder = tmp_path_factory.mktemp("flowers")
    flowers(folder / "flowers.csv")
    words = ["--dataset", folder / "flowers.csv", "--scenario", "iid", "--method", "fibfl", "--clients", "2"]
    more = ["--rounds", "3", "--seeds", "2", "--standardise", "per-client", "--set", "rate=0.003"]
    for key, value in SMALL.items():
        more += ["--set", f"{key}={value}"]
    with pytest.MonkeyPatch.context() as patch, suppress(SystemExit):
        patch.setattr(sys, "argv", ["firma", "run", *map(str, words), *more, "--out", str(folder / "out")])
        main()
    return folder


@pytest.mark.parametrize(
    "changes", [{}, {"standardise": "per-client"}, {"model": "cnn", "settings": {"extractor_epochs": 1}}]
)
def test_a_saved_model_predicts_what_was_measured(tmp_path, changes):
    result = digits_run(**changes)
    result.save(tmp_path / "saved")
    loaded = load(tmp_path / "saved")
    assert loaded.template is None
    assert_as_measured(loaded, result)
    for client in range(3):
        before, after = trained(result, client), trained(loaded, client)
        x = own_tests()[client][0][:5]
        assert torch.equal(before.outputs(x), after.outputs(x))
        assert after.labels == tuple("0123456789")
        np.testing.assert_allclose(after.probabilities(x).sum(axis=1), 1, atol=1e-6)


def test_buffers_are_each_clients_own(tmp_path):
    def build(shape, outputs):
        body = nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1], 16), nn.BatchNorm1d(16), nn.ReLU())
        return body, nn.Linear(16, outputs)

    result = digits_run(model=build, settings={"extractor_epochs": 2})
    result.save(tmp_path / "saved")
    with pytest.raises(BadInput, match="was passed as Python objects, so a file cannot hold its code; pass the same"):
        load(tmp_path / "saved").model(0)
    loaded = firma.load(tmp_path / "saved", model=build)
    assert_as_measured(loaded, result)
    means = [loaded.model(client).extractor[2].running_mean for client in range(3)]
    assert not torch.equal(means[0], means[1])
    with pytest.raises(BadInput, match=r"tensor extractor\.1\.weight has shape"):
        firma.load(tmp_path / "saved", model=lambda: (nn.Sequential(nn.Flatten(), nn.Linear(64, 9)), nn.Linear(9, 10)))


def test_a_model_by_reference_moved_and_changed(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "bloom.py").write_text(CODE)
    flowers(tmp_path / "f.csv")
    options = ["--clients", 2, "--rounds", 2, "--set", "extractor_epochs=2", "--model-set", "width=9"]
    words = ["run", "--dataset", "f.csv", "--scenario", "iid", "--method", "fibfl", *options]
    assert command(*words, "--model", "bloom:build", "--out", "out")[0] == 0
    code, out, err = command("evaluate", "out", "--data", "f.csv", "--json")
    assert (code, err) == (0, "")
    before = json.loads(out)["clients"]
    assert [each["client"] for each in before] == ["0", "1"]

    (tmp_path / "bloom.py").write_text(CODE.replace("nn.ReLU", "nn.Tanh"))
    sys.modules.pop("bloom")
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # as outside of tests, where a warning is a line on stderr
        code, _, err = command("evaluate", "out", "--data", "f.csv", "--client", "1")
    assert code == 0
    assert "code of model 'bloom:build' has changed since this result was made: bloom.py differs" in err

    (tmp_path / "bloom.py").rename(tmp_path / "petal.py")
    sys.modules.pop("bloom", None)
    code, _, err = command("predict", "out", "--data", "f.csv", "--client", "1")
    assert code == 2
    assert "there is no module 'bloom'; it must be installed, or be in the current folder" in err
    (tmp_path / "petal.py").write_text(CODE)
    code, out, err = command("evaluate", "out", "--data", "f.csv", "--json", "--model", "petal:build")
    assert (code, err, json.loads(out)["clients"]) == (0, "", before)


def test_what_a_model_prints_is_not_among_the_results(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    talks = CODE.replace("    body =", "    print('built')\n    body =").replace("nn.ReLU()", "Talks()")
    talks += (
        "\n\nclass Talks(nn.ReLU):\n    def forward(self, x):\n        print('called')\n"
        "        return super().forward(x)\n"
    )
    (tmp_path / "talks.py").write_text(talks)
    flowers(tmp_path / "f.csv")
    words = [
        "--scenario",
        "iid",
        "--method",
        "local",
        "--clients",
        2,
        "--rounds",
        1,
        "--set",
        "epochs=1",
        "--out",
        "out",
    ]
    assert command("run", "--dataset", "f.csv", "--model", "talks:build", *words)[0] == 0
    for words in (["predict", "--client", 1], ["predict", "--client", 1, "--json"], ["evaluate", "--json"]):
        code, out, said = command(words[0], "out", "--data", "f.csv", *words[1:])
        assert (code, "called" in said, "called" in out, "built" in out) == (0, True, False, False)
        assert json.loads(out) if "--json" in words else len(parsed(out)) == 240
    code, out, said = command("export", "out", "--client", 1, "--out", "m.safetensors", "--json")
    assert (code, json.loads(out)["format"], "built" in said) == (0, "safetensors", True)


def test_installed_code_is_not_run_for_a_result_that_names_it(tmp_path):
    """A result is data, and may come from others: loading it must not call whatever it names."""
    digits_run().save(tmp_path / "saved")
    path = tmp_path / "saved" / "result.json"
    document = json.loads(path.read_text())
    changed = {"name": "os:system", "kind": "reference", "settings": {"command": f"touch {tmp_path}/ran"}, "files": {}}
    document["config"]["model"] |= changed
    path.write_text(json.dumps(document))
    with pytest.raises(BadInput, match=r"built by os:system, installed code .* if you trust the result, pass --model"):
        load(tmp_path / "saved").model(0)
    assert not (tmp_path / "ran").exists()


def test_results_of_earlier_versions(tmp_path):
    result = digits_run()
    result.save(tmp_path / "saved")
    path = tmp_path / "saved" / "result.json"
    document = json.loads(path.read_text())
    for name in ("model", "labels"):
        del document["config"][name]
    path.write_text(json.dumps(document))
    assert_as_measured(load(tmp_path / "saved"), result)
    path.write_text(json.dumps(document | {"config": document["config"] | {"dataset": "mine.csv"}}))
    with pytest.raises(BadInput, match="made by an earlier version of FIRMA, which did not record the model's"):
        load(tmp_path / "saved").model(0)
    with pytest.raises(BadInput, match="client = 3: must be an integer from 0 to 2"):
        result.model(3)


def test_predictions_of_a_run_of_the_command_line(flower_run, tmp_path, command):
    out = flower_run / "out"
    code, _, err = command("predict", out, "--data", flower_run / "flowers.csv", "--client", 0)
    assert (code, "several seeds of fibfl; choose one: --seed 0, 1" in err) == (2, True)
    other = flowers(tmp_path / "other.csv", order=(2, 0, 1))
    words = ["--client", 1, "--seed", 1]
    code, shown, err = command("predict", out, "--data", other, *words)
    assert (code, err) == (0, "firma: not used for prediction: label\n")
    rows = parsed(shown)
    assert list(rows[0]) == ["row", "label", "probability_iris", "probability_lily", "probability_rose"]
    assert [row["row"] for row in rows] == [str(number) for number in range(1, 241)]
    with other.open() as file:
        truth = [row["label"] for row in csv.DictReader(file)]
    accuracy = np.mean([row["label"] == word for row, word in zip(rows, truth, strict=True)])
    assert accuracy > 0.8
    code, measured, err = command("evaluate", out, "--data", other, *words, "--json")
    metrics = json.loads(measured)["clients"][0]["metrics"]
    assert metrics["accuracy"] == accuracy
    # The same numbers in another order of columns, in a file without labels, as JSON, and into a file.
    plain = flowers(tmp_path / "plain.csv")
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(line.rpartition(",")[0] for line in plain.read_text().splitlines()) + "\n")
    code, again, err = command("predict", out, "--data", bare, *words, "--out", tmp_path / "sub" / "p.csv")
    assert (code, err) == (0, "")
    assert "240 rows" in again
    assert (tmp_path / "sub" / "p.csv").read_text() == shown
    code, document, _ = command("predict", out, "--data", bare, *words, "--json")
    found = json.loads(document)["rows"]
    assert [row["label"] for row in found] == [row["label"] for row in rows]
    table, _, _ = command("evaluate", out, "--data", plain, "--seed", 0)
    assert table == 0


def test_parquet_equals_csv(flower_run, tmp_path, command):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import csv as arrow_csv
    from pyarrow import parquet

    table = arrow_csv.read_csv(flower_run / "flowers.csv")
    parquet.write_table(table.select(["length", "width", "label", "height"]), tmp_path / "flowers.parquet")
    assert arrow
    words = ["--client", 0, "--seed", 0]
    said = [
        command("predict", flower_run / "out", "--data", path, *words)[1]
        for path in (flower_run / "flowers.csv", tmp_path / "flowers.parquet")
    ]
    assert said[0] == said[1]


def test_mistakes_in_new_data_are_sentences(flower_run, tmp_path, command):
    def said(name, *words):
        path = tmp_path / "new.csv"
        path.write_text("\n".join(words) + "\n")
        code, _, err = command(name, flower_run / "out", "--data", path, "--client", "0", "--seed", "0")
        assert code == 2
        return err

    assert "lacks column height, on which the model was trained; columns are width, length" in said(
        "predict", "width,length", "1,2"
    )
    assert "data row 2 contains 'tall' in column 'height'" in said(
        "predict", "width,length,height", "1,2,3", "1,2,tall"
    )
    assert "column 'length' is empty or not a finite number in data row 1" in said(
        "predict", "width,length,height", "1,,3"
    )
    assert "contains no rows" in said("predict", "width,length,height")
    assert "label 'tulip' is not one that the model was trained on: iris, lily, rose" in said(
        "evaluate", "width,length,height,label", "1,2,3,tulip"
    )
    assert "no column label, y, class or target" in said("evaluate", "width,length,height", "1,2,3")
    code, _, err = command("predict", flower_run / "out", "--data", tmp_path / "none.csv", "--client", 0, "--seed", 0)
    assert (code, "no such file" in err) == (2, True)
    code, _, err = command("predict", tmp_path, "--data", "x.csv")
    assert (code, "does not contain a saved result; pass a folder of firma run --out" in err) == (2, True)
    code, _, err = command("predict", flower_run / "out", "--data", "x.csv", "--seed", 0)
    assert (code, "models of 2 clients; choose one: --client 0, 1" in err) == (2, True)


def test_bytes_and_numbers_are_not_mixed_up():
    model = trained(digits_run(rounds=1), 0)
    x = own_tests()[0][0]
    assert torch.equal(model.outputs(x), model.outputs(x.astype(np.uint8)))
    with pytest.raises(BadInput, match="inputs are float64, but the model was trained on uint8"):
        model.outputs(x / 16)
    with pytest.raises(BadInput, match=r"shape \(64,\), but the model was trained on \(8, 8\); the rows of a table"):
        model.outputs(x.reshape(len(x), -1))
    assert model.outputs(x[:0]).shape == (0, 10)


def test_large_files_are_read_in_batches(tmp_path):
    rows = ROWS + 5
    path = tmp_path / "many.csv"
    path.write_text("b,a\n" + "".join(f"{row},{row / 2}\n" for row in range(rows)))
    parts = list(new_rows(str(path), Wanted(("a", "b"))))
    assert [len(part.x) for part in parts] == [ROWS, 5]
    np.testing.assert_array_equal(np.concatenate([part.x for part in parts])[:, 0] * 2, np.arange(rows))
    path.write_text(path.read_text() + "1,\n")
    with pytest.raises(BadInput, match=f"column 'a' is empty or not a finite number in data row {rows + 1}"):
        list(new_rows(str(path), Wanted(("a", "b"))))


def test_clients_have_the_names_of_the_data(tmp_path):
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], 60)
    x = (rng.normal(size=(120, 3)) + y[:, None]).astype(np.float32)
    owner = np.repeat(["oslo", "rome", "bern"], 40)
    result = firma.run(firma.natural((x, y), owner), method="fibfl", rounds=1, settings=SMALL)
    result.save(tmp_path / "saved")
    model = load_model(tmp_path / "saved", client="rome")
    assert model.client == "rome"
    assert client_number(result, "rome") == client_number(result, "2") == 2
    with pytest.raises(BadInput, match=r"client 'roma' is unknown \(did you mean 'rome'\?\)"):
        load_model(tmp_path / "saved", client="roma")


@pytest.mark.parametrize("task", ["multi-label", "regression"])
def test_other_tasks(tmp_path, task, command):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(300, 4)).astype(np.float32)
    y = x @ rng.normal(size=(4, 2))
    y = (y > 0).astype(int) if task == "multi-label" else y
    with (tmp_path / "new.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "d", "hot", "wet"])
        writer.writerows(np.concatenate([x, y], axis=1).tolist())
    words = ["--task", task, "--scenario", "iid", "--clients", 2, "--rounds", 3, "--method", "fibfl"]
    source = f"{tmp_path / 'new.csv'}:hot,wet"
    assert command("run", "--dataset", source, *words, "--set", "extractor_epochs=5", "--out", tmp_path / "out")[0] == 0
    code, out, err = command("predict", tmp_path / "out", "--data", tmp_path / "new.csv", "--client", 1)
    assert (code, err) == (0, "firma: not used for prediction: hot, wet\n")
    rows = parsed(out)
    assert list(rows[0])[:3] == ["row", "hot", "wet"]
    told = np.array([[float(row["hot"]), float(row["wet"])] for row in rows])
    code, out, err = command("evaluate", tmp_path / "out", "--data", source, "--client", 1, "--json")
    assert code == 0, err
    metrics = json.loads(out)["clients"][0]["metrics"]
    if task == "multi-label":
        from sklearn.metrics import f1_score

        assert list(rows[0])[3:] == ["probability_hot", "probability_wet"]
        assert metrics["f1_micro"] == pytest.approx(f1_score(y, told, average="micro"), abs=1e-12)
        assert all((float(row["probability_hot"]) > 0.5) == (row["hot"] == "1") for row in rows)
    else:
        from sklearn.metrics import r2_score

        assert metrics["r2"] == pytest.approx(r2_score(y, told), abs=1e-5)
        with pytest.raises(BadInput, match="no probabilities"):
            load_model(tmp_path / "out", 1).probabilities(x)


def test_models_of_a_run_are_replaced_or_left_out(tmp_path, command, monkeypatch):
    words = ["run", "--scenario", "iid", "--clients", 2, "--rounds", 1, "--set", "extractor_epochs=1"]
    out = tmp_path / "out"
    assert command(*words, "--method", "fibfl:gate=yes", "--out", out)[::2] == (0, "")
    assert [each.name for each in (out / "models").iterdir()] == ["fibfl_gate=yes-0"]
    assert load(out).method == "fibfl:gate=yes"
    assert command(*words, "--method", "fibfl", "--out", out)[::2] == (0, "")
    assert [each.name for each in (out / "models").iterdir()] == ["fibfl-0"]
    assert command(*words, "--method", "fibfl", "--out", out, "--no-save-models")[::2] == (0, "")
    with pytest.raises(BadInput, match="holds results without models; repeat the run with firma run --save-models"):
        load(out)
    monkeypatch.setattr("firma.cli.run._MOST", 1000)
    _, _, err = command(*words, "--method", "fibfl", "--out", out)
    assert "the trained models were not saved, they are 1 MB; pass --save-models to save them" in err
    assert command(*words, "--method", "fibfl", "--out", out, "--save-models")[::2] == (0, "")
    assert load(out).model(1)
    code, _, err = command(*words, "--save-models")
    assert (code, "--save-models requires --out" in err) == (2, True)


def test_a_site_uses_its_model_from_its_state(tmp_path, start, command):
    """A real ring of three processes; afterwards each site's state gives the accuracy of its last round."""
    made = made_ring(tmp_path, "fibfl", 3, 2, "iid", set=SMALL | {"standardise": "per-client"})
    sites = []
    for number in range(3):
        options = ["--data", made.data(number), "--identity", made.identity(number), "--state", made.state(number)]
        words = [sys.executable, "-m", "firma", "join", made.path, *options]
        sites.append(start(running(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)))
    said = [each.communicate(timeout=120)[1] for each in sites]
    assert [each.returncode for each in sites] == [0, 0, 0], said
    for number in range(3):
        history = json.loads((made.state(number) / "result.json").read_text())["history"]
        result = firma.load(made.state(number))
        assert result.history[-1, 0] == result.metrics["mean_accuracy"] == history[-1]
        assert result.metrics["bytes_per_round"] is None
        data = np.load(made.data(number))
        model = trained(result, 0)
        assert model.client == ("ant", "bee", "cat")[number]
        assert (model.predict(data["x_test"]) == data["y_test"].astype(str)).mean() == history[-1]
    np.savez(tmp_path / "new.npz", x=data["x_test"], y=data["y_test"])
    code, out, err = command("evaluate", made.state(2), "--data", tmp_path / "new.npz", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["clients"][0]["metrics"]["accuracy"] == history[-1]
    (made.state(0) / "ring.toml").unlink()
    with pytest.raises(BadInput, match=r"lacks ring.toml, which firma join writes"):
        firma.load(made.state(0))


def test_safetensors_hold_the_module_by_name(tmp_path, command):
    result = digits_run()
    result.save(tmp_path / "saved")
    words = ["export", tmp_path / "saved", "--client", "1", "--out", tmp_path / "m.safetensors"]
    code, out, _ = command(*words)
    assert (code, "client 1" in out) == (0, True)
    with safe_open(tmp_path / "m.safetensors", "pt") as file:
        facts = json.loads(file.metadata()["firma"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no dict
    assert facts["labels"] == list("0123456789")
    assert facts["inputs"] == {"shape": [8, 8], "dtype": "uint8", "scale": 1 / 16, "fed_as": "float32"}
    model = result.model(1)
    whole = nn.ModuleDict({"extractor": model.extractor, "head": model.head})
    assert tensors.keys() == whole.state_dict().keys()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in whole.state_dict().items())
    code, _, err = command(*words)
    assert (code, "already exists" in err) == (2, True)
    code, out, _ = command(*words[:-1], tmp_path / "again.safetensors", "--json")
    document = json.loads(out)
    assert (document["format"], document["labels"]) == ("safetensors", list("0123456789"))
    assert document["bytes"] == (tmp_path / "again.safetensors").stat().st_size


def test_programs_take_inputs_as_they_are_stored(tmp_path):
    """Bytes in, with the scale and the standardisation inside; any number of samples."""
    model = trained(digits_run(standardise="per-client"), 2)
    x = own_tests()[2][0][:7]
    outputs = model.outputs(x)
    export(model, tmp_path / "m.pt2", "torch-export")
    facts = {"firma.json": ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=facts).module()
    assert json.loads(facts["firma.json"]) == model.facts
    for count in (1, 7):
        torch.testing.assert_close(program(torch.from_numpy(x[:count])), outputs[:count], atol=1e-5, rtol=0)


def test_onnx_computes_the_same(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    from onnx.reference import ReferenceEvaluator

    model = trained(digits_run(standardise="per-client"), 2)
    x = own_tests()[2][0][:7]
    export(model, tmp_path / "m.onnx", "onnx")
    made = onnx.load(tmp_path / "m.onnx")
    assert {each.key: json.loads(each.value) for each in made.metadata_props}["firma"] == model.facts
    evaluator = ReferenceEvaluator(made)
    for count in (1, 7):
        (found,) = evaluator.run(None, {"inputs": x[:count]})
        np.testing.assert_allclose(found, model.outputs(x[:count]).numpy(), atol=1e-5)


def test_onnx_without_its_packages_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("firma.export.find_spec", lambda name: None)
    model = trained(digits_run(rounds=1), 0)
    with pytest.raises(BadInput, match=r"requires onnx and onnxscript; install with: pip install 'firma\[onnx\]'"):
        export(model, tmp_path / "m.onnx", "onnx")
    assert not list(tmp_path.iterdir())
