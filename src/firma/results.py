"""Results of runs: what they hold, how they are saved and loaded, and how they are compared."""

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from firma.data.standardise import Standardiser, standardiser_from_json
from firma.errors import BadInput
from firma.metrics import summarise
from firma.models.split_model import SplitModel

_FORMAT = 1
_STANDARDISERS = "standardisers.jsonl"  # one line for each client


@dataclass(frozen=True, eq=False)
class Result:
    """One run of one method with one seed.

    `history` is (rounds, clients) test accuracy after each round's mixing, `order` the ring, `parameters` the (N, P)
    final models, whose structure is `template`. If inputs were standardised, `standardisers` are the N clients' ways to
    do it, which new data have to go through: `result.model(i)` takes `result.standardisers[i].apply(x)`.
    """

    method: str
    seed: int
    config: Mapping[str, Any]
    history: NDArray[np.float64]
    order: tuple[int, ...]
    sent_bytes: tuple[int, ...]
    messages: tuple[int, ...]
    seconds: float
    backend: str = ""  # how clients were trained, and why so
    audit: Mapping[str, Any] | None = None
    parameters: Tensor | None = field(default=None, repr=False)
    template: SplitModel | None = field(default=None, repr=False)
    standardisers: tuple[Standardiser, ...] = field(default=(), repr=False)

    @property
    def metrics(self) -> dict[str, float | int | None]:
        """Every metric of the run."""
        return summarise(self.history, self.sent_bytes, self.messages)

    @property
    def path(self) -> str:
        """The old name of `backend`."""
        warnings.warn("Result.path is deprecated; use Result.backend", DeprecationWarning, stacklevel=2)
        return self.backend

    def model(self, client: int) -> SplitModel:
        """Extractor and head of one client, as trained."""
        if self.parameters is None or self.template is None:
            raise BadInput(
                "this result has no model: it was loaded from files, which contain its parameters but not its structure"
            )
        return self.template.filled(self.parameters[client])

    def as_dict(self) -> dict[str, Any]:
        """The run as plain data, ready for JSON."""
        document: dict[str, Any] = {
            "method": self.method,
            "seed": self.seed,
            "config": dict(self.config),
            "history": self.history.tolist(),
            "order": list(self.order),
            "bytes": list(self.sent_bytes),
            "messages": list(self.messages),
            "seconds": self.seconds,
            "backend": self.backend,
            "metrics": self.metrics,
        }
        return document | ({"audit": dict(self.audit)} if self.audit is not None else {})

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the results (result.json) and final parameters (parameters.safetensors) into a new folder."""
        target = Path(folder)
        if target.exists():
            raise BadInput(f"save: folder {str(target)!r} already exists; choose another folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as name:
            draft = Path(name) / "draft"
            draft.mkdir()
            (draft / "result.json").write_text(json.dumps({"format": _FORMAT} | self.as_dict(), indent=1))
            if self.standardisers:
                (draft / _STANDARDISERS).write_text("\n".join(each.as_json() for each in self.standardisers) + "\n")
            if self.parameters is not None:
                save_file(
                    {"parameters": self.parameters.detach().cpu().contiguous()},
                    draft / "parameters.safetensors",
                )
            shutil.move(draft, target)
        return target


def load(folder: str | os.PathLike[str]) -> Result:
    """Load a run that `Result.save` wrote: metrics and parameters, without the structure of the model."""
    source = Path(folder)
    try:
        document = json.loads((source / "result.json").read_text())
        values = from_dict(document)
    except (OSError, ValueError, KeyError) as error:
        raise BadInput(f"load: folder {str(source)!r} does not contain a saved result ({error})") from None
    lines = source / _STANDARDISERS
    if lines.exists():
        fitted = tuple(standardiser_from_json(line) for line in lines.read_text().splitlines())
        values = replace(values, standardisers=fitted)
    tensors = source / "parameters.safetensors"
    if not tensors.exists():
        return values
    return Result(**(vars(values) | {"parameters": load_file(tensors)["parameters"]}))


def from_dict(document: Mapping[str, Any]) -> Result:
    """The inverse of `Result.as_dict`."""
    return Result(
        method=document["method"],
        seed=document["seed"],
        config=document["config"],
        history=np.array(document["history"], dtype=np.float64),
        order=tuple(document["order"]),
        sent_bytes=tuple(document["bytes"]),
        messages=tuple(document["messages"]),
        seconds=document["seconds"],
        backend=document.get("backend", document.get("path", "")),  # "path" in files of version 0.1
        audit=document.get("audit"),
    )


@dataclass(frozen=True)
class Summary:
    """A metric over the seeds of one method: mean, and standard deviation if there is more than one seed."""

    mean: float | None
    deviation: float | None


def compare(results: Iterable[Result]) -> dict[str, dict[str, Summary]]:
    """Every metric of every method over its seeds; its mean is None if some seed has no value."""
    groups: dict[str, list[dict[str, float | int | None]]] = {}
    for result in results:
        groups.setdefault(result.method, []).append(result.metrics)
    return {
        method: {name: _summary([run[name] for run in runs]) for name in runs[0]} for method, runs in groups.items()
    }


def _summary(values: Sequence[float | int | None]) -> Summary:
    numbers = [float(value) for value in values if value is not None]
    if len(numbers) < len(values):
        return Summary(None, None)
    return Summary(mean(numbers), stdev(numbers) if len(numbers) > 1 else None)
