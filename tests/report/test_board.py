"""Who is best where, the sentences that say it, and the data in the page, on studies whose results are known."""

import json

import numpy as np
import pytest

from firma.report import answers as answers_module
from firma.report import page_data as data_module
from firma.report.answers import asked
from firma.report.board import board_of, marks, marks_in_words
from firma.report.groups import compared, study_of
from firma.report.measures import level, measure_of, steps
from firma.report.page import Report, page
from firma.report.page_data import as_script, page_data
from firma.report.study_tables import by_option, comparisons
from firma.results import Result
from firma.sweep.store import StoredCell


def run(method, scenario, scores, seed=0, preset="recommended", dataset="mine", rate=None):
    """A run of two rounds whose clients end with the given scores."""
    given = {} if rate is None else {"rate": rate}
    config = {
        "dataset": dataset, "scenario": scenario, "clients": len(scores), "dropped": [], "rounds": 2, "preset": preset,
        "set": given, "hyper": given, "split": {}, "versions": {"firma": "0", "torch": "0", "python": "3"},
    }  # fmt: skip
    history = np.array([[0.1] * len(scores), scores])
    sent = (0, 2_000_000)
    asked_for = {"dataset": dataset, "scenario": scenario, "method": method, "seed": seed, "set": given}
    return StoredCell("", Result(method, seed, config, history, (0, 1), sent, sent, 1.0, "made up"), {}, asked_for)


def laid_out(cells, **options):
    return board_of(study_of(cells), **options)


def answer(board, switch, measure):
    """The sentences, with blanks where lines must not break."""
    return [text.replace("\u00a0", " ") for text in answers_module.answer(board, switch, measure)]


def by_name(board, name):
    return next(each for each in board.measures if each.name == name)


THREE = [
    run(method, scenario, scores)
    for scenario, rows in {
        "iid": {"local": [0.5, 0.7], "fedavg": [0.8, 0.8], "fedrep": [0.795, 0.795]},
        "dir-0.1": {"local": [0.9, 0.9], "fedavg": [0.4, 0.6], "fedrep": [0.6, 0.6]},
    }.items()
    for method, scores in rows.items()
]


def test_the_best_are_marked_and_those_too_close_to_call():
    board = laid_out(THREE)
    assert [str(place) for place in board.places] == ["mine, iid", "mine, dir-0.1"]
    mean = by_name(board, "mean_accuracy")
    names = list(board.variants)
    assert names == ["local", "fedavg", "fedrep"]
    assert marks(board, 0, 0, mean) == {0: "", 1: "best", 2: "close"}
    assert marks(board, 0, 1, mean) == {0: "best", 1: "", 2: ""}
    gini = by_name(board, "gini")
    assert gini.lower
    assert marks(board, 0, 0, gini) == {0: "", 1: "best", 2: "best"}


def seeds_of(**scores):
    """Runs of methods whose clients all end with the score of their seed."""
    return [run(method, "iid", [score] * 2, seed) for method, each in scores.items() for seed, score in each.items()]


def marked(cells, metric="mean_accuracy"):
    board = laid_out(cells)
    found = marks(board, 0, 0, by_name(board, metric))
    return {board.variants[variant]: mark for variant, mark in found.items()}


def test_seeds_decide_what_is_too_close():
    """Good and bad seeds are shared: only what is left after pairing is noise."""
    shared = seeds_of(local={0: 0.4, 1: 0.5, 2: 0.6}, fedavg={0: 0.42, 1: 0.521, 2: 0.619})
    assert marked(shared) == {"local": "", "fedavg": "best"}
    apart = seeds_of(local={0: 0.4, 1: 0.5, 2: 0.6}, fedavg={0: 0.62, 1: 0.42, 2: 0.521})
    assert marked(apart) == {"local": "close", "fedavg": "best"}


