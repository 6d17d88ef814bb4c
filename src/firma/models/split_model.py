"""A model in two parts and the flat buffer of its parameters: extractor first, then head."""

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from firma.errors import BadInput
from firma.models.catalogue import mlp
from firma.seeds import torch_seed

Part = Literal["model", "extractor", "head"]
Pair = tuple[nn.Module, nn.Module]
ModelSource = str | Pair | Callable[[], Pair]
_OWN = "pass a pair of torch modules (extractor, head), or a function that returns one"


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor of the model and its place in the flat buffer."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The place of every parameter: [0, extractor) is the extractor, [extractor, size) the head."""

    pieces: tuple[Piece, ...]
    extractor: int
    size: int

    def span(self, part: Part) -> slice:
        """The slice of the flat buffer that holds a part."""
        bounds = {
            "model": (0, self.size),
            "extractor": (0, self.extractor),
            "head": (self.extractor, self.size),
        }
        return slice(*bounds[part])

    def names(self, start: int, stop: int) -> tuple[str, ...]:
        """Names of the tensors that have at least one element in [start, stop)."""
        return tuple(piece.name for piece in self.pieces if piece.start < stop and start < piece.stop)

    def counts(self, start: int, stop: int) -> tuple[int, ...]:
        """How many elements each of these tensors has in [start, stop)."""
        shares = (min(piece.stop, stop) - max(piece.start, start) for piece in self.pieces)
        return tuple(share for share in shares if share > 0)


@dataclass(frozen=True)
class SplitModel:
    """Extractor and head as the user defined them: a template that is copied, never trained."""

    extractor: nn.Module
    head: nn.Module

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters of the extractor, then of the head."""
        for part, module in (("extractor", self.extractor), ("head", self.head)):
            for name, parameter in module.named_parameters():
                yield f"{part}.{name}" if name else part, parameter

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """The buffers of the modules, such as running means; private to a client."""
        for part, module in (("extractor", self.extractor), ("head", self.head)):
            for name, buffer in module.named_buffers():
                yield f"{part}.{name}", buffer

    def layout(self) -> Layout:
        """The layout of this model's parameters in a flat buffer."""
        pieces, start, extractor = [], 0, 0
        for name, parameter in self.named_parameters():
            pieces.append(Piece(name, tuple(parameter.shape), start, start + parameter.numel()))
            start += parameter.numel()
            if name.startswith("extractor"):
                extractor = start
        return Layout(tuple(pieces), extractor, start)

    def flat(self) -> Tensor:
        """(P,) copy of the parameters."""
        return torch.cat([parameter.detach().reshape(-1).float() for _, parameter in self.named_parameters()])

    def copy(self) -> "SplitModel":
        """A deep copy."""
        return SplitModel(copy.deepcopy(self.extractor), copy.deepcopy(self.head))

    def filled(self, flat: Tensor) -> "SplitModel":
        """A copy whose parameters are those of the flat buffer."""
        model = self.copy()
        for piece, (_, parameter) in zip(self.layout().pieces, model.named_parameters(), strict=True):
            parameter.data = flat[piece.start : piece.stop].view(piece.shape).clone()
        return model


def build_model(
    source: ModelSource, shape: tuple[int, ...], classes: int, sizes: tuple[int, int], seed: int, client: int
) -> SplitModel:
    """The model that a client starts from; `sizes` are the built-in model's hidden and embedding widths.

    Built-in models and functions that return a pair draw their weights from (seed, client). A pair of modules keeps
    its own weights.
    """
    if isinstance(source, tuple):
        return _checked(_pair(source), shape, classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "initial weights", client))
        if source == "mlp":
            return SplitModel(*mlp(shape, classes, *sizes))
        if callable(source) and not isinstance(source, nn.Module):
            return _checked(_pair(source()), shape, classes)
    shown = repr(source) if isinstance(source, str) else type(source).__name__
    raise BadInput(f"model = {shown} is not supported; choose mlp, or {_OWN}")


def _pair(found: object) -> SplitModel:
    """The user's pair of modules, or an error that says what was found instead."""
    match tuple(found) if isinstance(found, Iterable) else found:
        case (nn.Module() as extractor, nn.Module() as head):
            return SplitModel(extractor, head)
    raise BadInput(f"model: {type(found).__name__} is not a pair of modules; {_OWN}")


def _checked(model: SplitModel, shape: tuple[int, ...], classes: int) -> SplitModel:
    """The user's own modules, after one forward pass of two samples in evaluation mode."""
    probe = model.copy()
    probe.extractor.eval()
    probe.head.eval()
    try:
        with torch.no_grad():
            logits = probe.head(probe.extractor(torch.zeros(2, *shape)))
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        reason = str(error).partition("\n")[0]
        raise BadInput(f"model: cannot process inputs of shape {shape} ({reason})") from None
    if tuple(logits.shape) != (2, classes):
        raise BadInput(f"model: logits of two samples have shape {tuple(logits.shape)}; must be (2, {classes})")
    if not model.layout().extractor:
        raise BadInput("model: the extractor has no parameters, so there is nothing to share")
    return model
