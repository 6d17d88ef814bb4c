"""Before training begins: which backend trains, proved on the user's own model and data, and what cannot be trained.

Everything here is tried on copies: parameters, buffers and random generators are as they were afterwards.
"""

import random
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from firma.errors import BadInput
from firma.models.split_model import Part, SplitModel
from firma.schedule import Phase
from firma.training.autograd_trainer import CHUNK, AutogradTrainer
from firma.training.backend import Backend, by_autograd, choose, drawing, torch_threads
from firma.training.layers import named_layers, samplewise
from firma.training.local_step import ClientData, Job, Recipe, Sgd, model_inputs, new_client

_PROOF = 8  # samples of the first client, in one batch
_CLOSE, _ROUNDING = 1e-3, 1e-6  # relative difference of gradients; of float32 sums in another order
_INTERNAL = frozenset(vars(nn.Module()))  # attributes that every module has


def prepare(
    models: Sequence[SplitModel],
    device: torch.device,
    recipe: Recipe,
    batch: int,
    phases: Iterable[Phase],
    data: Sequence[ClientData],
    wanted: str | Backend = "auto",
) -> Backend:
    """The backend that trains these clients with these phases.

    Compiled kernels prove themselves: for each kind of phase, one step on a few samples of the first client must be
    autograd's; if it is not, a warning says so and autograd is used. A model with layers of unknown behaviour is tried:
    what it cannot be trained on, what it changes besides parameters and buffers, and which parameters it does not use.
    A ready-made backend is taken as it is.
    """
    if isinstance(wanted, Backend):
        return wanted
    model = models[0]
    _check_layouts(models)
    trains = [each.trains for each in phases if each.epochs > 0]
    _check_head(model, trains)
    backend = choose(model, device, recipe, batch, wanted)
    parts = list(dict.fromkeys(trains))
    if not data or not parts:
        return backend
    if backend.name == "compiled":
        with torch_threads(1):
            different = _different(backend, model, data[0], parts)
        if not different:
            return backend
        warnings.warn(
            f"the compiled kernels do not compute what this model computes ({different} differs from autograd after "
            "one step), so it is trained by autograd; this may be slower, and it is right",
            UserWarning,
            stacklevel=2,
        )
        backend = by_autograd(model, device, recipe, f"the compiled kernels differ from autograd in {different}")
    if samplewise(model.extractor) and samplewise(model.head):
        return backend
    return _tried(backend, model, device, recipe, batch, data)


def _check_layouts(models: Sequence[SplitModel]) -> None:
    """All clients must have the same structure, or they could not mix."""
    expected = models[0].layout()
    for client, model in enumerate(models):
        if model.layout() != expected:
            raise BadInput(
                f"model: the model of client {client} has other shapes than that of client 0; a function that builds "
                "models must return the same structure each time"
            )


def _check_head(model: SplitModel, trains: Sequence[Part]) -> None:
    layout = model.layout()
    if "head" in trains and layout.extractor == layout.size:
        what = (
            "all its parameters are frozen"
            if next(model.head.parameters(), None) is not None
            else "it has no parameters"
        )
        raise BadInput(
            f"model: the head cannot be trained ({what}), but this method trains it; give the head trainable "
            "parameters, set head_epochs to 0, or choose a method that trains the whole model at once"
        )


def _different(backend: Backend, model: SplitModel, data: ClientData, parts: Sequence[Part]) -> str:
    """The first tensor in which one step of the backend is not autograd's; empty if there is none.

    Plain gradient descent with rate 1 from the same start: what a step adds is the negative gradient.
    """
    few = replace(data, inputs=data.inputs[:_PROOF], labels=data.labels[:_PROOF])
    start, recipe = model.flat(), Recipe(Sgd(1.0, 0.0))
    fast, slow = backend.make(), AutogradTrainer(model, torch.device("cpu"))
    for part in parts:
        job = Job(recipe, (Phase(part, 1),), _PROOF)
        clients = [new_client(0, few, flat, model, recipe) for flat in (backend.inward(start), start.clone())]
        for trainer, client in zip((fast, slow), clients, strict=True):
            trainer.train(client, job, np.random.default_rng(0))
        ours, theirs = backend.outward(clients[0].parameters) - start, clients[1].parameters - start
        for piece in model.layout().pieces:
            a, b = ours[piece.start : piece.stop], theirs[piece.start : piece.stop]
            size = max(start[piece.start : piece.stop].abs().max().item(), theirs.abs().max().item())
            allowed = _CLOSE * b.abs().max().item() + _ROUNDING * size
            if not (a - b).abs().max().item() <= allowed and bool(b.isfinite().all()):
                return piece.name
    return ""


@dataclass(frozen=True)
class _Findings:
    """What trying a model has shown; errors as text, empty if there was none."""

    single: str  # of a training step on one sample
    single_test: str  # of evaluating one sample
    unused: tuple[str, ...]  # parameters without a gradient
    counters: tuple[str, ...]  # numbers and text, outside buffers, that a step changes
    state: tuple[str, ...]  # whatever else a step changes


