"""The model that a client starts from: built in, by reference, or the user's own modules."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firma.errors import BadInput, unknown
from firma.models import reference
from firma.models.catalogue import MODELS
from firma.models.cutting import cut, missing_head
from firma.models.parameters import arguments, checked_settings, settings_of
from firma.models.probe import InputSpec, probed
from firma.models.split_model import SplitModel
from firma.seeds import torch_seed

Pair = tuple[nn.Module, nn.Module]
ModelSource = str | Pair | SplitModel | nn.Module | Callable[..., Pair | nn.Module]
SIZES_OF_MLP = ("hidden", "embedding")  # parameters of mlp that are settings of a run, as in version 0.1
VOCABULARY = "vocabulary"  # the parameter that a simulation fills in from the data: the largest token, plus 1
_OWN = (
    "pass a pair of modules (extractor, head), one module and the name of its head, or a function that returns either"
)


@dataclass(frozen=True)
class ModelSpec:
    """Which model: a built-in name, MODULE:FUNCTION, or Python objects; its parameters; and where one module is cut."""

    source: ModelSource = "mlp"
    settings: Mapping[str, Any] = field(default_factory=dict)
    head: str | None = None

    @property
    def name(self) -> str:
        """What the model is called in messages and results."""
        if isinstance(self.source, str):
            return self.source
        if isinstance(self.source, tuple | SplitModel):
            return "(extractor, head)"
        return getattr(self.source, "__name__", type(self.source).__name__)

    @property
    def builder(self) -> Callable[..., Any] | None:
        """The function that builds the model, imported if need be; None for modules."""
        if isinstance(self.source, str):
            named = reference.parsed(self.source)
            return MODELS[self.source] if named is None else reference.load(named)
        return None if isinstance(self.source, tuple | SplitModel | nn.Module) else self.source


def model_spec(source: object, settings: Mapping[str, Any] | None = None, head: str | None = None) -> ModelSpec:
    """The model that was asked for, checked as far as that is possible without data."""
    if isinstance(source, list):
        source = tuple(source)
    known: ModelSource
    match source:
        case str():
            known = checked_name(source)
        case SplitModel() | nn.Module():
            known = source
        case (nn.Module() as extractor, nn.Module() as last):
            known = (extractor, last)
        case tuple():
            raise _no_pair(source)
        case _ if callable(source):
            known = source
        case _:
            raise BadInput(
                f"model: type {type(source).__name__} is not supported; choose {', '.join(MODELS)}, or {_OWN}"
            )
    spec = ModelSpec(known, {}, head)
    if head is not None and (known in MODELS if isinstance(known, str) else isinstance(known, tuple | SplitModel)):
        raise BadInput(f"head = {head!r}: model {spec.name} already has an extractor and a head; leave head out")
    builder = spec.builder
    if builder is None:
        if settings:
            raise BadInput(
                f"model_set = {dict(settings)}: the model is already built; pass the function that builds it instead"
            )
        if isinstance(known, nn.Module) and head is None:
            raise missing_head(known)
        return spec
    return replace(spec, settings=checked_settings(builder, settings or {}, spec.name))


def with_data(spec: ModelSpec, *inputs: NDArray[np.generic]) -> ModelSpec:
    """The model for these inputs: the size of the vocabulary is filled in where it is asked for and not set.

    Refuses tokens that the vocabulary does not have, which would fail in the middle of training.
    """
    setting = settings_of(spec.builder).get(VOCABULARY) if spec.builder is not None else None
    if setting is None:
        return spec
    _check_tokens(spec, inputs)
    largest = max(int(each.max()) for each in inputs)
    stated = spec.settings.get(VOCABULARY, None if setting.required else setting.default)
    if stated is None:
        return replace(spec, settings={**spec.settings, VOCABULARY: largest + 1})
    if largest >= stated:
        raise BadInput(
            f"model {spec.name!r}: vocabulary = {stated}, but the data contain token {largest}; must be at least "
            f"{largest + 1}"
        )
    return spec


def build_model(spec: ModelSpec, inputs: InputSpec, outputs: int, seed: int, client: int) -> SplitModel:
    """The model that a client starts from, after one forward pass of two samples.

    Built-in models and functions draw their weights from (seed, client). Modules keep their own weights; their lazy
    layers draw theirs likewise.
    """
    builder = spec.builder
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "initial weights", client))
        if builder is None:
            return probed(_split(spec.source, spec, inputs), inputs, outputs)
        given = arguments(builder, inputs.shape, outputs, spec.settings, spec.name)
        if builder in MODELS.values():
            made = SplitModel(*builder(**given))
            return made if spec.source == "mlp" else probed(made, inputs, outputs)
        return probed(_split(_called(builder, given, spec), spec, inputs), inputs, outputs)


def sized(spec: ModelSpec, hidden: int, embedding: int) -> ModelSpec:
    """The spec with the sizes that a run's settings give to the built-in mlp; any other model is left as it is."""
    return replace(spec, settings={"hidden": hidden, "embedding": embedding}) if spec.source == "mlp" else spec


