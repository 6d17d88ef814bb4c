"""Gradients and predictions of one client's model by autograd, for any pair of modules."""

from typing import Protocol

import torch
from torch import Tensor, nn

from firma.models.split import Layout, Part, SplitModel

# Layers whose output for a sample depends on that sample alone and is the same each time: a frozen extractor made
# of these needs to see the data only once.
_SAMPLEWISE = (
    nn.Linear, nn.LayerNorm, nn.GroupNorm, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU,
    nn.Flatten, nn.Unflatten, nn.Identity, nn.Conv1d, nn.Conv2d, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d,
    nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d,
)  # fmt: skip


class Learner(Protocol):
    """What training needs of a model: bound to one client's flat buffers, it fills their gradients."""

    layout: Layout
    cacheable: bool  # features of a frozen extractor may be computed once

    def bind(self, parameters: Tensor, gradients: Tensor, private: list[Tensor]) -> None:
        """Work on these (P,) buffers from now on; `private` is updated in place."""

    def backward(self, inputs: Tensor, labels: Tensor, trains: Part) -> None:
        """Gradient of the mean cross-entropy over a batch, into the part's slice of the gradient buffer."""

    def backward_head(self, features: Tensor, labels: Tensor) -> None:
        """The same for the head alone, from the extractor's output."""

    def features(self, inputs: Tensor) -> Tensor:
        """The extractor's output, as it is while the extractor is frozen in training."""

    def correct(self, inputs: Tensor, labels: Tensor) -> int:
        """How many samples are classified rightly, in evaluation mode."""


class AutogradLearner:
    """One copy of the modules, whose parameters and gradients are views of the bound client's buffers."""

    def __init__(self, model: SplitModel, device: torch.device) -> None:
        copy = model.copy()
        self.layout = model.layout()
        self.extractor = copy.extractor.to(device)
        self.head = copy.head.to(device)
        self._parameters = [parameter for _, parameter in copy.named_parameters()]
        self._buffers = copy.buffers()
        self._private: list[Tensor] = []
        self.cacheable = _samplewise(self.extractor)

    def bind(self, parameters: Tensor, gradients: Tensor, private: list[Tensor]) -> None:
        """Point the modules at a client's buffers."""
        for own, piece in zip(self._parameters, self.layout.pieces, strict=True):
            own.data = parameters[piece.start : piece.stop].view(piece.shape)
            own.grad = gradients[piece.start : piece.stop].view(piece.shape)
        for kept, current in zip(self._private, self._buffers, strict=False):
            kept.copy_(current)
        for kept, current in zip(private, self._buffers, strict=True):
            current.copy_(kept)
        self._private = private
        self._gradients = gradients

    def backward(self, inputs: Tensor, labels: Tensor, trains: Part) -> None:
        """Gradient of the part that trains; the other part is frozen."""
        self._train_mode(trains)
        features = self.extractor(inputs)
        self._loss_backward(features, labels, trains)

    def backward_head(self, features: Tensor, labels: Tensor) -> None:
        """Gradient of the head from cached features."""
        self._train_mode("head")
        self._loss_backward(features, labels, "head")

    def features(self, inputs: Tensor) -> Tensor:
        """Output of the frozen extractor."""
        self.extractor.train()
        with torch.no_grad():
            return torch.cat([self.extractor(chunk) for chunk in torch.split(inputs, 4096)])

    def correct(self, inputs: Tensor, labels: Tensor) -> int:
        """Right answers in evaluation mode."""
        self.extractor.eval()
        self.head.eval()
        right = 0
        with torch.no_grad():
            for chunk, truth in zip(torch.split(inputs, 4096), torch.split(labels, 4096), strict=True):
                right += int((self.head(self.extractor(chunk)).argmax(1) == truth).sum())
        return right

    def _train_mode(self, trains: Part) -> None:
        self.extractor.train()
        self.head.train()
        self.extractor.requires_grad_(trains != "head")
        self.head.requires_grad_(trains != "extractor")

    def _loss_backward(self, features: Tensor, labels: Tensor, trains: Part) -> None:
        self._gradients[self.layout.span(trains)].zero_()
        nn.functional.cross_entropy(self.head(features), labels).backward()  # type: ignore[no-untyped-call]


def _samplewise(module: nn.Module) -> bool:
    """Whether every leaf is a known layer without chance or memory and all containers are plain sequences."""
    if isinstance(module, nn.Sequential):
        return all(_samplewise(child) for child in module)
    return type(module) in _SAMPLEWISE