def _tried(
    backend: Backend, model: SplitModel, device: torch.device, recipe: Recipe, batch: int, data: Sequence[ClientData]
) -> Backend:
    """The backend after a step on two samples and one on a single sample, with what they have shown."""
    with drawing(0), torch_threads(backend.threads):
        found = _findings(model, device, recipe, data)
    _check_sizes(found, batch, data)
    if found.unused:
        warnings.warn(
            f"model: {_listed(found.unused)} got no gradient in a trial step, so forward may not use it; a parameter "
            "without a gradient is not trained, but it is mixed and sent: freeze it with requires_grad_(False)",
            UserWarning,
            stacklevel=3,
        )
    if found.counters:
        warnings.warn(
            f"model: a training step changes {_listed(found.counters)}, which is not a buffer, so it is neither "
            "private to a client nor saved in checkpoints; keep it with register_buffer",
            UserWarning,
            stacklevel=3,
        )
    if found.single:
        backend = by_autograd(model, device, recipe, backend.reason, smallest=2)
    kept = (*found.counters, *found.state)
    if not kept or backend.parallel == "no":
        return backend
    why = f"one at a time because a step changes {_listed(kept)}, which is not a buffer"
    return replace(backend, parallel="no", notes=(why, *backend.notes))


def _findings(model: SplitModel, device: torch.device, recipe: Recipe, data: Sequence[ClientData]) -> _Findings:
    client = max(data, key=lambda each: min(2, len(each.labels)))  # one that has two samples, if any has
    before = _outside(model)
    samples = min(2, len(client.labels))
    failed, trial = _attempt(model, device, recipe, client, samples, training=True)
    if failed is not None and samples == 2:
        raise BadInput(f"model: a training step on two samples fails ({_text(failed)})") from failed
    after = _outside(trial)
    changed = [name for name in after if name not in before or after[name] != before[name]]
    single = _attempt(model, device, recipe, client, 1, training=True)[0] if samples == 2 else failed
    return _Findings(
        single=_text(single),
        single_test=_text(_attempt(model, device, recipe, client, 1, training=False)[0]),
        unused=() if failed else tuple(name for name, own in trial.named_parameters() if own.grad is None),
        counters=tuple(name for name in changed if isinstance(after[name], _PLAIN)),
        state=tuple(name for name in changed if not isinstance(after[name], _PLAIN)),
    )


def _attempt(
    model: SplitModel, device: torch.device, recipe: Recipe, data: ClientData, samples: int, training: bool
) -> tuple[Exception | None, SplitModel]:
    """One step, or one evaluation, of a copy of the model on the first samples; its error, and the copy."""
    trial = model.copy(same_frozen=device.type == "cpu")
    trial.extractor.to(device).train(training)
    trial.head.to(device).train(training)
    inputs = model_inputs(data.inputs[:samples].to(device), data.scale, model.inputs)
    try:
        with torch.set_grad_enabled(training):
            logits = trial.head(trial.extractor(inputs))
            if training:
                recipe.objective(logits, data.labels[:samples].to(device)).backward()  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever the user's forward raises
        return error, trial
    return None, trial


def _check_sizes(found: _Findings, batch: int, data: Sequence[ClientData]) -> None:
    """Refuse clients and batches of one sample where the model cannot process a single one."""
    if found.single and batch == 1:
        raise BadInput(f"batch = 1: this model cannot be trained on a batch of one sample ({found.single})")
    for number, client in enumerate(data):
        if found.single and len(client.labels) == 1:
            raise BadInput(
                f"client {number} has one training sample, and this model cannot be trained on a batch of one sample "
                f"({found.single}); leave out such clients with min_samples, or replace batch normalisation, for "
                "example by GroupNorm or LayerNorm"
            )
        if found.single_test and 1 in (len(client.test_labels) % CHUNK, len(client.labels) % CHUNK):
            raise BadInput(
                f"client {number} would be tested on a single sample at a time, which this model cannot process in "
                f"evaluation mode ({found.single_test})"
            )


_PLAIN = (bool, int, float, str)


def _outside(model: SplitModel) -> dict[str, object]:
    """What modules hold besides parameters, buffers and modules, by name, as values that can be compared."""
    return {
        f"{place}.{name}": _comparable(held, 3)
        for place, module in named_layers(model)
        for name, held in vars(module).items()
        if name not in _INTERNAL and not (isinstance(held, Tensor) and not held.is_leaf)
    }


def _comparable(held: object, depth: int) -> object:  # noqa: PLR0911  # one per kind of value
    """A value as something whose equality means that it has not changed; objects of unknown kind never seem to."""
    if isinstance(held, _PLAIN):
        return held
    if isinstance(held, Tensor) and held.layout == torch.strided:
        return (tuple(held.shape), held.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    if isinstance(held, np.ndarray):
        return (held.shape, held.tobytes())
    if isinstance(held, torch.Generator):
        return ("generator", held.get_state().numpy().tobytes())
    if isinstance(held, np.random.Generator):
        return ("generator", str(held.bit_generator.state))
    if isinstance(held, random.Random):
        return ("generator", held.getstate())
    if isinstance(held, dict) and depth:
        return ("dict", [(str(key), _comparable(each, depth - 1)) for key, each in held.items()])
    if isinstance(held, list | tuple | set | deque) and depth:
        return ("items", len(held), [_comparable(each, depth - 1) for each in held])
    return type(held).__name__


def _listed(names: Sequence[str]) -> str:
    """The first names of many."""
    return ", ".join(repr(name) for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _text(error: Exception | None) -> str:
    return "" if error is None else f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
