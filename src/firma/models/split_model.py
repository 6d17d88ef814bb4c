"""A model in two parts and the flat buffer of what is trained and shared: extractor first, then head.

What a model consists of, and where it is kept:

- trainable parameters (`requires_grad=True`, float32): in the flat buffer;
- frozen parameters (`requires_grad=False`): in the model itself. They are never changed, mixed, sent or copied;
- buffers, such as BatchNorm's running statistics: private to a client, in its memory. Those that a module of the
  extractor names in an attribute `shared_buffers` (True, or names such as "running_mean") are in the flat buffer
  instead: they are mixed and sent with the extractor, but have no gradient.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer

from firma.errors import BadInput, unknown

Part = Literal["model", "extractor", "head"]
InputKind = Literal["float32", "int64"]
SHARED_BUFFERS = "shared_buffers"  # the attribute of a module that says which of its buffers are shared
_NOTHING: Mapping[str, Tensor] = {}
_NO_VECTORS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor of the model and its place in the flat buffer."""

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The place of every tensor: [0, extractor) is the extractor, [extractor, size) the head.

    The extractor begins with its shared buffers, [0, buffers), which are mixed but not trained; most models have none.
    """

    pieces: tuple[Piece, ...]
    extractor: int
    size: int
    buffers: int = 0
    private: tuple[int, int] = (0, 0)  # private elements, at the end of the extractor and at the end of the head

    def shared(self, part: Part) -> tuple[slice, ...]:
        """The slices of the flat buffer that hold what is shared of a part: all of it but what is private."""
        extractor = slice(0, self.extractor - self.private[0])
        head = slice(self.extractor, self.size - self.private[1])
        found = {"model": (extractor, head), "extractor": (extractor,), "head": (head,)}[part]
        if len(found) == 2 and extractor.stop == head.start:
            return (slice(0, head.stop),)
        return tuple(each for each in found if each.start < each.stop)

    def of_shared(self, part: Part, mixed: Mapping[str, int] = _NO_VECTORS) -> "Layout":
        """The layout of what is shared by itself, numbered from 0: tensors, then vectors that are mixed with them."""
        pieces, start = [], 0
        for span in self.shared(part):
            for piece in self.pieces:
                if span.start <= piece.start and piece.stop <= span.stop and piece.start < piece.stop:
                    stop = start + piece.stop - piece.start
                    pieces.append(Piece(piece.name, piece.shape, start, stop))
                    start = stop
        for name, size in mixed.items():
            pieces.append(Piece(f"mixed.{name}", (size,), start, start + size))
            start += size
        return Layout(tuple(pieces), start, start)

    def span(self, part: Part) -> slice:
        """The slice of the flat buffer that holds a part."""
        bounds = {
            "model": (0, self.size),
            "extractor": (0, self.extractor),
            "head": (self.extractor, self.size),
        }
        return slice(*bounds[part])

    def trained(self, part: Part) -> slice:
        """The slice of the flat buffer that holds a part's trainable parameters."""
        span = self.span(part)
        return slice(max(span.start, self.buffers), span.stop)

    def names(self, start: int, stop: int) -> tuple[str, ...]:
        """Names of the tensors that have at least one element in [start, stop)."""
        return tuple(piece.name for piece in self.pieces if piece.start < stop and start < piece.stop)

    def counts(self, start: int, stop: int) -> tuple[int, ...]:
        """How many elements each of these tensors has in [start, stop)."""
        shares = (min(piece.stop, stop) - max(piece.start, start) for piece in self.pieces)
        return tuple(share for share in shares if share > 0)