def test_two_seeds_are_judged_by_the_convention():
    assert marked(seeds_of(local={0: 0.40, 1: 0.50}, fedavg={0: 0.552, 1: 0.627})) == {"local": "", "fedavg": "best"}
    assert marked(seeds_of(local={0: 0.50, 1: 0.52}, fedavg={0: 0.55, 1: 0.485})) == {
        "local": "close",
        "fedavg": "best",
    }


def test_the_best_is_that_of_the_seeds_that_all_share():
    """A second seed that is bad for all must not count against the only method that was run with it."""
    assert marked(seeds_of(local={0: 0.6}, fedavg={0: 0.7, 1: 0.3})) == {"local": "", "fedavg": "best"}
    assert marked(seeds_of(local={0: 0.6}, fedavg={1: 0.9})) == {"local": "close", "fedavg": "best"}
    board = laid_out([*seeds_of(local={0: 0.6}, fedavg={0: 0.7, 1: 0.3})])
    assert "2 of 2 kinds of run have one or two seeds" in " ".join(answer(board, 0, by_name(board, "mean_accuracy")))


def test_a_gini_coefficient_has_its_own_convention():
    board = laid_out(THREE)
    assert [by_name(board, name).convention for name in ("mean_accuracy", "gini", "bytes_per_round")] == [
        "one point", "0.01", "1 %",
    ]  # fmt: skip
    assert "within 0.01 with one or two seeds" in marks_in_words(by_name(board, "gini"))


def test_the_answer_is_written_from_the_results():
    board = laid_out(THREE)
    assert asked(board) == (
        "Which of 3 methods has the highest mean accuracy on mine, in 2 places (a place is a data set with a scenario)?"
    )
    said = answer(board, 0, by_name(board, "mean_accuracy"))
    assert said == [
        "local has the highest mean accuracy in 1 of 2 places, fedavg in 1; in 1 of them another one is too close to "
        "call.",
        "Mean over the 2 places that all 3 ran in: local 75.0 %, fedrep 69.8 %, fedavg 65.0 %.",
        "They differ most on mine, dir-0.1: local 90.0 %, fedavg 50.0 %.",
        "There is one seed of each run only: small differences may be chance.",
    ]
    short = laid_out(THREE[:-1])
    assert short.missing(0) == [(1, 2)]
    assert answer(short, 0, by_name(short, "mean_accuracy"))[-1] == (
        "1 of 6 combinations of a place and a method were not run."
    )


def test_one_run_and_one_method_in_several_places():
    (text, *more) = answer(laid_out(THREE[:1]), 0, measure_of("mean_accuracy", "accuracy"))
    assert text == "local on mine, iid: mean accuracy 60.0 % (one seed) after 2 rounds."
    assert more[0] == "Accuracy of the worst client: 50.0 %."
    both = laid_out([THREE[0], THREE[3]])
    assert both.variants == ["local"]  # scenarios are places, not rivals
    assert answer(both, 0, both.measures[0])[0].startswith("local: mean accuracy from 60.0 % (mine, iid) to 90.0 %")


def test_presets_are_switched_as_a_condition_and_part_of_the_method_where_they_are_its_own():
    every = [run(m, "iid", [0.5, 0.5], preset=p) for m in ("local", "fedavg") for p in ("paper", "recommended")]
    board = laid_out(every)
    assert board.switch == ["recommended", "paper"]
    assert board.variants == ["local", "fedavg"]
    own = [run("local", "iid", [0.5, 0.5], preset="paper"), run("fedavg", "iid", [0.6, 0.6], preset="published")]
    assert laid_out(own).switch == [""]
    assert len(marks(laid_out(own), 0, 0, measure_of("mean_accuracy", "accuracy"))) == 2
    assert laid_out(own, condition=True).switch == ["published", "paper"]


