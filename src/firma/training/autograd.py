"""Training by autograd, for any pair of modules on any device."""

import numpy as np
import torch
from torch import Tensor, nn

from firma.models.split import Part, SplitModel
from firma.schedule import Phase
from firma.training.client import Client, Job, Moments, batches, epoch_orders
from firma.training.optim import adam_step, sgd_step

_CHUNK = 4096  # samples a forward pass without gradients
# Layers whose output for a sample depends on that sample alone and is the same each time: a frozen extractor made
# of these needs to see the data only once.
_SAMPLEWISE = (
    nn.Linear, nn.LayerNorm, nn.GroupNorm, nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.ELU,
    nn.Flatten, nn.Unflatten, nn.Identity, nn.Conv1d, nn.Conv2d, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d,
    nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d,
)  # fmt: skip


class AutogradTrainer:
    """One copy of the modules, whose parameters and gradients are views of the current client's flat buffers."""

    def __init__(self, model: SplitModel, device: torch.device) -> None:
        copy = model.copy()
        self.layout = model.layout()
        self.extractor = copy.extractor.to(device)
        self.head = copy.head.to(device)
        self._parameters = [parameter for _, parameter in copy.named_parameters()]
        self._buffers = copy.buffers()
        self._gradients = torch.zeros(self.layout.size, device=device)
        self._scratch = Moments(torch.zeros_like(self._gradients), torch.zeros_like(self._gradients))
        self._cacheable = samplewise(self.extractor)

    def train(self, client: Client, job: Job, shuffle: np.random.Generator) -> None:
        """Train a client for one round, in place."""
        moments = client.moments or self._scratch
        if client.moments is None:
            moments.reset()
        self._enter(client)
        for phase in job.phases:
            self._phase(client, job, phase, moments, epoch_orders(len(client.labels), phase.epochs, shuffle))
        self._leave(client)

    def correct(self, client: Client, test: bool) -> int:
        """Right answers in evaluation mode."""
        inputs, labels = (client.test_inputs, client.test_labels) if test else (client.inputs, client.labels)
        self._enter(client)
        self.extractor.eval()
        self.head.eval()
        right = 0
        with torch.no_grad():
            for chunk, truth in zip(torch.split(inputs, _CHUNK), torch.split(labels, _CHUNK), strict=True):
                logits = self.head(self.extractor(_floats(chunk, client.scale)))
                right += int((logits.argmax(1) == truth).sum())
        return right

    def _enter(self, client: Client) -> None:
        """Point the modules at a client's buffers and give them its private state."""
        for own, piece in zip(self._parameters, self.layout.pieces, strict=True):
            own.data = client.parameters[piece.start : piece.stop].view(piece.shape)
            own.grad = self._gradients[piece.start : piece.stop].view(piece.shape)
        for kept, current in zip(client.private, self._buffers, strict=True):
            current.copy_(kept)

    def _leave(self, client: Client) -> None:
        for kept, current in zip(client.private, self._buffers, strict=True):
            kept.copy_(current)

    def _phase(
        self,
        client: Client,
        job: Job,
        phase: Phase,
        moments: Moments,
        orders: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    ) -> None:
        """Epochs in which one part trains and the rest is frozen."""
        self.extractor.train()
        self.head.train()
        self.extractor.requires_grad_(phase.trains != "head")
        self.head.requires_grad_(phase.trains != "extractor")
        frozen = self._features(client) if phase.trains == "head" and self._cacheable else None
        for rows in batches(orders, job.hyper.batch):
            chosen = torch.from_numpy(rows).to(client.labels.device)
            if frozen is None:
                features = self.extractor(_floats(client.inputs[chosen], client.scale))
            else:
                features = frozen[chosen]
            self._gradients[self.layout.span(phase.trains)].zero_()
            nn.functional.cross_entropy(self.head(features), client.labels[chosen]).backward()  # type: ignore[no-untyped-call]
            self._step(client.parameters, moments, phase.trains, job)

    def _features(self, client: Client) -> Tensor:
        """Output of the frozen extractor for all training samples."""
        with torch.no_grad():
            chunks = torch.split(client.inputs, _CHUNK)
            return torch.cat([self.extractor(_floats(chunk, client.scale)) for chunk in chunks])

    def _step(self, parameters: Tensor, moments: Moments, trains: Part, job: Job) -> None:
        """One optimiser step on the part that trains; Adam counts the steps of extractor and head apart."""
        gradients, rate = self._gradients, job.hyper.rate
        parts: tuple[Part, ...] = ("extractor", "head") if trains == "model" else (trains,)
        for part in parts:
            span = self.layout.span(part)
            if job.method.optimiser == "sgd":
                sgd_step(parameters[span], gradients[span], moments.first[span], rate, job.hyper.momentum)
            else:
                moments.steps[part] += 1
                adam_step(
                    parameters[span], gradients[span], moments.first[span], moments.second[span],
                    moments.steps[part], rate,
                )  # fmt: skip


def _floats(inputs: Tensor, scale: float) -> Tensor:
    """What the model sees: float32, bytes scaled."""
    return inputs if inputs.dtype == torch.float32 else inputs.float() * scale


def samplewise(module: nn.Module) -> bool:
    """Whether every leaf is a known layer without chance or memory and all containers are plain sequences."""
    if isinstance(module, nn.Sequential):
        return all(samplewise(child) for child in module)
    return type(module) in _SAMPLEWISE
