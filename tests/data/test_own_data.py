"""The user's own data: arrays, torch data sets, .npz, CSV and Parquet."""

import sys

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

import firma
from firma.data.dataset import load_dataset
from firma.data.partition import deal
from firma.data.user_arrays import from_arrays, held_out, natural
from firma.errors import BadInput
from firma.settings import Split

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 4)).astype(np.float32)
WORDS = np.array(["setosa", "virginica", "iris"])[np.arange(60) % 3]
CLIENT = np.array(["north", "south", "east", "west"])[np.arange(60) // 15]


def test_words_become_numbers_in_sorted_order():
    data = from_arrays(X, WORDS)
    assert data.labels == ("iris", "setosa", "virginica")
    assert data.classes == 3
    joined = np.concatenate([data.y_train, data.y_test])
    assert sorted(np.bincount(joined)) == [20, 20, 20]


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (np.arange(60) % 3 * 5 - 5, ("-5", "0", "5")),
        (np.arange(60) % 2 == 0, ("False", "True")),
        (np.arange(60) % 2 + 1.0, ("1", "2")),
        (np.array(["a", "b"], dtype=object)[np.arange(60) % 2], ("a", "b")),
    ],
)
def test_other_labels(labels, names):
    data = from_arrays(X, labels)
    assert data.labels == names
    assert set(data.y_train) == set(range(len(names)))


def test_the_given_tests_are_kept():
    data = from_arrays(X[:40], WORDS[:40], X[40:], WORDS[40:])
    assert len(data.y_train) == 40
    assert np.array_equal(data.x_test, X[40:])


def test_bytes_are_scaled_and_floats_are_not():
    assert from_arrays(np.zeros((60, 2, 2), np.uint8), WORDS).scale == 1 / 255
    assert from_arrays(X, WORDS).scale == 1


def test_a_fifth_of_every_group_is_held_out():
    groups = np.repeat([0, 1, 2, 3], [1, 2, 10, 87])
    train, test = held_out(groups)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(100))
    assert np.bincount(groups[test], minlength=4).tolist() == [0, 1, 2, 17]


def test_clients_keep_their_own_tests():
    data = from_arrays(X, WORDS, client=CLIENT)
    assert data.client_names == ("east", "north", "south", "west")
    assert data.clients == 4
    assert np.bincount(data.client_test).tolist() == [3, 3, 3, 3]
    result = firma.run(data, method="local", rounds=1, settings={"epochs": 1})
    assert result.config["scenario"] == "natural"
    assert list(result.config["samples"]) == [12, 12, 12, 12]


def test_natural_without_owners_of_the_tests_is_matched():
    digits = load_dataset("digits")
    owners = np.where(digits.y_train < 5, "low", "high")
    data = natural(digits, owners)
    found = deal(data, "natural", 2, Split(), 0)
    assert set(digits.y_test[found.test[0]]) == {5, 6, 7, 8, 9}
    assert set(digits.y_test[found.test[1]]) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((X[:, 0], WORDS), "samples, features"),
        ((X, WORDS[:-1]), r"y has shape \(59,\).*must be \(60,\)"),
        ((X[:0], WORDS[:0]), "empty"),
        ((X.astype(str), WORDS), "x has dtype <U32; must be numbers"),
        ((np.where(X > 2, np.nan, X), WORDS), "x contains NaN.*first in row"),
        ((X, np.zeros(60, int)), "all training labels are 0; at least two"),
        ((X, np.where(np.arange(60) == 9, np.nan, 1.0)), r"y is missing \(NaN\) in row 9"),
        ((X, np.array([{}] * 60)), r"y contains \{\} \(object\)"),
        ((X, WORDS, X), "must be given together"),
        ((X, WORDS, X[:, :2], WORDS), r"\(4,\).*\(2,\)"),
        ((X, WORDS, X, WORDS, None, CLIENT), "client_test requires client"),
        ((X, WORDS, None, None, CLIENT[:3]), r"client has shape \(3,\)"),
        ((X, WORDS, None, None, CLIENT, CLIENT), "client_test requires x_test"),
    ],
)
def test_what_cannot_be_used(arguments, words):
    with pytest.raises(BadInput, match=words):
        from_arrays(*arguments)


class Pairs(TorchDataset):
    def __len__(self):
        return 30

    def __getitem__(self, row):
        return torch.full((1, 2, 2), float(row)), row % 2


class Odd(Pairs):
    def __getitem__(self, row):
        return torch.zeros(row + 1), 0


