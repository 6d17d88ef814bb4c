"""The state folder: readable by its owner alone, and used by one process at a time.

Two processes on one folder would each keep promises that the other does not know, and vote twice. The lock is of the
kernel (flock), so it ends with its process, however that ends; the file `lock` names the process and may stay.
"""

import os
import re
import socket
import sys
from contextlib import suppress
from pathlib import Path

from firma.errors import BadInput

LOCK = "lock"
# What FIRMA writes there, drafts included; the permissions of anything else are not FIRMA's to change.
_OWN = re.compile(
    r"\.?(round-[0-9]+|superseded-[0-9]+|ring\.toml|site\.json|promises\.json|proportions\.json|standardiser\.json"
    r"|result\.json|log\.jsonl|audit\.jsonl|evidence\.jsonl|evidence|lock)(\..*)?"
)


class StateLock:
    """The right of this process to use a state folder; it lasts until `release`, or until the process ends."""

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(handle)
        except OSError as error:
            os.close(handle)
            raise BadInput(_refusal(folder, path, error)) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()} {socket.gethostname()}\n".encode())
        self._handle: int | None = handle

    def release(self) -> None:
        """Let others use the folder."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):  # it was refused
            self.release()


def claim(folder: Path) -> tuple[StateLock, str]:
    """Lock a state folder, create it if it is missing, and make it private; what was changed, or "" if nothing was."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = StateLock(folder)
        return held, tightened(folder)
    except OSError as error:
        reason = "it is a file" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        raise BadInput(f"state folder {str(folder)!r}: cannot write there ({reason})") from None


def holder(folder: Path) -> str:
    """The process that uses a state folder, such as "1234 on host-a"; "" if none does. Nothing is changed."""
    path = folder / LOCK
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return ""
    try:
        _lock(handle)
    except OSError:
        return _named(path)
    finally:
        os.close(handle)
    return ""


def tightened(folder: Path) -> str:
    """Take the permissions of others off what FIRMA keeps in a folder; says what was done, or "" if nothing was."""
    if os.name != "posix":
        return ""
    held = list(folder.iterdir())
    own = [each for each in held if _OWN.fullmatch(each.name)]
    chosen = [inner for each in own for inner in (each, *(each.rglob("*") if each.is_dir() else ()))]
    if len(own) == len(held):
        chosen.append(folder)
    failed = changed = 0
    for each in chosen:
        with suppress(FileNotFoundError):
            mode = each.lstat().st_mode
            if mode & 0o077 and not each.is_symlink():
                try:
                    each.chmod(mode & 0o700)
                    changed += 1
                except OSError:
                    failed += 1
    if failed:
        return f"state folder {str(folder)!r}: {failed} files are readable by others and belong to another user"
    if changed:
        return f"state folder {str(folder)!r} was readable by others ({changed} files and folders); it is private now"
    if len(own) < len(held) and folder.stat().st_mode & 0o077:
        return (
            f"state folder {str(folder)!r} holds other files too, so only those of FIRMA are private; a folder of its "
            "own is better"
        )
    return ""


def _lock(handle: int) -> None:
    """Take the lock without waiting; `OSError` if another process has it."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(handle, 1 << 20, os.SEEK_SET)  # beyond the name of the process, which others may then read
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        os.lseek(handle, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _refusal(folder: Path, path: Path, error: OSError) -> str:
    if isinstance(error, BlockingIOError | PermissionError):
        process = _named(path) or "another"
        return (
            f"state folder {str(folder)!r} is in use by process {process}; two would break this site's promises: "
            "end that one first, or pass another --state"
        )
    return f"state folder {str(folder)!r}: cannot be locked ({error.strerror}); use a folder on a local disk"


def _named(path: Path) -> str:
    try:
        process, _, host = path.read_text(encoding="utf-8").strip().partition(" ")
    except (OSError, ValueError):
        return ""
    return f"{process} on {host}" if host else process
