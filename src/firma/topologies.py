"""How fast topologies mix and what they send, computed without training."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from firma.algorithms.catalogue import algorithm_of
from firma.data.dataset import Dataset
from firma.errors import BadInput, unknown
from firma.graphs import Edge, check_graph, degree, period
from firma.method_lookup import on_topology
from firma.methods import COLUMNS, GRAPHS, Method, Topology
from firma.mixing import graph, ring
from firma.mixing.kind import kind_of
from firma.mixing.spectrum import Matrix, min_influence, power, spectral_radius
from firma.models.build import ModelSpec, build_model, sized
from firma.models.probe import InputSpec
from firma.schedule import RoundPlan, participant_count, plan
from firma.settings import Hyper
from firma.tasks.task import Task
from firma.training.derived_head import with_possible_head
from firma.training.hooks import fitted
from firma.training.local_step import elements, recipe
from firma.training.private_parameters import with_private

COMPARED = ("ring", *(each for each in GRAPHS if each != "edges"))  # without a file
_NOISE = 1e-9  # of eigenvalues that are zero


def topology_of(name: str) -> Topology:
    """The topology of that name, of a ring or a graph."""
    if name not in ("ring", *GRAPHS):
        raise unknown("topology", name, [each for each in COLUMNS["topology"] if each in ("ring", *GRAPHS)])
    return name


def topology_report(
    row: Method, topologies: Sequence[str], hyper: Hyper, clients: int, rounds: int, seed: int, sent: int,
    edges: tuple[Edge, ...] = (), participation: float = 1.0,
) -> list[dict[str, Any]]:  # fmt: skip
    """One entry per topology: the row on it, its degree and passes, how fast it mixes, and what a round sends.

    A message holds `sent` numbers. It is the last round of a run, in which all neighbours pass a gate with the same
    accuracy, if the row has one.
    """
    found = []
    for name in topologies:
        one, last, taking_part = _last_round(row, name, hyper, clients, rounds, seed, edges, participation)
        found.append(_measured(one, last, taking_part, sent))
    return found


def impossible(
    row: Method, topologies: Iterable[str], hyper: Hyper, clients: int, rounds: int, participation: float = 1.0
) -> dict[str, str]:
    """Which of these topologies the row cannot have with so many clients, and why."""
    found = {}
    for name in topologies:
        try:
            _last_round(row, name, hyper, clients, rounds, 0, (), participation)
        except BadInput as error:
            found[name] = str(error)
    return found


def _last_round(
    row: Method, name: str, hyper: Hyper, clients: int, rounds: int, seed: int, edges: tuple[Edge, ...],
    participation: float,
) -> tuple[Method, RoundPlan, int]:  # fmt: skip
    """The row on a topology, its last round, and how many clients take part in it, if there is such a graph."""
    if not 0 < participation <= 1:
        raise BadInput(f"participation = {participation}: must be greater than 0 and at most 1")
    taking_part = participant_count(participation, clients)
    one = on_topology(row, topology_of(name))
    last = plan(one, hyper, taking_part, rounds, rounds - 1, seed, edges)
    if last.graph is not None:
        if last.graph.topology == "edges" and participation < 1:
            raise BadInput("topology = 'edges': what takes part differs from round to round; omit --participation")
        check_graph(last.graph, taking_part, clients)
    return one, last, taking_part


def elements_of(row: Method, model: ModelSpec, hyper: Hyper, source: Dataset) -> int:
    """How many numbers a client sends in a message of the row with this model on these data, as a run counts them.

    What is private is not sent, and vectors that are mixed with the parameters are.
    """
    inputs = InputSpec(source.shape, source.x_train.dtype, source.scale)
    built = build_model(sized(model, hyper.hidden, hyper.embedding), inputs, source.classes, 0, 0)
    row = with_possible_head(row, built, source.task)
    algorithm = algorithm_of(row, hyper)
    built = with_private(built, row, algorithm)
    shared = built.layout().shared("model" if row.shares == "nothing" else row.shares)
    trained = recipe(row, hyper, Task(source.task), fitted(algorithm, built), shared, built.outputs)
    return elements(shared) + sum(trained.mixed.values())


def _measured(row: Method, last: RoundPlan, clients: int, sent: int) -> dict[str, Any]:
    order = range(clients)
    cost = kind_of(last.mixing).cost(last, clients, sent)
    by_pass, by_round = _spectrum(last, order)
    return {
        "topology": row.topology,
        "weights": row.weights,
        "clients": clients,
        "degree": min(2, clients - 1) if last.graph is None else degree(last.graph, order),
        "passes": last.passes,
        "messages": cost.messages,
        "bytes": cost.bytes,
        "spectral_radius_pass": by_pass,
        "spectral_radius_round": by_round,
        "min_influence": min_influence(_matrix(last, order)),
    }


def _matrix(last: RoundPlan, order: Sequence[int]) -> Matrix:
    """(n, n) matrix of the round."""
    if last.graph is None:
        return power(ring.one_pass(order, [ring.row(last)] * len(order)), last.passes)
    return graph.all_passes(last.graph, order, last.passes, last.number * last.passes)


def _spectrum(last: RoundPlan, order: Sequence[int]) -> tuple[float, float]:
    """Spectral radius per pass and per round; where links change from pass to pass, the geometric mean over a cycle."""
    size = len(order)
    cycle = 1 if last.graph is None else period(last.graph, size)
    if last.graph is None:
        whole = ring.one_pass(order, [ring.row(last)] * size)
    else:
        whole = graph.all_passes(last.graph, order, cycle)
    radius = _symmetric_radius(whole) if np.array_equal(whole, whole.T) else spectral_radius(whole)
    radius = 0.0 if radius < _NOISE else radius
    return radius ** (1 / cycle), radius ** (last.passes / cycle)


def _symmetric_radius(matrix: Matrix) -> float:
    """The spectral radius of a symmetric matrix, ten times as fast."""
    moduli = np.sort(np.abs(np.linalg.eigvalsh(matrix)))
    return float(moduli[-2]) if len(moduli) > 1 else 0.0
