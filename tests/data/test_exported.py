"""Exported splits: what other frameworks read, and what FIRMA reads back, row by row."""

import json
from dataclasses import replace

import numpy as np
import pytest

import firma
from firma.data.dataset import load_dataset
from firma.data.exported import export
from firma.data.partition import client_inputs, deal
from firma.errors import BadInput
from firma.settings import Split


def needs(form):
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="Parquet needs the extra `tables`")
    if form == "hf":
        pytest.importorskip("datasets", reason="needs the extra `hf`")


def table(path, rows=240):
    rng = np.random.default_rng(2)
    lines = [
        f"{rng.normal():.4f},{rng.normal():.4f},{('oak', 'ash', 'yew')[row % 3]},{('north', 'south')[row % 5 // 3]}"
        for row in range(rows)
    ]
    path.write_text("\n".join(["height,girth,species,client", *lines]))
    return f"{path}:species"


def colours(path, rows=90):
    pixels = np.random.default_rng(1).integers(0, 256, (rows, 3, 4, 5), dtype=np.uint8)
    np.savez(path, x=pixels, y=np.arange(rows) % 3, x_test=pixels[:30], y_test=np.arange(30) % 3)
    return str(path)


def volumes(path, rows=90):
    x = np.random.default_rng(1).normal(size=(rows, 2, 3, 2, 2)).astype(np.float32)
    np.savez(path, x=x, y=np.arange(rows) % 3)
    return str(path)


def features(path, rows=90):
    np.savez(path, x=np.random.default_rng(1).normal(size=(rows, 6)), y=np.arange(rows) % 3 + 9)
    return str(path)


SOURCES = {
    "digits": lambda folder: "digits",
    "table": lambda folder: table(folder / "trees.csv"),
    "colours": lambda folder: colours(folder / "colours.npz"),
    "features": lambda folder: features(folder / "features.npz"),
    "volumes": lambda folder: volumes(folder / "volumes.npz"),
}


@pytest.mark.parametrize("form", ["npz", "parquet", "hf"])
@pytest.mark.parametrize("source", SOURCES)
def test_the_same_rows_come_back(tmp_path, command, form, source):
    needs(form)
    name, scenario = SOURCES[source](tmp_path), "natural" if source == "table" else "dir-0.5"
    words = ["--dataset", name, "--scenario", scenario, "--set", "min_samples=3"]
    code, out, err = command("split", *words, "--export", tmp_path / "out", "--format", form)
    assert code == 0, err
    assert f"Written: {tmp_path / 'out'}" in out
    data, again = load_dataset(name), load_dataset(str(tmp_path / "out"))
    count = data.clients
    before = deal(data, scenario, count, Split(min_samples=3), 0)
    after = deal(again, "natural", again.clients, Split(min_samples=1), 0)
    assert (again.labels, again.scale, again.columns) == (data.labels, data.scale, data.columns)
    assert again.x_train.dtype == data.x_train.dtype
    assert len(before.train) == len(after.train)
    for client in range(len(before.train)):
        for mine, theirs in zip(client_inputs(data, before, client), client_inputs(again, after, client), strict=True):
            assert np.array_equal(mine, theirs)
        assert np.array_equal(data.y_train[before.train[client]], again.y_train[after.train[client]])
        assert np.array_equal(data.y_test[before.test[client]], again.y_test[after.test[client]])


def test_a_run_on_the_export_is_the_run_on_the_split(tmp_path, command):
    command("split", "--scenario", "dir-0.1", "--export", tmp_path / "out")
    here = firma.run("digits", "dir-0.1", "fibfl", rounds=2, settings={"extractor_epochs": 1})
    there = firma.run(str(tmp_path / "out"), None, "fibfl", rounds=2, settings={"extractor_epochs": 1})
    assert there.config["scenario"] == "natural"
    assert np.array_equal(here.parameters, there.parameters)
    assert np.array_equal(here.history, there.history)


