"""Calling a Flower `ClientApp` outside of Flower's runtime: the messages it is sent, and what its replies hold.

Both kinds of app are called by messages of Flower's own form. An app with functions `@app.train()` and
`@app.evaluate()` gets records "arrays" and "config"; an app with a `client_fn` gets those that Flower turns into
`fit(parameters, config)` and `evaluate(parameters, config)`.
"""

import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from firma.errors import BadInput
from firma.flower.description import Scalar
from firma.flower.named_arrays import Array, listed

Kind = Literal["train", "evaluate", "get_parameters"]
_LEGACY = {
    "train": ("fitins", "fitres"),
    "evaluate": ("evaluateins", "evaluateres"),
    "get_parameters": ("getparametersins", "getparametersres"),
}
_TTL = 365 * 24 * 3600.0  # seconds for a reply, which never travels; Flower's default is half a day
INSTALL = (
    "Flower apps require flwr, which is not installed here; install firma[flower] in an environment of its own, for "
    "Flower needs older versions of packages such as protobuf: python -m venv .venv-flower && "
    ".venv-flower/bin/pip install '.[flower]', in a clone of the repository"
)


@dataclass(frozen=True)
class Address:
    """Who is asked in which round: what an app reads from its context and its messages."""

    client: int
    round: int  # from 1, as Flower counts; 0: not in a round
    node_config: Mapping[str, Scalar]
    run_config: Mapping[str, Scalar]


@dataclass(frozen=True)
class Reply:
    """What an app answered: arrays in its order, its metrics, and how many samples are behind them."""

    names: tuple[str, ...] | None  # None: its arrays have no names
    arrays: tuple[Array, ...]
    metrics: Mapping[str, Any]
    samples: int
    state: Tensor  # (n,) bytes of context.state


def flower() -> Any:
    """The module `flwr.app`, or a sentence that says how to install it."""
    try:
        return import_module("flwr.app")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "flwr":
            raise
        raise BadInput(INSTALL) from None


def is_legacy(app: Any) -> bool:
    """Whether an app was made from a client_fn."""
    return getattr(app, "_call", None) is not None


def ask(
    app: Any, kind: Kind, arrays: Mapping[str, Array], config: Mapping[str, Scalar], address: Address, state: Tensor
) -> Reply:
    """Send an app one message and read its reply; an error of the app's own is one sentence that says where it was."""
    flwr = flower()
    context = flwr.Context(
        run_id=1, node_id=address.client + 1, node_config=dict(address.node_config), state=_state(state),
        run_config=dict(address.run_config),
    )  # fmt: skip
    metadata = flwr.Metadata(
        run_id=1, message_id="", src_node_id=0, dst_node_id=address.client + 1, reply_to_message_id="",
        group_id=str(address.round), created_at=time.time(), ttl=_TTL, message_type=kind,
    )  # fmt: skip
    message = flwr.Message(content=_content(flwr, app, kind, arrays, config, address.round), metadata=metadata)
    where = f"flower app: {kind} of client {address.client}"
    try:
        reply = app(message, context)
    except BadInput:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise BadInput(
            f"{where} failed: {type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
        ) from error
    if not isinstance(reply, flwr.Message):
        raise BadInput(f"{where} returned {type(reply).__name__}; must be a flwr.app.Message")
    if reply.has_error():
        raise BadInput(f"{where} replied with an error: {reply.error.reason}")
    read = _read_legacy if is_legacy(app) else _read
    return read(reply.content, kind, where, _bytes(context.state))


def _content(
    flwr: Any, app: Any, kind: Kind, arrays: Mapping[str, Array], config: Mapping[str, Scalar], number: int
) -> Any:
    """The records of a message, as Flower's own strategies fill them."""
    if not is_legacy(app):
        records = {name: flwr.Array(array) for name, array in arrays.items()}
        return flwr.RecordDict(
            {
                "arrays": flwr.ArrayRecord(records),
                "config": flwr.ConfigRecord(dict(config) | {"server-round": number}),
            }
        )
    prefix = _LEGACY[kind][0]
    content = flwr.RecordDict({f"{prefix}.config": flwr.ConfigRecord(dict(config))})
    if kind != "get_parameters":
        content[f"{prefix}.config"]["server_round"] = number
        content[f"{prefix}.parameters"] = flwr.ArrayRecord(list(arrays.values()))
    return content


