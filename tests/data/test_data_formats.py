"""Each format decodes to the same arrays, and damaged files are refused with a reason."""

import gzip
import io
import os
import pickle
import struct
import tarfile
import zlib

import data_files as make
import numpy as np
import pytest
from PIL import Image

from firma.data.cache import wrong_content
from firma.data.cifar_pickle import read_batch
from firma.data.formats import decode, read_idx, read_sheet
from firma.errors import BadInput


def pickle3(batch):
    return pickle.dumps(batch, protocol=3)


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_plain_or_gzipped(tmp_path, packed):
    known, arrays = make.small_mnist()
    make.write_idx(tmp_path / "raw", arrays, packed)
    assert wrong_content(known, decode(known, tmp_path)) is None


def test_idx_names_with_a_dot_are_known_too(tmp_path):
    known, arrays = make.small_mnist()
    for path in make.write_idx(tmp_path / "raw", arrays).iterdir():
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert wrong_content(known, decode(known, tmp_path)) is None


@pytest.mark.parametrize(
    "write",
    [
        make.write_binary,
        make.write_sheets,
        lambda folder, arrays: make.write_pickles(folder, arrays, pickle3),
        lambda folder, arrays: make.write_pickles(folder, arrays, make.python2_pickle),
    ],
    ids=["binary", "sheets", "pickles", "python 2 pickles"],
)
@pytest.mark.parametrize("archived", [False, True])
def test_cifar_in_each_of_its_forms(tmp_path, write, archived):
    known, arrays = make.small_cifar()
    folder = write(tmp_path / "cifar", arrays)
    source = make.write_tar(tmp_path / "cifar.tar.gz", folder) if archived else folder
    assert wrong_content(known, decode(known, source)) is None


def test_what_is_missing_is_named(tmp_path):
    known, arrays = make.small_cifar()
    make.write_binary(tmp_path, arrays)
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(BadInput, match=r"does not contain cifar10; missing from the binary version: data_batch_3\.bin"):
        decode(known, tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "file.txt"])
def test_no_folder_and_no_archive(tmp_path, name):
    (tmp_path / "file.txt").write_text("hello")
    with pytest.raises(BadInput, match=name):
        decode(make.small_mnist()[0], tmp_path / name)


IDX = make.idx_bytes(np.arange(12, dtype=np.uint8).reshape(3, 4))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (IDX[:-1], "truncated, 11 bytes"),
        (IDX + b"x", "too long, 13 bytes"),
        (IDX[:9], "truncated in its header"),
        (b"", "not an IDX file"),
        (b"\x00\x00\x0d" + IDX[3:], "0x00000d02"),
        (b"<html>", "not an IDX file"),
        (b"\0\0\x08\x03" + struct.pack(">3I", *[2**32 - 1] * 3), "truncated"),
        (gzip.compress(IDX, mtime=0)[:-6], "damaged gzip"),
        (gzip.compress(IDX, mtime=0)[:14] + b"\xff" * 20, "damaged gzip"),
    ],
)
def test_damaged_idx(tmp_path, content, words):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=words):
        read_idx(path)


def test_damaged_cifar_binary(tmp_path):
    known, arrays = make.small_cifar()
    path = make.write_binary(tmp_path, arrays) / "data_batch_2.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(BadInput, match="whole number of records of 3073"):
        decode(known, tmp_path)
    path.write_bytes(b"\x0a" + whole[1:])
    with pytest.raises(BadInput, match="the label 10"):
        decode(known, tmp_path)


def test_damaged_sheets(tmp_path):
    known, arrays = make.small_cifar()
    make.write_sheets(tmp_path, arrays)
    labels, sheet = tmp_path / "test_lables.json", tmp_path / "data_batch_1.png"
    good = labels.read_text()
    for content, words in (("[1, 2", "not valid JSON"), ("[1, 2]", "2 labels for 10"), ("[11]", "classes from 0 to 9")):
        labels.write_text(content)
        with pytest.raises(BadInput, match=words):
            decode(known, tmp_path)
    labels.write_text(good)
    sheet.write_bytes(sheet.read_bytes()[:4000])
    with pytest.raises(BadInput, match="damaged PNG"):
        decode(known, tmp_path)
    sheet.write_bytes(b"no picture")
    with pytest.raises(BadInput, match="not a sheet"):
        decode(known, tmp_path)
    Image.new("RGB", (1000, 2)).save(sheet)
    with pytest.raises(BadInput, match="1000x2 pixels; the width must be 1024"):
        decode(known, tmp_path)


