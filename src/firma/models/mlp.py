"""The paper's model: a flat three-layer extractor with layer norm, and a linear head."""

import math

from torch import nn

from firma.settings import Positive


def mlp(
    shape: tuple[int, ...], outputs: int, hidden: Positive = 256, embedding: Positive = 128
) -> tuple[nn.Sequential, nn.Linear]:
    """Three linear layers with layer norm, for inputs of any shape, which are flattened.

    Weights by torch's default initialisation.
    """
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
    return extractor, nn.Linear(embedding, outputs)
