"""What a client makes of the mixed model for itself after each round; nothing of it is ever sent.

`fine-tune`: all parameters are trained on for a few epochs. `choose`: the head alone is tuned, and the client chooses
between the mixed model, the tuned one and the one half-way by the loss on data that it held out of training.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from firma.models.split_model import Part
from firma.schedule import Phase, RoundPlan
from firma.seeds import generator
from firma.tasks.losses import objective
from firma.training.algorithm import CHOICE, PERSONAL, Algorithm
from firma.training.backend import Backend, planned, seeded
from firma.training.local_step import BUFFER, Client, ClientData, Job, Trainer, tested

CANDIDATES = (0.0, 0.5, 1.0)  # how far the head goes from the mixed model to the tuned one


def personalise(backend: Backend, trainer: Trainer, client: Client, job: Job, plan: RoundPlan, seed: int) -> None:
    """Make the personal model in the client's memory anew, from the mixed one."""
    recipe = job.recipe
    for name, kept in client.memory.items():
        if name.startswith(BUFFER):
            client.memory[f"{PERSONAL}.{name}"].copy_(kept)
    own = client.memory[PERSONAL]
    own.copy_(client.parameters)
    part: Part = "model" if recipe.personal == "fine-tune" else "head"
    plain = replace(recipe, transforms=(), algorithm=Algorithm(), persistent=False)
    work = replace(planned(replace(job, recipe=plain), plan), phases=(Phase(part, recipe.personal_epochs),))
    with seeded(backend, seed, "personal layers", client.number, plan.number):
        trainer.train(tested(client), work, generator(seed, "personal", client.number, plan.number))
    if recipe.personal == "choose":
        _choose(backend, trainer, client, job, plan, seed, own.clone())


def _choose(
    backend: Backend, trainer: Trainer, client: Client, job: Job, plan: RoundPlan, seed: int, tuned: Tensor
) -> None:
    """The personal model becomes the candidate with the least loss on what was held out; the mixed one wins ties.

    Once those data are trained on as well, the last choice stands.
    """
    own, choice = client.memory[PERSONAL], client.memory[CHOICE]
    if plan.held and client.data.held:
        held = _held_out(client.data)
        losses = []
        for share in CANDIDATES:
            torch.lerp(client.parameters, tuned, share, out=own)
            with seeded(backend, seed, "evaluation", client.number):
                outputs = trainer.outputs(replace(tested(client), data=held), test=False)
            losses.append(float(objective(job.recipe.task)(outputs, held.labels)))
        choice.fill_(min(range(len(CANDIDATES)), key=losses.__getitem__))
    torch.lerp(client.parameters, tuned, CANDIDATES[int(choice)], out=own)


def _held_out(data: ClientData) -> ClientData:
    """The held-out rows alone."""
    first = len(data.labels) - data.held
    return replace(data, inputs=data.inputs[first:], labels=data.labels[first:], held=0)


def held_out(data: ClientData, share: float, seed: int, client: int) -> ClientData:
    """The client's data with a share of each class moved to the end, to be held out of training.

    Classes with few samples give none. `held` is the number of rows that were moved.
    """
    shuffled = generator(seed, "hold-out", client).permutation(len(data.labels))
    labels = data.labels.numpy()[shuffled]
    kept, taken = [], []
    for label in sorted(set(labels.tolist())):
        rows = shuffled[labels == label]
        count = int(share * len(rows) + 0.5)
        kept.append(rows[count:])
        taken.append(rows[:count])
    order = torch.from_numpy(np.concatenate([np.sort(np.concatenate(kept)), np.concatenate(taken)]))
    held = sum(len(rows) for rows in taken)
    return replace(data, inputs=data.inputs[order], labels=data.labels[order], held=held)
