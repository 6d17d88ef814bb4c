"""Trained models after a run: loaded from a result, a folder of `firma run --out` or a site's state, and used."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firma.algorithms.catalogue import algorithm_of
from firma.data.dataset import Array
from firma.data.new_rows import Wanted, new_rows, split_source
from firma.data.standardise import Standardiser, standardiser_from_json
from firma.errors import BadInput, unknown
from firma.models.build import ModelSource
from firma.models.probe import InputSpec
from firma.models.split_model import SplitModel
from firma.results import Result, load_saved, rebuilt
from firma.tasks.scores import scores
from firma.tasks.task import Task, TaskName
from firma.training.algorithm import PERSONAL
from firma.training.local_step import BUFFER, as_tensor, model_inputs
from firma.training.private_parameters import with_private

MODELS_FOLDER = "models"  # of `firma run --out`: one folder for each method and seed, as `Result.save` writes it
RING_COPY, SITE_FACTS = "ring.toml", "site.json"  # in a site's state folder, see peer/runtime/node.py
_CHUNK = 1024  # samples per forward pass


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """One client's model with what it takes to use it.

    `inputs` is one sample as it is stored: `shape`, `dtype`, and `scale`, by which bytes are multiplied. `columns` name
    the features of a table in their order. `labels` are those of the training data, as the user wrote them; for
    regression, the names of the numbers that are predicted.
    """

    client: str
    model: SplitModel
    inputs: InputSpec
    labels: tuple[str, ...]
    task: TaskName = "classification"
    standardiser: Standardiser | None = None
    columns: tuple[str, ...] = ()

    def outputs(self, x: Array) -> Tensor:
        """(n, K) outputs of the model in evaluation mode, for inputs (n, …) as stored."""
        stored = self._checked(np.asarray(x))
        extractor, head = self.model.extractor.eval(), self.model.head.eval()
        found = []
        with torch.no_grad():
            for start in range(0, len(stored), _CHUNK):
                batch = as_tensor(self._fed(stored[start : start + _CHUNK]), self.model.inputs)
                found.append(head(extractor(model_inputs(batch, self._scale, self.model.inputs))))
        return torch.cat(found) if found else torch.empty(0, len(self.labels))

    def probabilities(self, x: Array) -> NDArray[np.float32]:
        """(n, K): of the classes, which sum to 1, or of each label. A regression model has none."""
        return self.as_probabilities(self.outputs(x))

    def predict(self, x: Array) -> Array:
        """Labels (n,) as text; for multi-label (n, K) of 0 and 1; for regression (n, K) numbers."""
        return self.answers(self.outputs(x))

    def as_probabilities(self, outputs: Tensor) -> NDArray[np.float32]:
        """Probabilities (n, K) from outputs (n, K)."""
        if self.task == "regression":
            raise BadInput("a regression model predicts numbers and has no probabilities")
        values = outputs.softmax(1) if self.task == "classification" else outputs.sigmoid()
        return values.numpy()

    def answers(self, outputs: Tensor) -> Array:
        """What `predict` returns, from outputs (n, K)."""
        if self.task == "classification":
            return np.asarray(np.array(self.labels)[outputs.argmax(1).numpy()])
        values = (outputs > 0).long() if self.task == "multi-label" else outputs
        return np.asarray(values.numpy())

    def metrics(self, x: Array, y: Array) -> dict[str, float]:
        """The metrics of the task for inputs (n, …) and targets as the user writes them: see `targets`."""
        return scores(Task(self.task), self.outputs(x), torch.from_numpy(self.targets(y)))

    def targets(self, y: Array) -> Array:
        """Labels (n,), as text or integers, by their numbers; other targets (n, K) as float32."""
        given = np.asarray(y)
        if self.task != "classification":
            try:
                numbers = given.reshape(len(given), -1).astype(np.float32)
            except ValueError:
                raise BadInput(f"y contains {given.ravel()[0]!r}; for {self.task} it must be numbers") from None
            if numbers.shape[1] != len(self.labels):
                raise BadInput(f"y has {numbers.shape[1]} columns, but the model predicts {', '.join(self.labels)}")
            return numbers
        words = _as_written(given)
        places = {label: number for number, label in enumerate(self.labels)}
        strange = sorted({word for word in words if word not in places})
        if strange:
            raise BadInput(
                f"label {strange[0]!r} is not one that the model was trained on: {_listed(self.labels)}"
                + (f" ({len(strange)} labels are unknown)" if len(strange) > 1 else "")
            )
        return np.array([places[word] for word in words], dtype=np.int64)

    @property
    def facts(self) -> dict[str, Any]:
        """What somebody who uses an exported model must know, ready for JSON."""
        return {
            "client": self.client,
            "task": self.task,
            "labels": list(self.labels),
            "columns": list(self.columns),
            "inputs": {
                "shape": list(self.inputs.shape),
                "dtype": str(self.inputs.dtype),
                "scale": self.inputs.scale,
                "fed_as": self.model.inputs,
            },
            "standardiser": None if self.standardiser is None else json.loads(self.standardiser.as_json()),
        }

    @property
    def _scale(self) -> float:
        return self.inputs.scale if self.standardiser is None else 1.0

    def _fed(self, x: Array) -> Array:
        return x if self.standardiser is None else self.standardiser.apply(x)

    def _checked(self, x: Array) -> Array:
        """Inputs with the dtype of the training data; refuses what means something else."""
        shape, dtype = self.inputs.shape, self.inputs.dtype
        if x.shape[1:] != shape:
            flat = "; the rows of a table are flat" if x.ndim == 2 and len(shape) > 1 else ""
            raise BadInput(f"one input has shape {x.shape[1:]}, but the model was trained on {shape}{flat}")
        if x.dtype.kind not in "fiub":
            raise BadInput(f"inputs have dtype {x.dtype}; must be numbers")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            rows = np.flatnonzero(~np.isfinite(x).all(axis=tuple(range(1, x.ndim))))
            raise BadInput(f"inputs contain NaN or infinity in {len(rows)} rows, first in row {rows[0]}")
        if x.dtype == dtype or not x.size:
            return x
        if (dtype == np.uint8) != (x.dtype == np.uint8) and self.inputs.scale != 1:
            raise _other_dtype(x.dtype, dtype)
        if dtype == np.uint8 or self.model.inputs == "int64":
            whole = x.astype(dtype)
            if not np.array_equal(whole, x):
                raise _other_dtype(x.dtype, dtype)
            return whole
        if x.dtype == np.uint8:
            raise _other_dtype(x.dtype, dtype)
        return x


def load(folder: str | os.PathLike[str], model: ModelSource | None = None) -> Result:
    """Load a run: a folder of `Result.save`, of `firma run --out` with one run, or a site's state (`firma join`).

    `result.model(client)` builds the structure of the model again and fills it. `model` is the code for a model that
    was passed as Python objects or is now called otherwise, or the name of code that this computer agrees to run.
    """
    return _chosen(Path(folder), None, None, model)


def load_model(
    folder: str | os.PathLike[str],
    client: int | str | None = None,
    method: str | None = None,
    seed: int | None = None,
    model: ModelSource | None = None,
) -> TrainedModel:
    """The trained model of one client, by number or name, from any folder that `load` reads.

    `method` and `seed` choose a run of `firma run --out`; `client` may be left out if there is only one.
    """
    result = _chosen(Path(folder), method, seed, model)
    return trained(result, client_number(result, client))


def load_models(
    folder: str | os.PathLike[str], method: str | None = None, seed: int | None = None, model: ModelSource | None = None
) -> Iterator[TrainedModel]:
    """The trained models of all clients, one at a time."""
    result = _chosen(Path(folder), method, seed, model)
    for client in range(len(_names(result))):
        yield trained(result, client)


def trained(result: Result, client: int) -> TrainedModel:
    """The model of one client of a result, with what it takes to use it."""
    model, config = result.model(client), result.config
    recorded = config.get("model")
    if isinstance(recorded, Mapping):
        shape, dtype, scale = (recorded["inputs"][name] for name in ("shape", "dtype", "scale"))
        inputs, outputs = InputSpec(tuple(shape), np.dtype(dtype), scale), recorded["outputs"]
    else:  # a result of an earlier version, which `rebuilt` has found to be of a public data set
        from firma.data.catalogue import SIZES

        size = SIZES[config["dataset"]]
        scale = 1 / 16 if config["dataset"] == "digits" else 1 / 255
        inputs, outputs = InputSpec(size.shape, np.dtype(np.uint8), scale), size.classes
    standardiser = result.standardisers[client] if result.standardisers else None
    if standardiser is not None:  # what was recorded is what the model sees, after it
        stored = np.dtype(np.float32 if standardiser.scale == 1 else np.uint8)
        inputs = replace(inputs, dtype=stored, scale=standardiser.scale)
    labels = tuple(config.get("labels") or map(str, range(outputs)))
    task: TaskName = config.get("task", "classification")
    name = _names(result)[client]
    return TrainedModel(name, model, inputs, labels, task, standardiser, tuple(config.get("features", ())))


def client_number(result: Result, client: int | str | None) -> int:
    """The number of the client that was named, by number or name; it may be left out if there is only one."""
    names = _names(result)
    if client is None:
        if len(names) > 1:
            raise BadInput(
                f"the folder holds the models of {len(names)} clients; choose one: --client {_listed(names)}"
            )
        return 0
    if isinstance(client, str):
        if client in names:
            return names.index(client)
        if not client.isdigit():
            raise unknown("client", client, names)
    number = int(client)
    if not 0 <= number < len(names):
        raise BadInput(f"client = {client}: must be between 0 and {len(names) - 1}")
    return number


def predictions(model: TrainedModel, source: str) -> Iterator[tuple[Tensor, tuple[str, ...]]]:
    """Outputs (n, K) for a file's rows, batch by batch, and the names of columns or arrays that are left out."""
    path, named = split_source(source)
    targets = named or (model.labels if model.task != "classification" else ())
    for rows in new_rows(path, Wanted(model.columns, targets)):
        yield model.outputs(rows.x), rows.left_out


