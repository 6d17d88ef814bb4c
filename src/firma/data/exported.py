"""A split as files that other frameworks read: per client its training data and the test data matched to them.

`firma-split.json` in the folder says what it is. The folder is itself a data set: `--dataset FOLDER` reads it back as
natural data, with the same rows in the same order.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from firma.atomic_files import whole_folder
from firma.data.dataset import MANIFEST, Array, Dataset, OnProgress, no_progress
from firma.data.image_folder import sorted_as_numbers
from firma.data.partition import Partition, client_inputs, input_form
from firma.data.standardise import is_standardised
from firma.data.user_files import LABEL_NAMES
from firma.errors import BadInput, unknown

Format = Literal["npz", "parquet", "hf"]
FORMATS: tuple[Format, ...] = get_args(Format)
_VERSION = 1


@dataclass(frozen=True)
class ClientArrays:
    """What one client holds: inputs as stored, labels by their names."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array


def export(
    dataset: Dataset, partition: Partition, names: tuple[str, ...], facts: Mapping[str, Any], folder: Path, form: str,
    on_progress: OnProgress = no_progress,
) -> None:  # fmt: skip
    """Write every client's rows and a description into a new folder; `facts` are added to the description."""
    if form not in FORMATS:
        raise unknown("--format", form, FORMATS)
    if folder.exists():
        raise BadInput(f"export: {str(folder)!r} already exists; choose another folder")
    if dataset.y_train.ndim != 1 or dataset.y_train.dtype.kind not in "iu":
        raise BadInput(f"export: the targets of {dataset.name} are not classes; only classes can be exported")
    write, _ = _writer(form)
    dtype, scale = input_form(dataset, partition)
    labels = dataset.labels or tuple(str(label) for label in range(dataset.classes))
    written = sorted_as_numbers(labels)
    manifest: dict[str, Any] = {
        "version": _VERSION, "firma": version("firma"), "format": form, **facts, "classes": list(labels),
        "shape": list(dataset.shape), "dtype": str(dtype), "scale": scale, "columns": list(dataset.columns),
        "label": next((name for name in LABEL_NAMES if name not in dataset.columns), "label of the row"),
        "rounds": dataset.rounds, "standardised": is_standardised(dataset, partition.standardise),
        "clients": [
            {"name": name, "path": _place(form, number), "train": len(train), "test": len(test)}
            for number, (name, train, test) in enumerate(zip(names, partition.train, partition.test, strict=True))
        ],
    }  # fmt: skip
    try:
        with whole_folder(folder) as draft:
            for number, client in enumerate(manifest["clients"]):
                on_progress("exporting", number, len(names))
                x, x_test = client_inputs(dataset, partition, number)
                y, y_test = dataset.y_train[partition.train[number]], dataset.y_test[partition.test[number]]
                write(ClientArrays(x, written[y], x_test, written[y_test]), draft / client["path"], manifest)
            (draft / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
            (draft / "README.md").write_text(_readme(manifest), encoding="utf-8")
    except OSError as error:
        raise BadInput(f"export: {str(folder)!r}: cannot write there ({error.strerror})") from None


def read_exported(folder: Path, detail: str | None) -> Dataset:
    """An exported split as natural data: every client has the rows that were exported, in the same order."""
    if detail is not None:
        raise BadInput(f"dataset = '{folder}:{detail}': an exported split takes nothing after a colon")
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["version"] != _VERSION:
            raise ValueError(f"version {manifest['version']} of the format, which this version of FIRMA does not know")
        _, read = _writer(manifest["format"])
        clients = [read(folder / client["path"], manifest) for client in manifest["clients"]]
        names, labels = [client["name"] for client in manifest["clients"]], tuple(manifest["classes"])
        for client, found in zip(manifest["clients"], clients, strict=True):
            if (len(found.y), len(found.y_test)) != (client["train"], client["test"]):
                raise ValueError(f"{client['path']} has {len(found.y)} and {len(found.y_test)} rows, not as many as "
                                 f"{MANIFEST} states")  # fmt: skip
        numbers = {str(label): number for number, label in enumerate(labels)}

        def joined(part: str) -> Array:
            return np.concatenate([getattr(client, part) for client in clients])

        y, y_test = ([numbers[str(label)] for label in joined(part).tolist()] for part in ("y", "y_test"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, BadInput):
            raise
        why = f"{error} is missing" if isinstance(error, KeyError) else error
        raise BadInput(f"dataset = {str(folder)!r}: not a valid exported split ({why})") from None
    return Dataset(
        name=folder.name,
        x_train=joined("x"),
        y_train=np.array(y, np.int64),
        x_test=joined("x_test"),
        y_test=np.array(y_test, np.int64),
        classes=len(labels),
        scale=manifest["scale"],
        clients=len(names),
        rounds=manifest["rounds"],
        labels=labels,
        client_train=np.repeat(np.arange(len(names)), [len(client.y) for client in clients]),
        client_test=np.repeat(np.arange(len(names)), [len(client.y_test) for client in clients]),
        client_names=tuple(names),
        columns=tuple(manifest["columns"]),
    )


def _place(form: str, client: int) -> str:
    return f"client-{client}.npz" if form == "npz" else f"client-{client}"


Write = Callable[[ClientArrays, Path, Mapping[str, Any]], None]
Read = Callable[[Path, Mapping[str, Any]], ClientArrays]


def _writer(form: str) -> tuple[Write, Read]:
    if form == "npz":
        return _write_npz, _read_npz
    return (_write_parquet, _read_parquet) if form == "parquet" else (_write_hf, _read_hf)


def _write_npz(client: ClientArrays, path: Path, manifest: Mapping[str, Any]) -> None:
    np.savez(path, x=client.x, y=client.y, x_test=client.x_test, y_test=client.y_test)


def _read_npz(path: Path, manifest: Mapping[str, Any]) -> ClientArrays:
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:  # numpy leaves a damaged file open
        return ClientArrays(file["x"], file["y"], file["x_test"], file["y_test"])


def _write_parquet(client: ClientArrays, path: Path, manifest: Mapping[str, Any]) -> None:
    """train.parquet and test.parquet: a column per feature if features have names, else one column x of flat lists."""
    arrow, parquet = _arrow()
    path.mkdir()
    for half, x, y in (("train", client.x, client.y), ("test", client.x_test, client.y_test)):
        flat = np.ascontiguousarray(x).reshape(len(x), -1)
        if manifest["columns"]:
            columns = {name: arrow.array(flat[:, place]) for place, name in enumerate(manifest["columns"])}
        else:
            columns = {"x": arrow.FixedSizeListArray.from_arrays(arrow.array(flat.ravel()), flat.shape[1])}
        parquet.write_table(arrow.table(columns | {manifest["label"]: arrow.array(y)}), path / f"{half}.parquet")


def _read_parquet(path: Path, manifest: Mapping[str, Any]) -> ClientArrays:
    arrow, parquet = _arrow()

    def half(name: str) -> tuple[Array, Array]:
        try:
            table = parquet.read_table(path / f"{name}.parquet")
        except arrow.ArrowException as error:
            raise ValueError(error) from None
        if manifest["columns"]:
            x = np.stack([table.column(each).to_numpy() for each in manifest["columns"]], axis=1)
        else:
            x = table.column("x").combine_chunks().flatten().to_numpy(zero_copy_only=False)
        shaped = x.astype(manifest["dtype"]).reshape(table.num_rows, *manifest["shape"])
        return shaped, np.array(table.column(manifest["label"]).to_pylist())

    return ClientArrays(*half("train"), *half("test"))


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise BadInput("--format parquet requires pyarrow; install it with: pip install 'firma[tables]'") from None
    return pyarrow, parquet


def _write_hf(client: ClientArrays, path: Path, manifest: Mapping[str, Any]) -> None:
    """A DatasetDict of train and test: images as images, named features as numbers, other inputs as arrays x."""
    datasets = _datasets()
    classes = datasets.ClassLabel(names=manifest["classes"])

    def half(x: Array, y: Array) -> Any:
        label = {manifest["label"]: [classes.str2int(str(each)) for each in y.tolist()]}
        kinds = {manifest["label"]: classes}
        if _is_image(manifest):
            from PIL import Image

            pixels = x if x.ndim == 3 else x.transpose(0, 2, 3, 1)
            columns: dict[str, Any] = {"image": [Image.fromarray(np.ascontiguousarray(each)) for each in pixels]}
            kinds |= {"image": datasets.Image()}
        elif manifest["columns"]:
            columns = {name: x[:, place] for place, name in enumerate(manifest["columns"])}
            kinds |= {name: datasets.Value(str(x.dtype)) for name in columns}
        else:
            columns = {"x": list(x)}
            kinds |= {"x": _array_kind(datasets, x)}
        return datasets.Dataset.from_dict(columns | label, features=datasets.Features(kinds))

    splits = {"train": half(client.x, client.y), "test": half(client.x_test, client.y_test)}
    silent = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()  # there would be two for each client
    try:
        datasets.DatasetDict(splits).save_to_disk(str(path))
    finally:
        if not silent:
            datasets.enable_progress_bars()


def _read_hf(path: Path, manifest: Mapping[str, Any]) -> ClientArrays:
    found = _datasets().load_from_disk(str(path))
    names = manifest["columns"] or (["image"] if _is_image(manifest) else ["x"])

    def half(name: str) -> tuple[Array, Array]:
        data = found[name]
        if _is_image(manifest):
            pixels = np.stack([np.asarray(row["image"]) for row in data])
            x = pixels if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)
        else:
            table = data.with_format("numpy", columns=names, dtype=np.dtype(manifest["dtype"]))[:]
            x = np.stack([table[each] for each in names], axis=1) if manifest["columns"] else table["x"]
        y = data.features[manifest["label"]].int2str(
            list(data.select_columns([manifest["label"]])[:][manifest["label"]])
        )
        return x.astype(manifest["dtype"]).reshape(len(data), *manifest["shape"]), np.array(y)

    return ClientArrays(*half("train"), *half("test"))


def _datasets() -> Any:
    try:
        import datasets
    except ImportError:
        raise BadInput("--format hf requires Hugging Face datasets; install it with: pip install 'firma[hf]'") from None
    return datasets


def _is_image(manifest: Mapping[str, Any]) -> bool:
    """Bytes of a grey or RGB image, which PNG holds exactly."""
    shape = manifest["shape"]
    return manifest["dtype"] == "uint8" and (len(shape) == 2 or (len(shape) == 3 and shape[0] == 3))


def _array_kind(datasets: Any, x: Array) -> Any:
    kinds = {2: datasets.Array2D, 3: datasets.Array3D, 4: datasets.Array4D, 5: datasets.Array5D}
    if x.ndim == 2:
        return datasets.Sequence(datasets.Value(str(x.dtype)), length=x.shape[1])
    return kinds[x.ndim - 1](shape=x.shape[1:], dtype=str(x.dtype))


def _readme(manifest: Mapping[str, Any]) -> str:
    """How to read the folder, for people who have it and not FIRMA."""
    form, shape, label = manifest["format"], tuple(manifest["shape"]), manifest["label"]
    factor = "" if manifest["scale"] == 1 else f" Multiply inputs by {manifest['scale']!r} to get what a model sees."
    ways = {
        "npz": """```python
import numpy as np, torch

client = np.load("client-0.npz")
x, y = torch.from_numpy(client["x"]), client["y"]           # to train
x_test, y_test = torch.from_numpy(client["x_test"]), client["y_test"]
```

A site of a real ring takes one of these files: `firma join ring.toml --data client-0.npz`.""",
        "parquet": f"""```python
import pandas

train = pandas.read_parquet("client-0/train.parquet")       # labels in column {label!r}
test = pandas.read_parquet("client-0/test.parquet")
```

With Hugging Face datasets: `load_dataset("parquet", data_files={{"train": "client-0/train.parquet", "test":
"client-0/test.parquet"}})`. A column `x` holds inputs of shape {shape} as flat lists.""",
        "hf": f"""```python
from datasets import load_from_disk

client = load_from_disk("client-0")                         # client["train"], client["test"]; labels in {label!r}
```

In a Flower `ClientApp`, the partition of a node is `load_from_disk(f"client-{{context.node_config['partition-id']}}")`,
with the transforms and `DataLoader` that you would use for a partition of `flwr-datasets`.""",
    }  # fmt: skip
    return f"""# {manifest["dataset"]}, {manifest["scenario"]}, {len(manifest["clients"])} clients

Written by FIRMA {manifest["firma"]}. Each client has training data and test data of its own, in the same class
proportions unless `firma-split.json` says otherwise; that file also lists clients, classes and settings. Inputs have
shape {shape} and dtype {manifest["dtype"]}.{factor}

{ways[form]}

With FIRMA the folder is a data set: `firma run --dataset FOLDER` gives every client exactly these rows.
"""
