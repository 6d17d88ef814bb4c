"""What a client makes of the mixed model for itself after each round; nothing of it is ever sent.

The mixed model θ is trained on for a few epochs, by SGD on the client's own data: all of it (`fine-tune`), or the head
alone (`tune-head`). The personal model is θ + s (θ_tuned - θ), with the share s of the way to the tuned one: 1 is plain
fine-tuning, 0 is the mixed model (weight-space ensembles: Wortsman et al., CVPR 2022). Private buffers, such as running
statistics, do not go part of the way: with s > 0 they are those that tuning has left. Tuning gains where clients
differ and costs where they do not, so the share can follow the data: the total-variation distance between the client's
class shares and the federation's, 0 where clients are alike, near 1 where each has classes of its own.

`one-step` is a single plain gradient step at `inner_rate` on one batch, as a shared model is tested that was trained to
be one step away from good ones.
"""

from dataclasses import replace

import torch

from firma.models.split_model import Part
from firma.schedule import Phase, RoundPlan
from firma.seeds import generator
from firma.training.algorithm import PERSONAL, Algorithm
from firma.training.backend import Backend, seeded
from firma.training.local_step import BUFFER, Client, Job, Trainer, distance, tested


def personalise(backend: Backend, trainer: Trainer, client: Client, job: Job, plan: RoundPlan, seed: int) -> None:
    """Make the personal model in the client's memory anew, from the mixed one."""
    tuning = job.recipe.personal
    assert tuning is not None  # the caller has asked
    for name, kept in client.memory.items():
        if name.startswith(BUFFER):
            client.memory[f"{PERSONAL}.{name}"].copy_(kept)
    own = client.memory[PERSONAL]
    own.copy_(client.parameters)
    share = distance(client) or 0.0 if tuning.share is None else tuning.share
    if not share:  # the mixed model itself, with its running statistics, which tuning would change
        return
    part: Part = "head" if tuning.head_only else "model"
    recipe = replace(
        job.recipe, update=tuning.update, transforms=(), algorithm=Algorithm(), persistent=False
    )  # fmt: skip
    work = replace(job, recipe=recipe, phases=(Phase(part, tuning.epochs),), number=plan.number)
    draw, tuned = generator(seed, "personal", client.number, plan.number), tested(client)
    if tuning.one_batch:
        data = client.data
        rows = torch.from_numpy(draw.permutation(len(data.labels))[: job.batch]).to(data.labels.device)
        tuned = replace(
            tuned, data=replace(data, inputs=data.inputs[rows].contiguous(), labels=data.labels[rows].contiguous())
        )
    with seeded(backend, seed, "personal layers", client.number, plan.number):
        trainer.train(tuned, work, draw)
    if share != 1.0:
        torch.lerp(client.parameters, own, share, out=own)
