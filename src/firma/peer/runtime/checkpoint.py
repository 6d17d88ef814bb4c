"""A site's state after each round on disk: written whole, synced, then renamed into place.

Each carries the number of the view in which it was made. When a later view begins at an earlier round, that round's
checkpoint is marked with the view, and the rounds after it are set aside (`superseded-…`) until they have been reached
again: the newest is the last round of the newest view, and nothing is deleted that is newer than what is newly saved.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from firma.atomic_files import private_opener, remove_whole, replace_synced, whole_folder, write_synced
from firma.errors import BadInput
from firma.peer.runtime.local_training import LocalSite
from firma.peer.runtime.participation import Parts, packed, unpacked
from firma.training.backend import portable, portable_items, resume
from firma.training.local_step import upgraded

_PREFIX, _ASIDE, _FACTS = "round-", "superseded-", "state.json"
_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip  # as the file spells them
History = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint: rounds done, the view's number and order, test accuracies so far (None: it took no part)."""

    rounds: int
    epoch: int
    order: tuple[int, ...]
    history: tuple[float | None, ...]
    tensors: Mapping[str, Tensor]
    architecture: str = ""  # of the model; unknown in version 0.2
    parts: tuple[tuple[int, ...] | None, ...] = ()  # members of each round; None: it took no part


def write(
    folder: Path, site: LocalSite, ring: bytes, epoch: int, order: tuple[int, ...], history: History, keep: int,
    parts: Parts = (),
) -> Path:  # fmt: skip
    """Save the site after round len(history); the last `keep` up to it stay, for other members may be behind."""
    rounds = len(history)
    target = folder / f"{_PREFIX}{rounds:06d}"
    facts = {
        "format": 3, "rounds": rounds, "epoch": epoch, "ring": ring.hex(), "order": list(order), "history": history,
        "architecture": site.architecture, "parts": packed(parts),
    }  # fmt: skip
    try:
        with whole_folder(target, private=True) as draft:
            facts["sha256"] = _write_tensors(draft / "state.safetensors", site)
            write_synced(draft / _FACTS, json.dumps(facts, indent=1).encode(), private=True)
        for old in [path for path in _found(folder) if _rounds(path) <= rounds][:-keep]:
            remove_whole(old)
        for old in folder.glob(f"{_ASIDE}[0-9]*"):
            if int(old.name.removeprefix(_ASIDE)) <= rounds:
                remove_whole(old)
    except OSError as error:
        raise BadInput(
            f"state folder {str(folder)!r}: round {rounds} cannot be saved ({error.strerror}); "
            "the rounds before are safe, make room and continue with --resume"
        ) from None
    return target


def mark(folder: Path, rounds: int, epoch: int) -> None:
    """A view begins at this round: mark its checkpoint, then set the rounds after it aside. Safe to be cut short."""
    path = folder / f"{_PREFIX}{rounds:06d}" / _FACTS
    try:
        if path.exists():
            facts: dict[str, Any] = json.loads(path.read_text())
            replace_synced(path, json.dumps(facts | {"epoch": epoch}, indent=1).encode(), private=True)
        _set_aside_after(folder, rounds)
    except OSError as error:
        raise BadInput(f"state folder {str(folder)!r}: cannot write there ({error.strerror}); make room") from None


def tidy(folder: Path) -> tuple[int, int]:
    """(view, rounds) of the newest checkpoint; (0, 0): none. What an older view left behind is set aside, and what a
    crash left of files in the middle of being written or removed is dropped.
    """
    for left in [
        *folder.glob(f".{_PREFIX}*.draft"),
        *folder.glob(f".{_PREFIX}*.gone"),
        *folder.glob(f".{_ASIDE}*.gone"),
    ]:
        shutil.rmtree(left, ignore_errors=True)
    marks = [(_epoch(path), _rounds(path)) for path in _found(folder)]
    if not marks:
        return 0, 0
    newest = max(marks)
    _set_aside_after(folder, newest[1])
    return newest


def reopen(folder: Path, site: LocalSite, ring: bytes) -> tuple[int, Saved]:
    """Put a site where it was: (view, newest checkpoint). The first state of a new site is saved as round 0."""
    number, rounds = tidy(folder)
    if not any_in(folder):
        write(folder, site, ring, 0, (), [], 1)
    saved = read(folder, rounds, ring)
    restore(site, saved)
    return number, saved


def latest(folder: Path) -> int:
    """Rounds in the newest checkpoint; 0 if there is none."""
    return max(((_epoch(path), _rounds(path)) for path in _found(folder)), default=(0, 0))[1]


def participation(folder: Path) -> list[tuple[int, ...] | None]:
    """Members of each round up to the newest checkpoint, without reading its tensors; empty if there is none."""
    try:
        facts: dict[str, Any] = json.loads((folder / f"{_PREFIX}{latest(folder):06d}" / _FACTS).read_text())
        return unpacked(facts)
    except (OSError, ValueError, KeyError, TypeError, BadInput):
        return []


