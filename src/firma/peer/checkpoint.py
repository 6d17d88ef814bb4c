"""A site's state after each round on disk: written whole, synced, then renamed into place."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from firma.errors import BadInput
from firma.peer.site import LocalSite

_PREFIX = "round-"


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint: rounds done, the ring's order, test accuracies so far."""

    rounds: int
    order: tuple[int, ...]
    history: tuple[float, ...]
    tensors: Mapping[str, Tensor]
    steps: Mapping[str, int]


def write(folder: Path, site: LocalSite, ring: bytes, order: tuple[int, ...], history: list[float], keep: int) -> Path:
    """Save the site after round len(history); the last `keep` checkpoints stay, for others may be behind."""
    rounds = len(history)
    target = folder / f"{_PREFIX}{rounds:06d}"
    draft = folder / f".{target.name}.draft"
    raw = save(_tensors(site))
    moments = site.client.moments
    facts = {
        "format": 1, "rounds": rounds, "ring": ring.hex(), "order": list(order), "history": history,
        "steps": dict(moments.steps) if moments is not None else {}, "sha256": hashlib.sha256(raw).hexdigest(),
    }  # fmt: skip
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        _synced(draft / "state.safetensors", raw)
        _synced(draft / "state.json", json.dumps(facts, indent=1).encode())
        if target.exists():
            shutil.rmtree(target)
        draft.rename(target)
        _sync_folder(folder)
        for old in _found(folder)[:-keep]:
            shutil.rmtree(old)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise BadInput(
            f"state = {str(folder)!r}: round {rounds} cannot be saved ({error.strerror}); the rounds before are safe, "
            "make room and go on with --resume"
        ) from None
    return target


def latest(folder: Path) -> int:
    """Rounds in the newest checkpoint; 0 if there is none."""
    found = _found(folder)
    return int(found[-1].name.removeprefix(_PREFIX)) if found else 0


def read(folder: Path, rounds: int, ring: bytes) -> Saved:
    """The checkpoint after that many rounds, if it is whole and of this ring."""
    path = folder / f"{_PREFIX}{rounds:06d}"
    try:
        facts: dict[str, Any] = json.loads((path / "state.json").read_text())
        raw = (path / "state.safetensors").read_bytes()
        if hashlib.sha256(raw).hexdigest() != facts["sha256"]:
            raise ValueError("its hash is wrong")
        same = facts["ring"] == ring.hex()
        saved = Saved(facts["rounds"], tuple(facts["order"]), tuple(facts["history"]), load(raw), facts["steps"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
        raise BadInput(f"checkpoint {str(path)!r}: cannot be used ({error}); start all members anew") from None
    if not same:
        raise BadInput(f"checkpoint {str(path)!r}: it is of another ring file; name another --state or start anew")
    return saved


def restore(site: LocalSite, saved: Saved) -> None:
    """Put a site back into the state that was saved."""
    site.parameters = saved.tensors["parameters"].to(site.client.parameters)
    for number, buffer in enumerate(site.client.private):
        buffer.copy_(saved.tensors[f"private.{number}"])
    if site.client.moments is not None:
        site.client.moments.first.copy_(site.path.inward(saved.tensors["first"]))
        site.client.moments.second.copy_(site.path.inward(saved.tensors["second"]))
        site.client.moments.steps = {"extractor": saved.steps["extractor"], "head": saved.steps["head"]}


def _tensors(site: LocalSite) -> dict[str, Tensor]:
    """Everything in torch's layout, so that a site may resume on another device or path."""
    client = site.client
    tensors = {"parameters": site.parameters} | {f"private.{n}": each for n, each in enumerate(client.private)}
    if client.moments is not None:
        tensors["first"] = site.path.outward(client.moments.first)
        tensors["second"] = site.path.outward(client.moments.second)
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _found(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_PREFIX}[0-9]*"))


def _synced(path: Path, raw: bytes) -> None:
    with path.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
