"""A backup of what a site has learnt, without its promises, so that restoring it can break none.

Promises bind a site to what it has said to the others, and an old copy of them would let it say something else. So a
backup holds the newest round, the results and the logs, and never `promises.json`; what is restored comes back as a
site without promises and behind all others, whose view number is 0. It cannot vote against what it signed after the
backup, and cannot claim a round in the ring's newest view, whatever it did between the backup and the loss.
"""

import hashlib
import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firma.atomic_files import private_opener, sync, whole_folder, write_synced
from firma.errors import BadInput
from firma.peer.ring_file import read_ring
from firma.peer.runtime import checkpoint
from firma.peer.runtime.rotating_lines import parts

_MANIFEST, _FORMAT, _TRIES = "backup.json", 1, 5
_FILES = ("ring.toml", "site.json", "standardiser.json", "proportions.json", "result.json", "audit.jsonl.summary")
_LOGS = ("log.jsonl", "audit.jsonl")
_NAME = re.compile(
    r"ring\.toml|site\.json|standardiser\.json|proportions\.json|result\.json|audit\.jsonl\.summary"
    r"|(log|audit)\.jsonl(\.[0-9])?|round-[0-9]{6,7}/(state\.json|state\.safetensors)"
)
_LARGEST = 1 << 40
_DAMAGED = (
    ValueError, KeyError, TypeError, AttributeError, RuntimeError, EOFError, IndexError, OverflowError, struct.error,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip  # what the library raises for a file that is no archive, or a damaged one


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup is of."""

    federation: str
    site: str
    rounds: int
    ring: str  # digest of the ring file, in hexadecimal
    files: Mapping[str, str]  # SHA-256 by name


def make_backup(state: Path, file: Path) -> Backup:
    """Back up a state folder, also while `firma join` uses it; an existing file is not overwritten."""
    if file.exists():
        raise BadInput(f"backup file {str(file)!r} already exists; choose another name")
    for left in range(_TRIES - 1, -1, -1):
        try:
            contents = _contents(state)
            break
        except FileNotFoundError:  # the round was dropped at this moment: there is a newer one
            if not left:
                raise BadInput(f"state folder {str(state)!r} changes too fast to be backed up; try again") from None
    ring = read_ring(state / "ring.toml")
    rounds = int(next(name for name in contents if name.startswith("round-")).partition("/")[0].removeprefix("round-"))
    hashes = {name: hashlib.sha256(raw).hexdigest() for name, raw in contents.items()}
    try:
        site = str(json.loads(contents["site.json"])["site"])
    except (KeyError, ValueError, TypeError):  # a Flower app has no facts of its data
        site = ""
    made = Backup(ring.federation, site, rounds, ring.digest.hex(), hashes)
    _write(file, contents, made)
    return made


def _contents(state: Path) -> dict[str, bytes]:
    if not (state / "ring.toml").exists():
        raise BadInput(f"state folder {str(state)!r}: no ring.toml there; pass the --state of firma join")
    newest = checkpoint.latest(state)
    if not newest:
        raise BadInput(f"state folder {str(state)!r}: no round is completed yet, so there is nothing to back up")
    found = {f"round-{newest:06d}/{name}": (state / f"round-{newest:06d}" / name).read_bytes()
             for name in ("state.json", "state.safetensors")}  # fmt: skip
    digest = json.loads(found[f"round-{newest:06d}/state.json"])["sha256"]
    if hashlib.sha256(found[f"round-{newest:06d}/state.safetensors"]).hexdigest() != digest:
        raise FileNotFoundError  # it was replaced between the two
    found |= {name: (state / name).read_bytes() for name in _FILES if (state / name).exists()}
    for log in _LOGS:
        for each in parts(state / log):
            raw = each.read_bytes()
            found[each.name] = raw[: raw.rfind(b"\n") + 1]  # a line may be half written at this moment
    return found


def _write(file: Path, contents: Mapping[str, bytes], made: Backup) -> None:
    draft = file.with_name(f".{file.name}.draft")
    manifest = {
        "format": _FORMAT, "federation": made.federation, "site": made.site, "rounds": made.rounds, "ring": made.ring,
        "files": dict(made.files),
    }  # fmt: skip
    try:
        with open(draft, "wb", opener=private_opener) as raw:
            with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                archive.writestr(_MANIFEST, json.dumps(manifest, indent=1))
                for name, content in contents.items():
                    archive.writestr(name, content)
            raw.flush()
            os.fsync(raw.fileno())
        draft.replace(file)
        sync(file.absolute().parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise BadInput(f"backup file {str(file)!r}: cannot write there ({error.strerror})") from None


def restore_backup(file: Path, state: Path) -> Backup:
    """Put a backup into a new state folder; everything is checked before anything is written."""
    if state.exists() and (not state.is_dir() or any(state.iterdir())):
        raise BadInput(f"state folder {str(state)!r} is not empty; restore into a new one")
    made, contents = _read(file)
    facts = f"round-{made.rounds:06d}/state.json"
    contents[facts] = json.dumps(json.loads(contents[facts]) | {"epoch": 0}, indent=1).encode()  # behind all others
    try:
        state.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(state, private=True) as draft:
            for name, content in contents.items():
                (draft / name).parent.mkdir(exist_ok=True, mode=0o700)
                write_synced(draft / name, content, private=True)
    except OSError as error:
        raise BadInput(f"state folder {str(state)!r}: cannot write there ({error.strerror})") from None
    return made


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _read(file: Path) -> tuple[Backup, dict[str, bytes]]:
    try:
        with zipfile.ZipFile(file) as archive:
            manifest: dict[str, Any] = json.loads(archive.read(_MANIFEST))
            if manifest["format"] != _FORMAT:
                raise BadInput(f"backup file {str(file)!r}: format {manifest['format']} is not known to this version")
            names = [info.filename for info in archive.infolist() if info.filename != _MANIFEST]
            if sorted(names) != sorted(manifest["files"]) or not all(_NAME.fullmatch(name) for name in names):
                raise ValueError("it holds other files than it lists")
            if sum(info.file_size for info in archive.infolist()) > _LARGEST:
                raise ValueError("it is too large")
            contents = {name: archive.read(name) for name in names}
        for name, content in contents.items():
            if hashlib.sha256(content).hexdigest() != manifest["files"][name]:
                raise ValueError(f"{name} is damaged")
        made = Backup(
            str(manifest["federation"]), str(manifest["site"]), int(manifest["rounds"]), str(manifest["ring"]),
            manifest["files"],
        )  # fmt: skip
        if json.loads(contents[f"round-{made.rounds:06d}/state.json"])["ring"] != made.ring:
            raise ValueError("its round is of another ring file")
    except OSError as error:
        raise BadInput(f"backup file {str(file)!r}: cannot be read ({error.strerror})") from None
    except _DAMAGED as error:
        raise BadInput(
            f"backup file {str(file)!r}: not a backup of firma backup, or damaged ({_brief(error)})"
        ) from None
    return made, contents
