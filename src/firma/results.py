"""Results of runs: what they hold, how they are saved and loaded, and as tables of pandas."""

import json
import math
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from firma.atomic_files import check_writable
from firma.data.catalogue import SIZES
from firma.data.standardise import Standardiser, standardiser_from_json
from firma.errors import BadInput
from firma.metrics import honest_metrics, summarise
from firma.models.build import SIZES_OF_MLP, ModelSource, build_model, model_spec, sized
from firma.models.probe import InputSpec
from firma.models.record import rebuild
from firma.models.reference import exists, importable_here, parsed, user_modules
from firma.models.split_model import SplitModel
from firma.run_facts import ABSENT, conditions, differing, tuning
from firma.tasks.task import MAIN, TaskName

if TYPE_CHECKING:
    from pandas import DataFrame

_FORMAT = 1
_STANDARDISERS = "standardisers.jsonl"  # one line for each client


@dataclass(frozen=True, eq=False)
class Result:
    """One run of one method with one seed.

    `history` is (rounds, clients) test accuracy after each round's mixing, or the task's main metric (`main`); `curves`
    are the other metrics by name, NaN where a client has none (results of a sweep keep the last round of them). `order`
    is the ring; if it may be ordered anew on the way, `orders` are the rounds (from 1) in which it was, and how. The
    final models are `parameters` (N, P), whose structure is `template`; `buffers`, those of each client by name, such
    as BatchNorm's running statistics; and `frozen`, parameters that are not trained, by name: one for all clients, or
    one for each. If inputs were standardised, `standardisers` are the N clients' ways to do it, which new data have to
    go through: `result.model(i)` takes `result.standardisers[i].apply(x)`.
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
    buffers: Sequence[Mapping[str, Tensor]] = field(default=(), repr=False)
    frozen: Sequence[Mapping[str, Tensor]] = field(default=(), repr=False)
    standardisers: tuple[Standardiser, ...] = field(default=(), repr=False)
    curves: Mapping[str, NDArray[np.float64]] = field(default_factory=dict, repr=False)
    orders: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @property
    def task(self) -> TaskName:
        """classification, multi-label or regression."""
        name: TaskName = self.config.get("task", "classification")  # which is not recorded
        return name

    @property
    def main(self) -> str:
        """The name of the metric in `history`: accuracy, f1_micro or r2."""
        return MAIN[self.task]

    @property
    def metrics(self) -> dict[str, float | int | None]:
        """Every metric of the run."""
        found = summarise(self.history, self.sent_bytes, self.messages, self.main, self.curves)
        return found | honest_metrics(self.history, self.config.get("dishonest", ()), self.main)

    @property
    def path(self) -> str:
        """The old name of `backend`."""
        warnings.warn("Result.path is deprecated; use Result.backend", DeprecationWarning, stacklevel=2)
        return self.backend

    def model(self, client: int) -> SplitModel:
        """Extractor and head of one client, as trained, with its buffers.

        The structure of a loaded model is built again by the code that made it, on first use.
        """
        if self.parameters is None:
            raise BadInput(
                "this result has no models: a sweep and firma run --no-save-models keep metrics only; save a result of "
                "firma.run with result.save(folder), or use firma run --out"
            )
        if "flower" in self.config:
            raise BadInput(
                "this result is of a Flower app, whose model only the app knows; firma.flower.arrays(result, client) "
                "returns its trained arrays"
            )
        clients = len(self.parameters)
        if client not in range(clients):  # neither text nor -1, which torch would take as the last client
            raise BadInput(f"client = {client!r}: must be an integer from 0 to {clients - 1}")
        client = int(client)
        frozen = self.frozen[client % len(self.frozen)] if self.frozen else {}
        size = self._structure.layout().size
        if size != self.parameters.shape[1]:
            raise BadInput(
                f"the result holds {self.parameters.shape[1]:,} parameters per client, but its model has {size:,}; it "
                "was trained with another model: pass that one, firma.load(folder, model=...)"
            )
        return self._structure.filled(self.parameters[client], self.buffers[client] if self.buffers else {}, frozen)

    @cached_property
    def _structure(self) -> SplitModel:
        """The template, or a model of the recorded structure."""
        return self.template if self.template is not None else rebuilt(self.config)

    def _tensors(self) -> dict[str, Tensor]:
        """The final models as named tensors."""
        found = {} if self.parameters is None else {"parameters": self.parameters}
        for number, buffers in enumerate(self.buffers):
            found |= {f"client.{number}.buffer.{name}": tensor for name, tensor in buffers.items()}
        for number, frozen in enumerate(self.frozen):
            prefix = f"client.{number}.frozen" if len(self.frozen) > 1 else "frozen"
            found |= {f"{prefix}.{name}": tensor for name, tensor in frozen.items()}
        return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in found.items()}

    def to_frame(self) -> "DataFrame":
        """One row per round, client and metric, as a pandas DataFrame: see `firma.to_frame`."""
        return to_frame([self])

    def as_dict(self) -> dict[str, Any]:
        """The run as plain data, ready for JSON."""
        document: dict[str, Any] = {
            "method": self.method,
            "seed": self.seed,
            "config": dict(self.config),
            "history": plain(self.history),
            "curves": {name: plain(values) for name, values in self.curves.items()},
            "order": list(self.order),
            "bytes": list(self.sent_bytes),
            "messages": list(self.messages),
            "seconds": self.seconds,
            "backend": self.backend,
            "metrics": self.metrics,
        }
        if self.orders:
            document["orders"] = [{"round": number, "order": list(order)} for number, order in self.orders]
        return document | ({"audit": dict(self.audit)} if self.audit is not None else {})

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the results (result.json) and the final models (parameters.safetensors) into a new folder.

        Beside `parameters`, the file holds buffers as client.3.buffer.extractor.1.running_mean, and frozen parameters
        as frozen.extractor.0.weight, or client.3.frozen.extractor.0.weight where each client has its own.
        """
        target = Path(folder)
        if target.exists():
            raise BadInput(f"save: folder {str(target)!r} already exists; choose another folder")
        check_writable(target.parent, "save")
        with tempfile.TemporaryDirectory(dir=target.parent) as name:
            draft = Path(name) / "draft"
            draft.mkdir()
            (draft / "result.json").write_text(json.dumps({"format": _FORMAT} | self.as_dict(), indent=1))
            if self.standardisers:
                (draft / _STANDARDISERS).write_text("\n".join(each.as_json() for each in self.standardisers) + "\n")
            if self.parameters is not None:
                save_file(self._tensors(), draft / "parameters.safetensors")
            shutil.move(draft, target)
        return target


