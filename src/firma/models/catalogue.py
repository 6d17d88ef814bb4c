"""Built-in models; so far the paper's: a flat three-layer extractor with layer norm, and a linear head."""

import math

from torch import nn


def mlp(
    shape: tuple[int, ...], classes: int, hidden: int = 256, embedding: int = 128
) -> tuple[nn.Sequential, nn.Linear]:
    """Extractor and head for inputs of `shape`; weights by torch's default initialisation."""
    inputs = math.prod(shape)
    extractor = nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, hidden),
        nn.LayerNorm(hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.LayerNorm(hidden),
        nn.ReLU(),
        nn.Linear(hidden, embedding),
        nn.ReLU(),
    )
    return extractor, nn.Linear(embedding, classes)
