"""One client's round of local training, the same in a simulation and at a site of its own."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from firma.schedule import RoundPlan
from firma.seeds import generator, torch_seed
from firma.training import Backend, Client, Job, Trainer


def train_round(trainer: Trainer, client: Client, job: Job, plan: RoundPlan, seed: int, backend: Backend) -> float:
    """Train; the training accuracy where a gate asks for it, else 1."""
    with drawing(torch_seed(seed, "layers", client.number, plan.number)) if backend.draws else nullcontext():
        trainer.train(client, job, generator(seed, "batches", client.number, plan.number))
    return trainer.correct(client, test=False) / len(client.labels) if plan.gate is not None else 1.0


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """torch's own generators at an address, for layers that draw, such as dropout; afterwards they are as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