def evaluation(models: Iterator[TrainedModel], source: str) -> Iterator[tuple[str, int, dict[str, float]]]:
    """For each model its client, the number of samples and the metrics of its task on a file with targets."""
    path, named = split_source(source)
    kept: dict[tuple[Any, ...], list[tuple[Array, Array]]] = {}
    for model in models:
        targets = named or (model.labels if model.task != "classification" else ())
        wanted = Wanted(model.columns, targets, labelled=True)
        if (wanted,) not in kept:  # clients of one run have the same columns: the file is read once
            kept[(wanted,)] = [(rows.x, rows.y) for rows in new_rows(path, wanted) if rows.y is not None]
        parts = kept[(wanted,)]
        numbers = np.concatenate([model.targets(y) for _, y in parts])
        outputs = torch.cat([model.outputs(x) for x, _ in parts])
        yield model.client, len(numbers), scores(Task(model.task), outputs, torch.from_numpy(numbers))


def save_models(results: Sequence[Result], folder: Path) -> list[Path]:
    """Save the results of one `firma run --out`, each in a folder of its own within `folder`, which is replaced."""
    from firma.atomic_files import whole_folder

    names: list[str] = []
    with whole_folder(folder) as draft:
        for result in results:
            name = f"{_file_name(result.method)}-{result.seed}"
            while name in names:  # two methods whose names differ in signs only
                name += "_"
            names.append(name)
            result.save(draft / name)
    return [folder / name for name in names]


