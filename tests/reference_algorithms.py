"""Naive algorithms of methods with a local step, or an average, of their own: see reference.py."""

import torch

from firma.seeds import generator
from reference import Numbers, Site, parameters, present, sgd


def load(site: Site, flat: torch.Tensor) -> None:
    """Give a site these parameters."""
    at = 0
    for own in (*site.extractor.parameters(), *site.head.parameters()):
        own.data = flat[at : at + own.numel()].view_as(own).clone()
        at += own.numel()


def scaffold(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Karimireddy et al., Algorithm 1 with option II; momentum lengthens the steps as it would along a constant g."""
    server = parameters(sites[0])
    control, controls = torch.zeros_like(server), [torch.zeros_like(server) for _ in sites]
    for r in range(rounds):
        there = present(sites, seed, r, numbers, order)
        moved, changes = [], []
        for site in there:
            load(site, server)
            own = [*site.extractor.parameters(), *site.head.parameters()]
            optimiser, shuffle, lengths, velocity = (
                sgd(own, numbers),
                generator(seed, "batches", site.number, r),
                0.0,
                0.0,
            )
            for _ in range(numbers.e):
                permutation = shuffle.permutation(len(site.y))
                for start in range(0, len(permutation), numbers.batch):
                    rows = torch.from_numpy(permutation[start : start + numbers.batch])
                    optimiser.zero_grad()
                    torch.nn.functional.cross_entropy(site.head(site.extractor(site.x[rows])), site.y[rows]).backward()
                    at = 0
                    for p in own:
                        p.grad += (control - controls[site.number])[at : at + p.numel()].view_as(p)
                        at += p.numel()
                    optimiser.step()
                    velocity = numbers.momentum * velocity + 1
                    lengths += velocity
            new = controls[site.number] - control + (server - parameters(site)) / (lengths * numbers.lr)
            changes.append(new - controls[site.number])
            moved.append(parameters(site))
            controls[site.number] = new
        server = sum(moved) / len(there)
        control = control + sum(changes) / len(sites)
    for site in sites:
        load(site, server)


ALGORITHMS = {"scaffold": scaffold}
