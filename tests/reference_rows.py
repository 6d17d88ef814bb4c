"""Naive algorithms of methods that differ from the paper's in what is shared, fixed or tuned: see reference.py."""

from collections.abc import Callable

from firma.seeds import generator
from reference import Numbers, Site, assign, joint_sgd, present, snapshot


def d_psgd(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Lian et al., Algorithm 1 on a ring with weights 1/3, mixing after local SGD; with two sites 1/2 each."""
    modules = ["extractor", "head"]
    for r in range(rounds):
        ring = present(sites, seed, r, numbers, order)
        size = len(ring)
        for site in ring:
            joint_sgd(site, generator(seed, "batches", site.number, r), numbers)
        theta = snapshot(ring, modules)
        for p in range(size):
            around = sorted({p, (p - 1) % size, (p + 1) % size})
            mean = [sum(each) / len(around) for each in zip(*[theta[q] for q in around], strict=True)]
            assign(ring[p], modules, mean)


ALGORITHMS: dict[str, Callable[..., None]] = {"d-psgd": d_psgd}
