"""Training by autograd, for any pair of modules on any device."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from firma.errors import BadInput
from firma.models.split_model import Part, SplitModel
from firma.schedule import Phase
from firma.training.algorithm import Gradient, LocalStep, is_plain, overrides
from firma.training.layers import samplewise
from firma.training.local_step import (
    BUFFER,
    Client,
    Job,
    Memory,
    Step,
    batches,
    epoch_orders,
    model_inputs,
    optimiser_memory,
    reset,
)

CHUNK = 4096  # samples per forward pass without gradients
Gradients = Callable[[Tensor | None, slice], Tensor]


class AutogradTrainer:
    """One copy of the modules, whose parameters and gradients are views of the current client's flat buffers.

    Frozen parameters are the client's own, by reference: they are not trained, whatever the phase. `smallest` is the
    number of samples that a batch must have, see `batches`.
    """

    def __init__(self, model: SplitModel, device: torch.device, smallest: int = 1) -> None:
        copy = model.copy(same_frozen=device.type == "cpu")  # elsewhere, moving a copy would move the model too
        self.layout = model.layout()
        self.extractor = copy.extractor.to(device)
        self.head = copy.head.to(device)
        self._model = replace(copy, extractor=self.extractor, head=self.head)
        self._smallest = smallest
        pieces = {piece.name: piece for piece in self.layout.pieces}
        self._parameters = [(parameter, pieces[name]) for name, parameter in self._model.named_parameters()]
        self._trainable: dict[str, list[nn.Parameter]] = {"extractor": [], "head": []}
        for parameter, piece in self._parameters:
            self._trainable[piece.name.partition(".")[0]].append(parameter)
        self._frozen = list(self._model.named_frozen())
        self._moved: dict[str, int] = {}
        self._shared_buffers = [(name, tensor, pieces[name]) for name, tensor in self._model.named_shared_buffers()]
        self._buffers = dict(self._model.named_buffers())
        self._owners = {id(tensor): (owner, own) for owner, own, tensor in _registered(self.extractor, self.head)}
        self._gradients = torch.zeros(self.layout.size, device=device)
        self._fresh = optimiser_memory(self.layout.size, device)
        self._cacheable = samplewise(self.extractor)

    def train(self, client: Client, job: Job, shuffle: np.random.Generator) -> None:
        """Train a client for one round, in place."""
        optimiser = client.memory if job.recipe.persistent else self._fresh
        if not job.recipe.persistent:
            reset(self._fresh)
        special = job.recipe.transforms or not is_plain(job.recipe.algorithm)
        start = client.parameters.clone() if special else client.parameters
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
            chunks = torch.split(inputs, CHUNK)
            return torch.cat([self.head(self.extractor(self._seen(client, chunk))) for chunk in chunks])

    def _seen(self, client: Client, batch: Tensor) -> Tensor:
        """What the model is fed of a batch."""
        return model_inputs(batch, client.data.scale, self._model.inputs)

    def _enter(self, client: Client) -> None:
        """Point the modules at a client's buffers and give them its private state."""
        for parameter, piece in self._parameters:
            parameter.data = client.parameters[piece.start : piece.stop].view(piece.shape)
            parameter.grad = self._gradients[piece.start : piece.stop].view(piece.shape)
        for name, own in self._frozen:
            self._refer(name, own, client.frozen[name])
        for _, buffer, piece in self._shared_buffers:
            self._put(buffer, client.parameters[piece.start : piece.stop].view(piece.shape))
        for name, buffer in self._buffers.items():
            self._put(buffer, client.memory[BUFFER + name])

    def _refer(self, name: str, own: nn.Parameter, values: Tensor) -> None:
        """Use a frozen tensor where it is; on another device, a copy that stays until other values are needed."""
        if own.device == values.device:
            own.data = values
        elif self._moved.get(name) != values.data_ptr():
            own.data, self._moved[name] = values.to(own.device), values.data_ptr()

    def _leave(self, client: Client) -> None:
        for name, buffer, piece in self._shared_buffers:
            _keep(name, self._current(buffer), client.parameters[piece.start : piece.stop].view(piece.shape))
        for name, buffer in self._buffers.items():
            _keep(name, self._current(buffer), client.memory[BUFFER + name])

    def _put(self, buffer: Tensor, values: Tensor) -> None:
        """Values for a buffer, also if a forward pass has assigned another tensor to its name."""
        buffer.copy_(values)
        owner, name = self._owners[id(buffer)]
        owner._buffers[name] = buffer

    def _current(self, buffer: Tensor) -> Tensor | None:
        """What the modules now hold under a buffer's name."""
        owner, name = self._owners[id(buffer)]
        return owner._buffers.get(name)

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
        for part, parameters in self._trainable.items():
            for parameter in parameters:
                parameter.requires_grad_(phase.trains in ("model", part))
        algorithm = job.recipe.algorithm
        own_step = overrides(algorithm, "local_step")
        cached = phase.trains == "head" and self._cacheable and not own_step
        features = self._features(client) if cached else None
        data, trained = client.data, self.layout.trained(phase.trains)
        for rows in batches(orders, job.batch, self._smallest):
            chosen = torch.from_numpy(rows).to(data.labels.device)

            def gradient(at: Tensor | None, some: slice, chosen: Tensor = chosen) -> Tensor:
                """(P,) gradient on some of the chosen samples, at other parameters if asked."""
                picked = chosen[some]
                if at is not None:
                    self._point(at)
                seen = self.extractor(self._seen(client, data.inputs[picked])) if features is None else features[picked]
                self._gradients[trained].zero_()
                job.recipe.objective(self.head(seen), data.labels[picked]).backward()  # type: ignore[no-untyped-call]
                if at is not None:
                    self._point(client.parameters)
                return self._gradients

            if not own_step:
                gradient(None, slice(None))
                self._step(client, job, phase.trains, optimiser, start)
                continue

            def copied(at: Tensor | None, some: slice, compute: Gradients = gradient) -> Tensor:
                result = torch.zeros_like(self._gradients)
                result[trained] = compute(at, some)[trained]
                return result

            def update(gradients: Tensor) -> None:
                self._gradients.copy_(gradients)
                self._step(client, job, phase.trains, optimiser, start)

            algorithm.local_step(
                LocalStep(
                    client.parameters, start, client.memory, job.recipe.update.rate, len(rows), Gradient(copied), update
                )
            )

    def _point(self, flat: Tensor) -> None:
        """Let the modules' parameters be views of this flat buffer."""
        for parameter, piece in self._parameters:
            parameter.data = flat[piece.start : piece.stop].view(piece.shape)

    def _features(self, client: Client) -> Tensor:
        """Output of the frozen extractor for all training samples."""
        with torch.no_grad():
            chunks = torch.split(client.data.inputs, CHUNK)
            return torch.cat([self.extractor(self._seen(client, chunk)) for chunk in chunks])

    def _step(self, client: Client, job: Job, trains: Part, optimiser: Memory, start: Tensor) -> None:
        """Transforms, then one update of what trains; an optimiser may count the steps of extractor and head apart."""
        parameters, gradients, whole = client.parameters, self._gradients, self.layout.trained(trains)
        if job.recipe.transforms or overrides(job.recipe.algorithm, "change_gradient"):
            step = Step(parameters[whole], start[whole], client.memory, whole, job.recipe.shared)
            job.recipe.algorithm.change_gradient(gradients[whole], step)
            for transform in job.recipe.transforms:
                transform(gradients[whole], step)
        parts: tuple[Part, ...] = ("extractor", "head") if trains == "model" else (trains,)
        for part in parts:
            span = self.layout.trained(part)
            if span.start < span.stop:  # a head may have no trainable parameters
                job.recipe.update(parameters[span], gradients[span], optimiser, part, span)


def _registered(*modules: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """Every buffer with the module and the name that it is registered under."""
    for whole in modules:
        for module in whole.modules():
            for name, tensor in module.named_buffers(recurse=False):
                yield module, name, tensor


def _keep(name: str, current: Tensor | None, place: Tensor) -> None:
    """Copy what training has made of a buffer to where the client keeps it."""
    if current is None or current.shape != place.shape:
        now = "is gone" if current is None else f"has shape {tuple(current.shape)}"
        raise BadInput(
            f"model: buffer {name!r} {now} after training; must keep its shape {tuple(place.shape)}, since clients "
            "keep, save and share it"
        )
    place.copy_(current.detach())