def _read(content: Any, kind: Kind, where: str, state: Tensor) -> Reply:
    """The reply of an app with functions of its own: one record of arrays, one of metrics, as Flower requires."""
    if kind == "train" and len(content.array_records) != 1:
        raise BadInput(f"{where} returned {len(content.array_records)} ArrayRecords; must be exactly one")
    if len(content.metric_records) != 1:
        raise BadInput(f"{where} returned {len(content.metric_records)} MetricRecords; must be exactly one")
    (metrics,) = content.metric_records.values()
    found = {name: array.numpy() for record in content.array_records.values() for name, array in record.items()}
    return Reply(tuple(found), tuple(found.values()), dict(metrics), _samples(metrics, "num-examples", where), state)


def _read_legacy(content: Any, kind: Kind, where: str, state: Tensor) -> Reply:
    """The reply of a client_fn's client."""
    prefix = _LEGACY[kind][1]
    status = content.config_records[f"{prefix}.status"]
    if status["code"] != 0:
        raise BadInput(f"{where} failed: {status['message']}")
    record = content.array_records.get(f"{prefix}.parameters", {})
    arrays = tuple(array.numpy() for name, array in record.items() if name != "_empty")
    if kind == "get_parameters":
        return Reply(None, arrays, {}, 0, state)
    metrics = dict(content.config_records[f"{prefix}.metrics"])
    if kind == "evaluate":
        metrics.setdefault("loss", content.metric_records[f"{prefix}.loss"]["loss"])
    counted = content.metric_records[f"{prefix}.num_examples"]
    return Reply(None, arrays, metrics, _samples(counted, "num_examples", where), state)


def _samples(metrics: Mapping[str, Any], key: str, where: str) -> int:
    if key not in metrics:
        raise BadInput(f"{where} returned no metric {key!r} (it has {listed(list(metrics))})")
    count = metrics[key]
    if not isinstance(count, int | float) or count != int(count) or count < 1:
        raise BadInput(f"{where} returned {key} = {count!r}; must be a whole number of at least 1")
    return int(count)


def _bytes(state: Any) -> Tensor:
    """(n,) bytes of a RecordDict, as Flower itself serialises it; an empty one has none."""
    from flwr.common.serde import recorddict_to_proto

    raw = recorddict_to_proto(state).SerializeToString(deterministic=True)
    return torch.from_numpy(np.frombuffer(raw, dtype=np.uint8).copy())


def _state(raw: Tensor) -> Any:
    """The inverse of `_bytes`."""
    from flwr.common.serde import recorddict_from_proto
    from flwr.proto.recorddict_pb2 import RecordDict

    return recorddict_from_proto(RecordDict.FromString(raw.cpu().numpy().tobytes()))


def in_order(reply: Reply, names: Sequence[str], shapes: Sequence[tuple[int, ...]], client: int) -> tuple[Array, ...]:
    """The arrays of a reply in the order of `names`; refused unless they are those that the app was sent."""
    where, arrays = f"flower app: train of client {client} returned", reply.arrays
    if reply.names is not None:
        other = sorted(set(reply.names) ^ set(names))
        if other:
            raise BadInput(f"{where} other arrays than it was sent; they differ in {listed(other)}")
        by_name = dict(zip(reply.names, reply.arrays, strict=True))
        arrays = tuple(by_name[name] for name in names)
    if len(arrays) != len(names):
        raise BadInput(f"{where} {len(arrays)} arrays, but it was sent {len(names)}")
    for name, shape, array in zip(names, shapes, arrays, strict=True):
        if array.shape != shape:
            raise BadInput(f"{where} array {name!r} with shape {array.shape}; must be {shape}")
    return arrays
