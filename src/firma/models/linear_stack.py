"""Recognises models that are plain stacks of linear, layer norm and ReLU, by their structure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from firma.models.split import Layout, SplitModel


@dataclass(frozen=True, slots=True)
class Block:
    """x ↦ relu(norm(x W + b)); norm and ReLU are optional. Offsets are into the flat buffer."""

    inputs: int
    outputs: int
    weight: int
    bias: int
    gain: int = -1  # layer norm's weight and bias; -1: no norm
    shift: int = -1
    epsilon: float = 0.0
    relu: bool = False


@dataclass(frozen=True, slots=True)
class Stack:
    """Blocks in order; the last one is the head, a bare linear layer."""

    blocks: tuple[Block, ...]
    layout: Layout

    def turned(self, flat: Tensor, inward: bool) -> Tensor:
        """A copy of (…, P) buffers with every weight matrix transposed.

        torch stores (outputs, inputs); small batches multiply faster with (inputs, outputs), so a stack trains in that
        layout. `inward` converts from torch's layout to the stack's. Mixing gives the same result in either.
        """
        result = flat.clone()
        for block in self.blocks:
            span = slice(block.weight, block.weight + block.inputs * block.outputs)
            rows, columns = (block.outputs, block.inputs) if inward else (block.inputs, block.outputs)
            matrix = flat[..., span].reshape(*flat.shape[:-1], rows, columns)
            result[..., span] = matrix.transpose(-1, -2).flatten(-2)
        return result


def stack_of(model: SplitModel) -> Stack | None:
    """The model as a stack, or None if it is anything else."""
    layout = model.layout()
    starts = {id(own): piece.start for (_, own), piece in zip(model.named_parameters(), layout.pieces, strict=True)}
    head = list(_leaves(model.head))
    if len(head) != 1 or not isinstance(head[0], nn.Linear):
        return None
    blocks: list[Block] = []
    for index, layer in enumerate([*_leaves(model.extractor), *head]):
        if isinstance(layer, nn.Flatten) and index == 0:
            continue
        if not _append(blocks, layer, starts):
            return None
    chained = all(left.outputs == right.inputs for left, right in pairwise(blocks))
    return Stack(tuple(blocks), layout) if chained and len(blocks) > 1 else None


def _append(blocks: list[Block], layer: nn.Module, starts: dict[int, int]) -> bool:
    """Add a layer to the stack; False if it does not fit."""
    if any(parameter.dtype != torch.float32 for parameter in layer.parameters()):
        return False
    match layer:
        case nn.Linear() if layer.bias is not None:
            weight, bias = starts[id(layer.weight)], starts[id(layer.bias)]
            blocks.append(Block(layer.in_features, layer.out_features, weight, bias))
            return True
        case nn.LayerNorm() if blocks and blocks[-1].gain < 0 and not blocks[-1].relu and layer.bias is not None:
            if layer.normalized_shape != (blocks[-1].outputs,):
                return False
            gain, shift = starts[id(layer.weight)], starts[id(layer.bias)]
            blocks[-1] = replace(blocks[-1], gain=gain, shift=shift, epsilon=layer.eps)
            return True
        case nn.ReLU() if blocks and not blocks[-1].relu:
            blocks[-1] = replace(blocks[-1], relu=True)
            return True
    return False


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of plain `nn.Sequential`s, in order; any other module is a leaf."""
    if type(module) is nn.Sequential:
        for child in module:
            yield from _leaves(child)
    else:
        yield module
