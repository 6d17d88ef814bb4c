"""`firma data` and `firma split` as a user calls them."""

import json

import data_files as make
import numpy as np
import pytest
from PIL import Image

import firma.data.catalogue
import firma.data.download
from firma.cli.reading import reading


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FIRMA_DATA", str(tmp_path / "cache"))


def test_get_and_list(command, tmp_path, monkeypatch):
    known, arrays = make.small_mnist()
    monkeypatch.setitem(firma.data.catalogue.PUBLIC, "mnist", known)
    files = make.write_idx(tmp_path / "mine", arrays)
    code, out, _ = command("data", "get", "mnist", "--from", files)
    assert (code, "stored in" in out) == (0, True)
    code, out, _ = command("data", "get", "mnist")
    assert (code, "already in" in out) == (0, True)
    _, out, _ = command("data", "list", "--json")
    rows = {row["name"]: row for row in json.loads(out)["datasets"]}
    assert list(rows) == ["digits", "mnist", "fashion-mnist", "cifar10"]
    assert rows["mnist"]["present"]
    assert rows["mnist"]["bytes"] > 60 * 28 * 28
    assert not rows["cifar10"]["present"]
    assert rows["fashion-mnist"]["licence"].startswith("MIT")
    _, out, _ = command("data", "list")
    assert "fashion-mnist" in out
    code, out, _ = command(
        "split", "--dataset", "mnist", "--clients", "2", "--scenario", "iid", "--set", "min_samples=1"
    )
    assert code == 0


def test_ctrl_c_says_which_set_is_not_stored_and_keeps_the_others(command, tmp_path, monkeypatch):
    known, arrays = make.small_mnist()
    monkeypatch.setitem(firma.data.catalogue.PUBLIC, "mnist", known)
    files = make.write_idx(tmp_path / "mine", arrays)
    command("data", "get", "mnist", "--from", files)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(firma.data.download, "decode", interrupted)
    code, out, err = command("data", "get", "fashion-mnist", "--from", files)
    assert (code, out) == (130, "")
    assert err == "firma: interrupted; fashion-mnist was not stored, partial files were removed\n"
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["mnist"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["data", "get", "imagenet"], "unknown; choose from mnist"),
        (["data", "get", "digits"], "requires no download"),
        (["data", "get", "mnist", "--source", "ftp"], "choose from web, npm, debian"),
        (["data", "get", "all", "--from", "somewhere"], "requires exactly one data set, not 3"),
        (["data", "get", "mnist", "--from", "nowhere"], "no such file or folder"),
        (["data", "get", "mnist", "--source", "debian"], "no Debian package"),
        (["run", "--dataset", "cifar10"], "firma data get cifar10"),
        (["split", "--scenario", "natural"], "does not name the client of each row"),
        (["split", "--clients", "0"], "--clients must be at least 1"),
        (["ring", "--clients", "0"], "--clients must be at least 1"),
        (["advise", "--clients", "0"], "--clients must be at least 1"),
        (["run", "--clients", "0"], "clients = 0: must be at least 1"),
        (["advise", "--counts", "x.csv", "--clients", "3"], "--counts cannot be combined with --clients: the file has"),
        (["split", "--set", "split_seed=none", "--seed", "-1"], "--seed must be at least 0"),
        (["split", "--out", "/dev/null/x.png"], "cannot write this file"),
    ],
)
def test_mistakes_are_explained(command, words, expected):
    code, _, err = command(*words)
    assert code == 2
    assert expected in err
    assert "Traceback" not in err


def test_split_table_json_and_picture(command, tmp_path):
    picture = tmp_path / "new" / "split.png"
    code, out, _ = command("split", "--scenario", "dir-0.1", "--out", picture)
    assert code == 0
    assert "1,437" in out
    assert "dir-0.1" in out
    with Image.open(picture) as image:
        assert image.format == "PNG"
        assert min(image.size) > 300
        assert len(np.unique(np.asarray(image.convert("L")))) > 20
    _, out, _ = command("split", "--scenario", "dir-0.1", "--json")
    document = json.loads(out)
    assert sum(row["train"] for row in document["clients"]) == 1437
    assert all(row["train"] == sum(row["train_classes"]) for row in document["clients"])
    _, out, _ = command("split", "--scenario", "rotate-45", "--json")
    assert [row["degrees"] for row in json.loads(out)["clients"]] == [0, 11.25, 22.5, 33.75, 45]


def test_split_of_a_table_with_clients_is_natural(command, tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"{row},{row * 7 % 11},{row % 3},{'ab'[row // 30]}" for row in range(60)]
    path.write_text("\n".join(["a,b,label,client", *rows]))
    _, out, _ = command("split", "--dataset", path, "--json")
    document = json.loads(out)
    assert document["scenario"] == "natural"
    assert [(row["client"], row["train"], row["test"]) for row in document["clients"]] == [("a", 24, 6), ("b", 24, 6)]
    assert document["columns"] == ["a", "b"]
    _, out, _ = command("split", "--dataset", path)
    assert "Features: a, b" in out


def test_advice_uses_the_client_column(command, tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"{row},{row * 7 % 11},{row % 3},{'abc'[row % 3]}" for row in range(300)]  # a class for each client
    path.write_text("\n".join(["a,b,label,client", *rows]))
    _, out, _ = command("advise", "--dataset", path, "--json")
    document = json.loads(out)
    assert document["clients"] == 3
    assert document["heterogeneity"] > 0.6
    _, out, _ = command("advise", "--dataset", path, "--scenario", "iid", "--clients", 4, "--json")
    assert (json.loads(out)["clients"], json.loads(out)["scenario"]) == (4, "iid")


def test_many_classes_and_clients_still_fit(command, tmp_path):
    path = tmp_path / "many.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(3000, 2)), y=np.arange(3000) % 30)
    code, out, _ = command(
        "split", "--dataset", path, "--scenario", "iid", "--clients", "70", "--out", tmp_path / "p.png"
    )
    assert code == 0
    assert "10 more clients" in out
    assert "most common" in out


def test_a_log_tells_how_far_reading_is_every_ten_seconds(capsys):
    now = iter([0.0, 4.0, 10.0, 10.0, 15.0, 21.0, 21.0])
    with reading(lambda: next(now)) as show:
        for done in (100, 2000, 3000, 50_000):
            show("reading photos", done, 50_000)
    assert (
        capsys.readouterr().err == "firma: reading photos: 2,000 of 50,000\nfirma: reading photos: 50,000 of 50,000\n"
    )