def test_torch_data_sets():
    data = load_dataset(Pairs())
    assert data.shape == (1, 2, 2)
    assert len(data.y_train) == 24
    pair = load_dataset((TensorDataset(torch.tensor(X), torch.arange(60) % 3), Pairs2()))
    assert (len(pair.y_train), len(pair.y_test)) == (60, 30)
    with pytest.raises(BadInput, match="pairs"):
        load_dataset(Odd())
    with pytest.raises(BadInput, match="type list is not supported"):
        load_dataset([X, WORDS])


class Augmented(Pairs):
    """Flips an item in ten."""

    def __getitem__(self, row):
        x, y = super().__getitem__(row % 30)
        return x + 1000.0 * (torch.rand(1) < 0.1), y

    def __len__(self):
        return 900


class Noisy(Pairs):
    def __getitem__(self, row):
        return super().__getitem__(row)[0], int(torch.randint(10, (1,)))


class Doubled(TensorDataset):
    def __getitem__(self, row):
        x, y = super().__getitem__(row)
        return 2 * x, y


def test_random_augmentation_is_refused_and_says_what_to_do():
    for data in (Augmented(), Noisy()):
        with pytest.raises(BadInput, match=r"read again, as with random augmentation.*in the model.*docs/your-data.md"):
            load_dataset(data)
    with pytest.raises(BadInput, match=r"item .* of Augmented"):
        load_dataset((Pairs(), Augmented()))


def test_a_tensor_data_set_that_changes_its_items_is_read_through_them():
    plain = load_dataset(TensorDataset(torch.tensor(X), torch.arange(60) % 3))
    doubled = load_dataset(Doubled(torch.tensor(X), torch.arange(60) % 3))
    assert np.array_equal(doubled.x_train, 2 * plain.x_train)


def test_reading_a_torch_data_set_tells_its_progress():
    told = []
    load_dataset(Pairs(), on_progress=lambda *words: told.append(words))
    assert told == [("reading Pairs", 0, 30), ("reading Pairs", 30, 30)]


def test_natural_takes_what_run_takes(tmp_path):
    data = natural((X, WORDS), CLIENT)
    assert np.array_equal(data.client_test, from_arrays(X, WORDS, client=CLIENT).client_test)
    tested = natural((X[:40], WORDS[:40], X[40:], WORDS[40:]), CLIENT[:40])
    assert (len(tested.y_train), tested.client_test) == (40, None)
    assert natural(Pairs(), np.arange(30) % 3).clients == 3
    assert natural("digits", np.arange(1437) % 3).clients == 3
    with pytest.raises(BadInput, match=r"client has shape \(60,\); must be \(1437,\), one per training row"):
        natural("digits", CLIENT)
    with pytest.raises(BadInput, match=r"client has shape \(3,\); must be \(60,\)"):
        natural((X, WORDS), CLIENT[:3])
    with pytest.raises(BadInput, match="a tuple of 3 is not supported"):
        natural((X, WORDS, X), CLIENT)
    with pytest.raises(BadInput, match="type list is not supported"):
        natural([X, WORDS], CLIENT)
    np.savez(tmp_path / "mine.npz", x=X, y=WORDS, client=CLIENT)
    with pytest.raises(BadInput, match=r"mine.npz already names the client"):
        natural(str(tmp_path / "mine.npz"), CLIENT)


class Pairs2(Pairs):
    def __getitem__(self, row):
        return torch.zeros(4), row % 3


def test_npz(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, x=X, y=WORDS, x_test=X, y_test=WORDS, client=CLIENT, client_test=CLIENT)
    data = load_dataset(str(path))
    assert (data.name, data.clients, len(data.y_test)) == ("mine.npz", 4, 60)
    np.savez(path, x_train=X, y_train=WORDS)
    assert len(load_dataset(path).y_train) == 48


