"""Checkpoints of a run: written beside the last one, synced, renamed into place, and found again by the same run."""

import hashlib
import json
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from firma.algorithms.catalogue import resolved
from firma.atomic_files import sync, whole_folder, write_synced
from firma.engines.client_group import Array, GroupState, backend_for, read_only
from firma.engines.engine import Federation, RoundOutcome
from firma.errors import BadInput
from firma.methods import stable_columns
from firma.models import architecture
from firma.models.mlp import is_mlp
from firma.settings import stable_settings
from firma.tasks.losses import identity
from firma.training.local_step import new_client, upgraded

_FORMAT = 2  # 1, of version 0.1, is read too
_SERVER = "server/"


class RunCheckpoints:
    """The checkpoints of one run, in a folder of its own below `folder`: another run, another folder."""

    def __init__(self, folder: Path, run: Federation) -> None:
        self._run = run
        self.folder = folder / fingerprint(run)[:16]
        self._about = {
            "method": run.method.name, "seed": run.seed, "rounds": run.rounds,
            "samples": [len(each.labels) for each in run.data],
        }  # fmt: skip

    def write(self, states: Sequence[GroupState], outcomes: Sequence[RoundOutcome]) -> None:
        """Save all groups after the last of the outcomes; the checkpoint before it goes when this one is complete."""
        target = self.folder / f"round-{len(outcomes):06d}"
        facts = {
            "format": _FORMAT,
            "about": self._about,
            "groups": [state["numbers"] for state in states],
            "outcomes": [_plain(outcome) for outcome in outcomes],
        }
        try:
            with whole_folder(target) as draft:
                for number, state in enumerate(states):
                    path = draft / f"group-{number:05d}.safetensors"
                    save_file({name: read_only(array).contiguous() for name, array in _arrays(state)}, path)
                    sync(path)
                write_synced(draft / "state.json", json.dumps(facts).encode())
            for old in self._found()[:-1]:
                shutil.rmtree(old)
        except (OSError, SafetensorError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise BadInput(
                f"checkpoint folder {str(self.folder)!r}: round {len(outcomes)} cannot be saved ({why}); free disk "
                "space and run the same command again: it continues from the previous round"
            ) from None

    def outcomes(self) -> list[RoundOutcome]:
        """Of the rounds that the newest checkpoint holds; empty without a checkpoint."""
        if not self._found():
            self._name_look_alikes()
            return []
        main = self._run.task.main
        return [_outcome(number, plain, main) for number, plain in enumerate(self._facts()["outcomes"])]

    def states(self, groups: Sequence[Sequence[int]]) -> Iterator[GroupState]:
        """What the newest checkpoint holds of these groups, however clients were grouped when it was written."""
        folder, facts = self._found()[-1], self._facts()
        place = {
            client: (number, row)
            for number, clients in enumerate(facts["groups"])
            for row, client in enumerate(clients)
        }
        with ExitStack() as stack:
            try:
                files = [stack.enter_context(safe_open(path, "numpy")) for path in sorted(folder.glob("*.safetensors"))]
            except Exception as error:  # the library has a type of its own for damaged files
                raise _damaged(folder, error) from None
            read = _memory if facts["format"] == _FORMAT else self._memory_of_0_1
            first = True  # the server is with the first group
            for clients in groups:
                along = [(client, files[place[client][0]], place[client][1]) for client in clients]
                yield {
                    "numbers": list(clients),
                    "parameters": np.stack([file.get_slice("parameters")[row : row + 1][0] for _, file, row in along]),
                    "memory": [read(client, file, row) for client, file, row in along],
                    "server": {name: array for file in files for name, array in _server(file)} if first else {},
                }
                first = False

    def _memory_of_0_1(self, client: int, file: Any, row: int) -> dict[str, Array]:
        """A client's memory from a checkpoint of version 0.1: moments and buffers by number, steps in one table."""
        names = [f"{name}.{client}" for name in ("first", "second")] + sorted(
            (key for key in file.keys() if key.startswith("private.") and key.endswith(f".{client}")),  # noqa: SIM118
            key=lambda key: int(key.split(".")[1]),
        )
        found = {name.removesuffix(f".{client}"): file.get_tensor(name) for name in names if name in set(file.keys())}
        if "first" in found:
            found["steps"] = file.get_tensor("steps")[row]
        model, device = self._run.models[0], torch.device("cpu")
        blank = new_client(client, self._run.data[0], torch.zeros(1, device=device), model, self._run.recipe)
        tensors = upgraded({name: torch.from_numpy(array) for name, array in found.items()}, blank)
        return {name: tensor.numpy() for name, tensor in tensors.items()}

    def _name_look_alikes(self) -> None:
        """Say that an unfinished run of the same method, seed and data is here, but is not continued."""
        for path in sorted(self.folder.parent.glob("*/round-[0-9]*/state.json")):
            with suppress(OSError, ValueError):  # what is no checkpoint of this version has nothing to say
                facts = json.loads(path.read_text(encoding="utf-8"))
                done = len(facts.get("outcomes", []))
                if facts.get("about") == self._about and done < self._run.rounds:
                    warnings.warn(
                        f"checkpoint folder {str(path.parents[1])!r} holds {done} of {self._run.rounds} rounds of "
                        f"{self._run.method.name}, seed {self._run.seed}, but with other settings, data or code: they "
                        "are left alone, and this run starts at the first round",
                        stacklevel=2,
                    )

    def _facts(self) -> dict[str, Any]:
        path = self._found()[-1] / "state.json"
        try:
            facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if facts["format"] not in (1, _FORMAT):
                raise ValueError("it was written by another version of FIRMA")
        except (OSError, ValueError, KeyError) as error:
            raise _damaged(path, error) from None
        return facts

    def _found(self) -> list[Path]:
        return sorted(self.folder.glob("round-[0-9]*"))


def fingerprint(run: Federation) -> str:
    """SHA-256 of all that decides a run, data included: a checkpoint is only ever used for the run that wrote it.

    What the model computes is part of it, and values that are not in its flat buffer; but not for the built-in mlp,
    which its shapes identify, so that checkpoints of earlier versions are found.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the engine says the same
        backend = backend_for(run, run.data)
    special = not is_mlp(run.models[0])
    facts: dict[str, Any] = {
        "method": {"name": run.method.name} | stable_columns(resolved(run.method)), "hyper": stable_settings(run.hyper),
        "rounds": run.rounds, "seed": run.seed, "order": list(run.order), "wire": run.wire,
        "path": backend.name,  # buffers have its layout; the key is as version 0.1 wrote it
        "pieces": [asdict(piece) for piece in run.models[0].layout().pieces],
    }  # fmt: skip
    facts |= _unusual(run)
    if special:
        facts["architecture"] = [architecture.digest(model) for model in run.models]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for model in run.models:
        digest.update(model.flat().numpy().tobytes())
        for _, tensor in (*model.named_frozen(), *model.named_buffers()) if special else ():
            digest.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    for each in run.data:
        for tensor in (each.inputs, each.labels, each.test_inputs, each.test_labels):
            digest.update(np.ascontiguousarray(tensor.numpy()).data)
    if run.drift is not None:
        run.drift.digest(digest.update)
    return digest.hexdigest()


def _unusual(run: Federation) -> dict[str, Any]:
    """What a run has beside the usual; the usual is left out, so that checkpoints of earlier versions are found."""
    found: dict[str, Any] = {
        "task": run.task.name if run.task.name != "classification" else None,
        "loss": identity(run.task.loss) if run.task.loss is not None else None,
        "participation": run.participation if run.participation != 1.0 else None,
        "edges": run.edges or None,
        "attack": asdict(run.attack) if run.attack is not None else None,
        "drift": run.drift.drift if run.drift is not None else None,
        "orders": [[start, list(order)] for start, order in run.orders] or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _arrays(state: GroupState) -> Iterator[tuple[str, Array]]:
    """A group's state as named arrays; what a client remembers is named by the client."""
    yield "parameters", state["parameters"]
    for client, memory in zip(state["numbers"], state["memory"], strict=True):
        for name, array in memory.items():
            yield f"{client}/{name}", array
    for name, array in state["server"].items():
        yield f"{_SERVER}{name}", array


def _server(file: Any) -> Iterator[tuple[str, Array]]:
    """What a star's server keeps, if it is in this file."""
    for name in file.keys():  # noqa: SIM118  # not a dict
        if name.startswith(_SERVER):
            yield name.removeprefix(_SERVER), file.get_tensor(name)


def _memory(client: int, file: Any, row: int) -> dict[str, Array]:
    """The inverse for one client; `row` is its place among the parameters."""
    del row
    prefix = f"{client}/"
    names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118  # not a dict
    return {name.removeprefix(prefix): file.get_tensor(name) for name in names}


def _plain(outcome: RoundOutcome) -> dict[str, Any]:
    metrics = {name: values.tolist() for name, values in outcome.metrics.items()}
    return {
        "accuracies": outcome.scores.tolist(), "bytes": outcome.sent_bytes, "messages": outcome.messages,
        "metrics": metrics,
    }  # fmt: skip


def _outcome(number: int, plain: dict[str, Any], main: str) -> RoundOutcome:
    metrics = {name: np.array(values) for name, values in plain.get("metrics", {}).items()}  # none in 0.2.0 and before
    return RoundOutcome(number, np.array(plain["accuracies"]), plain["bytes"], plain["messages"], metrics, main)


def _damaged(path: Path, error: Exception) -> BadInput:
    return BadInput(f"checkpoint {str(path)!r} cannot be used ({error}); delete it to start over")