def _read_tensors(path: Path) -> dict[str, Any]:
    """The inverse of `Result._tensors`, as fields of a result; files of earlier versions hold parameters alone."""
    stored = load_file(path)
    found: dict[str, dict[int, dict[str, Tensor]]] = {"buffer": {}, "frozen": {}}
    for name, tensor in stored.items():
        match name.split(".", 3):
            case ["client", number, ("buffer" | "frozen") as kind, own]:
                found[kind].setdefault(int(number), {})[own] = tensor
            case ["frozen", *_]:
                found["frozen"].setdefault(0, {})[name.removeprefix("frozen.")] = tensor
    buffers, frozen = (tuple(each[number] for number in sorted(each)) for each in found.values())
    return {"parameters": stored["parameters"], "buffers": buffers, "frozen": frozen}


def load_saved(folder: str | os.PathLike[str]) -> Result:
    """Load a run that `Result.save` wrote: metrics and parameters; the structure of the model is built when needed."""
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
    return replace(values, **_read_tensors(tensors))


def rebuilt(config: Mapping[str, Any], model: ModelSource | None = None) -> SplitModel:
    """A model of the structure that a result's configuration records, or of `model`, the code that the user names.

    A result may come from others, and code that is installed can do anything when it is called: it is run only if the
    user has named it too. The user's own files are compared with the recorded ones, see `models.record.rebuild`.
    """
    recorded = config.get("model")
    if not isinstance(recorded, Mapping):
        return _unrecorded(config, model)
    if model is not None and model != recorded["name"]:
        built = isinstance(model, tuple | list | SplitModel | nn.Module)
        head = None if isinstance(model, tuple | list | SplitModel) else recorded["head"]
        return rebuild(recorded, model_spec(model, {} if built else recorded["settings"], head))
    named = parsed(recorded["name"]) if recorded["kind"] == "reference" else None
    if named is not None and model is None:
        with importable_here():
            installed = exists(named.top) and not user_modules([named.module])
        if installed:
            raise BadInput(
                f"the model of this result is built by {named}, installed code that would be called with the recorded "
                f"parameters {recorded['settings']}; if you trust the result, pass --model {named}, or "
                f"model={str(named)!r} in Python"
            )
    return rebuild(recorded)


