"""The model that a ring file describes, built at a site and compared with what was agreed.

Code never travels: a site runs its own copy. Before anything of it is imported, its files are compared with the hashes
in the ring file; after the model is built, its layout and the values of its frozen parameters are.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from firma.errors import BadInput
from firma.models import reference
from firma.models.build import VOCABULARY, ModelSpec, build_model, model_spec, sized
from firma.models.parameters import settings_of
from firma.models.probe import InputSpec
from firma.models.record import check_tensors
from firma.models.split_model import SplitModel
from firma.peer.ring_file import Ring, Task
from firma.peer.wire.terms import signature
from firma.settings import sentence

_ADVICE = "install the code that the ring file was written with, or ask for a new ring file"


def check_consent(task: Task, allowed: str | None) -> None:
    """Refuse to run code that a ring file names unless this site has named it too: a ring file comes from others."""
    if task.is_own_code and allowed != task.model:
        given = f", not {allowed!r}" if allowed is not None else ""
        raise BadInput(
            f"the ring file asks this site to run the code {task.model}{given}; if you trust it, pass "
            f"--model {task.model}"
        )
    if allowed is not None and allowed != task.model:
        raise BadInput(f"--model {allowed}: the model of the ring file is {task.model}")


def agreed_spec(ring: Ring) -> ModelSpec:
    """The model's name and parameters; the code that it names is compared first, then imported."""
    task = ring.task
    named = reference.parsed(task.model)
    if named is not None:
        differing = reference.differences(task.files, reference.files(named), "in the ring file")
        if differing:
            raise BadInput(f"model {task.model!r}: {'; '.join(differing)}; {_ADVICE}")
    spec = model_spec(task.model, task.model_set, task.head or None)
    return sized(spec, ring.hyper.hidden, ring.hyper.embedding)


def agreed_model(ring: Ring, spec: ModelSpec, inputs: InputSpec, number: int) -> SplitModel:
    """The model that member `number` starts from, checked against the ring file."""
    task = ring.task
    model = build_model(spec, inputs, task.outputs, ring.seed, number)
    try:
        if task.layout:
            check_tensors({name: list(shape) for name, shape in task.layout.items()}, layout_of(model))
    except BadInput as error:
        raise BadInput(f"model {task.model!r} is not the one in the ring file: {error}; {_ADVICE}") from None
    if task.frozen:
        first = model if number == 0 else build_model(spec, inputs, task.outputs, ring.seed, 0)
        if frozen_digest(first) != task.frozen:
            raise BadInput(
                f"model {task.model!r}: its frozen parameters have other values than at the site that wrote the ring "
                "file; every site must load the same weights"
            )
    return model


def blank_model(ring: Ring) -> SplitModel:
    """The structure of the agreed model, to be filled with the parameters of a checkpoint."""
    inputs = InputSpec(tuple(ring.task.shape), np.dtype(ring.task.dtype), 1.0)
    return agreed_model(ring, agreed_spec(ring), inputs, 0)


def stated(values: dict[str, Any], seed: int) -> dict[str, Any]:
    """A task's fields with those that follow from its model filled in, for a new ring file."""
    try:
        task = Task.model_validate(values)
    except ValidationError as error:
        raise BadInput(f"ring file: {sentence(error)}") from None
    spec = model_spec(task.model, task.model_set, task.head or None)
    if task.model == "mlp":
        return values
    assert spec.builder is not None
    dtypes = [task.dtype] if "dtype" in values else ["float32", "int64"]
    if "dtype" not in values and VOCABULARY in settings_of(spec.builder):
        dtypes = ["int64"]
    dtype, model = _first_that_fits(task, spec, seed, dtypes)
    named = reference.parsed(task.model)
    files = reference.files(named) if named is not None else {}
    found = {"model_set": dict(spec.settings), "layout": layout_of(model), "files": files}
    return values | found | {"dtype": dtype, "frozen": frozen_digest(model)}


def _first_that_fits(task: Task, spec: ModelSpec, seed: int, dtypes: Sequence[str]) -> tuple[str, SplitModel]:
    """The first type of input that the model can read, and the model; else the reason why it cannot read the first."""
    refusals = []
    for dtype in dtypes:
        try:
            inputs = InputSpec(tuple(task.shape), np.dtype(dtype), 1.0)
            return dtype, build_model(spec, inputs, task.outputs, seed, 0)
        except BadInput as error:
            refusals.append(error)
    raise refusals[0]


def layout_of(model: SplitModel) -> dict[str, list[int]]:
    """Names and shapes of the tensors that members send."""
    return {name: list(shape) for name, shape, _ in signature(model.layout()).tensors}


def frozen_digest(model: SplitModel) -> str:
    """SHA-256 of the extractor's parameters that are never trained, by name; empty if there are none."""
    frozen = [(name, each) for name, each in model.extractor.named_parameters() if not each.requires_grad]
    if not frozen:
        return ""
    digest = hashlib.sha256()
    for name, each in frozen:
        values = each.detach().cpu().contiguous()
        digest.update(f"{name}:{values.dtype}:{tuple(values.shape)};".encode())
        digest.update(values.view(-1).view(torch.uint8).numpy().tobytes() if values.numel() else b"")
    return digest.hexdigest()
