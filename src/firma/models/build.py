"""The model that a client starts from: built in, or the user's own."""

from collections.abc import Callable, Iterable

import torch
from torch import nn

from firma.errors import BadInput
from firma.models.catalogue import mlp
from firma.models.probe import InputSpec, probed
from firma.models.split_model import SplitModel
from firma.seeds import torch_seed

Pair = tuple[nn.Module, nn.Module]
ModelSource = str | Pair | Callable[[], Pair]
_OWN = "pass a pair of torch modules (extractor, head), or a function that returns one"


def build_model(
    source: ModelSource, inputs: InputSpec, outputs: int, sizes: tuple[int, int], seed: int, client: int
) -> SplitModel:
    """The model that a client starts from; `sizes` are the built-in model's hidden and embedding widths.

    Built-in models and functions that return a pair draw their weights from (seed, client). A pair of modules keeps
    its own weights; its lazy layers draw theirs likewise.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, "initial weights", client))
        if isinstance(source, tuple):
            return probed(_pair(source), inputs, outputs)
        if source == "mlp":
            return SplitModel(*mlp(inputs.shape, outputs, *sizes))
        if callable(source) and not isinstance(source, nn.Module):
            return probed(_pair(source()), inputs, outputs)
    shown = repr(source) if isinstance(source, str) else type(source).__name__
    raise BadInput(f"model = {shown} is not supported; choose mlp, or {_OWN}")


def _pair(found: object) -> SplitModel:
    """The user's pair of modules, or an error that says what was found instead."""
    match tuple(found) if isinstance(found, Iterable) else found:
        case (nn.Module() as extractor, nn.Module() as head):
            return SplitModel(extractor, head)
    raise BadInput(f"model: {type(found).__name__} is not a pair of modules; {_OWN}")
