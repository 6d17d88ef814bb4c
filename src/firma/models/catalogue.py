"""The built-in models by name; their parameters are the keyword parameters of these functions."""

from collections.abc import Callable, Mapping

from torch import nn

from firma.models.images import cnn, resnet
from firma.models.mlp import mlp
from firma.models.tokens import transformer

__all__ = ["MODELS", "cnn", "mlp", "resnet", "transformer"]

# (shape of one input, number of outputs, parameters) to (extractor, head)
MODELS: Mapping[str, Callable[..., tuple[nn.Module, nn.Module]]] = {
    "mlp": mlp,
    "cnn": cnn,
    "resnet": resnet,
    "transformer": transformer,
}