def any_in(folder: Path) -> bool:
    """Whether there is a checkpoint at all, be it that of round 0."""
    return bool(_found(folder))


def nearest(folder: Path, rounds: int) -> int:
    """The last round up to this one that has a checkpoint, or else the first after it. There is always one."""
    held = [_rounds(path) for path in _found(folder)]
    return max((each for each in held if each <= rounds), default=min(held, default=0))


def read(folder: Path, rounds: int, ring: bytes | None) -> Saved:
    """The checkpoint after that many rounds, if it is whole and of this ring; None: of any."""
    path = folder / f"{_PREFIX}{rounds:06d}"
    try:
        facts: dict[str, Any] = json.loads((path / _FACTS).read_text())
        raw = (path / "state.safetensors").read_bytes()
        if hashlib.sha256(raw).hexdigest() != facts["sha256"]:
            raise ValueError("its hash is wrong")
        same = ring is None or facts["ring"] == ring.hex()
        tensors = load(raw)
        if facts.get("steps"):  # of version 0.1, which kept them apart
            tensors["steps"] = torch.tensor([int(facts["steps"][part]) for part in ("extractor", "head")])
        saved = Saved(
            facts["rounds"], facts["epoch"], tuple(facts["order"]), tuple(facts["history"]), tensors,
            facts.get("architecture", ""), tuple(unpacked(facts)),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        raise BadInput(_damaged(path, error)) from None
    if not same:
        raise BadInput(
            f"state folder {str(folder)!r} belongs to another ring file; pass a new --state, "
            f"and --begin-with {folder} to start from its last round"
        )
    return saved


def begin(site: LocalSite, folder: Path) -> None:
    """Put a site where an earlier ring left it, if that ring's model was the same."""
    if not any_in(folder):
        raise BadInput(f"--begin-with {str(folder)!r} holds no checkpoint")
    saved = read(folder, latest(folder), None)
    both = (upgraded(saved.tensors, site.client), _tensors(site))
    grows = {name for name, tensor in both[1].items() if not tensor.numel()}  # what may have any size
    shapes = [{name: name in grows or tuple(tensor.shape) for name, tensor in held.items()} for held in both]
    if shapes[0] != shapes[1] or saved.architecture not in ("", site.architecture):
        raise BadInput(f"--begin-with {str(folder)!r} holds another model or another method than the ring file")
    restore(site, saved)
    site.derive_head()


def take_over(site: LocalSite, old: Path, old_ring: bytes, state: Path, ring: bytes, done: int) -> int:
    """Begin a state folder after round `done` with what another one has, head and optimiser state included.

    Returns the round that was taken: `done`, or else the nearest. Rounds that it lacks are None in its history.
    """
    if not any_in(old):
        raise BadInput(f"--begin-with {str(old)!r} holds no checkpoint")
    saved = read(old, nearest(old, done), old_ring)
    restore(site, saved)
    history = (list(saved.history) + [None] * done)[:done]
    parts = (list(saved.parts) + [None] * done)[:done]
    write(state, site, ring, 0, (), history, 1, parts)
    return saved.rounds


def restore(site: LocalSite, saved: Saved) -> None:
    """Put a site back into the state that was saved."""
    resume(site.backend, site.client, upgraded(saved.tensors, site.client))


def _tensors(site: LocalSite) -> dict[str, Tensor]:
    """Everything in torch's layout, so that a site may resume on another device or backend."""
    return {name: tensor.contiguous() for name, tensor in portable(site.backend, site.client).items()}


def _write_tensors(path: Path, site: LocalSite) -> str:
    """Write what a site keeps, one tensor after another, and return the SHA-256 of the file.

    The library would first gather all of it in memory, twice. The format is a length, a header that says where each
    tensor is, and the tensors: https://github.com/huggingface/safetensors#format.
    """
    header, end = {}, 0
    for name, tensor in ({"parameters": site.client.parameters} | site.client.memory).items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    digest = hashlib.sha256()
    with open(path, "wb", opener=private_opener) as file:

        def put(piece: bytes | memoryview) -> None:
            file.write(piece)
            digest.update(piece)

        put(len(raw).to_bytes(8, "little") + raw)
        for _, tensor in portable_items(site.backend, site.client):
            if tensor.numel():
                put(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _found(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_PREFIX}[0-9]*"))


def _rounds(path: Path) -> int:
    return int(path.name.removeprefix(_PREFIX))


def _epoch(path: Path) -> int:
    try:
        return int(json.loads((path / _FACTS).read_text())["epoch"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(_damaged(path, error)) from None


def _damaged(path: Path, error: Exception) -> str:
    return f"checkpoint {str(path)!r}: cannot be used ({error}); remove it to continue from the round before"


def _set_aside_after(folder: Path, rounds: int) -> None:
    """Rename the checkpoints of later rounds; of two of one round the one that was set aside last stays."""
    for path in _found(folder):
        if _rounds(path) > rounds:
            aside = folder / f"{_ASIDE}{_rounds(path):06d}"
            if aside.exists():
                remove_whole(aside)
            path.rename(aside)
