"""Parameters that a client keeps to itself although their part of the model is shared.

Normalisation layers, as in FedBN (Li et al., ICLR 2021), or whatever an algorithm names.
"""

from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from firma.methods import Method
from firma.models.split_model import SplitModel
from firma.training.algorithm import Algorithm
from firma.training.hooks import is_private

_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)


def with_private(model: SplitModel, method: Method, algorithm: Algorithm) -> SplitModel:
    """The model with the names of what the method and the algorithm keep private."""
    found = frozenset(
        name
        for name, owner in _owned(model)
        if (method.private == "norm" and isinstance(owner, _NORMS)) or is_private(algorithm, name, owner)
    )
    return replace(model, private=found) if found else model


def _owned(model: SplitModel) -> Iterator[tuple[str, nn.Module]]:
    """Every parameter's name in the flat buffer, with the module that it belongs to."""
    for part, whole in (("extractor", model.extractor), ("head", model.head)):
        for place, module in whole.named_modules():
            for own, _ in module.named_parameters(recurse=False):
                yield ".".join(each for each in (part, place, own) if each), module