def size_of(result: Result) -> int:
    """Bytes of the models of a result on disk."""
    own = [tensor for each in (*result.buffers, *result.frozen) for tensor in each.values()]
    whole = [*own, *([] if result.parameters is None else [result.parameters])]
    return sum(tensor.numel() * tensor.element_size() for tensor in whole)


def _chosen(folder: Path, method: str | None, seed: int | None, model: ModelSource | None) -> Result:
    """The run in a folder, or the one of several that was asked for."""
    if (folder / "results.json").is_file() or (folder / MODELS_FOLDER).is_dir():
        return _coded(_of_command(folder, method, seed), model)
    if any(folder.glob("round-[0-9]*")) or (folder / SITE_FACTS).is_file():
        result = _of_site(folder, model)
    elif (folder / "result.json").is_file():
        result = _coded(load_saved(folder), model)
    else:
        what = "does not contain a saved result" if folder.is_dir() else "does not exist"
        raise BadInput(
            f"load: folder {str(folder)!r} {what}; pass a folder of firma run --out, of result.save, or the state "
            "folder of firma join"
        )
    for name, asked, held in (("method", method, result.method), ("seed", seed, result.seed)):
        if asked is not None and asked != held:
            raise BadInput(f"{name} = {asked}: the folder {str(folder)!r} contains a run with {name} {held}")
    return result


