"""A trainer and a backend whose clients are trained by a Flower app.

The app decides how it trains: optimiser, epochs, batches and device are its own. Its randomness has an address, as
everywhere in FIRMA: the generators of the process are seeded before each call (`draws`). Clients are called one at a
time, for those generators, and whatever else an app keeps, belong to the process.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from firma.errors import BadInput
from firma.flower.app_code import imported
from firma.flower.description import FlowerApp, Scalar
from firma.flower.messages import Address, Kind, Reply, ask, flower, in_order, is_legacy
from firma.flower.named_arrays import CONTEXT, Array, Template, listed, tell_what_changes, template
from firma.seeds import torch_seed
from firma.training.backend import Backend, drawing
from firma.training.local_step import Client, ClientData, Job, Trainer

_SMALL = 2_000_000  # parameters below which several threads for one product cost more than they save
NodeConfig = Callable[[int], Mapping[str, Scalar]]  # by client


@dataclass(frozen=True)
class LoadedApp:
    """A `ClientApp` that is ready to be called, and its description."""

    client_app: Any
    initial: Any  # None: the client's get_parameters
    described: FlowerApp
    node_config: NodeConfig

    def ask(
        self, kind: Kind, arrays: Mapping[str, Array], config: Mapping[str, Scalar], client: int, number: int,
        state: Tensor,
    ) -> Reply:  # fmt: skip
        """One call of the app."""
        address = Address(client, number, self.node_config(client), self.described.run_config)
        return ask(self.client_app, kind, arrays, config, address, state)


class FlowerTrainer:
    """Trains and tests clients by asking the app."""

    def __init__(self, app: LoadedApp, made: Template) -> None:
        self._app, self._template = app, made
        self._last: dict[int, Reply] = {}  # by client, of its last training

    def train(self, client: Client, job: Job, shuffle: np.random.Generator) -> None:
        """Train a client for one round, in place; phases without epochs train nothing."""
        del shuffle  # the app draws from the generators of the process
        if not any(phase.epochs for phase in job.phases):
            return
        made, config = self._template, self._app.described.train_config
        reply = self._app.ask(
            "train", made.arrays(client), config, client.number, job.number + 1, client.memory[CONTEXT]
        )  # fmt: skip
        shapes = [spec.shape for spec in made.specs]
        made.adopt(client, in_order(reply, made.names, shapes, client.number))
        client.memory[CONTEXT] = reply.state
        client.data = replace(client.data, labels=_counted(reply.samples))
        self._last[client.number] = reply

    def outputs(self, client: Client, test: bool) -> Tensor:
        """Not known: an app reports metrics, not outputs."""
        raise BadInput(f"flower app {self._app.described.app!r} reports metrics only, so nothing else can be scored")

    def metrics(self, client: Client, test: bool) -> dict[str, float]:
        """What the app reports: of an evaluation now, or of the client's last training; its accuracy as "accuracy"."""
        if not test:
            last = self._last.get(client.number)
            if last is None:  # a round without epochs, which a site runs to prepare itself, reports nothing
                return {"accuracy": 0.0}
            return _numbers(last) | {"accuracy": _metric(last, self._app.described.train_accuracy, "train")}
        described, made = self._app.described, self._template
        reply = self._app.ask(
            "evaluate", made.arrays(client), described.evaluate_config, client.number, 0, client.memory[CONTEXT]
        )
        client.memory[CONTEXT] = reply.state
        return _numbers(reply) | {"accuracy": _metric(reply, described.accuracy, "evaluate")}


def loaded(app: FlowerApp | object, initial: object, described: FlowerApp, node_config: NodeConfig) -> LoadedApp:
    """Import what a description refers to; `app` and `initial` may also be the objects themselves."""
    flower()
    client_app = imported(described.app, "app") if isinstance(app, FlowerApp) else app
    if type(client_app).__name__ != "ClientApp" or not callable(client_app):
        raise BadInput(f"app = {described.app!r}: is a {type(client_app).__name__}; must be a flwr.clientapp.ClientApp")
    start = imported(described.initial, "initial") if initial is None and described.initial else initial
    return LoadedApp(client_app, start, described, node_config)


