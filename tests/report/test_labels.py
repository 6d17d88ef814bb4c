"""No two words of a figure lie on each other, in any figure that `firma report` writes."""

from pathlib import Path

import pytest
from made_up import made_up_study
from matplotlib.text import Text

from firma.paper.report import paper_figures, paper_scope
from firma.report.drawing import canvas
from firma.report.groups import study_of
from firma.report.study_figures import study_figures
from firma.sweep.result_folders import read_folders

EVIDENCE = Path(__file__).parent.parent.parent / "evidence"


def words(figure):
    """(text, box in pixels) of every word that is drawn; ticks outside of what their axis shows are not."""
    figure.canvas.draw()
    outside = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            slack = 1e-6 * (high - low)
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low - slack <= tick.get_loc() <= high + slack:
                    outside |= {tick.label1, tick.label2}
    drawn = [each for each in figure.findobj(Text) if each.get_visible() and each.get_text().strip()]
    renderer = figure.canvas.get_renderer()
    return [(each.get_text(), each.get_window_extent(renderer)) for each in drawn if each not in outside]


def collisions(figure):
    """Pairs of words whose boxes share more than a pixel in both directions."""
    found = words(figure)
    return [
        (one, other)
        for number, (one, a) in enumerate(found)
        for other, b in found[number + 1 :]
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]


def test_words_on_each_other_are_found():
    figure = canvas(3, 2)
    axes = figure.subplots()
    axes.text(0.5, 0.5, "one")
    assert not collisions(figure)
    axes.text(0.52, 0.5, "other")
    assert collisions(figure) == [("one", "other")]


def test_no_two_words_collide_in_the_figures_of_the_evidence():
    pictures = list(paper_figures(read_folders([EVIDENCE]), paper_scope()))
    assert len(pictures) > 20
    assert {picture.name: found for picture in pictures if (found := collisions(picture.figure))} == {}


@pytest.mark.parametrize("ablations", [(), ("fibfl++:gate=no", "fibfl++:order=given,passes=one")])
def test_no_two_words_collide_in_the_figures_of_a_sweep(tmp_path, ablations):
    folder = made_up_study(
        tmp_path, ["digits", "mnist"], ["iid", "dir-0.1"], ["recommended"], seeds=1, ablations=ablations
    )
    pictures = list(study_figures(study_of(read_folders([folder]).cells, None, None)))
    assert pictures
    assert {picture.name: found for picture in pictures if (found := collisions(picture.figure))} == {}
