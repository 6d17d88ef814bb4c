"""All figures of a study, one after another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firma.data.dataset import load_dataset
from firma.data.partition import class_proportions, deal
from firma.methods import METHODS
from firma.mixing import ring
from firma.mixing.order import similarity, two_opt
from firma.report.design_space import design_space
from firma.report.part_tables import slug
from firma.report.ring_picture import ring_picture
from firma.report.round_pictures import convergence, speed
from firma.report.summary_pictures import fairness, radar, radar_scores, rankings, ring_savings
from firma.schedule import plan
from firma.settings import hyper_for, split_for
from firma.study.evidence import Evidence, gathered, grouped
from firma.study.grid import DATASETS
from firma.study.store import Stored, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A figure, the name of its file, and what it shows in words."""

    name: str
    caption: str
    figure: "Figure"


def all_figures(study: Study, paper: Evidence) -> Iterator[Picture]:
    """Those that need no runs, then those of each body of runs."""
    yield Picture("design-space", "Who needs a server, and whose head is sent.", design_space())
    yield Picture("ring", "The ring of the digits at Dir 0.1, as given and as 2-opt orders it.", digits_ring())
    groups = grouped(study.cells)
    for name, body in gathered(study).items():
        yield from _figures_of(name, body, groups.get(name, []), paper)


def _figures_of(name: str, body: Evidence, cells: Sequence[Stored], paper: Evidence) -> Iterator[Picture]:
    for dataset in DATASETS:
        here = [cell for cell in cells if cell.dataset == dataset]
        if here:
            said = f"{dataset}: mean accuracy over rounds ({name})"
            yield Picture(slug("convergence", dataset, name), said, convergence(here, said))
            said = f"{dataset}: worst to best ({name})"
            yield Picture(slug("rankings", dataset, name), said, rankings(body, paper, dataset))
            said = f"{dataset}: rounds to half of the final accuracy, plateau σ ({name})"
            yield Picture(slug("speed", dataset, name), said, speed(body, dataset))
    yield Picture(slug("savings", name), f"Ring cost saved by 2-opt ({name})", ring_savings(body, paper))
    if not cells:
        return
    yield Picture(slug("fairness", name), f"Accuracy against Gini ({name})", fairness(body))
    if radar_scores(body):
        yield Picture(slug("radar", name), f"Six dimensions ({name}); outside is better", radar(body))


def digits_ring() -> "Figure":
    """The digits at Dir 0.1 on five clients, with the weights of the plain ring's pass."""
    source, hyper = load_dataset("digits"), hyper_for("fibfl", "paper", {})
    partition = deal(source, "dir-0.1", source.clients, split_for("paper", {}), 0)
    proportions = class_proportions(source.y_train, partition.train, source.classes)
    given = range(len(proportions))
    ordered = two_opt(similarity(proportions, hyper.ring_cost))
    one = plan(METHODS["fibfl"], hyper, len(proportions), source.rounds, 0)
    orders = [("as given", given), ("as 2-opt orders it", ordered)]
    return ring_picture(proportions, orders, ring.row(one), "digits, dir-0.1: a pie is a client's classes")
