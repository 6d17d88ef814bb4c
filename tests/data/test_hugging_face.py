"""Data sets of Hugging Face `datasets` on disk."""

import sys

import numpy as np
import pytest
from PIL import Image

from firma.data.dataset import load_dataset
from firma.errors import BadInput

RNG = np.random.default_rng(4)


@pytest.fixture
def datasets():
    return pytest.importorskip("datasets", reason="needs the extra `hf`")


@pytest.fixture
def save(datasets, tmp_path):
    """`save(features, train=columns, test=columns)` writes a data set and gives its folder; one alone is no dict."""
    datasets.disable_progress_bars()

    def write(features=None, whole=None, **splits):
        def make(columns):
            return datasets.Dataset.from_dict(columns, features=datasets.Features(features) if features else None)

        folder = tmp_path / "saved"
        found = make(whole) if whole else datasets.DatasetDict({name: make(each) for name, each in splits.items()})
        found.save_to_disk(str(folder))
        return folder

    return write


def pictures(count, colour=False, size=(6, 5)):
    return [Image.fromarray(RNG.integers(0, 256, (*size, 3) if colour else size, dtype=np.uint8)) for _ in range(count)]


def test_images_with_class_names(save, datasets):
    images, labels = pictures(20), [n % 2 for n in range(20)]
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["dog", "cat"])}
    folder = save(
        kinds, train={"image": images[:14], "label": labels[:14]}, test={"image": images[14:], "label": labels[14:]}
    )
    data = load_dataset(str(folder))
    assert (data.labels, data.shape, data.scale) == (("cat", "dog"), (6, 5), 1 / 255)
    assert (len(data.y_train), len(data.y_test)) == (14, 6)
    assert np.array_equal(data.x_train, np.stack([np.asarray(image) for image in images[:14]]))
    assert data.y_train.tolist() == [1 - label for label in labels[:14]]