def _unrecorded(config: Mapping[str, Any], model: ModelSource | None) -> SplitModel:
    """The model of a result of version 0.2 or earlier, which recorded the sizes of the built-in mlp only."""
    size, hyper = SIZES.get(str(config.get("dataset"))), config.get("hyper", {})
    if size is None:
        raise BadInput(
            "this result was made by an earlier version of FIRMA, which did not record the model's structure or the "
            "shape of its inputs; run it again to use its models"
        )
    scale = 1 / 16 if config["dataset"] == "digits" else 1 / 255
    inputs = InputSpec(size.shape, np.dtype(np.uint8), scale)
    chosen = model if model is not None else "mlp"
    spec = model_spec(chosen)
    known = {name: hyper[name] for name in SIZES_OF_MLP if name in hyper}
    if chosen == "mlp" and len(known) == len(SIZES_OF_MLP):
        spec = sized(spec, known["hidden"], known["embedding"])
    return build_model(spec, inputs, size.classes, 0, 0)


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
        curves={name: np.array(rows, dtype=np.float64) for name, rows in document.get("curves", {}).items()},
        orders=tuple((each["round"], tuple(each["order"])) for each in document.get("orders", ())),
    )


def plain(values: NDArray[np.float64]) -> list[list[float | None]]:
    """(rounds, clients) numbers as lists for JSON, None for NaN and infinity; as an array, that is NaN again."""
    return [[value if math.isfinite(value) else None for value in row] for row in values.tolist()]


def checked(results: object, function: str) -> list[Result]:
    """The results that a function was given, or an error that says what it was given instead."""
    if isinstance(results, Result):
        raise BadInput(f"{function}: takes a list of results, not a single one; pass [result]")
    if isinstance(results, str | bytes | Mapping) or not isinstance(results, Iterable):
        raise BadInput(f"{function}: takes a list of results, not {type(results).__name__}")
    found = list(results)
    for each in found:
        if not isinstance(each, Result):
            raise BadInput(f"{function}: takes results of firma.run, firma.run_all or firma.load, not {_shown(each)}")
    if not found:
        raise BadInput(f"{function}: takes at least one result, and there is none")
    return found


def to_frame(results: Iterable[Result], summary: bool = False) -> "DataFrame":
    """Results as a pandas DataFrame, which requires pandas.

    One row per round, client and metric: columns method, seed, round (from 1), client, metric, value. With `summary`,
    one row per run: columns method, seed, one per metric, and seconds. In front stand the options in which the
    results differ, such as dataset or rate.
    """
    try:
        import pandas
    except ImportError:
        raise BadInput("to_frame: requires pandas; install it with: pip install pandas") from None
    runs = checked(results, "to_frame")
    facts = [conditions(run.config) | tuning(run.config) for run in runs]
    differ = differing(facts)
    leads = [
        {name: known.get(name, ABSENT) for name in differ} | {"method": run.method, "seed": run.seed}
        for run, known in zip(runs, facts, strict=True)
    ]
    if summary:
        return pandas.DataFrame(
            [lead | run.metrics | {"seconds": run.seconds} for run, lead in zip(runs, leads, strict=True)]
        )
    frames = []
    for run, lead in zip(runs, leads, strict=True):
        for metric, values in _per_client(run).items():
            rounds, clients = np.indices(values.shape)
            columns = {
                "round": rounds.ravel() + 1,
                "client": clients.ravel(),
                "metric": metric,
                "value": values.ravel(),
            }
            frames.append(pandas.DataFrame(lead | columns))
    return pandas.concat(frames, ignore_index=True)


def _per_client(run: Result) -> dict[str, NDArray[np.float64]]:
    """(rounds, clients) values by the name of their metric."""
    whole = {name: values for name, values in run.curves.items() if len(values) == len(run.history)}
    return {run.main: run.history} | whole


def _shown(value: object) -> str:
    return f"the text {value!r}" if isinstance(value, str) else type(value).__name__
