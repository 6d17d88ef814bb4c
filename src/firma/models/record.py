"""What a result records about its model, as plain data, and the model that is built from such a record again."""

import functools
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
from torch import Tensor

from firma.errors import BadInput
from firma.models import reference
from firma.models.architecture import digest
from firma.models.build import ModelSpec, build_model, model_spec
from firma.models.catalogue import MODELS
from firma.models.parameters import settings_of
from firma.models.probe import InputSpec
from firma.models.split_model import SplitModel


class Inputs(TypedDict):
    """One input as it is stored, and the factor that turns bytes into what the model sees."""

    shape: list[int]
    dtype: str
    scale: float


class ModelRecord(TypedDict):
    """All that is needed to build the structure of a model again; ready for JSON.

    kind: built-in (a name), reference (MODULE:FUNCTION, whose files have these hashes) or objects (modules or a
    function from Python, which cannot be built again without the code that made them).
    """

    name: str
    kind: Literal["built-in", "reference", "objects"]
    settings: dict[str, Any]
    head: str | None
    inputs: Inputs
    outputs: int
    files: dict[str, str]  # SHA-256 by path
    tensors: dict[str, list[int]]  # shapes of all parameters and persistent buffers, by name
    architecture: str  # SHA-256 of its modules, their options and the code of the user's own
    modules: str  # of objects: the tree of modules as text
    private: NotRequired[list[str]]  # parameters that are not shared, which come last in their part's flat buffer


def record(spec: ModelSpec, inputs: InputSpec, outputs: int, model: SplitModel) -> ModelRecord:
    """The record of a model that was built from `spec`."""
    name, kind = spec.name, _kind(spec)
    if kind == "objects" and (known_as := _as_reference(spec.source)) is not None:
        name, kind = str(known_as), "reference"
    named = reference.parsed(name) if kind == "reference" else None
    defaults: dict[str, Any] = {}
    if kind == "built-in":
        known = settings_of(MODELS[name])
        defaults = {key: setting.default for key, setting in known.items() if not setting.required}
    found = ModelRecord(
        name=name,
        kind=kind,
        settings=defaults | dict(spec.settings),
        head=spec.head,
        inputs=Inputs(shape=list(inputs.shape), dtype=str(inputs.dtype), scale=inputs.scale),
        outputs=outputs,
        files=reference.files(named) if named is not None else {},
        tensors=tensors(model),
        architecture=digest(model),
        modules=f"extractor: {model.extractor}\nhead: {model.head}" if kind == "objects" else "",
    )
    if model.private:
        found["private"] = sorted(model.private)
    return found


def rebuild(recorded: Mapping[str, Any], own: ModelSpec | None = None) -> SplitModel:
    """A model of the recorded structure; its weights are not the trained ones, which `SplitModel.filled` puts in.

    `own` is the code for a model that was passed as Python objects, or that is now called otherwise. Code that differs
    from the recorded files is used, with a warning, as long as the structure fits.
    """
    shape = tuple(recorded["inputs"]["shape"])
    inputs = InputSpec(shape, np.dtype(recorded["inputs"]["dtype"]), recorded["inputs"]["scale"])
    if recorded["kind"] == "objects" and own is None:
        raise BadInput(
            f"the model of this result, {recorded['name']}, was passed as Python objects, so a file cannot hold its "
            "code; pass the same model again"
        )
    changed: list[str] = []
    if own is None:
        if recorded["kind"] == "reference":
            named = reference.parsed(recorded["name"])
            assert named is not None
            changed = reference.differences(recorded["files"], reference.files(named))
        own = model_spec(recorded["name"], recorded["settings"], recorded["head"])
    try:
        model = build_model(own, inputs, recorded["outputs"], 0, 0)
        model = replace(model, private=frozenset(recorded.get("private", ())))
        check_tensors(recorded["tensors"], tensors(model))
    except BadInput as error:
        because = f"; its code has changed: {'; '.join(changed)}" if changed else ""
        raise BadInput(f"model {recorded['name']!r} no longer fits this result: {error}{because}") from None
    if changed:
        warnings.warn(
            f"the code of model {recorded['name']!r} has changed since this result was made: {'; '.join(changed)}. "
            "Its structure still fits, but it may compute something else.",
            UserWarning,
            stacklevel=2,
        )
    elif recorded.get("architecture", digest(model)) != digest(model):
        warnings.warn(
            f"model {recorded['name']!r} has the tensors of this result, but other modules, options or code (or "
            "another version of Python compiled it); it may compute something else",
            UserWarning,
            stacklevel=2,
        )
    return model


def tensors(model: SplitModel) -> dict[str, list[int]]:
    """Shapes of all parameters, frozen ones included, and of all persistent buffers, by name."""
    return {
        f"{part}.{name}": list(tensor.shape)
        for part, module in (("extractor", model.extractor), ("head", model.head))
        for name, tensor in module.state_dict().items()
        if isinstance(tensor, Tensor)
    }


def check_tensors(expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Refuse a model whose tensors have other names or shapes; the first one that differs is named."""
    for name in [*expected, *found]:
        there, here = expected.get(name), found.get(name)
        if here is None:
            raise BadInput(f"tensor {name} of shape {tuple(there or ())} is missing")
        if there is None:
            raise BadInput(f"tensor {name} of shape {tuple(here)} is not expected")
        if list(there) != list(here):
            raise BadInput(f"tensor {name} has shape {tuple(here)}; expected {tuple(there)}")


def _kind(spec: ModelSpec) -> Literal["built-in", "reference", "objects"]:
    if isinstance(spec.source, str):
        return "built-in" if spec.source in MODELS else "reference"
    return "objects"


def _as_reference(source: object) -> reference.Reference | None:
    """The reference by which a function or class from Python can be imported again, or None."""
    module, function = getattr(source, "__module__", None), getattr(source, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(function, str) or module == "__main__":
        return None
    named = reference.parsed(f"{module}:{function}")  # None for functions within functions and lambdas
    if named is None:
        return None
    try:
        found = functools.reduce(getattr, function.split("."), reference.imported(named))
        reference.files(named)
    except (AttributeError, BadInput):
        return None
    return named if found is source else None
