"""The paper's model: a flat three-layer extractor with layer norm, and a linear head."""

import math

import torch
from torch import nn

from firma.models.architecture import describe
from firma.models.split_model import SplitModel
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


def is_mlp(model: SplitModel) -> bool:
    """Whether a model is the built-in mlp, of any widths, and nothing else; whoever built it."""
    linear = [module for module in model.extractor.modules() if type(module) is nn.Linear]
    if len(linear) != 3 or type(model.head) is not nn.Linear:
        return False
    with torch.device("meta"):
        built = mlp((linear[0].in_features,), model.head.out_features, linear[0].out_features, linear[2].out_features)
    return describe(model) == describe(SplitModel(*built))
