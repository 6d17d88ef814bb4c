"""A model in two parts and the flat buffer of its parameters: extractor first, then head."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Part = Literal["model", "extractor", "head"]


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
