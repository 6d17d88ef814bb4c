"""All figures of a sweep, one after another."""

from collections.abc import Sequence

from firma.report.curves import convergence, speed
from firma.report.drawing import Picture, Pictures
from firma.report.summary_figures import fairness, radar, radar_scores, rankings, ring_savings
from firma.report.tables import Layout, slug
from firma.sweep.statistics import ResultTable, by_label, result_tables
from firma.sweep.store import StoredCell, SweepResults


def sweep_figures(results: SweepResults, layout: Layout) -> Pictures:
    """The figures of each label: three per data set, then those over all data sets."""
    groups = by_label(results.cells)
    for name, table in result_tables(results).items():
        yield from _figures_of(table, groups.get(name, []), layout)


def _figures_of(table: ResultTable, cells: Sequence[StoredCell], layout: Layout) -> Pictures:
    name = table.name
    for dataset in layout.datasets:
        here = [cell for cell in cells if cell.dataset == dataset]
        if here:
            text = f"{dataset}: mean accuracy over rounds ({name})"
            yield Picture(slug("convergence", dataset, name), text, convergence(here, layout.scenarios, text))
            text = f"{dataset}: worst to best ({name})"
            yield Picture(slug("rankings", dataset, name), text, rankings(table, layout, dataset))
            text = f"{dataset}: rounds to half of the final accuracy, plateau σ ({name})"
            yield Picture(slug("speed", dataset, name), text, speed(table, dataset, layout.scenarios))
    if table.savings:
        yield Picture(slug("savings", name), f"Ring cost saved by 2-opt ({name})", ring_savings(table, layout))
    if not cells:
        return
    yield Picture(slug("fairness", name), f"Accuracy against Gini ({name})", fairness(table))
    if radar_scores(table):
        yield Picture(slug("radar", name), f"Six dimensions ({name}); outside is better", radar(table))
