"""Small data sets in each of the real formats, made anew for every test."""

import gzip
import json
import pickle
import struct
import tarfile
from dataclasses import replace

import numpy as np
from PIL import Image

from firma.data.cache import Arrays, sha256
from firma.data.catalogue import CIFAR10, MNIST, PARTS

IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
BATCHES = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]


def small_arrays(shape, train=50, test=10):
    rng = np.random.default_rng(7)

    def pixels(count):
        return rng.integers(0, 256, (count, *shape), dtype=np.uint8)

    def labels(count):
        return (np.arange(count) % 10).astype(np.uint8)

    return Arrays(pixels(train), labels(train), pixels(test), labels(test))


def small_known(base, arrays, **changes):
    digests = tuple(sha256(getattr(arrays, part)) for part in PARTS)
    sizes = {"train": len(arrays.y_train), "test": len(arrays.y_test), "shape": arrays.x_train.shape[1:]}
    return replace(base, digests=digests, **(sizes | {"web": (), "npm": None, "debian": None} | changes))


def small_mnist(**changes):
    arrays = small_arrays((28, 28))
    return small_known(MNIST, arrays, **changes), arrays


def small_cifar(**changes):
    arrays = small_arrays((3, 32, 32))
    return small_known(CIFAR10, arrays, **changes), arrays


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_idx(folder, arrays, packed=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in zip(IDX_NAMES, PARTS, strict=True):
        content = idx_bytes(getattr(arrays, part))
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    return folder


def batches(arrays):
    """(name, pixels (n, 3, 32, 32), labels) of the five training batches and the test batch."""
    pixels = [*np.split(arrays.x_train, 5), arrays.x_test]
    labels = [*np.split(arrays.y_train, 5), arrays.y_test]
    return zip(BATCHES, pixels, labels, strict=True)


def write_binary(folder, arrays):
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels, labels in batches(arrays):
        records = np.concatenate([labels[:, None], pixels.reshape(len(pixels), -1)], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    return folder


def write_sheets(folder, arrays):
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels, _ in batches(arrays):
        rows = pixels.transpose(0, 2, 3, 1).reshape(len(pixels), 1024, 3)
        Image.fromarray(np.ascontiguousarray(rows)).save(folder / f"{name}.png")
    (folder / "train_lables.json").write_text(json.dumps(arrays.y_train.tolist()))
    (folder / "test_lables.json").write_text(json.dumps(arrays.y_test.tolist()))
    return folder


def write_pickles(folder, arrays, write=pickle.dumps):
    folder.mkdir(parents=True, exist_ok=True)
    for name, pixels, labels in batches(arrays):
        batch = {b"batch_label": name.encode(), b"labels": labels.tolist(), b"data": pixels.reshape(len(pixels), -1)}
        (folder / name).write_bytes(write(batch))
    return folder


def python2_pickle(batch):
    """The same dictionary as Python 2 wrote it, byte strings and all: what the official batches look like."""

    def text(value):
        return b"T" + struct.pack("<i", len(value)) + value

    def number(value):
        return b"J" + struct.pack("<i", value)

    data = batch[b"data"]
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR"
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + number(0) + b"t" + text(b"b") + b"tR"
    array += b"(" + number(1) + b"(" + b"".join(map(number, data.shape)) + b"t" + dtype + b"\x89"
    array += text(data.tobytes()) + b"tb"
    labels = b"](" + b"".join(map(number, batch[b"labels"])) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


def write_tar(path, folder, inside="set"):
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, arcname=inside)
    return path
