"""A star's server whose algorithm has an `aggregate` of its own: what it keeps between rounds, and what it computes."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from firma.engines.engine import Federation
from firma.schedule import RoundPlan
from firma.training.algorithm import ServerRound, overrides
from firma.training.backend import torch_threads
from firma.training.hooks import PARAMETERS, aggregate, declared
from firma.training.local_step import Recipe, elements

START = "round.start"  # beside the algorithm's memory: (q,) what the server sent last


class Server:
    """Vectors (q,) are in torch's layout, as in messages: the shared parameters, then the vectors mixed with them."""

    def __init__(self, run: Federation, recipe: Recipe) -> None:
        self._run, self._algorithm = run, recipe.algorithm
        flat, count = run.models[0].flat(), elements(recipe.shared)
        parts = [*(flat[span] for span in recipe.shared), torch.zeros(sum(recipe.mixed.values()))]
        self._start = torch.cat(parts).to(run.device)
        own = declared(recipe.algorithm, "server_memory", count)
        self._memory = {name: tensor.to(run.device) for name, tensor in own.items()}
        self._spans, at = {PARAMETERS: slice(0, count)}, count
        for name, size in recipe.mixed.items():
            self._spans[name], at = slice(at, at + size), at + size

    def aggregate(self, plan: RoundPlan, numbers: Sequence[int], received: Tensor, weights: Tensor) -> Tensor:
        """(q,) what is sent to all clients, given what `numbers` have sent (n, q), and what they weigh (n,)."""
        run = self._run
        with torch_threads(1):  # as in mixing by blocks: the same on any number of cores
            found = aggregate(
                self._algorithm,
                ServerRound(
                    plan.number, self._start.clone(), received, weights.to(received), tuple(numbers), run.clients,
                    self._memory, self._spans, run.seed,
                ),
            )  # fmt: skip
        self._start.copy_(found)
        return found

    def state(self) -> dict[str, Tensor]:
        """What it keeps between rounds."""
        return self._memory | {START: self._start}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Continue from what it kept."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


def server_of(run: Federation, recipe: Recipe) -> Server | None:
    """The server of a federation whose algorithm has an `aggregate` of its own."""
    return Server(run, recipe) if overrides(recipe.algorithm, "aggregate") else None
