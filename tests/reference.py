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


def epochs(site: Site, shuffle, count: int, numbers: Numbers, optimisers: list) -> None:
    """Mini-batch epochs that step the given optimisers; parameters of no optimiser stay as they are."""
    for _ in range(count):
        permutation = shuffle.permutation(len(site.y))
        for start in range(0, len(permutation), numbers.batch):
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


def average(sites: list[Site], modules: list[str]) -> None:
    """Size-weighted average of the named modules, given back to everybody."""
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


def fedavg(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    for r in range(rounds):
        for site in sites:
            joint_sgd(site, generator(seed, "batches", site.number, r), numbers)
        average(sites, ["extractor", "head"])


def fedrep(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    for r in range(rounds):
        for site in sites:
            two_phase_sgd(site, generator(seed, "batches", site.number, r), numbers)
        average(sites, ["extractor"])


def local(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    for r in range(rounds):
        for site in sites:
            joint_sgd(site, generator(seed, "batches", site.number, r), numbers)


def rdfl(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    size = len(sites)
    for r in range(rounds):
        for site in sites:
            joint_sgd(site, generator(seed, "batches", site.number, r), numbers)
        theta = snapshot(sites, ["extractor", "head"])
        for p in range(size):
            left, right = theta[(p - 1) % size], theta[(p + 1) % size]
            blend = [0.5 * a + 0.5 * b for a, b in zip(left, right, strict=True)]
            new = [numbers.gamma * own + (1 - numbers.gamma) * b for own, b in zip(theta[p], blend, strict=True)]
            assign(sites[p], ["extractor", "head"], new)


def fibfl(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Algorithm 1."""
    size = len(sites)
    for r in range(rounds):
        for site in sites:
            two_phase_adam(site, generator(seed, "batches", site.number, r), numbers)
        theta = snapshot(sites, ["extractor"])
        for p in range(size):
            left, right = theta[(p - 1) % size], theta[(p + 1) % size]
            blend = [ALPHA * a + BETA * b for a, b in zip(left, right, strict=True)]
            new = [numbers.gamma * own + (1 - numbers.gamma) * b for own, b in zip(theta[p], blend, strict=True)]
            assign(sites[p], ["extractor"], new)


def gated_weights(a_left: float, a_right: float, tau: float) -> tuple[float, float] | None:
    g_left = a_left if a_left >= tau else 0.0
    g_right = a_right if a_right >= tau else 0.0
    if g_left + g_right < 1e-12:
        return None
    w_left, w_right = g_left / (g_left + g_right), g_right / (g_left + g_right)
    return ALPHA / 2 + w_left / 2, BETA / 2 + w_right / 2


def fibfl_plus(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Algorithm 2."""
    size = len(sites)
    for r in range(rounds):
        for site in sites:
            two_phase_adam(site, generator(seed, "batches", site.number, r), numbers)
        a = [accuracy(site) for site in sites]
        theta = snapshot(sites, ["extractor"])
        for p in range(size):
            left, right = (p - 1) % size, (p + 1) % size
            weights = gated_weights(a[left], a[right], numbers.tau)
            if weights is None:
                blend = theta[p]
            else:
                pairs = zip(theta[left], theta[right], strict=True)
                blend = [weights[0] * x + weights[1] * y for x, y in pairs]
            new = [numbers.gamma * own + (1 - numbers.gamma) * b for own, b in zip(theta[p], blend, strict=True)]
            assign(sites[p], ["extractor"], new)


def fibfl_plus_plus(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Algorithm 3; passes are synchronous."""
    size, warm = len(sites), rounds // 6
    passes = math.ceil(size / 2)
    for r in range(rounds):
        if r < warm:
            for site in sites:
                shuffle = generator(seed, "batches", site.number, r)
                count = max(numbers.e_h, numbers.e_e)
                epochs(site, shuffle, count, numbers, list(persistent_adam(site, numbers)))
            average(sites, ["extractor", "head"] if numbers.warmup_model else ["extractor"])
            continue
        angle = math.pi * (r - warm) / max(rounds - warm - 1, 1)
        gamma_r = numbers.gamma_end + 0.5 * (numbers.gamma_start - numbers.gamma_end) * (1 + math.cos(angle))
        gamma_in = gamma_r ** (1 / passes)
        for site in sites:
            two_phase_adam(site, generator(seed, "batches", site.number, r), numbers)
        a = [accuracy(site) for site in sites]
        for _ in range(passes):
            theta = snapshot(sites, ["extractor"])
            for p in range(size):
                i, left, right = order[p], order[(p - 1) % size], order[(p + 1) % size]
                weights = gated_weights(a[left], a[right], numbers.tau)
                if weights is None:
                    continue
                new = [
                    gamma_in * own + (1 - gamma_in) * (weights[0] * x + weights[1] * y)
                    for own, x, y in zip(theta[i], theta[left], theta[right], strict=True)
                ]
                assign(sites[i], ["extractor"], new)


ALGORITHMS = {
    "local": local,
    "fedavg": fedavg,
    "fedrep": fedrep,
    "rdfl": rdfl,
    "fibfl": fibfl,
    "fibfl+": fibfl_plus,
    "fibfl++": fibfl_plus_plus,
}
