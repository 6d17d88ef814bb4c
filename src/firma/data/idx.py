"""The IDX format of MNIST and its kin: a magic number, the sizes, then bytes; often gzipped."""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

from firma.data.cache import Arrays, Bytes
from firma.errors import BadInput

_STEMS = ("train-images", "train-labels", "t10k-images", "t10k-labels")
_UNSIGNED_BYTES = 8  # the IDX type code; all sets that FIRMA knows use it
_LARGEST = 1 << 30


def idx_names() -> tuple[frozenset[str], ...]:
    """For each of the four files, the names under which it is found."""
    return tuple(
        frozenset(f"{stem}{dot}idx{dimensions}-ubyte{end}" for dot in "-." for end in ("", ".gz"))
        for stem, dimensions in zip(_STEMS, (3, 1, 3, 1), strict=True)
    )


def read_set(files: tuple[Path, ...]) -> Arrays:
    """A data set from its four files: images and labels to train, images and labels to test."""
    return Arrays(*(read_idx(path) for path in files))


def read_idx(path: Path) -> Bytes:
    """One IDX file of unsigned bytes, of any number of dimensions, gzipped or not."""
    content = _content(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTES or not content[3]:
        raise BadInput(f"{path}: not an IDX file of bytes; it starts with 0x{content[:4].hex()}, not 0x000008NN")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise BadInput(f"{path}: cut short in its header, after {len(content)} bytes")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    size = int(np.prod(shape, dtype=object))  # Python integers: a forged header cannot overflow them
    if len(content) - start != size:
        kind = "cut short" if len(content) - start < size else "too long"
        raise BadInput(f"{path}: {kind}, {len(content) - start:,} bytes of data where its header says {size:,}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            file.seek(0)
            return file.read(_LARGEST)
    try:
        with gzip.open(path) as packed:
            return packed.read(_LARGEST)  # a small file that unpacks to more than this is not a data set
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path}: damaged gzip file ({error})") from None
