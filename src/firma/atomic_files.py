"""Files and folders that survive a crash: each is there whole, or as it was before."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_synced(path: Path, raw: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())


def replace_synced(path: Path, raw: bytes) -> None:
    """Replace a file that only this process writes."""
    draft = path.with_name(f".{path.name}.draft")
    write_synced(draft, raw)
    draft.replace(path)
    sync(path.parent)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A draft to fill with synced files; it then takes the place of `target`. After an error nothing is left of it."""
    draft = target.with_name(f".{target.name}.draft")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        yield draft
        if target.exists():
            shutil.rmtree(target)
        draft.rename(target)
        sync(target.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def sync(path: Path) -> None:
    """Wait until a file, or the renames in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