def _coded(result: Result, model: ModelSource | None) -> Result:
    return result if model is None else replace(result, template=rebuilt(result.config, model))


def _of_command(folder: Path, method: str | None, seed: int | None) -> Result:
    """One run of `firma run --out`."""
    places = sorted(each.parent for each in (folder / MODELS_FOLDER).glob("*/result.json"))
    if not places:
        raise BadInput(
            f"folder {str(folder)!r} holds results without models; repeat the run with firma run --save-models, or "
            "save a result of firma.run with result.save(folder)"
        )
    found: dict[tuple[str, int], Path] = {}
    for place in places:
        facts = json.loads((place / "result.json").read_text(encoding="utf-8"))
        found[facts["method"], facts["seed"]] = place
    methods = list(dict.fromkeys(name for name, _ in found))
    if method is None and len(methods) > 1:
        raise BadInput(f"folder {str(folder)!r} holds several methods; choose one: --method {_listed(methods)}")
    name = method if method is not None else methods[0]
    if name not in methods:
        raise unknown("method", name, methods)
    seeds = [str(number) for each, number in found if each == name]
    if seed is None and len(seeds) > 1:
        raise BadInput(f"folder {str(folder)!r} holds several seeds of {name}; choose one: --seed {_listed(seeds)}")
    number = seed if seed is not None else int(seeds[0])
    if (name, number) not in found:
        raise BadInput(f"seed = {number}: folder {str(folder)!r} holds {name} with seeds {_listed(seeds)}")
    return load_saved(found[name, number])


