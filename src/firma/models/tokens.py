"""A small transformer encoder for sequences of tokens."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from firma.errors import BadInput
from firma.settings import Positive

PADDING = 0
Probability = Annotated[float, Field(ge=0, lt=1)]


def transformer(
    shape: tuple[int, ...], outputs: int, vocabulary: Annotated[int, Field(ge=2)], width: Positive = 64,
    depth: Positive = 2, heads: Positive = 4, dropout: Probability = 0.0,
) -> tuple[nn.Module, nn.Linear]:  # fmt: skip
    """Transformer encoder with learned positions and mean pooling; for sequences of tokens, 0 is padding.

    Inputs are integers (length,) in 0 … vocabulary-1. Without dropout, the default, figures depend on no draws but
    those of the initial weights and of the batches.
    """
    if len(shape) != 1:
        raise BadInput(
            f"model 'transformer': requires sequences of tokens, shape (length,), but one input has shape {shape}; "
            "for images use --model cnn or --model resnet"
        )
    if width % heads:
        raise BadInput(f"model 'transformer': width = {width} must be a multiple of heads = {heads}")
    return TokenEncoder(shape[0], vocabulary, width, depth, heads, dropout), nn.Linear(width, outputs)


class TokenEncoder(nn.Module):
    """(B, L) tokens to (B, width): the mean over the positions that are not padding; zeros where all are."""

    def __init__(self, length: int, vocabulary: int, width: int, depth: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.ModuleList(EncoderBlock(width, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, L) integers, of any integer or float type."""
        tokens = tokens.long()
        real = tokens != PADDING
        # A sequence of padding alone attends to itself: with nothing to attend to, softmax would be NaN.
        seen = (real | ~real.any(1, keepdim=True))[:, None, None, :]
        states = self.embedding(tokens) + self.positions
        for block in self.blocks:
            states = block(states, seen)
        weights = real.unsqueeze(-1).to(states.dtype)
        out: Tensor = (self.norm(states) * weights).sum(1) / weights.sum(1).clamp(min=1)
        return out


class EncoderBlock(nn.Module):
    """Self-attention and a two-layer network, each after a layer norm and added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.network_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout: nn.Module = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, states: Tensor, seen: Tensor) -> Tensor:
        """(B, L, width) states; `seen` (B, 1, 1, L) says which positions may be attended to."""
        states = states + self.dropout(self._attended(self.attention_norm(states), seen))
        out: Tensor = states + self.dropout(self.network(self.network_norm(states)))
        return out

    def _attended(self, states: Tensor, seen: Tensor) -> Tensor:
        batch, length, width = states.shape
        split = self.query_key_value(states).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        out: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, length, width))
        return out