def test_a_setting_that_varies_is_a_place_and_the_methods_own_is_a_variant():
    board = laid_out([run(m, "iid", [0.5, 0.5], rate=r) for m in ("local", "fedavg") for r in (0.1, 0.01)])
    assert [place.label for place in board.places] == ["rate=0.01", "rate=0.1"]
    own = [run("local", "iid", [0.5] * 2), *(run("fedavg", "iid", [0.6] * 2, rate=r) for r in (0.1, 0.01))]
    assert set(laid_out(own).variants) == {"local", "fedavg rate=0.01", "fedavg rate=0.1"}


def test_metrics_are_shown_as_people_read_them():
    assert measure_of("mean_accuracy", "accuracy").show(0.9412) == "94.1\u00a0%"
    assert measure_of("worst_client", "r2").heading == "R² of the worst client"
    assert measure_of("bytes_per_round", "accuracy").show(2_500_000) == "2.50"
    assert measure_of("honest_mean_accuracy", "accuracy").heading == "honest clients: mean accuracy in %"
    assert measure_of("mean_pinball_loss", "r2").lower
    gini = measure_of("gini", "accuracy")
    assert steps(gini, [0.03, 0.013]) == (0.0025, 0.005, 0.0125, 0.025, 0.05)
    assert steps(gini, [0.0]) == ()
    assert [level(each, (0.5, 1.0)) for each in (0.0, 0.5, 0.7, 3.0)] == [0, 0, 1, 2]


def test_the_data_hold_every_score_until_they_are_too_many(monkeypatch):
    board = laid_out(THREE)
    whole = page_data(board, None, "")
    assert whole["whole"]
    assert whole["runs"][0][-1] == [1000, 1000, 5000, 7000]
    assert "".join([whole["groups"][0][3][0], "0", whole["groups"][0][3][1]]).startswith("firma run --dataset mine")
    monkeypatch.setattr(data_module, "_MOST_SCORES", 3)
    some = page_data(board, None, "")
    assert not some["whole"]
    assert some["runs"][0][-1] == [1000, 1000, 6000, 5000]  # mean and worst of either round
    monkeypatch.setattr(data_module, "_FEWEST", 1)
    monkeypatch.setattr(data_module, "_MOST_POINTS", 6)
    assert page_data(board, None, "")["kept"] == {"2": [1]}


@pytest.mark.parametrize("name", ["</script><script>x", "<!--", "a\u2028b", "&lt;"])
def test_no_name_leaves_the_data(name):
    text = as_script({"name": name})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"name": name}
    found = page(Report(name, laid_out([run("local", name, [0.5, 0.5], dataset=name)])))
    assert found.count("</script>") == 2
    assert "<script>x" not in found


def in_two_scenarios(**scores):
    """Runs of methods by seed, the same in two scenarios; those of the second have seed 0 only."""
    return [
        run(method, scenario, [score] * 2, seed)
        for method, each in scores.items()
        for seed, score in each.items()
        for scenario in ("iid", "dir-0.1")
        if scenario == "iid" or seed == 0
    ]


def test_tables_of_a_study_mark_the_best_over_the_seeds_that_all_share():
    (table,) = by_option(study_of(in_two_scenarios(local={0: 0.6}, fedavg={0: 0.7, 1: 0.3})))
    assert table.columns == ("method", "iid", "dir-0.1")
    assert [[entry.best for entry in row] for row in table.rows] == [[False, False, False], [False, True, True]]
    assert "over the seeds that all of a column share" in table.note


def test_a_comparison_says_which_cases_it_leaves_out_and_why():
    scores = {seed: 0.5 + seed / 100 for seed in range(3)}
    study = study_of(in_two_scenarios(local=scores, fedavg={seed: each + 0.1 for seed, each in scores.items()}))
    table = comparisons(study, compared(study))
    shown = dict(zip(table.columns, [entry.text for entry in table.rows[0]], strict=True))
    assert (shown["cases"], shown["seeds"]) == ("1", "3")
    assert shown["why"].endswith("1 of 2 cases are left out, as they lack some of these seeds (mean difference there: "
                                 "+0.1000)")  # fmt: skip
