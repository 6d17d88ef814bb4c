"""What a run cannot be: too few clients, a graph that does not exist, a device that is not there."""

import torch

from firma.algorithms.catalogue import check_participation, check_start
from firma.errors import BadInput, unknown
from firma.graphs import check_graph
from firma.methods import Method
from firma.mixing.combine import check_members
from firma.mixing.wiring import Wiring
from firma.run_config import RunConfig
from firma.schedule import graph_of, participant_count
from firma.settings import DEVICES, Hyper


def check_clients(config: RunConfig, clients: int, method: Method, hyper: Hyper, wiring: Wiring, rounds: int) -> None:
    """Refuse a number of clients with which a method cannot run."""
    check_start(method, hyper)
    _check_participation(config.participation, clients, method, hyper)
    _check_topology(config.participation, clients, method, hyper, wiring)
    check_members(method, hyper, participant_count(config.participation, clients), rounds, config.wire, clients)


def _check_participation(share: float, clients: int, method: Method, hyper: Hyper) -> None:
    """Refuse a method without a server of which one client of several takes part: it would mix with nobody."""
    count = participant_count(share, clients)
    if count < clients:
        check_participation(method, hyper, share)
    if method.topology not in ("none", "star") and clients > 1 and count == 1:
        raise BadInput(
            f"participation = {share}: 1 of {clients} clients would take part in a round, but {method.name} mixes "
            f"clients without a server and requires at least 2; use {2 / clients:.2g}, for example"
        )


def _check_topology(share: float, clients: int, method: Method, hyper: Hyper, wiring: Wiring) -> None:
    """Refuse a graph, or an order, that does not exist for so many clients."""
    wiring.check(clients)
    graph = graph_of(method, hyper, edges=wiring.edges)
    if graph is not None and graph.topology != "edges":
        check_graph(graph, participant_count(share, clients), clients)


def check_attack(config: RunConfig, clients: int, task: str) -> None:
    """Refuse attacks without an honest client, and wrong labels where there are no classes."""
    if config.attackers >= clients:
        raise BadInput(f"--attackers {config.attackers}: must be less than the number of clients, {clients}")
    if config.attack == "label-flip" and config.drift is not None:
        raise BadInput("--attack label-flip cannot be combined with --drift, which replaces the data in every round")
    if config.attack == "label-flip" and task != "classification":
        raise BadInput(f"--attack label-flip requires a classification task, and this is {task}; use another attack")


def device_of(name: str) -> torch.device:
    """The torch device of that name, if this machine has it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown("device", name, DEVICES) from None
    if device.type == "meta":
        raise BadInput("device = 'meta': its tensors hold no data, so nothing can be trained on it")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadInput(f"device = {name!r}: not available on this machine ({str(error).splitlines()[0]})") from None
    return device
