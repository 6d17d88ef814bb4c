"""What claims need beside the metrics of a run: how accuracy changes when the warm-up ends, and the cost of the ring.

FibFL++ averages over all clients in the first sixth of the rounds, and on the ring from then on. `change_after_warmup`
is the mean accuracy of the first round on the ring minus that of the last warm-up round, `change_later` that of the
last round of all minus that of the first round on the ring.
"""

from dataclasses import replace

from firma.method_lookup import lookup
from firma.paper.published import printed_orders
from firma.paper.unit_inputs import with_unit_inputs
from firma.schedule import warmup_rounds
from firma.settings import Hyper
from firma.statistics import statistic
from firma.sweep.result_table import ResultTable, by_label, result_tables
from firma.sweep.store import StoredCell, SweepResults


def claim_tables(results: SweepResults) -> dict[str, ResultTable]:
    """`result_tables` with the metrics of this module, and published cases that were run with inputs in [0, 1] only."""
    groups = by_label(results.cells)
    found = {name: _extended(table, groups.get(name, [])) for name, table in result_tables(results).items()}
    return with_unit_inputs(found)


def _extended(table: ResultTable, cells: list[StoredCell]) -> ResultTable:
    by_seed: dict[tuple[str, str, str, str], dict[int, float]] = {}
    for cell in cells:
        for metric, value in (_changes(cell) | _ring(cell)).items():
            place = (cell.dataset, cell.scenario, cell.result.method, metric)
            by_seed.setdefault(place, {})[cell.result.seed] = value
    found = {place: statistic(list(values.values())) for place, values in by_seed.items()}
    return replace(table, statistics={**table.statistics, **found}, by_seed={**table.by_seed, **by_seed})


def _changes(cell: StoredCell) -> dict[str, float]:
    """Changes of the mean accuracy after the warm-up; none if there is no warm-up, or no round after it."""
    means = cell.result.history.mean(axis=1)
    hyper = Hyper.model_validate({"warmup_rounds": cell.result.config["hyper"].get("warmup_rounds")})
    warm = warmup_rounds(lookup(cell.result.method), hyper, len(means))
    if not 0 < warm < len(means):
        return {}
    return {
        "change_after_warmup": float(means[warm] - means[warm - 1]),
        "change_later": float(means[-1] - means[warm]),
    }


def _ring(cell: StoredCell) -> dict[str, float]:
    """What the ring costs as given and as 2-opt orders it, and whether its order is the one that the paper prints."""
    ring = cell.ring
    if "cost_optimised" not in ring:
        return {}
    printed = printed_orders().get((cell.dataset, cell.scenario))
    costs = {"ring_cost_given": float(ring["cost_identity"]), "ring_cost_ordered": float(ring["cost_optimised"])}
    return costs if printed is None else costs | {"ring_order_as_printed": float(tuple(ring["order"]) == printed)}
