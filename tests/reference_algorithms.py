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


def gradient(site: Site, flat: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """∇f at these parameters on these rows, flat."""
    load(site, flat)
    own = [*site.extractor.parameters(), *site.head.parameters()]
    loss = torch.nn.functional.cross_entropy(site.head(site.extractor(site.x[rows])), site.y[rows])
    return torch.cat([each.reshape(-1) for each in torch.autograd.grad(loss, own)])


def batches_of(site: Site, seed: int, r: int, numbers: Numbers):
    """Rows of every batch of a round."""
    shuffle = generator(seed, "batches", site.number, r)
    for _ in range(numbers.e):
        permutation = shuffle.permutation(len(site.y))
        for start in range(0, len(permutation), numbers.batch):
            yield torch.from_numpy(permutation[start : start + numbers.batch])


class Momentum:
    """x ← x - ηv with v ← μv + g, from v = 0."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers, self.velocity, self.length = numbers, 0.0, 0.0
        self.unit = 0.0  # velocity along a constant gradient of 1

    def __call__(self, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        self.velocity = self.numbers.momentum * self.velocity + g
        self.unit = self.numbers.momentum * self.unit + 1
        self.length += self.unit
        return x - self.numbers.lr * self.velocity


def fednova(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Wang et al., Eq. 7 with the normalising vector of momentum: a_k = (1 - μ^(τ-k)) / (1 - μ), summed up."""
    server = parameters(sites[0])
    for r in range(rounds):
        there = present(sites, seed, r, numbers, order)
        total = sum(len(site.y) for site in there)
        direction, tau_eff = torch.zeros_like(server), 0.0
        for site in there:
            y, step = server, Momentum(numbers)
            for rows in batches_of(site, seed, r, numbers):
                y = step(y, gradient(site, y, rows))
            direction += len(site.y) / total * (server - y) / step.length
            tau_eff += len(site.y) / total * step.length
        server = server - tau_eff * direction
    for site in sites:
        load(site, server)


def ditto(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Li et al., Algorithm 1, with FedAvg for the shared model; w and v see the same batches."""
    server = parameters(sites[0])
    own = [server for _ in sites]
    for r in range(rounds):
        there = present(sites, seed, r, numbers, order)
        moved = torch.zeros_like(server)
        for site in there:
            w, step_w, step_v = server, Momentum(numbers), Momentum(numbers)
            v = own[site.number]
            for rows in batches_of(site, seed, r, numbers):
                w = step_w(w, gradient(site, w, rows))
                v = step_v(v, gradient(site, v, rows) + numbers.attraction * (v - server))
            own[site.number] = v
            moved += w * (len(site.y) / sum(len(each.y) for each in there))
        server = moved
    for site in sites:
        load(site, own[site.number])


def apfl(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Deng et al., Algorithm 1, and Eq. 10 for α."""
    server = parameters(sites[0])
    own, alphas = [server for _ in sites], [numbers.alpha for _ in sites]
    for r in range(rounds):
        there = present(sites, seed, r, numbers, order)
        moved = []
        for site in there:
            w, step_w, step_v = server, Momentum(numbers), Momentum(numbers)
            v, alpha = own[site.number], alphas[site.number]
            for rows in batches_of(site, seed, r, numbers):
                mixture = alpha * v + (1 - alpha) * w
                g_w, g = gradient(site, w, rows), gradient(site, mixture, rows)
                new = alpha - numbers.lr * float((v - w) @ g) if numbers.alpha_learnt else alpha
                w, v = step_w(w, g_w), step_v(v, alpha * g)
                alpha = min(1.0, max(0.0, new))
            own[site.number], alphas[site.number] = v, alpha
            moved.append(w)
        server = sum(moved) / len(moved)
    for site in sites:
        load(site, alphas[site.number] * own[site.number] + (1 - alphas[site.number]) * server)


def pfedme(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Dinh et al., Algorithm 1; θ̃ by K gradient steps from w, and the sampled clients are those that train."""
    server = parameters(sites[0])
    own = [server for _ in sites]
    for r in range(rounds):
        there = present(sites, seed, r, numbers, order)
        moved = []
        for site in there:
            w, step = server, Momentum(numbers)
            for rows in batches_of(site, seed, r, numbers):
                theta = w
                for _ in range(numbers.inner_steps):
                    slope = gradient(site, theta, rows) + numbers.attraction * (theta - w)
                    theta = theta - numbers.inner_rate * slope
                w = step(w, numbers.attraction * (w - theta))
                own[site.number] = theta
            moved.append(w)
        server = (1 - numbers.beta) * server + numbers.beta * sum(moved) / len(moved)
    for site in sites:
        load(site, own[site.number])


def hessian_product(site: Site, flat: torch.Tensor, rows: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """∇²f · direction, exactly: the gradient of ⟨∇f, direction⟩."""
    load(site, flat)
    own = [*site.extractor.parameters(), *site.head.parameters()]
    loss = torch.nn.functional.cross_entropy(site.head(site.extractor(site.x[rows])), site.y[rows])
    first = torch.cat([each.reshape(-1) for each in torch.autograd.grad(loss, own, create_graph=True)])
    return torch.cat([each.reshape(-1) for each in torch.autograd.grad(first @ direction, own)])


def per_fedavg(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Fallah et al., Algorithm 1: two halves of a batch in place of independent ones; tested after one step."""
    server, alpha = parameters(sites[0]), numbers.inner_rate
    for r in range(rounds):
        there = present(sites, seed, r, numbers, order)
        moved = []
        for site in there:
            w, step = server, Momentum(numbers)
            for rows in batches_of(site, seed, r, numbers):
                half = len(rows) // 2
                d, d_prime = (rows[:half], rows[half:]) if len(rows) > 3 else (rows, rows)
                g = gradient(site, w - alpha * gradient(site, w, d), d_prime)
                w = step(w, g - alpha * hessian_product(site, w, d, g) if numbers.hessian else g)
            moved.append(w)
        server = sum(moved) / len(moved)
    for site in sites:
        drawn = generator(seed, "personal", site.number, rounds - 1).permutation(len(site.y))[: numbers.batch]
        load(site, server - alpha * gradient(site, server, torch.from_numpy(drawn)))


def feddbe(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Zhang et al., Algorithm 1, as FedAvg + DBE; the first round is FedAvg's and finds the mean of all features."""
    server, consensus = parameters(sites[0]), None
    head = sites[0].head  # linear
    bias = [torch.zeros(head.in_features, requires_grad=numbers.feature_bias) for _ in sites]
    for r in range(rounds):
        there = present(sites, seed, r, numbers, order)
        total = sum(len(site.y) for site in there)
        moved, means = torch.zeros_like(server), torch.zeros(head.in_features)
        for site in there:
            load(site, server)
            both, mine = [*site.extractor.parameters(), *site.head.parameters()], bias[site.number]
            step, mean = sgd(both, numbers), torch.zeros(head.in_features)
            for rows in batches_of(site, seed, r, numbers):
                features = site.extractor(site.x[rows])
                mean = (1 - numbers.mean_momentum) * mean.detach() + numbers.mean_momentum * features.mean(0)
                seen = features if consensus is None else features + mine
                loss = torch.nn.functional.cross_entropy(site.head(seen), site.y[rows])
                if consensus is not None:
                    loss = loss + numbers.kappa * torch.mean(0.5 * (mean - consensus) ** 2)
                step.zero_grad()
                mine.grad = None
                loss.backward()
                step.step()
                if mine.grad is not None:
                    mine.data -= numbers.lr * mine.grad
            moved += parameters(site) * (len(site.y) / total)
            means += mean.detach() * (len(site.y) / total)
        server = moved
        consensus = means if consensus is None else consensus
    for site in sites:
        load(site, server)
        site.head.bias.data += site.head.weight.data @ bias[site.number].data


def gradient_tracking(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    """Liu et al., Algorithm 1 (K-GT) on a ring, with a server step of 1 and corrections that start at zero."""
    x = [parameters(site) for site in sites]
    corrections = [torch.zeros_like(each) for each in x]
    for r in range(rounds):
        ring = present(sites, seed, r, numbers, order)
        size, y, z = len(ring), {}, {}
        for site in ring:
            i, step = site.number, Momentum(numbers)
            y[i] = x[i]
            for rows in batches_of(site, seed, r, numbers):
                y[i] = step(y[i], gradient(site, y[i], rows) + corrections[i])
            z[i] = (x[i] - y[i]) / (step.length * numbers.lr)
        for p, site in enumerate(ring):
            i, left, right = site.number, ring[(p - 1) % size].number, ring[(p + 1) % size].number
            weights = ((i, numbers.gamma), (left, (1 - numbers.gamma) / 2), (right, (1 - numbers.gamma) / 2))
            x[i] = sum(weight * y[j] for j, weight in weights)
            corrections[i] = corrections[i] - z[i] + sum(weight * z[j] for j, weight in weights)
    for site in sites:
        load(site, x[site.number])


ALGORITHMS = {
    "scaffold": scaffold, "fednova": fednova, "ditto": ditto, "apfl": apfl, "pfedme": pfedme, "per-fedavg": per_fedavg,
    "feddbe": feddbe, "gradient-tracking": gradient_tracking,
}  # fmt: skip
