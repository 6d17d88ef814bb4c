"""Naive algorithms of methods that differ from the paper's in what is shared, fixed or tuned: see reference.py."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from firma.seeds import generator
from firma.training.derived_head import frame as agreed_frame
from reference import Numbers, Site, assign, epochs, joint_sgd, present, sgd, snapshot


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


def shared_parameters(site: Site, modules: list[str], private: tuple[type[nn.Module], ...] = ()) -> list[nn.Parameter]:
    """What a site shares: the parameters of these modules but for those of private layers."""
    own = [layer for name in modules for layer in getattr(site, name).modules() if not isinstance(layer, private or ())]
    return [p for layer in own for p in layer.parameters(recurse=False)]


def federated(
    sites: list[Site],
    rounds: int,
    seed: int,
    numbers: Numbers,
    order: list[int],
    shared,
    train,
    server: bool = True,
    personal=None,
) -> None:
    """Rounds of training and an average by size of what `shared(site)` lists, at a server or among those present.

    A server's average is everybody's. What `personal(site)` makes of a site after the round is what counts in the end;
    training goes on from what it was before, so only the last time matters.
    """
    last: dict[int, tuple[int, Tensor]] = {}
    for r in range(rounds):
        there = present(sites, seed, r, numbers, order)
        for site in there:
            own = numbers
            if numbers.steps_apart and site.number in last:
                own = replace(numbers, steps=numbers.steps / max(apart(site, last[site.number][1]), 1e-12))
            train(site, generator(seed, "batches", site.number, r), own)
        total = sum(len(site.y) for site in there)
        given = sites if server else there
        for places in zip(*[[*shared(site)] for site in sites], strict=True):
            mean = sum(places[site.number].detach() * (len(site.y) / total) for site in there)
            for site in given:
                places[site.number].data = mean.clone()
        classes = sum(class_shares(site) * (len(site.y) / total) for site in there)
        last |= {site.number: (r, classes) for site in given}
    for number, (r, classes) in last.items():
        if personal is not None:
            own = numbers
            if numbers.share_p == "auto":
                own = replace(numbers, share_p=apart(sites[number], classes))
            personal(sites[number], generator(seed, "personal", number, r), own)


def apart(site: Site, classes: Tensor) -> float:
    """Half of the absolute differences between class shares."""
    return float((class_shares(site) - classes).abs().sum()) / 2


def class_shares(site: Site) -> Tensor:
    return torch.tensor([float((site.y == c).double().mean()) for c in range(site.head.out_features)])


def of(*modules: str, private: tuple[type[nn.Module], ...] = ()):
    return lambda site: shared_parameters(site, list(modules), private)


def proximal_sgd(site: Site, shuffle, numbers: Numbers) -> None:
    """Li et al., Algorithm 2: the loss has a term μ/2 ‖w - w_t‖², w_t being what the server sent."""
    own = [*site.extractor.parameters(), *site.head.parameters()]
    sent = [p.detach().clone() for p in own]
    optimiser = sgd(own, numbers)
    for _ in range(numbers.e):
        permutation = shuffle.permutation(len(site.y))
        for start in range(0, len(permutation), numbers.batch):
            rows = torch.from_numpy(permutation[start : start + numbers.batch])
            loss = nn.functional.cross_entropy(site.head(site.extractor(site.x[rows])), site.y[rows])
            loss = loss + numbers.mu / 2 * sum(((p - w) ** 2).sum() for p, w in zip(own, sent, strict=True))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def extractor_sgd(site: Site, shuffle, numbers: Numbers) -> None:
    epochs(site, shuffle, numbers.e_e, numbers, [sgd(site.extractor.parameters(), numbers)])


def extractor_adam(site: Site, shuffle, numbers: Numbers) -> None:
    adam = torch.optim.Adam(site.extractor.parameters(), lr=numbers.lr)
    epochs(site, shuffle, numbers.e_e, numbers, [adam], numbers.steps)


def fine_tune(site: Site, shuffle, numbers: Numbers, modules: tuple[str, ...] = ("extractor", "head")) -> None:
    """Epochs of SGD on these modules; then part of the way back to where they were."""
    own = [p for name in modules for p in getattr(site, name).parameters()]
    mixed = [p.detach().clone() for p in own]
    epochs(site, shuffle, numbers.e_p, numbers, [torch.optim.SGD(own, lr=numbers.lr_p, momentum=numbers.momentum)])
    for p, before in zip(own, mixed, strict=True):
        p.data = (1 - numbers.share_p) * before + numbers.share_p * p.data


def tune_head(site: Site, shuffle, numbers: Numbers) -> None:
    fine_tune(site, shuffle, numbers, ("head",))


def put_frames(sites: list[Site], seed: int) -> None:
    """The head that everybody derives: the common frame, with the logarithm of the site's own class shares as bias."""
    for site in sites:
        classes, features = site.head.weight.shape
        shares = [(int((site.y == c).sum()) + 0.5) / (len(site.y) + 0.5 * classes) for c in range(classes)]
        site.head.weight.data = agreed_frame(classes, features, seed)
        site.head.bias.data = torch.tensor(shares).log()


def fedprox(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    federated(sites, rounds, seed, numbers, order, of("extractor", "head"), proximal_sgd)


def fedavg_ft(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    federated(sites, rounds, seed, numbers, order, of("extractor", "head"), joint_sgd, personal=fine_tune)


def fedbn(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    shared = of("extractor", "head", private=(nn.LayerNorm,))
    federated(sites, rounds, seed, numbers, order, shared, joint_sgd)


def fedper(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int], server: bool = True) -> None:
    federated(sites, rounds, seed, numbers, order, of("extractor"), joint_sgd, server)


def lg_fedavg(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int]) -> None:
    federated(sites, rounds, seed, numbers, order, of("head"), joint_sgd)


def fedbabu(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int], server: bool = True) -> None:
    federated(sites, rounds, seed, numbers, order, of("extractor"), extractor_sgd, server, fine_tune)


def fedetf(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int], server: bool = True) -> None:
    put_frames(sites, seed)
    federated(sites, rounds, seed, numbers, order, of("extractor"), extractor_sgd, server)


def frame(sites: list[Site], rounds: int, seed: int, numbers: Numbers, order: list[int], server: bool = False) -> None:
    put_frames(sites, seed)
    federated(sites, rounds, seed, numbers, order, of("extractor"), extractor_adam, server, tune_head)


def among_clients(algorithm):
    """The same without a server: the average of those who take part is theirs alone."""
    return lambda *given: algorithm(*given, server=False)


ALGORITHMS = {
    "fedprox": fedprox,
    "fedavg-ft": fedavg_ft,
    "fedbn": fedbn,
    "fedper": fedper,
    "lg-fedavg": lg_fedavg,
    "fedbabu": fedbabu,
    "fedetf": fedetf,
    "fedper:topology=all-reduce": among_clients(fedper),
    "fedbabu:topology=all-reduce": among_clients(fedbabu),
    "fedetf:topology=all-reduce": among_clients(fedetf),
    "frame": frame,
    "d-psgd": d_psgd,
}
