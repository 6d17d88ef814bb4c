"""A naive oracle: the paper's three algorithms and the baselines, one client at a time, written to be read.

Plain modules, torch.optim, Python loops over clients and passes. It takes from the package only what is agreed
beforehand: initial weights, the order of batches, the ring and the numbers. It knows nothing of tables, matrices or
flat buffers.
"""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from firma.seeds import generator

PHI = (1 + math.sqrt(5)) / 2
ALPHA, BETA = 1 / PHI, 1 / PHI**2


@dataclass
class Numbers:
    """Hyperparameters by the names of the paper."""

    lr: float = 0.01
    momentum: float = 0.9
    batch: int = 16
    e: int = 2
    e_h: int = 1
    e_e: int = 2
    tau: float = 0.35
    gamma: float = 0.5
    gamma_start: float = 0.4
    gamma_end: float = 0.05
    warmup_model: bool = False
    share: float = 1.0  # of the sites, that take part in a round
    mu: float = 0.0  # of the proximal term
    e_p: int = 0  # epochs of a personal model, by SGD
    lr_p: float = 0.01
    share_p: float | str = 1.0  # how far the personal model goes from the mixed one to the tuned one, or auto
    attraction: float = 0.1  # λ of Ditto and pFedMe
    alpha: float = 0.5  # of APFL
    alpha_learnt: bool = True
    inner_steps: int = 5  # K of pFedMe
    inner_rate: float = 0.01  # of pFedMe's inner steps; α of Per-FedAvg
    beta: float = 1.0  # of pFedMe's server
    hessian: bool = False  # of Per-FedAvg
    kappa: float = 50.0  # of FedDBE
    mean_momentum: float = 1.0
    feature_bias: bool = True
    steps: float = math.inf  # batches after which training ends
    steps_apart: bool = False  # that many divided by the distance between class shares


@dataclass
class Site:
    """One client: its data and its own extractor and head."""

    number: int
    x: Tensor
    y: Tensor
    extractor: nn.Module
    head: nn.Module
    adam_head: torch.optim.Adam | None = None
    adam_extractor: torch.optim.Adam | None = None


def make_sites(data: list[tuple[Tensor, Tensor]], extractor: nn.Module, head: nn.Module) -> list[Site]:
    return [Site(i, x, y, copy.deepcopy(extractor), copy.deepcopy(head)) for i, (x, y) in enumerate(data)]


def parameters(site: Site) -> Tensor:
    both = [*site.extractor.parameters(), *site.head.parameters()]
    return torch.cat([p.detach().reshape(-1) for p in both])


def accuracy(site: Site) -> float:
    with torch.no_grad():
        return float((site.head(site.extractor(site.x)).argmax(1) == site.y).double().mean())


def epochs(site: Site, shuffle, count: int, numbers: Numbers, optimisers: list, steps: float = math.inf) -> None:
    """Mini-batch epochs that step the given optimisers; parameters of no optimiser stay as they are.

    They end after so many steps, if not before.
    """
    taken = 0
    for _ in range(count):
        if taken >= steps:
            return
        permutation = shuffle.permutation(len(site.y))
        for start in range(0, len(permutation), numbers.batch):
            if taken >= steps:
                return
            taken += 1
            rows = torch.from_numpy(permutation[start : start + numbers.batch])
            loss = nn.functional.cross_entropy(site.head(site.extractor(site.x[rows])), site.y[rows])
            site.extractor.zero_grad()
            site.head.zero_grad()
            loss.backward()
            for optimiser in optimisers:
                optimiser.step()


def sgd(module_parameters, numbers: Numbers) -> torch.optim.SGD:
    return torch.optim.SGD(list(module_parameters), lr=numbers.lr, momentum=numbers.momentum)


def joint_sgd(site: Site, shuffle, numbers: Numbers) -> None:
    both = [*site.extractor.parameters(), *site.head.parameters()]
    epochs(site, shuffle, numbers.e, numbers, [sgd(both, numbers)])