def test_standardised_and_rotated_inputs_are_exported_as_trained_on(tmp_path, command):
    code, _, _ = command(
        "split", "--scenario", "rotate-90", "--clients", 2, "--set", "standardise=per-client",
        "--export", tmp_path / "out",
    )  # fmt: skip
    assert code == 0
    found = np.load(tmp_path / "out" / "client-1.npz")
    digits = load_dataset("digits")
    expected, _ = client_inputs(digits, deal(digits, "rotate-90", 2, Split(standardise="per-client"), 0), 1)
    assert np.array_equal(found["x"], expected)
    facts = json.loads((tmp_path / "out" / "firma-split.json").read_text())
    assert (facts["standardised"], facts["scale"], facts["dtype"]) == (True, 1.0, "float32")


def test_plain_torch_reads_what_the_readme_says(tmp_path, command, monkeypatch):
    command("split", "--dataset", table(tmp_path / "trees.csv"), "--export", tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    readme = (tmp_path / "out" / "README.md").read_text()
    names = {}
    exec(readme.partition("```python\n")[2].partition("```")[0], names)
    assert names["x"].shape == (115, 2)
    assert set(names["y"]) == {"ash", "oak", "yew"}
    assert "trees.csv, natural, 2 clients" in readme


@pytest.mark.parametrize("form", ["parquet", "hf"])
def test_other_readmes_run(tmp_path, command, monkeypatch, form):
    needs(form)
    if form == "parquet":
        pytest.importorskip("pandas", reason="the recipe reads with pandas")
    command("split", "--dataset", table(tmp_path / "trees.csv"), "--export", tmp_path / "out", "--format", form)
    monkeypatch.chdir(tmp_path / "out")
    names = {}
    exec((tmp_path / "out" / "README.md").read_text().partition("```python\n")[2].partition("```")[0], names)
    train = names["train"] if form == "parquet" else names["client"]["train"]
    assert len(train) == 115


def test_one_exported_file_is_a_sites_data(tmp_path, command):
    """A site may lack classes: labels are stored by their names, not by numbers."""
    command("split", "--scenario", "skew-1", "--clients", 5, "--export", tmp_path / "out")
    own = load_dataset(tmp_path / "out" / "client-3.npz")
    assert own.shape == (8, 8)
    assert set(own.labels) <= set("0123456789")


def test_mistakes(tmp_path, command):
    for words, expected in (
        (["--format", "npz"], "--format requires --export"),
        (["--export", tmp_path / "a", "--format", "csv"], "--format 'csv' is unknown; choose from npz, parquet, hf"),
        (["--export", tmp_path], "already exists; choose another folder"),
        (["--export", "/dev/null/x"], "cannot write there"),
    ):
        code, _, err = command("split", *words)
        assert code == 2
        assert expected in err
        assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_only_classes_are_exported(tmp_path):
    digits = load_dataset("digits")
    numbers = replace(digits, y_train=digits.y_train.astype(np.float32))
    with pytest.raises(BadInput, match="targets of digits are not classes"):
        export(numbers, deal(digits, "iid", 2, Split(), 0), ("a", "b"), {}, tmp_path / "out", "npz")


def test_damaged_exports(tmp_path, command):
    command("split", "--export", tmp_path / "out")
    with pytest.raises(BadInput, match="takes nothing after a colon"):
        load_dataset(f"{tmp_path / 'out'}:label")
    with np.load(tmp_path / "out" / "client-0.npz") as first:
        shorter = {name: first[name][:-1] for name in first.files}
    np.savez(tmp_path / "out" / "client-0.npz", **shorter)
    with pytest.raises(BadInput, match=r"client-0.npz has .* rows, not as many as firma-split.json states"):
        load_dataset(tmp_path / "out")
    (tmp_path / "out" / "client-0.npz").unlink()
    with pytest.raises(BadInput, match=r"not a valid exported split .*No such file"):
        load_dataset(tmp_path / "out")
    (tmp_path / "out" / "firma-split.json").write_text("{}")
    with pytest.raises(BadInput, match="'version' is missing"):
        load_dataset(tmp_path / "out")