def templates(app: LoadedApp, seed: int, clients: list[int]) -> list[Template]:
    """What these clients start from; weights are drawn from (seed, client), as those of FIRMA's own models."""
    made = [template(_initial(app, seed, client), app.described.head) for client in clients]
    tell_what_changes(made[0])
    return made


def backend(app: LoadedApp, made: Template) -> Backend:
    """The backend of an app: buffers have torch's layout, and clients train one at a time."""

    def reports(trainer: Trainer, client: Client, test: bool) -> Mapping[str, float]:
        assert isinstance(trainer, FlowerTrainer)  # made below
        return trainer.metrics(client, test)

    small = made.model.layout().size < _SMALL
    return Backend(
        "flower", f"the Flower app {app.described.app}", lambda: FlowerTrainer(app, made), torch.clone, torch.clone,
        parallel="no", threads=1 if small else None, draws=True, reports=reports,
    )  # fmt: skip


def unknown_data() -> ClientData:
    """The data of a client before its first training: the app has them, and says then how many samples there are."""
    one = _counted(1)
    return ClientData(torch.zeros(0), one, torch.zeros(0), one)


def _counted(samples: int) -> Tensor:
    """(n,) labels that stand for the app's own; they take no memory."""
    return torch.zeros(1, dtype=torch.int64).expand(samples)


def _numbers(reply: Reply) -> dict[str, float]:
    """The metrics that are single numbers."""
    numbers = {name: float(value) for name, value in reply.metrics.items() if isinstance(value, int | float)}
    return {name: value for name, value in numbers.items() if name != "num-examples"}


def _metric(reply: Reply, name: str, kind: Kind) -> float:
    """An accuracy among the metrics of a reply."""
    value = reply.metrics.get(name)
    if isinstance(value, int | float) and 0 <= value <= 1:
        return float(value)
    field = "accuracy" if kind == "evaluate" else "train_accuracy"
    if name in reply.metrics:
        raise BadInput(f"flower app: {kind} returned {name} = {value!r}; must be an accuracy between 0 and 1")
    reason = "" if kind == "evaluate" else "the gate of this method requires the training accuracy, but "
    raise BadInput(
        f"flower app: {reason}{kind} returned no metric {name!r} (it has {listed(list(reply.metrics)) or 'none'}); "
        f"name the metric that is the accuracy with {field} = '…'"
        + ("" if kind == "evaluate" else ", or use the method with gate=no")
    )


def _initial(app: LoadedApp, seed: int, client: int) -> dict[str, Array]:
    """The named arrays that a client starts from."""
    drawn = torch_seed(seed, "initial weights", client)
    if app.initial is not None:
        with drawing(drawn):
            source = app.initial
            if callable(source) and not isinstance(source, nn.Module):
                source = source()
        return _named(source)
    if not is_legacy(app.client_app):
        raise BadInput(
            "flower app: initial is missing; an app with @app.train() cannot be asked for its parameters, so give the "
            "model that its ServerApp starts from, such as initial = 'mypackage.task:Net'"
        )
    with drawing(drawn):
        reply = app.ask("get_parameters", {}, {}, client, 0, torch.zeros(0, dtype=torch.uint8))
    if not reply.arrays:
        raise BadInput(
            "flower app: get_parameters returned no arrays; give the model with initial = 'module:attribute'"
        )
    return _named(list(reply.arrays))


def _named(source: object) -> dict[str, Array]:
    """Arrays by name from a torch module, a mapping or a list; those of a list are numbered from 0."""
    held = source.state_dict() if isinstance(source, nn.Module) else source
    if isinstance(held, list | tuple):
        held = {str(number): array for number, array in enumerate(held)}
    if not isinstance(held, Mapping) or not held:
        raise BadInput(
            f"flower app: initial is a {type(source).__name__}; must be a torch module, a dict or a list of arrays, "
            "or a function that returns one of these"
        )
    return {str(name): _array(array) for name, array in held.items()}


def _array(value: Any) -> Array:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)  # flwr.app.Array has numpy()