def test_npz_that_cannot_be_used(tmp_path):
    path = tmp_path / "mine.npz"
    for arrays, words in (
        ({"x": X}, "contains x; must contain x and y"),
        ({"x": X, "y": WORDS, "extra": X}, "contains extra, x, y"),
        ({"x": X, "y": np.array([{}] * 60)}, "plain arrays"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(BadInput, match=words):
            load_dataset(str(path))
    np.savez(path, x=X, y=WORDS)
    with pytest.raises(BadInput, match="no columns"):
        load_dataset(f"{path}:label")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(BadInput, match="file of plain arrays"):
        load_dataset(str(path))
    np.save(path.with_suffix(".npy"), X)
    path.with_suffix(".npy").rename(path)
    with pytest.raises(BadInput, match="contains nothing"):
        load_dataset(str(path))
    with pytest.raises(BadInput, match="no such file"):
        load_dataset(str(tmp_path / "other.npz"))


def csv_text(header="a,b,label,client", delimiter=","):
    rows = [[f"{x:.6f}", f"{y:.6f}", word, owner] for (x, y), word, owner in zip(X[:, :2], WORDS, CLIENT, strict=True)]
    return "\n".join(delimiter.join(row) for row in [header.split(","), *rows]) + "\n"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv(tmp_path, delimiter):
    path = tmp_path / "flowers.csv"
    path.write_text(csv_text(delimiter=delimiter), encoding="utf-8-sig")
    data = load_dataset(str(path))
    assert data.labels == ("iris", "setosa", "virginica")
    assert data.client_names == ("east", "north", "south", "west")
    assert data.x_train.dtype == np.float32
    assert np.allclose(np.sort(np.concatenate([data.x_train, data.x_test]), 0), np.sort(X[:, :2], 0), atol=1e-5)


def test_the_labels_column_can_be_named(tmp_path):
    path = tmp_path / "flowers.csv"
    path.write_text(csv_text("a,b,Species,client"))
    with pytest.raises(
        BadInput, match=r"no column label, y, class or target; columns are a, b, Species.*flowers\.csv:COLUMN"
    ):
        load_dataset(str(path))
    assert load_dataset(f"{path}:Species").classes == 3
    with pytest.raises(BadInput, match="no column 'species'"):
        load_dataset(f"{path}:species")


def test_whole_numbers_are_sorted_as_numbers(tmp_path):
    path = tmp_path / "n.csv"
    path.write_text("y,a\n" + "".join(f"{row % 12},{row}\n" for row in range(48)))
    assert load_dataset(str(path)).labels == tuple(str(number) for number in range(12))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,label\n1,x\nred,y\n", "data row 2 contains 'red' in column 'a'"),
        ("a,label\n1,x\n,y\n", "column 'a' is empty or not a finite number in data row 2; fill in"),
        ("a,b,label\n1,NA,x\n?,2,y\n", r"column 'b' is empty .* in data row 1 \(the first of 2 such cells\)"),
        (
            "day,a,city,label\n2024-01-31,1,Rome,x\n",
            "'2024-01-31' in column 'day' .not a number either: city.*days since",
        ),
        ("city,label\nRome,x\n", "'Rome' in column 'city'; must be a number: .*get_dummies"),
        ("a,label\n12%,x\n", "'12%' in column 'a'; must be a number: write plain numbers"),
        ('a,label\n"1,5",x\n', "'1,5' in column 'a'; .*decimal commas are read if semicolons"),
        ("a;label\n1.234,5;x\n", "'1.234,5' in column 'a'; .*without separators of thousands"),
        ("a;b;label\n1,5;1.5;x\n", "decimal comma .1,5 in column 'a', data row 1. and with a point .1.5 in column 'b'"),
        ("a,label\n1_0,x\n", "'1_0' in column 'a'"),
        (",a,label\n0,1,x\n", "column 1 of 3 has no name; pandas writes its index so: save with index=False"),
        ("a,label,\n1,x,\n", "column 3 of 3 has no name; remove it, or name it"),
        ("a,a,label\n1,2,x\n", "two columns are called 'a'"),
        ("1,2,0\n3,4,1\n", "the first line must name the columns, but it contains numbers: 1, 2, 0"),
        ("a b label\n1 2 x\n", "the first line is 'a b label', .*separated by commas, semicolons or tabs"),
        ("a,label\n1,x\n".encode("utf-16"), "not UTF-8 text .*; save the file as CSV UTF-8"),
        ("a,label\n1,x\nnan,y\n", "column 'a' is empty or not a finite number in data row 2"),
        ("a,label\n1,x\n2\n", "data row 2 has 1 cells, but the header has 2"),
        ("a,label\n1,x\n2,y,3\n", "data row 2 has 3 cells"),
        ("a,label\n1,x\n2,\n", "column 'label' is empty in data row 2"),
        ("a,label\n", "a header but no rows"),
        ("", "the first line is '', without column label"),
        ("label\nx\n", "at least one feature is required"),
        ("a,label\n1,x\n2,x\n", "all training labels are x"),
        ("a,label\n1,\xff\n".encode("latin-1"), "not UTF-8 text"),
    ],
)
def test_csv_that_cannot_be_used(tmp_path, text, words):
    path = tmp_path / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput, match=words):
        load_dataset(str(path))


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_decimal_commas_and_truths_are_numbers(tmp_path, delimiter):
    path = tmp_path / "t.csv"
    rows = [f"{row},5e1|{row % 2 == 0}|{'xy'[row % 2]}".replace("|", delimiter) for row in range(10)]
    path.write_text("\n".join(["a|b|label".replace("|", delimiter), *rows]), encoding="utf-8-sig")
    data = load_dataset(path)
    assert data.columns == ("a", "b")
    found = np.concatenate([data.x_train, data.x_test])
    assert sorted(found.tolist()) == [[row * 10 + 5, row % 2 == 0] for row in range(10)]