def two_phase_sgd(site: Site, shuffle, numbers: Numbers) -> None:
    epochs(site, shuffle, numbers.e_h, numbers, [sgd(site.head.parameters(), numbers)])
    epochs(site, shuffle, numbers.e_e, numbers, [sgd(site.extractor.parameters(), numbers)])


def persistent_adam(site: Site, numbers: Numbers) -> tuple[torch.optim.Adam, torch.optim.Adam]:
    if site.adam_head is None or site.adam_extractor is None:
        site.adam_head = torch.optim.Adam(site.head.parameters(), lr=numbers.lr)
        site.adam_extractor = torch.optim.Adam(site.extractor.parameters(), lr=numbers.lr)
    return site.adam_head, site.adam_extractor


def two_phase_adam(site: Site, shuffle, numbers: Numbers) -> None:
    adam_head, adam_extractor = persistent_adam(site, numbers)
    epochs(site, shuffle, numbers.e_h, numbers, [adam_head])  # Phase 1
    epochs(site, shuffle, numbers.e_e, numbers, [adam_extractor])  # Phase 2


def present(sites: list[Site], seed: int, r: int, numbers: Numbers, order: list[int]) -> list[Site]:
    """The sites that take part in round r, in the order of the ring: the first of a shuffled list."""
    wanted = int(len(sites) * numbers.share + 0.5) or 1
    lots = list(generator(seed, "participation", r).permutation(len(sites)))
    return [sites[i] for i in order if lots.index(i) < wanted]


def average(sites: list[Site], modules: list[str]) -> None:
    """Size-weighted average of the named modules, given back to these sites."""
    total = sum(len(site.y) for site in sites)
    for name in modules:
        for group in zip(*[getattr(site, name).parameters() for site in sites], strict=True):
            mean = sum(p.detach() * (len(site.y) / total) for p, site in zip(group, sites, strict=True))
            for p in group:
                p.data = mean.clone()


def snapshot(sites: list[Site], modules: list[str]) -> list[list[Tensor]]:
    return [[p.detach().clone() for name in modules for p in getattr(site, name).parameters()] for site in sites]


def assign(site: Site, modules: list[str], values: list[Tensor]) -> None:
    own = [p for name in modules for p in getattr(site, name).parameters()]
    for p, value in zip(own, values, strict=True):
        p.data = value.clone()


def served(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int], modules, train) -> None:
    """McMahan et al., Algorithm 1: the server's model goes to those who take part, and becomes their average.

    The server has none before the first average. In the end every site has the server's model.
    """
    server: list[Tensor] | None = None
    for r in range(rounds):
        there = present(sites, seed, r, numbers, order)
        for site in there:
            if server is not None:
                assign(site, modules, server)
            train(site, generator(seed, "batches", site.number, r), numbers)
        average(there, modules)
        server = snapshot(there, modules)[0]
    for site in sites:
        assign(site, modules, server or [])