@dataclass(frozen=True)
class SplitModel:
    """Extractor and head as the user defined them: a template that is copied, never trained.

    `inputs` is what the extractor takes: floats, or integers such as tokens. `private` names parameters that are
    trained but never shared, even where their part is; they come last in their part's place in the flat buffer.
    """

    extractor: nn.Module
    head: nn.Module
    inputs: InputKind = "float32"
    private: frozenset[str] = frozenset()

    @property
    def outputs(self) -> int:
        """How many numbers a linear head computes; 0 for any other head."""
        return self.head.out_features if isinstance(self.head, nn.Linear) else 0

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Trainable parameters of the extractor, then of the head; a tied parameter once, under its first name."""
        return ((name, parameter) for name, parameter in self._all_parameters() if parameter.requires_grad)

    def named_frozen(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters that the user has frozen (`requires_grad=False`)."""
        return ((name, parameter) for name, parameter in self._all_parameters() if not parameter.requires_grad)

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """The buffers that are private to a client."""
        shared = self._shared_names()
        return ((name, buffer) for name, buffer in self._all_buffers() if name not in shared)

    def named_shared_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """The buffers of the extractor that are mixed and sent with it."""
        shared = self._shared_names()
        return ((name, buffer) for name, buffer in self._all_buffers() if name in shared)

    def layout(self) -> Layout:
        """The layout of shared buffers and trainable parameters in a flat buffer."""
        pieces, start, extractor, buffers = [], 0, 0, 0
        private = {"extractor": 0, "head": 0}
        for name, tensor in self._flat_tensors():
            pieces.append(Piece(name, tuple(tensor.shape), start, start + tensor.numel()))
            start += tensor.numel()
            part = name.partition(".")[0]
            if name in self.private:
                private[part] += tensor.numel()
            if part == "extractor":
                extractor = start
            if not isinstance(tensor, nn.Parameter):
                buffers = start
        return Layout(tuple(pieces), extractor, start, buffers, (private["extractor"], private["head"]))

    def flat(self) -> Tensor:
        """(P,) copy of the shared buffers and the trainable parameters."""
        return torch.cat([tensor.detach().reshape(-1).float() for _, tensor in self._flat_tensors()])

    def copy(self, same_frozen: bool = False) -> "SplitModel":
        """A deep copy; with `same_frozen`, its frozen parameters are new objects on the memory of this model's."""
        memo: dict[int, Any] = {}
        if same_frozen:
            memo |= {id(each): nn.Parameter(each.data, requires_grad=False) for _, each in self.named_frozen()}
        for _, lazy in self._all_buffers():
            if isinstance(lazy, UninitializedBuffer):  # which has no __deepcopy__, as parameters of lazy layers have
                memo[id(lazy)] = UninitializedBuffer(False, lazy.device, lazy.dtype)  # type: ignore[arg-type]
        for module in (*self.extractor.modules(), *self.head.modules()):
            for held in vars(module).values():
                # What a forward pass computed and left behind, such as weight_norm's weight; torch refuses to copy it.
                if isinstance(held, Tensor) and not held.is_leaf:
                    memo[id(held)] = held.detach().clone()
        result = replace(
            self, extractor=copy.deepcopy(self.extractor, memo), head=copy.deepcopy(self.head, memo)
        )  # fmt: skip
        for (_, theirs), (_, mine) in zip(self.named_parameters(), result.named_parameters(), strict=True):
            for hook in (getattr(theirs, "_backward_hooks", None) or {}).values():  # deepcopy leaves them out
                mine.register_hook(hook)  # type: ignore[no-untyped-call]
            for hook in (getattr(theirs, "_post_accumulate_grad_hooks", None) or {}).values():
                mine.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        return result

    def filled(
        self, flat: Tensor, buffers: Mapping[str, Tensor] = _NOTHING, frozen: Mapping[str, Tensor] = _NOTHING
    ) -> "SplitModel":
        """A copy with the tensors of the flat buffer, and with private buffers and frozen parameters by name.

        Those that are not given stay as they are in this model.
        """
        model = self.copy()
        flat = flat.detach().cpu()
        for piece, (_, tensor) in zip(self.layout().pieces, model._flat_tensors(), strict=True):
            values = flat[piece.start : piece.stop].view(piece.shape)
            if isinstance(tensor, nn.Parameter):
                tensor.data = values.clone()
            else:
                tensor.copy_(values)
        with torch.no_grad():
            for own, given in ((dict(model.named_buffers()), buffers), (dict(model.named_frozen()), frozen)):
                for name, values in given.items():
                    own[name].copy_(values)
        return model

    def _parts(self) -> tuple[tuple[str, nn.Module], ...]:
        return ("extractor", self.extractor), ("head", self.head)

    def _all_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for part, module in self._parts():
            found = [(f"{part}.{name}" if name else part, own) for name, own in module.named_parameters()]
            yield from sorted(found, key=lambda each: each[0] in self.private)  # stable: private ones last

    def _all_buffers(self) -> Iterator[tuple[str, Tensor]]:
        for part, module in self._parts():
            for name, buffer in module.named_buffers():
                yield f"{part}.{name}", buffer

    def _flat_tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.named_shared_buffers()
        yield from self.named_parameters()

    def _shared_names(self) -> set[str]:
        """Names of the shared buffers; an attribute that asks for what cannot be shared is an error."""
        found: set[str] = set()
        for place, module in self.extractor.named_modules():
            wanted = vars(module).get(SHARED_BUFFERS, getattr(type(module), SHARED_BUFFERS, None))
            if wanted is None or wanted is False:
                continue
            prefix = f"extractor.{place}." if place else "extractor."
            below = {prefix + name: buffer for name, buffer in module.named_buffers()}
            found |= _chosen(wanted, below, prefix.removesuffix("."))
        return found


def _chosen(wanted: Any, buffers: Mapping[str, Tensor], where: str) -> set[str]:
    """Which of the buffers `shared_buffers` means: all floats (True), or those whose names end so."""
    if wanted is True:
        chosen = {name for name, buffer in buffers.items() if buffer.is_floating_point()}
    else:
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        chosen = set()
        for name in names:
            matching = {each for each in buffers if f".{each}".endswith(f".{name}")}
            if not matching:
                known = [each.removeprefix(f"{where}.") for each in buffers]
                raise BadInput(f"model: {where}.{SHARED_BUFFERS}: {unknown('buffer', str(name), known)}")
            chosen |= matching
    for name in sorted(chosen):
        if buffers[name].dtype != torch.float32:
            raise BadInput(
                f"model: buffer {name!r} is {str(buffers[name].dtype).removeprefix('torch.')} and cannot be shared; "
                f"only float32 can; remove it from {where}.{SHARED_BUFFERS}"
            )
    return chosen