def _of_site(folder: Path, model: ModelSource | None) -> Result:
    """A site's run: its newest completed round. The code of its model is compared with the ring file's hashes."""
    if find_spec("cryptography") is None:
        raise BadInput(f"{str(folder)!r} is the state of a site, which requires: pip install 'firma[peer]'")
    from firma.peer.agreed_model import agreed_model, agreed_spec, check_consent
    from firma.peer.ring_file import read_ring
    from firma.peer.runtime import checkpoint

    missing = [name for name in (RING_COPY, SITE_FACTS) if not (folder / name).is_file()]
    if missing:
        raise BadInput(
            f"state folder {str(folder)!r} lacks {' and '.join(missing)}, which firma join writes; it was made by an "
            "earlier version: start firma join once with --resume to add them"
        )
    if not checkpoint.latest(folder):
        raise BadInput(f"state folder {str(folder)!r} holds no completed round yet")
    ring = read_ring(folder / RING_COPY)
    if ring.flower is not None:
        raise BadInput(
            f"{str(folder)!r} is the state of a site that trains the Flower app {ring.flower.app}, whose model "
            "only the app knows; firma.peer.flower_site.trained(folder) returns its trained arrays"
        )
    try:
        facts = json.loads((folder / SITE_FACTS).read_text(encoding="utf-8"))
        inputs = InputSpec(tuple(ring.task.shape), np.dtype(facts["dtype"]), float(facts["scale"]))
        place, columns = ring.names.index(facts["site"]), list(facts["columns"])
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{str(folder / SITE_FACTS)!r} is damaged ({error})") from None
    saved = checkpoint.read(folder, checkpoint.latest(folder), ring.digest)
    if model is not None and not isinstance(model, str):
        raise BadInput("model: must be the name that the ring file has, such as mypackage.module:build")
    check_consent(ring.task, model)
    statistics = folder / "standardiser.json"
    fitted = (standardiser_from_json(statistics.read_text(encoding="utf-8")),) if ring.standardise else ()
    fed = InputSpec(inputs.shape, np.dtype(np.float32)) if fitted else inputs
    template = agreed_model(ring, agreed_spec(ring), fed, place if ring.hyper.initial == "per-client" else 0)
    template = with_private(template, ring.row, algorithm_of(ring.row, ring.hyper))  # as its parameters are saved
    own = f"{PERSONAL}.{BUFFER}" if PERSONAL in saved.tensors else BUFFER  # of the model that was tested
    buffers = {name.removeprefix(own): each for name, each in saved.tensors.items() if name.startswith(own)}
    parameters = saved.tensors.get(PERSONAL, saved.tensors["parameters"])
    config = {
        "dataset": ring.federation,
        "clients": 1,
        "client_names": [facts["site"]],
        "rounds": saved.rounds,
        "preset": ring.preset,
        "set": dict(ring.set),
        "hyper": ring.hyper.model_dump(),
        "labels": list(ring.task.labels),
        "features": columns or list(ring.task.columns),
        "model": {
            "name": ring.task.model,
            "inputs": {"shape": list(inputs.shape), "dtype": str(inputs.dtype), "scale": inputs.scale},
            "outputs": ring.task.outputs,
        },
    } | ({} if ring.task.kind == "classification" else {"task": ring.task.kind})
    history = np.array([[np.nan if each is None else each] for each in saved.history], dtype=np.float64)
    return Result(
        ring.method, ring.seed, config, history.reshape(-1, 1), saved.order, (), (), 0.0, "a site of a ring",
        parameters=parameters[None], template=template, buffers=(buffers,) if buffers else (),
        frozen=(dict(template.named_frozen()),), standardisers=fitted,
    )  # fmt: skip


def _names(result: Result) -> list[str]:
    """Clients by name, or by number if they have none."""
    clients = len(result.parameters) if result.parameters is not None else result.history.shape[1]
    named = list(result.config.get("client_names", ()))
    return named if len(named) == clients else [str(number) for number in range(clients)]


def _as_written(values: Array) -> list[str]:
    """Labels as text, as the reader of training data names them: 3.0 is 3."""
    if values.dtype.kind == "f" and len(values) and (values == np.floor(values)).all():
        values = values.astype(np.int64)
    return [str(value) for value in values.reshape(len(values)).tolist()]


def _other_dtype(found: "np.dtype[Any]", trained_on: "np.dtype[Any]") -> BadInput:
    return BadInput(
        f"inputs are {found}, but the model was trained on {trained_on}; save them as {trained_on}, with values of the "
        "same meaning"
    )


def _file_name(method: str) -> str:
    """A method's name as part of a file name: `fibfl:gate=yes` has a colon."""
    return "".join(sign if sign.isalnum() or sign in "+-_.=," else "_" for sign in method)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f", … ({len(names)} in all)" if len(names) > 10 else "")
