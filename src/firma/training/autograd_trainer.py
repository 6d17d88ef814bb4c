"""Training by autograd, for any pair of modules on any device."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from firma.errors import BadInput
from firma.models.split_model import Part, SplitModel
from firma.schedule import Phase
from firma.training.algorithm import (
    PERSONAL,
    Forward,
    Gradient,
    LocalStep,
    Loss,
    Penalty,
    Update,
    is_plain,
    overrides,
)
from firma.training.hooks import change_gradient, is_finite, is_own, local_step
from firma.training.layers import samplewise
from firma.training.local_step import (
    BUFFER,
    Client,
    Job,
    Memory,
    Step,
    batches,
    model_inputs,
    optimiser_memory,
    phase_orders,
    reset,
)

CHUNK = 4096  # samples per forward pass without gradients
Gradients = Callable[[Tensor | None, slice, Penalty | None, Loss | None], Tensor]


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
        self._beside: dict[int, tuple[Tensor, Memory]] = {}  # start and optimiser of models beside the client's own
        self._cacheable = samplewise(self.extractor)
        # Of local steps of the user's own, it is known whether training itself made NaN or infinity in the present one.
        self._watched = self._diverged = False

    def train(self, client: Client, job: Job, shuffle: np.random.Generator) -> None:
        """Train a client for one round, in place."""
        optimiser = client.memory if job.recipe.persistent else self._fresh
        if not job.recipe.persistent:
            reset(self._fresh)
        self._beside.clear()
        special = job.recipe.transforms or not is_plain(job.recipe.algorithm)
        start = client.parameters.clone() if special else client.parameters
        self._enter(client)
        self._steps = 0
        for phase in job.phases:
            for orders in phase_orders(len(client.data.labels), phase, job.batch, shuffle, self._smallest):
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
        self._restore(client)

    def _restore(self, client: Client) -> None:
        """Give the modules a client's buffers."""
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
        self._watched = own_step and is_own(algorithm)
        cached = phase.trains == "head" and self._cacheable and not own_step
        features = self._features(client) if cached else None
        data, trained = client.data, self.layout.trained(phase.trains)
        for rows in batches(orders, job.batch, self._smallest):
            chosen = torch.from_numpy(rows).to(data.labels.device)

            def gradient(
                at: Tensor | None, some: slice, penalty: Penalty | None, other: Loss | None, chosen: Tensor = chosen
            ) -> Tensor:
                """(P,) gradient on some of the chosen samples, at other parameters if asked."""
                picked = chosen[some]
                with self._at(client, at, "gradient"):
                    inputs = data.inputs[picked]
                    seen = self.extractor(self._seen(client, inputs)) if features is None else features[picked]
                    self._gradients[trained].zero_()
                    outputs = self.head(seen)
                    loss = (other or job.recipe.objective)(outputs, data.labels[picked])
                    (loss if penalty is None else loss + penalty(seen)).backward()  # type: ignore[no-untyped-call]
                if self._watched and not is_finite(self._gradients[trained]):
                    # A loss of the hook's own that is NaN on finite outputs is the hook's doing.
                    usual = other is None and penalty is None
                    sound = is_finite(client.parameters if at is None else at)
                    self._diverged |= sound and (usual or not is_finite(outputs.detach()))
                return self._gradients

            if not own_step:
                gradient(None, slice(None), None, None)
                self._step(client, job, phase.trains, optimiser, start)
                continue

            def copied(
                at: Tensor | None, some: slice, penalty: Penalty | None, other: Loss | None,
                compute: Gradients = gradient,
            ) -> Tensor:  # fmt: skip
                result = torch.zeros_like(self._gradients)
                result[trained] = compute(at, some, penalty, other)[trained]
                return result

            def features_at(at: Tensor | None, some: slice, chosen: Tensor = chosen) -> Tensor:
                return self._forward(client, at, chosen[some], head=False)

            def outputs_at(at: Tensor | None, some: slice, chosen: Tensor = chosen) -> Tensor:
                return self._forward(client, at, chosen[some], head=True)

            def update(gradients: Tensor, model: Tensor | None) -> None:
                _check_flat("update", "gradients", gradients, client.parameters, same_kind=False)
                changed = client.parameters if model is None else model
                _check_flat("update", "model", changed, client.parameters)
                sound = self._watched and is_finite(changed) and is_finite(gradients)
                self._gradients.copy_(gradients)
                if model is None:
                    self._step(client, job, phase.trains, optimiser, start)
                else:
                    self._step_beside(client, job, phase.trains, model)
                self._diverged |= sound and not is_finite(changed)

            self._diverged = False
            local_step(
                algorithm,
                LocalStep(
                    client.parameters, start, client.memory, job.recipe.update.rate, len(rows), Gradient(copied),
                    Update(update), Forward(features_at), Forward(outputs_at), job.recipe.objective, client.number,
                    job.number, self._steps, job.seed,
                ),
                lambda: self._diverged,
            )  # fmt: skip
            self._steps += 1

    def _forward(self, client: Client, at: Tensor | None, picked: Tensor, head: bool) -> Tensor:
        """(n, …) the extractor's outputs, or the head's, for some samples at any parameters, in evaluation mode."""
        with self._at(client, at, "outputs" if head else "features"), torch.no_grad():
            self.extractor.eval()
            self.head.eval()
            found: Tensor = self.extractor(self._seen(client, client.data.inputs[picked]))
            found = self.head(found) if head else found
            self.extractor.train()
            self.head.train()
        if self._watched and not is_finite(found):
            self._diverged |= is_finite(client.parameters if at is None else at)
        return found

    @contextmanager
    def _at(self, client: Client, flat: Tensor | None, what: str) -> Iterator[None]:
        """The modules at other parameters (P,) for a while: at the personal model with its buffers.

        What a forward pass does to buffers at any other parameters is undone. `what` asks for it, for people.
        """
        if flat is not None:
            _check_flat(what, "at", flat, client.parameters)
            flat = flat.contiguous()  # else it may begin where the client's own do and be something else
        if flat is None or flat.data_ptr() == client.parameters.data_ptr():
            yield
            return
        own = client.memory.get(PERSONAL)
        prefix = f"{PERSONAL}.{BUFFER}" if own is not None and own.data_ptr() == flat.data_ptr() else ""
        self._leave(client)
        self._point(flat)
        if prefix:
            for name, buffer in self._buffers.items():
                self._put(buffer, client.memory[prefix + name])
        try:
            yield
            if prefix:
                for name, buffer in self._buffers.items():
                    _keep(name, self._current(buffer), client.memory[prefix + name])
        finally:
            self._point(client.parameters)
            self._restore(client)

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
            if overrides(job.recipe.algorithm, "change_gradient"):
                change_gradient(job.recipe.algorithm, gradients[whole], step, client.number, job.number)
            for transform in job.recipe.transforms:
                transform(gradients[whole], step)
        self._update(parameters, job, trains, optimiser)

    def _step_beside(self, client: Client, job: Job, trains: Part, model: Tensor) -> None:
        """The same on another model, without the algorithm's own change of gradients."""
        known = self._beside.get(model.data_ptr())
        if known is None:
            known = self._beside[model.data_ptr()] = model.clone(), optimiser_memory(len(model), model.device)
        (start, optimiser), whole = known, self.layout.trained(trains)
        for transform in job.recipe.transforms:
            transform(self._gradients[whole], Step(model[whole], start[whole], client.memory, whole, job.recipe.shared))
        self._update(model, job, trains, optimiser)

    def _update(self, parameters: Tensor, job: Job, trains: Part, optimiser: Memory) -> None:
        parts: tuple[Part, ...] = ("extractor", "head") if trains == "model" else (trains,)
        for part in parts:
            span = self.layout.trained(part)
            if span.start < span.stop:  # a head may have no trainable parameters
                job.recipe.update(parameters[span], self._gradients[span], optimiser, part, span)


def _check_flat(function: str, name: str, found: object, expected: Tensor, same_kind: bool = True) -> None:
    """Refuse an argument that torch would broadcast, or would read the beginning of."""
    size = len(expected)
    if not isinstance(found, Tensor):
        raise BadInput(
            f"step.{function}: {name} is of type {type(found).__name__}; must be a tensor of shape ({size},)"
        )
    if found.shape != expected.shape:
        raise BadInput(f"step.{function}: the shape of {name} is {tuple(found.shape)}; must be ({size},)")
    if same_kind and found.dtype != expected.dtype:
        here, there = (str(each.dtype).removeprefix("torch.") for each in (found, expected))
        raise BadInput(f"step.{function}: {name} is {here}; must be {there}")


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