def run_settings(spec: ModelSpec, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run: `--model-set hidden=64` of mlp is `--set hidden=64`, which no other model has."""
    if spec.source == "mlp":
        for name, value in spec.settings.items():
            if name in changes and str(changes[name]) != str(value):
                raise BadInput(f"{name} is set twice, to {changes[name]} and to {value}; set it once")
        return {**changes, **spec.settings}
    for name in SIZES_OF_MLP:
        if name in changes:
            raise BadInput(
                f"setting {name!r} belongs to the built-in mlp and does not change model {spec.name!r}; "
                "parameters of other models are set with --model-set"
            )
    return dict(changes)


def checked_name(text: str) -> str:
    """The name of a built-in model or MODULE:FUNCTION; whether that exists is not asked here."""
    meant = text.removeprefix("./").replace("/", ".").replace("\\", ".").replace(".py:", ":")
    if meant != text and reference.parsed(meant) is not None:
        raise BadInput(f"model = {text!r}: write {meant!r}, the name of the module instead of its file")
    if text.startswith("__main__:"):
        raise BadInput(f"model = {text!r}: pass the function itself, or put it into a module of its own")
    if text in MODELS or reference.parsed(text) is not None:
        return text
    if ":" in text:
        raise BadInput(f"model = {text!r}: must be MODULE:FUNCTION, such as mymodel:build")
    if text and reference.exists(text):
        raise BadInput(f"model = {text!r}: {text} is a module; name the function in it, such as {text}:build")
    raise BadInput(f"{unknown('model', text, MODELS)}, or MODULE:FUNCTION for your own")


def _called(builder: Callable[..., Any], given: Mapping[str, Any], spec: ModelSpec) -> object:
    """What the user's function returns; its errors become one sentence, with the traceback as their cause."""
    with reference.importable_here():
        try:
            return builder(**given)
        except BadInput:
            raise
        except Exception as error:  # whatever the user's function raises
            said = reference.said(error, getattr(builder, "__module__", ""))
            with_what = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise BadInput(f"model {spec.name!r}: {_call(builder)}({with_what}) failed ({said})") from error


def _call(builder: Callable[..., Any]) -> str:
    return getattr(builder, "__name__", type(builder).__name__)


def _split(found: object, spec: ModelSpec, inputs: InputSpec) -> SplitModel:
    """Extractor and head of what the user passed or returned."""
    if isinstance(found, list):
        found = tuple(found)
    match found:
        case SplitModel():
            parts = found
        case (nn.Module() as extractor, nn.Module() as head):
            parts = SplitModel(extractor, head)
        case nn.Module() if spec.head is not None:
            return cut(found, spec.head, inputs, int(spec.settings.get(VOCABULARY, 2)))
        case nn.Module():
            raise missing_head(found)
        case tuple():
            raise _no_pair(found)
        case _:
            raise BadInput(
                f"model {spec.name!r} returned {_a(found)}; must return a pair of modules (extractor, head), or one "
                "module if head names its last layer"
            )
    if spec.head is not None:
        raise BadInput(f"head = {spec.head!r}: model {spec.name!r} returns a pair (extractor, head); leave head out")
    return parts


def _no_pair(found: Sequence[object]) -> BadInput:
    """The error for a tuple that is not a pair of modules, with the reason."""
    for part in found:
        if isinstance(part, type) and issubclass(part, nn.Module):
            return BadInput(
                f"model: {part.__name__} is a class; pass an instance, such as {part.__name__}(...), in the pair "
                "(extractor, head)"
            )
    held = ", ".join(_a(part) for part in found)
    return BadInput(f"model: tuple ({held}) is not a pair of modules (extractor, head); {_OWN}")


def _a(found: object) -> str:
    return f"the class {found.__name__}" if isinstance(found, type) else type(found).__name__


def _check_tokens(spec: ModelSpec, inputs: Sequence[NDArray[np.generic]]) -> None:
    """Refuse what are no tokens; tables hold integers as floats."""
    for each in inputs:
        if each.dtype == np.uint8 and spec.source in MODELS:
            raise BadInput(
                f"model {spec.name!r}: inputs are uint8, which stands for bytes of an image and is scaled; store "
                "tokens as another type, such as x.astype('int64')"
            )
        whole = each.dtype.kind in "iu" or (each.dtype.kind == "f" and bool((each == np.floor(each)).all()))
        if not whole:
            raise BadInput(f"model {spec.name!r}: requires tokens, integers from 0, but inputs are {each.dtype}")
        if each.size and int(each.min()) < 0:
            raise BadInput(f"model {spec.name!r}: the data contain token {int(each.min())}; tokens are integers from 0")
