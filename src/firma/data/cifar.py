"""CIFAR-10 in the three forms in which people have it: binary records, PNG sheets, pickled batches."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from firma.data.cache import Arrays, Bytes
from firma.data.unpickle import read_batch
from firma.errors import BadInput

_STEMS = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_SIDE, _PIXELS = 32, 1024
_RECORD = 1 + 3 * _PIXELS
_TALLEST = 60_000  # rows of a sheet: no more than the whole set in one, whatever a file claims
_SHEET_LABELS = (
    frozenset({"train_lables.json", "train_labels.json"}),  # the npm package spells it the first way
    frozenset({"test_lables.json", "test_labels.json"}),
)

Read = Callable[[tuple[Path, ...]], Arrays]


def cifar_forms() -> tuple[tuple[str, tuple[frozenset[str], ...], Read], ...]:
    """Each form's name, the names of its files, and the function that reads them in that order."""
    return (
        ("binary version", tuple(frozenset({f"{stem}.bin"}) for stem in _STEMS), read_binary),
        ("PNG sheets", (*(frozenset({f"{stem}.png"}) for stem in _STEMS), *_SHEET_LABELS), read_sheets),
        ("python version", tuple(frozenset({stem}) for stem in _STEMS), read_pickles),
    )


def read_binary(files: tuple[Path, ...]) -> Arrays:
    """Records of 3,073 bytes: the label, then 1,024 bytes each of red, green and blue."""
    batches = []
    for path in files:
        content = np.fromfile(path, np.uint8)
        if not len(content) or len(content) % _RECORD:
            raise BadInput(f"{path}: {len(content):,} bytes, not a whole number of records of {_RECORD}")
        records = content.reshape(-1, _RECORD)
        batches.append((records[:, 1:], _known_classes(records[:, 0], path)))
    return _joined(batches)


def read_pickles(files: tuple[Path, ...]) -> Arrays:
    """Pickled dictionaries, read by an unpickler that knows nothing but arrays."""
    return _joined([read_batch(path) for path in files])


def read_sheets(files: tuple[Path, ...]) -> Arrays:
    """PNG sheets with one image of 32x32 in every row of 1,024 RGB pixels, labels in two JSON lists beside them."""
    *sheets, train, test = files
    images = [read_sheet(path) for path in sheets]
    y_train, y_test = _json_labels(train), _json_labels(test)
    for path, labels, rows in ((train, y_train, sum(map(len, images[:-1]))), (test, y_test, len(images[-1]))):
        if len(labels) != rows:
            raise BadInput(f"{path}: {len(labels):,} labels for {rows:,} images")
    return Arrays(np.concatenate(images[:-1]), y_train, images[-1], y_test)


def read_sheet(path: Path) -> Bytes:
    """(n, 3, 32, 32) images of one sheet; its size is checked before a pixel is decoded."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=["PNG"]) as sheet:
                if sheet.width != _PIXELS or sheet.height > _TALLEST:
                    raise BadInput(f"{path}: {sheet.width}x{sheet.height} pixels; {_PIXELS} wide is needed")
                pixels = np.asarray(sheet.convert("RGB"))
    except (UnidentifiedImageError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadInput(f"{path}: not a sheet of images ({error})") from None
    except (OSError, SyntaxError, ValueError) as error:  # what pillow raises for a PNG that is damaged further in
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path}: damaged PNG file ({error})") from None
    return np.ascontiguousarray(pixels.reshape(-1, _SIDE, _SIDE, 3).transpose(0, 3, 1, 2))


def _joined(batches: list[tuple[Bytes, Bytes]]) -> Arrays:
    *train, (x_test, y_test) = batches
    x_train = np.concatenate([pixels for pixels, _ in train]).reshape(-1, 3, _SIDE, _SIDE)
    y_train = np.concatenate([labels for _, labels in train])
    return Arrays(x_train, y_train, x_test.reshape(-1, 3, _SIDE, _SIDE), y_test)


def _known_classes(labels: Bytes, path: Path) -> Bytes:
    if labels.max() > 9:
        raise BadInput(f"{path}: a label of {labels.max()}; CIFAR-10 has the classes 0 to 9")
    return labels


def _json_labels(path: Path) -> Bytes:
    try:
        labels = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path}: not valid JSON ({error})") from None
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label <= 9 for label in labels):
        raise BadInput(f"{path}: not a list of classes from 0 to 9")
    return np.array(labels, dtype=np.uint8)
