"""Training by autograd, for any pair of modules on any device."""

import numpy as np
import torch
from torch import Tensor, nn

from firma.models.split_model import Part, SplitModel
from firma.schedule import Phase
from firma.training.local_step import BUFFER, Client, Job, Memory, Step, batches, epoch_orders, optimiser_memory, reset

_CHUNK = 4096  # samples per forward pass without gradients
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
        self._buffers = dict(copy.named_buffers())
        self._gradients = torch.zeros(self.layout.size, device=device)
        self._fresh = optimiser_memory(self.layout.size, device)
        self._cacheable = samplewise(self.extractor)

    def train(self, client: Client, job: Job, shuffle: np.random.Generator) -> None:
        """Train a client for one round, in place."""
        optimiser = client.memory if job.recipe.persistent else self._fresh
        if not job.recipe.persistent:
            reset(self._fresh)
        start = client.parameters.clone() if job.recipe.transforms else client.parameters
        self._enter(client)
        for phase in job.phases:
            orders = epoch_orders(len(client.data.labels), phase.epochs, shuffle)
            self._phase(client, job, phase, optimiser, start, orders)
        self._leave(client)

    def outputs(self, client: Client, test: bool) -> Tensor:
        """(n, K) outputs for the client's test or training samples, in evaluation mode."""
        inputs = client.data.test_inputs if test else client.data.inputs
        self._enter(client)
        self.extractor.eval()
        self.head.eval()
        with torch.no_grad():
            chunks = torch.split(inputs, _CHUNK)
            return torch.cat([self.head(self.extractor(_floats(chunk, client.data.scale))) for chunk in chunks])

    def _enter(self, client: Client) -> None:
        """Point the modules at a client's buffers and give them its private state."""
        for own, piece in zip(self._parameters, self.layout.pieces, strict=True):
            own.data = client.parameters[piece.start : piece.stop].view(piece.shape)
            own.grad = self._gradients[piece.start : piece.stop].view(piece.shape)
        for name, current in self._buffers.items():
            current.copy_(client.memory[BUFFER + name])

    def _leave(self, client: Client) -> None:
        for name, current in self._buffers.items():
            client.memory[BUFFER + name].copy_(current)

    def _phase(
        self,
        client: Client,
        job: Job,
        phase: Phase,
        optimiser: Memory,
        start: Tensor,
        orders: np.ndarray[tuple[int, int], np.dtype[np.int64]],
    ) -> None:
        """Epochs in which one part trains and the rest is frozen."""
        self.extractor.train()
        self.head.train()
        self.extractor.requires_grad_(phase.trains != "head")
        self.head.requires_grad_(phase.trains != "extractor")
        frozen = self._features(client) if phase.trains == "head" and self._cacheable else None
        data = client.data
        for rows in batches(orders, job.batch):
            chosen = torch.from_numpy(rows).to(data.labels.device)
            inputs = data.inputs[chosen] if frozen is None else frozen[chosen]
            features = inputs if frozen is not None else self.extractor(_floats(inputs, data.scale))
            self._gradients[self.layout.span(phase.trains)].zero_()
            job.recipe.objective(self.head(features), data.labels[chosen]).backward()  # type: ignore[no-untyped-call]
            self._step(client, job, phase.trains, optimiser, start)

    def _features(self, client: Client) -> Tensor:
        """Output of the frozen extractor for all training samples."""
        with torch.no_grad():
            chunks = torch.split(client.data.inputs, _CHUNK)
            return torch.cat([self.extractor(_floats(chunk, client.data.scale)) for chunk in chunks])

    def _step(self, client: Client, job: Job, trains: Part, optimiser: Memory, start: Tensor) -> None:
        """Transforms, then one update of what trains; an optimiser may count the steps of extractor and head apart."""
        parameters, gradients, whole = client.parameters, self._gradients, self.layout.span(trains)
        for transform in job.recipe.transforms:
            transform(gradients[whole], Step(parameters[whole], start[whole], client.memory, whole))
        parts: tuple[Part, ...] = ("extractor", "head") if trains == "model" else (trains,)
        for part in parts:
            span = self.layout.span(part)
            job.recipe.update(parameters[span], gradients[span], optimiser, part, span)


def _floats(inputs: Tensor, scale: float) -> Tensor:
    """What the model sees: float32, bytes scaled."""
    return inputs if inputs.dtype == torch.float32 else inputs.float() * scale


def samplewise(module: nn.Module) -> bool:
    """Whether every leaf is a known layer without chance or memory and all containers are plain sequences."""
    if isinstance(module, nn.Sequential):
        return all(samplewise(child) for child in module)
    return type(module) in _SAMPLEWISE
