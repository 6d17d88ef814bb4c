"""Images in folders: layouts, sizes, colours, and what is wrong with them."""

import numpy as np
import pytest
from PIL import Image

import firma
from firma.data.dataset import load_dataset
from firma.errors import BadInput

RNG = np.random.default_rng(11)


def save(path, size=(6, 5), colour=False, value=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (*size, 3) if colour else size
    pixels = RNG.integers(0, 256, shape, dtype=np.uint8) if value is None else np.full(shape, value, np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


def write(folder, names, count=5, **how):
    return {f"{name}/{n}": save(folder / name / f"{n}.png", **how) for name in names for n in range(count)}


def all_of(data):
    return np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])


def test_one_folder_per_class(tmp_path):
    made = write(tmp_path / "photos", ["cat", "dog"])
    data = load_dataset(str(tmp_path / "photos"))
    assert (data.name, data.labels, data.shape, data.scale) == ("photos", ("cat", "dog"), (6, 5), 1 / 255)
    assert (len(data.y_train), len(data.y_test), data.client_train) == (8, 2, None)
    x, y = all_of(data)
    found = {(each.tobytes(), label) for each, label in zip(x, y, strict=True)}
    assert found == {(pixels.tobytes(), int(name.startswith("dog"))) for name, pixels in made.items()}


def test_colour_is_decided_by_all_files(tmp_path):
    made = write(tmp_path, ["a", "b"])
    blue = save(tmp_path / "b" / "x.png", colour=True)
    x, _ = all_of(load_dataset(tmp_path))
    assert x.shape == (11, 3, 6, 5)
    grey = made["a/0"]
    assert any(np.array_equal(each, np.stack([grey] * 3)) for each in x)
    assert any(np.array_equal(each, blue.transpose(2, 0, 1)) for each in x)


def test_train_and_test_folders(tmp_path):
    write(tmp_path / "train", ["a", "b"])
    write(tmp_path / "test", ["a", "b"], count=2)
    data = load_dataset(tmp_path)
    assert (len(data.y_train), len(data.y_test)) == (10, 4)
    (tmp_path / "test").rename(tmp_path / "val")
    assert len(load_dataset(tmp_path).y_test) == 4
    write(tmp_path / "test", ["a", "b"], count=1)
    with pytest.warns(UserWarning, match="validation images are not used"):
        assert len(load_dataset(tmp_path).y_test) == 2
    (tmp_path / "train").rename(tmp_path / "valid")
    with pytest.raises(BadInput, match="has folders test, val, but none called train"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("layout", ["{client}/{label}", "{half}/{client}/{label}", "{client}/{half}/{label}"])
def test_a_level_of_clients(tmp_path, layout):
    for client, labels in (("north", "ab"), ("south", "bc")):
        for half in ("train", "test"):
            for label in labels:
                for n in range(15):
                    save(tmp_path / layout.format(client=client, half=half, label=label) / f"{half}{n}.png")
    data = load_dataset(tmp_path)
    assert (data.labels, data.client_names) == (("a", "b", "c"), ("north", "south"))
    assert len(data.y_test) == (60 if "half" in layout else 24)
    result = firma.run(data, method="local", rounds=1, settings={"epochs": 1})
    assert result.config["scenario"] == "natural"
    assert sorted(set(data.y_train[data.client_train == 1])) == [1, 2]


def test_no_silent_resizing(tmp_path):
    write(tmp_path, ["a", "b"], value=100)
    save(tmp_path / "b" / "wide.png", size=(6, 9), value=100)
    with pytest.raises(BadInput, match=r"differ in size: a/0.png has 6x5 .*, b/wide.png has 6x9; .*:32x32"):
        load_dataset(tmp_path)
    data = load_dataset(f"{tmp_path}:4x8")
    assert data.shape == (4, 8)
    assert (data.x_train == 100).all()
    assert load_dataset(f"{tmp_path}:7").shape == (7, 7)
    for bad in ("0x3", "big", "3x3x3"):
        with pytest.raises(BadInput, match=f"'{bad}' is not a size of images"):
            load_dataset(f"{tmp_path}:{bad}")


def test_every_broken_file_is_named(tmp_path):
    write(tmp_path, ["a", "b"], count=8)
    whole = (tmp_path / "a" / "0.png").read_bytes()
    (tmp_path / "a" / "cut.png").write_bytes(whole[:-30])
    (tmp_path / "b" / "text.jpg").write_text("no image")
    with pytest.raises(BadInput, match=r"1 of 18 images cannot be read: b/text.jpg \(not an image\)"):
        load_dataset(tmp_path)
    (tmp_path / "b" / "text.jpg").unlink()
    with pytest.raises(BadInput, match=r"1 of 17 images cannot be read: a/cut.png \(.*\); replace or remove"):
        load_dataset(tmp_path)
    for number in range(7):
        (tmp_path / "a" / f"e{number}.png").write_bytes(b"")
    with pytest.raises(BadInput, match=r"7 of 24 .*a/e4.png \(not an image\) and 2 more"):
        load_dataset(tmp_path)


def test_what_is_no_image_is_said(tmp_path):
    with pytest.raises(BadInput, match="contains no images"):
        load_dataset(tmp_path)
    write(tmp_path, ["a", "b"])
    (tmp_path / "a" / ".DS_Store").write_text("")
    (tmp_path / "a" / "Thumbs.db").write_text("")
    assert len(all_of(load_dataset(tmp_path))[1]) == 10
    (tmp_path / "notes.txt").write_text("")
    with pytest.warns(UserWarning, match="ignored 1 files that are not images, the first is notes.txt"):
        load_dataset(tmp_path)
    (tmp_path / "notes.txt").unlink()
    Image.fromarray(np.full((6, 5), 40_000, np.uint16)).save(tmp_path / "a" / "deep.png")
    with pytest.raises(BadInput, match=r"a/deep.png: pixels of mode I;16, more than eight bits"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("stray", ["x.png", "a/b/c/x.png", "a/b/x.png"])
def test_images_that_lie_at_different_depths(tmp_path, stray):
    write(tmp_path, ["a", "b"])
    save(tmp_path / stray)
    with pytest.raises(BadInput, match=r"cannot tell the classes from the folders of .*CLIENT/CLASS/IMAGE"):
        load_dataset(tmp_path)


def test_numbered_classes_are_sorted_as_numbers_and_padded_ones_stay_names(tmp_path):
    write(tmp_path / "n", [str(number) for number in range(11)], count=2)
    assert load_dataset(tmp_path / "n").labels == tuple(str(number) for number in range(11))
    write(tmp_path / "p", ["007", "010"], count=3)
    assert load_dataset(tmp_path / "p").labels == ("007", "010")


def test_progress_is_told(tmp_path):
    write(tmp_path, ["a", "b"], count=200)
    told = []
    load_dataset(tmp_path, on_progress=lambda what, done, total: told.append((what.split()[0], done, total)))
    assert told == [
        ("checking", 0, 400), ("checking", 256, 400), ("reading", 0, 400), ("reading", 256, 400), ("reading", 400, 400),
    ]  # fmt: skip


def test_a_folder_on_the_command_line(tmp_path, command):
    write(tmp_path / "photos", ["cat", "dog", "eel"], count=40)
    code, out, _ = command("split", "--dataset", f"{tmp_path / 'photos'}:8x8", "--scenario", "iid", "--clients", "2")
    assert code == 0
    assert "eel" in out
    code, _, err = command("split", "--dataset", tmp_path / "fotos")
    assert code == 2
    assert "or a folder of images" in err
