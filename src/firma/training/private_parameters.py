"""Parameters that a client keeps to itself although their part of the model is shared.

Normalisation layers, as in FedBN (Li et al., ICLR 2021), or whatever an algorithm names.
"""

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace

from torch import nn

from firma.errors import BadInput
from firma.methods import Method
from firma.models.split_model import Part, SplitModel
from firma.training.algorithm import Algorithm
from firma.training.hooks import is_private

_NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_NORM_NAME = re.compile(r"Norm(\dd)?$")  # of classes of other libraries, such as LlamaRMSNorm


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a normalisation layer: one of torch's, or of a class that is called one."""
    return isinstance(module, _NORMS) or _NORM_NAME.search(type(module).__name__) is not None


def with_private(model: SplitModel, method: Method, algorithm: Algorithm) -> SplitModel:
    """The model with the names of what the method and the algorithm keep private.

    A warning says if a method that keeps normalisation layers private finds none.
    """
    own = list(_owned(model))
    norms = {name for name, owner in own if method.private == "norm" and is_norm(owner)}
    if method.private == "norm":
        _check_norms(model, method, bool(norms))
    trained = {name for name, _ in model.named_parameters()}
    found = norms | {name for name, owner in own if is_private(algorithm, name, owner)}
    if not found & trained:
        return model
    model = replace(model, private=frozenset(found & trained))
    _check_shared(model, method)
    return model


def _check_shared(model: SplitModel, method: Method) -> None:
    """Refuse a model of which nothing is left to share."""
    parts: list[Part] = [] if method.shares == "nothing" else [method.shares]
    parts += ["extractor"] if method.warmup == "yes" else []
    for part in parts:
        if not model.layout().shared(part):
            raise BadInput(
                f"{method.name}: all parameters of the {part} are private, so clients would have nothing to share; "
                "keep fewer of them private, share another part (the column shares), or use local"
            )


def _check_norms(model: SplitModel, method: Method, found: bool) -> None:
    owners = dict((*model.extractor.named_modules(prefix="extractor"), *model.head.named_modules(prefix="head")))
    for name, _ in model.named_shared_buffers():
        if is_norm(owners[name.rpartition(".")[0]]):
            raise BadInput(
                f"{method.name}: private = 'norm' cannot be combined with shared_buffers, which share {name!r}; remove "
                "it from shared_buffers, or set private=none"
            )
    if not found:
        warnings.warn(
            f"{method.name}: the model has no normalisation layers with parameters, so private = 'norm' keeps nothing "
            "private",
            UserWarning,
            stacklevel=3,
        )


def _owned(model: SplitModel) -> Iterator[tuple[str, nn.Module]]:
    """Every parameter's name in the flat buffer, with the module that it belongs to."""
    for part, whole in (("extractor", model.extractor), ("head", model.head)):
        for place, module in whole.named_modules():
            for own, _ in module.named_parameters(recurse=False):
                yield ".".join(each for each in (part, place, own) if each), module
