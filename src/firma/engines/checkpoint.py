"""A run's state on disk after a round: written beside the last one, synced, renamed into place, and found again."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from firma.atomic_files import sync, whole_folder, write_synced
from firma.engines.client_group import State, read_only
from firma.engines.federation import Federation, RoundOutcome
from firma.errors import BadInput
from firma.methods import columns
from firma.training import choose

_FORMAT = 1


class Keep:
    """The checkpoints of one run, in a folder of its own below `folder`: another run, another folder."""

    def __init__(self, folder: Path, run: Federation) -> None:
        self.folder = folder / fingerprint(run)[:16]

    @classmethod
    def of(cls, folder: Path | None, run: Federation) -> "Keep | None":
        """Where there is a folder."""
        return None if folder is None else cls(folder, run)

    def write(self, states: Sequence[State], outcomes: Sequence[RoundOutcome]) -> None:
        """Save all groups after the last of the outcomes; the checkpoint before it goes when this one is whole."""
        target = self.folder / f"round-{len(outcomes):06d}"
        facts = {
            "format": _FORMAT,
            "groups": [state["numbers"] for state in states],
            "outcomes": [_plain(outcome) for outcome in outcomes],
        }
        try:
            with whole_folder(target) as draft:
                for number, state in enumerate(states):
                    path = draft / _name(number)
                    save_file({name: read_only(array).contiguous() for name, array in _arrays(state)}, path)
                    sync(path)
                write_synced(draft / "state.json", json.dumps(facts).encode())
            for old in self._found()[:-1]:
                shutil.rmtree(old)
        except (OSError, SafetensorError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise BadInput(
                f"checkpoint = {str(self.folder)!r}: round {len(outcomes)} cannot be saved ({why}); make "
                "room and give the same command again, it goes on from the round before"
            ) from None

    def outcomes(self) -> list[RoundOutcome]:
        """Of the rounds that the newest checkpoint holds; none where there is no checkpoint."""
        if not self._found():
            return []
        return [_outcome(number, plain) for number, plain in enumerate(self._facts()["outcomes"])]

    def states(self, groups: Sequence[Sequence[int]]) -> Iterator[State]:
        """What the newest checkpoint holds of these groups, however clients were grouped when it was written."""
        folder = self._found()[-1]
        place = {
            client: (number, row)
            for number, clients in enumerate(self._facts()["groups"])
            for row, client in enumerate(clients)
        }
        with ExitStack() as stack:
            try:
                files = [stack.enter_context(safe_open(path, "numpy")) for path in sorted(folder.glob("*.safetensors"))]
            except Exception as error:  # the library has a type of its own for damaged files
                raise _damaged(folder, error) from None
            for clients in groups:
                yield _state(clients, [(files[place[client][0]], place[client][1]) for client in clients])

    def _facts(self) -> dict[str, Any]:
        path = self._found()[-1] / "state.json"
        try:
            facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if facts["format"] != _FORMAT:
                raise ValueError("it is of another version")
        except (OSError, ValueError, KeyError) as error:
            raise _damaged(path, error) from None
        return facts

    def _found(self) -> list[Path]:
        return sorted(self.folder.glob("round-[0-9]*"))


def fingerprint(run: Federation) -> str:
    """SHA-256 of all that decides a run, data included: a checkpoint is only ever used for the run that wrote it."""
    path = choose(run.models[0], run.device, run.hyper.batch, run.backend).name  # buffers are laid out as it has them
    facts = {
        "method": {"name": run.method.name} | columns(run.method), "hyper": run.hyper.model_dump(),
        "rounds": run.rounds, "seed": run.seed,
        "order": list(run.order), "wire": run.wire, "path": path,
        "pieces": [asdict(piece) for piece in run.models[0].layout().pieces],
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for model in run.models:
        digest.update(model.flat().numpy().tobytes())
    for each in run.data:
        for tensor in (each.inputs, each.labels, each.test_inputs, each.test_labels):
            digest.update(np.ascontiguousarray(tensor.numpy()).data)
    return digest.hexdigest()


def _name(number: int) -> str:
    return f"group-{number:05d}.safetensors"


def _arrays(state: State) -> Iterator[tuple[str, Any]]:
    """A group's state as named arrays; those of single clients are named by the client."""
    yield "parameters", state["parameters"]
    yield "steps", state["steps"]
    for row, client in enumerate(state["numbers"]):
        for name in ("first", "second"):
            if state[name]:
                yield f"{name}.{client}", state[name][row]
        for number, buffer in enumerate(state["private"][row]):
            yield f"private.{number}.{client}", buffer


def _state(clients: Sequence[int], places: Sequence[tuple[Any, int]]) -> State:
    """The inverse, for clients that may lie in several files: (file, row) each."""
    held = {id(file): set(file.keys()) for file, _ in places}

    def of(client: int, file: Any, name: str) -> list[Any]:
        key = f"{name}.{client}"
        return [file.get_tensor(key)] if key in held[id(file)] else []

    def buffers(client: int, file: Any) -> list[Any]:
        found = (of(client, file, f"private.{number}") for number in count())
        return [array for (array,) in takewhile(bool, found)]

    along = list(zip(clients, places, strict=True))
    steps = {id(file): file.get_tensor("steps") for file, _ in places}
    counted = [steps[id(file)][row] for file, row in places if len(steps[id(file)])]
    return {
        "numbers": list(clients),
        "parameters": np.stack([file.get_slice("parameters")[row : row + 1][0] for file, row in places]),
        "first": [array for client, (file, _) in along for array in of(client, file, "first")],
        "second": [array for client, (file, _) in along for array in of(client, file, "second")],
        "steps": np.stack(counted) if counted else np.empty((0, 2), np.int64),
        "private": [buffers(client, file) for client, (file, _) in along],
    }


def _plain(outcome: RoundOutcome) -> dict[str, Any]:
    return {"accuracies": outcome.accuracies.tolist(), "bytes": outcome.sent_bytes, "messages": outcome.messages}


def _outcome(number: int, plain: dict[str, Any]) -> RoundOutcome:
    return RoundOutcome(number, np.array(plain["accuracies"]), plain["bytes"], plain["messages"])


def _damaged(path: Path, error: Exception) -> BadInput:
    return BadInput(f"checkpoint {str(path)!r}: cannot be used ({error}); remove it to start anew")
