"""Files and folders that survive a crash: each is complete, or as it was before."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firma.errors import BadInput


def check_writable(folder: Path, option: str = "out") -> None:
    """Create the output folder and try to write into it, before anybody waits for a run."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError) else error.strerror
        raise BadInput(f"{option} = {str(folder)!r}: cannot write to this folder ({reason})") from None


def write_whole(path: Path, content: str, private: bool = False) -> None:
    """Write a text file that several processes may write: temporary file of its own, fsync, rename."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if not private:
            Path(name).chmod(0o644)  # a temporary file is private, a result is not
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def private_opener(path: str, flags: int) -> int:
    """For `open(..., opener=private_opener)`: a new file is readable by its owner alone from its first byte on."""
    return os.open(path, flags, 0o600)


def write_synced(path: Path, raw: bytes, private: bool = False) -> None:
    """Write a file and wait until it is on the disk."""
    with open(path, "wb", opener=private_opener if private else None) as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())


def replace_synced(path: Path, raw: bytes, private: bool = False) -> None:
    """Replace a file that only this process writes, and wait until the rename is on the disk."""
    draft = path.with_name(f".{path.name}.draft")
    write_synced(draft, raw, private)
    draft.replace(path)
    sync(path.parent)


@contextmanager
def whole_folder(target: Path, private: bool = False) -> Iterator[Path]:
    """A draft folder to fill with synced files, which then replaces `target`; it is removed after an error."""
    draft = target.with_name(f".{target.name}.draft")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True, mode=0o700 if private else 0o777)
        yield draft
        sync(draft)  # the names of its files, before the folder has a name that counts
        if target.exists():
            remove_whole(target)
        draft.rename(target)
        sync(target.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def remove_whole(folder: Path) -> None:
    """Remove a folder that others may look for: after a crash it is there with all that it holds, or not at all."""
    hidden = folder.with_name(f".{folder.name}.gone")
    shutil.rmtree(hidden, ignore_errors=True)
    folder.rename(hidden)
    shutil.rmtree(hidden)


def sync(path: Path) -> None:
    """Wait until a file, or the renames in a folder, are on the disk. Windows cannot and need not sync a folder."""
    if os.name != "posix" and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