def test_a_sheet_that_claims_to_be_huge_is_not_decoded(tmp_path):
    buffer = io.BytesIO()
    Image.new("L", (1, 1)).save(buffer, "PNG")
    content = bytearray(buffer.getvalue())
    content[16:24] = struct.pack(">II", 1024, 2_000_000)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    path = tmp_path / "bomb.png"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"bomb\.png"):
        read_sheet(path)


class Call:
    def __init__(self, *words):
        self.words = words

    def __reduce__(self):
        return self.words[0], self.words[1:]


def forged_dtype(_):
    return b"\x80\x02cnumpy\ndtype\n(U\x01OK\x00K\x01tR."


@pytest.mark.parametrize(
    "evil",
    [
        lambda flag: pickle.dumps(Call(os.system, f"touch {flag}"), protocol=2),
        lambda flag: pickle.dumps({b"data": Call(os.mkdir, str(flag)), b"labels": []}, protocol=4),
        lambda flag: pickle.dumps(Call(eval, f"open({str(flag)!r}, 'w')"), protocol=2),
        lambda flag: pickle.dumps(Call(np.save, str(flag), 1), protocol=2),
        lambda flag: b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__class__\x93.",
        lambda flag: b"\x80\x02cnumpy.core.multiarray\nscalar\n.",
        lambda flag: b"\x80\x02c_codecs\nencode\n.",
        lambda flag: b"\x80\x02cnumpy\nndarray\n(J\xff\xff\xff\x7ftR.",
        forged_dtype,
        lambda flag: b"\x80\x04\x8e" + struct.pack("<Q", 2**62),
        lambda flag: b"\x80\x02]",
        lambda flag: b"",
    ],
)
def test_a_malicious_or_broken_pickle_does_nothing(tmp_path, evil):
    flag, path = tmp_path / "flag", tmp_path / "data_batch_1"
    path.write_bytes(evil(flag))
    with pytest.raises(BadInput, match="not a CIFAR-10 batch"):
        read_batch(path)
    assert not flag.exists()


def test_a_pickle_of_object_pointers_is_refused(tmp_path):
    batch = {b"data": np.full((1, 384), 1, dtype=np.int64), b"labels": [1]}
    (tmp_path / "batch").write_bytes(pickle3(batch))
    with pytest.raises(BadInput, match="not an array of bytes"):
        read_batch(tmp_path / "batch")


@pytest.mark.parametrize("labels", [[10], [True], ["1"], (1,)])
def test_a_pickle_with_odd_labels_is_refused(tmp_path, labels):
    (tmp_path / "batch").write_bytes(pickle3({b"data": np.zeros((1, 3072), np.uint8), b"labels": labels}))
    with pytest.raises(BadInput, match="labels are not integers"):
        read_batch(tmp_path / "batch")


def test_an_archive_cannot_write_outside(tmp_path):
    known, arrays = make.small_mnist()
    inner = tmp_path / "set" / "inner"
    make.write_idx(inner, arrays)
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in make.IDX_NAMES:
            tar.add(inner / name, arcname=f"../../../{tmp_path.name}-escaped/{name}")
        link = tarfile.TarInfo("train-images-idx3-ubyte")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert wrong_content(known, decode(known, path)) is None
    assert not (tmp_path.parent / f"{tmp_path.name}-escaped").exists()


def test_a_damaged_archive(tmp_path):
    known, arrays = make.small_cifar()
    path = make.write_tar(tmp_path / "c.tar.gz", make.write_binary(tmp_path / "c", arrays))
    path.write_bytes(path.read_bytes()[:50_000])
    with pytest.raises(BadInput, match="damaged archive"):
        decode(known, path)