def test_numbers_to_predict_with_decimal_commas(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;price\n" + "".join(f"{row};{row},25\n" for row in range(20)))
    with pytest.warns(UserWarning, match="the task is regression"):
        data = load_dataset(f"{path}:price")
    assert data.task == "regression"
    assert np.array_equal(data.y_train[:, 0], data.x_train[:, 0] + 0.25)


def test_a_column_that_numbers_the_rows_is_not_used_silently(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,a,label\n" + "".join(f"{row},{row % 3},{row % 2}\n" for row in range(20)))
    with pytest.warns(UserWarning, match="column 'id' seems to number the rows"):
        assert load_dataset(path).columns == ("id", "a")


def test_files_of_other_kinds(tmp_path):
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(BadInput, match=r"files .xlsx are not supported; save the data as .csv"):
        load_dataset(tmp_path / "t.xlsx")


def write_parquet(path, **columns):
    arrow = pytest.importorskip("pyarrow", reason="Parquet needs the extra `tables`")
    from pyarrow import parquet

    parquet.write_table(arrow.table(columns), path)
    return path


def test_parquet_holds_what_a_csv_holds(tmp_path):
    write_parquet(tmp_path / "t.parquet", a=X[:, 0], b=X[:, 1], label=WORDS, client=CLIENT)
    (tmp_path / "t.csv").write_text(csv_text())
    parquet, csv = load_dataset(str(tmp_path / "t.parquet")), load_dataset(str(tmp_path / "t.csv"))
    assert np.allclose(parquet.x_train, csv.x_train, atol=1e-5)
    assert np.array_equal(parquet.y_train, csv.y_train)
    assert np.array_equal(parquet.client_test, csv.client_test)
    assert parquet.labels == csv.labels


def test_parquet_of_mixed_numbers(tmp_path):
    whole = [2**53 + number for number in range(10)]
    path = write_parquet(tmp_path / "t.parquet", a=whole, b=[number > 4 for number in range(10)], label=["x", "y"] * 5)
    data = load_dataset(str(path))
    assert data.x_train.dtype == np.float32
    assert set(data.x_train[:, 1]) == {0, 1}


def test_parquet_that_cannot_be_used(tmp_path):
    path = tmp_path / "t.parquet"
    with pytest.raises(BadInput, match="column 'a' contains string"):
        load_dataset(str(write_parquet(path, a=WORDS, label=WORDS)))
    with pytest.raises(BadInput, match="column 'a' is empty or not a finite number in data row 2"):
        load_dataset(str(write_parquet(path, a=[1, None, 3], label=["x", "y", "x"])))
    with pytest.raises(BadInput, match="column 'a' is empty or not a finite number in data row 1"):
        load_dataset(str(write_parquet(path, a=[None, True, False], label=["x", "y", "x"])))
    with pytest.raises(BadInput, match="column 'label' is empty in data row 3"):
        load_dataset(str(write_parquet(path, a=[1, 2, 3], label=["x", "y", None])))
    path.write_bytes(b"PAR1 nonsense")
    with pytest.raises(BadInput, match="not a valid Parquet file"):
        load_dataset(str(path))


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "t.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(BadInput, match=r"pip install 'firma\[tables\]'"):
        load_dataset(str(path))


def test_names_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRMA_DATA", str(tmp_path))
    with pytest.raises(BadInput, match=r"'mnist': not in .*; download it with: firma data get mnist"):
        load_dataset("mnist")
    with pytest.raises(BadInput, match=r"choose from digits, mnist, fashion-mnist, cifar10, or pass a file"):
        load_dataset("imagenet")