def fedavg(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    served(sites, rounds, seed, numbers, order, ["extractor", "head"], joint_sgd)


def fedrep(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    served(sites, rounds, seed, numbers, order, ["extractor"], two_phase_sgd)


def local(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    for r in range(rounds):
        for site in present(sites, seed, r, numbers, order):
            joint_sgd(site, generator(seed, "batches", site.number, r), numbers)


def rdfl(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    for r in range(rounds):
        ring = present(sites, seed, r, numbers, order)
        size = len(ring)
        for site in ring:
            joint_sgd(site, generator(seed, "batches", site.number, r), numbers)
        theta = snapshot(ring, ["extractor", "head"])
        for p in range(size):
            left, right = theta[(p - 1) % size], theta[(p + 1) % size]
            blend = [0.5 * a + 0.5 * b for a, b in zip(left, right, strict=True)]
            new = [numbers.gamma * own + (1 - numbers.gamma) * b for own, b in zip(theta[p], blend, strict=True)]
            assign(ring[p], ["extractor", "head"], new)


def fibfl(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Algorithm 1."""
    for r in range(rounds):
        ring = present(sites, seed, r, numbers, order)
        size = len(ring)
        for site in ring:
            two_phase_adam(site, generator(seed, "batches", site.number, r), numbers)
        theta = snapshot(ring, ["extractor"])
        for p in range(size):
            left, right = theta[(p - 1) % size], theta[(p + 1) % size]
            blend = [ALPHA * a + BETA * b for a, b in zip(left, right, strict=True)]
            new = [numbers.gamma * own + (1 - numbers.gamma) * b for own, b in zip(theta[p], blend, strict=True)]
            assign(ring[p], ["extractor"], new)


def gated_weights(a_left: float, a_right: float, tau: float) -> tuple[float, float] | None:
    g_left = a_left if a_left >= tau else 0.0
    g_right = a_right if a_right >= tau else 0.0
    if g_left + g_right < 1e-12:
        return None
    w_left, w_right = g_left / (g_left + g_right), g_right / (g_left + g_right)
    return ALPHA / 2 + w_left / 2, BETA / 2 + w_right / 2


def fibfl_plus(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Algorithm 2."""
    for r in range(rounds):
        ring = present(sites, seed, r, numbers, order)
        size = len(ring)
        for site in ring:
            two_phase_adam(site, generator(seed, "batches", site.number, r), numbers)
        a = [accuracy(site) for site in ring]
        theta = snapshot(ring, ["extractor"])
        for p in range(size):
            left, right = (p - 1) % size, (p + 1) % size
            weights = gated_weights(a[left], a[right], numbers.tau)
            if weights is None:
                blend = theta[p]
            else:
                pairs = zip(theta[left], theta[right], strict=True)
                blend = [weights[0] * x + weights[1] * y for x, y in pairs]
            new = [numbers.gamma * own + (1 - numbers.gamma) * b for own, b in zip(theta[p], blend, strict=True)]
            assign(ring[p], ["extractor"], new)


def fibfl_plus_plus(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Algorithm 3; passes are synchronous. The published warm-up is at a server, whose model is then everybody's."""
    warm = rounds // 6
    for r in range(rounds):
        ring = present(sites, seed, r, numbers, order)
        size = len(ring)
        passes = math.ceil(size / 2)
        if r < warm:
            for site in ring:
                shuffle = generator(seed, "batches", site.number, r)
                count = max(numbers.e_h, numbers.e_e)
                epochs(site, shuffle, count, numbers, list(persistent_adam(site, numbers)))
            average(ring, ["extractor", "head"] if numbers.warmup_model else ["extractor"])
            if numbers.warmup_model:
                server = snapshot(ring, ["extractor", "head"])[0]
                for site in sites:
                    assign(site, ["extractor", "head"], server)
            continue
        angle = math.pi * (r - warm) / max(rounds - warm - 1, 1)
        gamma_r = numbers.gamma_end + 0.5 * (numbers.gamma_start - numbers.gamma_end) * (1 + math.cos(angle))
        gamma_in = gamma_r ** (1 / passes)
        for site in ring:
            two_phase_adam(site, generator(seed, "batches", site.number, r), numbers)
        a = [accuracy(site) for site in ring]
        for _ in range(passes):
            theta = snapshot(ring, ["extractor"])
            for p in range(size):
                left, right = (p - 1) % size, (p + 1) % size
                weights = gated_weights(a[left], a[right], numbers.tau)
                if weights is None:
                    continue
                new = [
                    gamma_in * own + (1 - gamma_in) * (weights[0] * x + weights[1] * y)
                    for own, x, y in zip(theta[p], theta[left], theta[right], strict=True)
                ]
                assign(ring[p], ["extractor"], new)


ALGORITHMS = {
    "local": local,
    "fedavg": fedavg,
    "fedrep": fedrep,
    "rdfl": rdfl,
    "fibfl": fibfl,
    "fibfl+": fibfl_plus,
    "fibfl++": fibfl_plus_plus,
}