def test_colour_images_and_a_client_column(save, datasets):
    kinds = {"img": datasets.Image(), "kind": datasets.ClassLabel(names=["a", "b"]), "client": datasets.Value("string")}
    images = [*pictures(2), *pictures(38, colour=True)]
    clients = [("north", "south")[n // 20] for n in range(40)]
    folder = save(kinds, whole={"img": images, "kind": [n % 2 for n in range(40)], "client": clients})
    data = load_dataset(str(folder))  # the only column of classes is the label
    assert (data.shape, data.client_names) == ((3, 6, 5), ("north", "south"))
    assert np.bincount(data.client_test).tolist() == [4, 4]


def test_numbers_are_a_table(save):
    x = RNG.normal(size=(30, 2))
    columns = {
        "height": x[:, 0],
        "girth": x[:, 1],
        "tall": x[:, 0] > 0,
        "species": [("oak", "ash")[n % 2] for n in range(30)],
    }
    data = load_dataset(f"{save(whole=columns)}:species")
    assert (data.columns, data.labels, data.x_train.dtype) == (("height", "girth", "tall"), ("ash", "oak"), np.float32)
    found = np.concatenate([data.x_train, data.x_test])
    np.testing.assert_allclose(np.sort(found[:, 1]), np.sort(x[:, 1]).astype(np.float32))


@pytest.mark.parametrize("kind", ["list", "array"])
def test_arrays_keep_their_shape_and_dtype(save, datasets, kind):
    tokens = RNG.integers(0, 1000, (20, 4, 3) if kind == "array" else (20, 7))
    feature = datasets.Array2D((4, 3), "int32") if kind == "array" else datasets.Sequence(datasets.Value("int64"))
    kinds = {"input_ids": feature, "labels": datasets.Value("int64")}
    data = load_dataset(save(kinds, train={"input_ids": list(tokens), "labels": [n % 3 for n in range(20)]}))
    assert data.x_train.dtype == (np.int32 if kind == "array" else np.int64)
    assert data.shape == tokens.shape[1:]
    assert np.concatenate([data.x_train, data.x_test]).sum() == tokens.sum()


def test_numbers_to_predict(save):
    x = RNG.normal(size=30)
    folder = save(whole={"a": x, "price": 2.5 * x, "weight": x**2})
    data = load_dataset(f"{folder}:price,weight", task="regression")
    assert (data.task, data.labels, data.columns) == ("regression", ("price", "weight"), ("a",))
    assert np.allclose(data.y_train[:, 0], 2.5 * data.x_train[:, 0], atol=1e-5)


def test_bytes_stay_bytes(save, datasets):
    kinds = {"x": datasets.Array3D((1, 4, 3), "uint8"), "y": datasets.Value("int64")}
    data = load_dataset(
        save(kinds, train={"x": list(np.full((9, 1, 4, 3), 255, np.uint8)), "y": [n % 3 for n in range(9)]})
    )
    assert (data.x_train.dtype, data.scale) == (np.uint8, 1 / 255)


def test_a_validation_split_stands_in_for_a_test_split(save):
    columns = {"a": [1.0, 2.0, 3.0], "label": [0, 1, 0]}
    assert len(load_dataset(save(train=columns, validation=columns)).y_test) == 3


def test_splits_that_are_not_used_are_named(save):
    columns = {"a": [1.0, 2.0, 3.0], "label": [0, 1, 0]}
    folder = save(train=columns, validation=columns, test=columns, unsupervised=columns)
    with pytest.warns(UserWarning, match="not used: validation, unsupervised"):
        load_dataset(folder)


def test_what_cannot_be_used(save, tmp_path):
    import shutil

    good = {"a": [1.0, 2.0, 3.0, 4.0], "label": [0, 1, 0, 1]}
    for splits, words in (
        ({"other": good}, "has splits other, but none called train"),
        ({"train": good, "test": {"a": [1.0], "b": [1]}}, "the test split has no column 'label'"),
        ({"train": {"a": [1.0, 2.0], "species": ["x", "y"]}}, "no column label, .*; columns are a, species"),
        (
            {"train": good | {"text": ["a"] * 4}},
            r"besides label are a \(float64\), text \(string\); they must be numbers",
        ),
        ({"train": {"text": ["a"] * 4, "label": [0, 1, 0, 1]}}, "'text' contains string; must be images, numbers"),
        ({"train": {"x": [[1], [1, 2], [3], [4]], "label": [0, 1, 0, 1]}}, "'x' contains .*arrays of one shape"),
        ({"train": {"a": [1.0, None, 3.0], "label": [0, 1, 0]}}, "column 'a' is empty in row 2 of train"),
        ({"train": {"a": [1.0, 2.0, 3.0], "label": [0, 1, None]}}, "column 'label' is empty in row 3"),
        ({"train": {"label": [0, 1]}}, "inputs are required"),
    ):
        folder = save(**splits)
        with pytest.raises(BadInput, match=words):
            load_dataset(folder)
        shutil.rmtree(folder)
    with pytest.raises(BadInput, match="no column 'kind'"):
        load_dataset(f"{save(train=good)}:kind")
    (tmp_path / "saved" / "train" / "dataset_info.json").write_text("{")
    with pytest.raises(BadInput, match="not a valid data set of save_to_disk"):
        load_dataset(tmp_path / "saved")


def test_images_that_differ_in_size(save, datasets):
    kinds = {"image": datasets.Image(), "label": datasets.Value("int64")}
    folder = save(kinds, train={"image": [*pictures(3), *pictures(1, size=(9, 5))], "label": [0, 1, 0, 1]})
    with pytest.raises(BadInput, match=r"row 1 of train has 6x5 pixels .*, row 4 has 9x5; resize them with map"):
        load_dataset(folder)


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(BadInput, match=r"pip install 'firma\[hf\]'"):
        load_dataset(tmp_path)
