"""`get`: a public data set into the cache, from wherever it can be had, checked, whole or not at all."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from firma.data.cache import Arrays, open_known, present, store, wrong
from firma.data.fetch import SOURCES, NotFetched, OnProgress, Source, fetch
from firma.data.known import KNOWN, Known
from firma.data.unpack import decode
from firma.errors import BadInput


def known_set(name: str) -> Known:
    """The public data set of that name."""
    if name not in KNOWN:
        raise BadInput(f"data set {name!r} is not known; choose from {', '.join(KNOWN)}")
    return KNOWN[name]


def get(
    known: Known, cache: Path, on_progress: OnProgress, sources: Sequence[Source] = (), files: Path | None = None
) -> bool:
    """Put a data set into the cache and say whether that was needed; what is there and sound stays as it is.

    `files` is a folder or archive of the user's own; otherwise the sources are tried in turn, all of them by default.
    """
    on_progress(f"checking {known.name}", 0, None)
    if present(known, cache) and wrong(known, open_known(known, cache)) is None:
        return False
    try:
        if files is not None:
            _keep(known, files, cache, on_progress)
        else:
            _from_sources(known, cache, on_progress, sources or SOURCES)
    except OSError as error:
        raise BadInput(f"{error.filename or cache}: {error.strerror}; {known.name} was not stored") from None
    return True


def _from_sources(known: Known, cache: Path, on_progress: OnProgress, sources: Sequence[Source]) -> None:
    tried = []
    for source in sources:
        with tempfile.TemporaryDirectory(prefix="firma-") as name:
            try:
                for files in fetch(known, source, Path(name), on_progress):
                    try:
                        return _keep(known, files, cache, on_progress)
                    except BadInput as error:
                        tried.append(f"  {source}: {str(error).replace(name, 'its files')}")
            except NotFetched as error:
                tried.append(f"  {source}: {error}")
    places = "\n".join(f"  {addresses[0]}" for addresses in known.web)
    raise BadInput(
        f"{known.name} could not be fetched. Tried:\n" + "\n".join(tried) + "\nDownload it by other means, such as "
        f"from\n{places}\nand then: firma data get {known.name} --from FOLDER"
    )


def _keep(known: Known, files: Path, cache: Path, on_progress: OnProgress) -> None:
    on_progress(f"decoding {known.name}", 0, None)
    arrays = decode(known, files)
    _verified(known, arrays, files)
    on_progress(f"storing {known.name}", 0, None)
    store(known, arrays, cache)


def _verified(known: Known, arrays: Arrays, files: Path) -> None:
    if problem := wrong(known, arrays):
        raise BadInput(f"{files}: this is not {known.name} as published ({problem}); nothing was stored")
