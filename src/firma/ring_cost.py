"""The cost of a ring before and after 2-opt, and how fast it mixes, computed from the data without training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from firma.data.dataset import DatasetSource, load_dataset
from firma.data.partition import deal, default_scenario, label_proportions
from firma.errors import BadInput
from firma.method_lookup import lookup
from firma.methods import RING_METHOD
from firma.mixing import graph, ring
from firma.mixing.bandwidth import by_bandwidth, read_bandwidth, ring_links
from firma.mixing.ring_order import ring_cost, similarity, two_opt
from firma.mixing.spectrum import min_influence, power, spectral_radius
from firma.mixing.wiring import Wiring
from firma.schedule import participant_count, plan
from firma.settings import hyper_for, split_for


def ring_report(
    dataset: DatasetSource, scenario: str | None, method: str, clients: int | None, preset: str,
    settings: Mapping[str, Any], seed: int, participation: float = 1.0, bandwidth: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Costs, and mixing in the last round if every client passes the gate with the same accuracy.

    Mixing is that of the clients that take part in a round; the costs are those of the ring of all clients. With a
    file of bandwidths also the order by bandwidth and the slowest link of each order, in Mbit/s.
    """
    if not 0 < participation <= 1:
        raise BadInput(f"participation = {participation}: must be greater than 0 and at most 1")
    row, source = lookup(method), load_dataset(dataset)
    if row.topology != "ring":
        raise BadInput(
            f"method = {method!r}: must have topology ring, not {row.topology}; choose a method on a ring, such as "
            f"{RING_METHOD}, or see how it would mix on one with --topology ring"
        )
    hyper, split = hyper_for(row, preset, settings), split_for(preset, settings)
    scenario = scenario or default_scenario(source)
    partition = deal(source, scenario, source.clients if clients is None else clients, split, seed)
    count = len(partition.train)
    proportions = label_proportions(source, partition.train)
    alike = similarity(proportions, hyper.ring_cost)
    order = two_opt(alike)
    before, after = ring_cost(alike, range(count)), ring_cost(alike, order)
    taking_part = participant_count(participation, count)
    last = plan(row, hyper, taking_part, source.rounds, source.rounds - 1)
    closed_up = order if taking_part == count else range(taking_part)  # whoever is drawn: all rows are the same
    if last.graph is None:
        one_pass = ring.one_pass(closed_up, [ring.row(last)] * taking_part)
    else:
        one_pass = graph.one_pass(last.graph, closed_up)
    whole_round = power(one_pass, last.passes)
    sampled = {"participants": taking_part} if participation < 1 else {}
    links = _links(Wiring(bandwidth=read_bandwidth(bandwidth)), order) if bandwidth is not None else {}
    return (
        sampled
        | links
        | {
            "dataset": source.name,
            "scenario": scenario,
            "preset": preset,
            "method": method,
            "clients": count,
            "ring_cost": hyper.ring_cost,
            "cost_identity": before,
            "cost_optimised": after,
            "saving_percent": 100 * (1 - after / before) if before > 0 else 0.0,
            "order": order,
            "passes": last.passes,
            "retention": last.retention,
            "spectral_radius_pass": spectral_radius(one_pass),
            "spectral_radius_round": spectral_radius(whole_round),
            "min_influence": min_influence(whole_round),
        }
    )


def _links(wiring: Wiring, optimised: Sequence[int]) -> dict[str, Any]:
    """The order by bandwidth, and the slowest link of it, of the identity and of another order."""
    wiring.check(len(optimised))
    assert wiring.bandwidth is not None  # it was read
    fastest = by_bandwidth(wiring.bandwidth)
    orders = {"identity": range(len(fastest)), "optimised": optimised, "by_bandwidth": fastest}
    slowest = {f"slowest_{name}": float(ring_links(wiring.bandwidth, each).min()) for name, each in orders.items()}
    return {"order_by_bandwidth": fastest} | slowest
