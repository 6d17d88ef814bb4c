"""Dishonest clients in a simulation: who they are, and what they send instead of what they trained.

An attacker trains like everybody else; then the parameters that it shares are replaced by a lie, which is mixed like
anybody's, whether by a matrix or by messages. It starts the next round from what everybody gets, as at a server, or,
where that depends on what it has itself, as on a ring, from what it trained: it does not believe its own lie, which
would grow from round to round. With `label-flip` it is its data that are wrong, and it sends what it learnt from them.

- `sign-flip`: -θ.
- `noise`: θ + ε, ε normal with ten times the root mean square of θ.
- `scaled`: θ_0 + 10 (θ - θ_0), ten times the update of the round; θ_0 = 0 where θ is the update itself, as in FedNova.
- `lying-accuracy`: -θ, for which it claims a training accuracy of 1. The other attackers tell an accuracy gate the
  accuracy that what they send has on their own training data.
- `label-flip`: of C classes, c becomes C - 1 - c in its training data; test data stay as they are.

Vectors that an algorithm mixes beside the parameters are not changed.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from firma.schedule import RoundPlan
from firma.seeds import generator
from firma.settings import AttackName
from firma.training.local_step import ClientData

TRAINED = "attack.trained"  # in an attacker's memory: (P,) what it trained
STRENGTH = 10.0  # of noise, in root mean squares of the parameters, and of a scaled update


@dataclass(frozen=True, slots=True)
class Attack:
    """What dishonest clients do, and their numbers in ascending order."""

    kind: AttackName
    clients: tuple[int, ...]

    def lies(self, client: int) -> bool:
        """Whether a client sends other parameters than it trained."""
        return self.kind != "label-flip" and client in self.clients


def believes_itself(plan: RoundPlan) -> bool:
    """Whether what a client has after mixing depends on what it sent itself in another way than that of the others."""
    return plan.mixing not in ("star", "all-reduce", "all-gather") or plan.combine == "clipped"


def drawn_attack(kind: AttackName, count: int, clients: int, seed: int) -> Attack | None:
    """`count` of the clients, drawn by the seed: with a larger count, those of a smaller one are among them."""
    if kind == "none":
        return None
    drawn = generator(seed, "attackers").permutation(clients)[:count]
    return Attack(kind, tuple(sorted(drawn.tolist())))


def poisoned(data: ClientData, classes: int) -> ClientData:
    """The same samples with every training label c replaced by C - 1 - c."""
    return replace(data, labels=classes - 1 - data.labels)


def lie(kind: AttackName, trained: Tensor, start: Tensor, draw: np.random.Generator) -> Tensor:
    """(p,) what an attacker sends, given what it trained and what it started the round from."""
    match kind:
        case "sign-flip" | "lying-accuracy":
            return -trained
        case "noise":
            size = STRENGTH * float(trained.double().square().mean().sqrt())
            noise = torch.from_numpy(draw.normal(0.0, size, len(trained)).astype(np.float32))
            return trained + noise.to(trained)
        case "scaled":
            return start + STRENGTH * (trained - start)
        case "label-flip" | "none":
            return trained
