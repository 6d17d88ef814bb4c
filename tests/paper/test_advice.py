"""firma advise: the paper's rules, our runs, and what it says where they disagree."""

import json

import numpy as np
import pytest

from firma.errors import BadInput
from firma.methods import METHODS
from firma.paper.advice import PAPER_BEST, advise
from firma.paper.federation_profile import Profile, from_split, heterogeneity, nearest, read_counts, saving
from firma.paper.grid import CASES
from firma.paper.published import published
from firma.statistics import Statistic, statistic
from firma.sweep.result_table import ResultTable

LARGE = np.full((10, 10), 5000)


def runs(name="paper", **scores):
    base = dict.fromkeys(METHODS, 0.8) | {key.replace("_", "+"): value for key, value in scores.items()}
    statistics = {
        (*case, method, "mean_accuracy"): Statistic(score, 0.001, 3) for case in CASES for method, score in base.items()
    }
    return {name: ResultTable(name, statistics)}


def test_without_runs_it_is_the_paper_and_says_so():
    found = advise(Profile(LARGE, "iid", True, "mnist"), published(), {})
    assert found.method == "fedavg"
    assert found.source == "the paper's rules"
    assert found.agree is None
    assert found.over_local is None
    assert "there are no runs" in found.own_reasons[0]
    assert any("IID" in warning for warning in found.warnings)


def test_our_runs_decide_and_a_disagreement_is_said():
    found = advise(Profile(LARGE, "dir-0.1", True, "mnist"), published(), runs(fibfl__=0.9))
    assert found.method == "fibfl++"
    assert found.agree is False
    assert found.paper == ("fedavg",)
    assert round(found.over_local.points, 6) == 10
    links, passes, accuracy = 20, 5, 8  # each of ten clients to two neighbours; an accuracy once per round and link
    assert found.bytes_per_round == links * (passes * 4 * 300_672 + accuracy)


def test_recommended_runs_come_before_the_papers_numbers():
    tables = runs(rdfl=0.9) | runs("recommended", fedrep=0.95)
    assert advise(Profile(LARGE, "skew-1", True, "mnist"), published(), tables).method == "fedrep"


def test_training_alone_may_be_enough():
    found = advise(Profile(LARGE, "dir-0.1", True, "mnist"), published(), runs(local=0.9))
    assert found.method == "local"
    assert found.private == "frame"  # level with the others, and the default
    assert any("training alone" in warning for warning in found.warnings)


def only(table, keep):
    """The part of a table whose (data set, method) is kept."""
    kept = {place: each for place, each in table.statistics.items() if keep(place[0], place[2])}
    return {table.name: ResultTable(table.name, kept, by_seed={each: table.by_seed.get(each, {}) for each in kept})}


def test_methods_are_compared_where_the_default_was_run_and_its_absence_is_said():
    """Over all data sets of a scenario, those without a run of the default would hide it."""
    table = runs("recommended", frame=0.9)["recommended"]
    some = only(table, lambda dataset, method: method != "frame" or dataset == "digits")
    found = advise(Profile(LARGE, "iid", True), published(), some)
    assert (found.method, found.over_local.datasets) == ("frame", 1)
    assert found.own_reasons[0].startswith("accuracy in our runs (digits): frame 90.0%, ")
    found = advise(Profile(LARGE, "iid", True, "mnist"), published(), some)
    assert found.method != "frame"
    assert found.own_reasons[1] == "not run here: frame, the default"


def test_a_case_is_covered_by_the_default_and_one_other_and_what_is_missing_is_named():
    table = runs("recommended", frame=0.9)["recommended"]
    some = only(table, lambda _, method: method in ("frame", "fedrep", "local"))
    found = advise(Profile(LARGE, "dir-0.5", True, "cifar10"), published(), some)
    assert found.source == "our runs (recommended)"
    assert found.over_fedavg is None
    assert found.over_local.points == pytest.approx(10)
    assert found.own_reasons[1] == "not run here: fedavg, rdfl, fibfl, fibfl+, fibfl++"
    assert found.agree is None  # fedavg, which the paper recommends, was not run


def test_a_preset_that_does_not_cover_the_case_is_passed_over():
    none = only(runs("recommended", frame=0.9)["recommended"], lambda dataset, _: dataset == "digits")
    found = advise(Profile(LARGE, "iid", True, "mnist"), published(), none | runs("paper", frame=0.95))
    assert (found.source, found.own_reasons[0][:39]) == ("our runs (paper)", "accuracy in our runs (mnist): frame 95.")
    assert advise(Profile(LARGE, "iid", True, "mnist"), published(), none).source == "the paper's rules"


def test_without_evidence_nothing_is_called_the_best_as_if_measured():
    assert advise(Profile(LARGE, "iid", True, "mnist"), published(), {}).private is None


def seeded(**scores):
    """Runs of CIFAR-10 at dir-0.1 with accuracies by seed."""
    by_seed = {
        ("cifar10", "dir-0.1", name.replace("_", "+"), "mean_accuracy"): dict(enumerate(each))
        for name, each in scores.items()
    }
    statistics = {place: statistic(list(each.values())) for place, each in by_seed.items()}
    return {"recommended": ResultTable("recommended", statistics, by_seed=by_seed)}


@pytest.mark.parametrize(
    ("scores", "method", "level"),
    [
        ({"fedavg": [0.905], "frame": [0.9], "local": [0.8]}, "frame", ["fedavg"]),
        ({"fedavg": [0.92], "frame": [0.9], "local": [0.8]}, "fedavg", []),
        ({"fedavg": [0.91, 0.8, 0.86], "frame": [0.9, 0.79, 0.851]}, "fedavg", []),  # a point, seed by seed
        ({"fedavg": [0.95, 0.9, 0.86], "frame": [0.86, 0.95, 0.84]}, "frame", ["fedavg"]),
        ({"fedavg": [0.92], "fibfl__": [0.915], "frame": [0.8]}, "fibfl++", ["fedavg"]),
    ],
)
def test_among_methods_that_are_level_the_default_or_one_without_a_server_is_chosen(scores, method, level):
    found = advise(Profile(LARGE, "dir-0.1", True, "cifar10"), published(), seeded(**scores))
    assert (found.method, found.level) == (method, level)
    assert found.seeds == (len(scores["frame"]),) * 2


def test_a_gain_is_paired_and_has_its_interval():
    gain = advise(Profile(LARGE, "dir-0.1", True, "cifar10"), published(),
                  seeded(fedavg=[0.5, 0.7, 0.6, 0.1], frame=[0.6, 0.8, 0.71])).over_fedavg  # fmt: skip
    half = statistic([0.1, 0.1, 0.11]).half()
    assert (gain.points, gain.half, gain.seeds, gain.clear) == (
        pytest.approx(31 / 3),
        pytest.approx(100 * half),
        3,
        True,
    )


def test_another_size_of_the_federation_is_said():
    few = Profile(np.full((200, 10), 50), "dir-0.1", True, "cifar10", rounds=3)
    table = seeded(fedavg=[0.5], frame=[0.6])
    said = "our runs had 10 clients and 30 rounds; with 200 clients and 3 rounds the ranking may differ"
    assert said in advise(few, published(), table).warnings
    usual = advise(Profile(LARGE, "dir-0.1", True, "cifar10"), published(), table)
    assert not any("our runs had" in warning for warning in usual.warnings)


def test_without_a_data_set_it_is_the_mean_of_all():
    found = advise(Profile(LARGE, "skew-1", False), published(), runs(fibfl__=0.9))
    assert found.over_fedavg.datasets == 4
    assert found.bytes_per_round is None


def test_warnings_of_little_data_few_rounds_and_pairs():
    counts = np.array([[5, 1000], [40, 0]])
    found = advise(Profile(counts, "skew-1", False, rounds=4), published(), {})
    text = " ".join(found.warnings)
    assert "fewer than 20 samples" in text
    assert "4 rounds are few" in text
    assert "a ring is a pair" in text
    assert "twenty times" in text
    assert found.method == "fibfl++"  # the paper's own rule speaks against private heads on a star here


def test_the_papers_table_is_whole():
    assert set(PAPER_BEST) == {case[1] for case in CASES}


@pytest.mark.parametrize("scenario", ["iid", "dir-0.1", "skew-1"])
def test_a_scenario_is_recognised_from_its_counts(scenario):
    assert nearest(from_split("digits", scenario, None, None).counts) == scenario


def test_heterogeneity_and_saving_at_their_ends():
    assert heterogeneity(LARGE) == 0
    assert heterogeneity(np.eye(4, dtype=np.int64) * 7) == pytest.approx(0.75)
    assert saving(np.eye(4, dtype=np.int64) * 7) == 0
    paired = np.array([[9, 0], [9, 0], [0, 9], [0, 9]])
    assert saving(paired) == pytest.approx(100)


@pytest.mark.parametrize(
    "text",
    [
        "1,2\n3,4\n",
        "a,b\n1,2\n3,4\n",
        "site,a,b\nx,1,2\ny,3,4\n",
        "x,1,2\ny,3,4\n",
        "0,1\n1,2\n3,4\n",
        "client,0,1\nx,1,2\ny,3,4\n",
    ],
)
def test_counts_with_and_without_names(tmp_path, text):
    path = tmp_path / "counts.csv"
    path.write_text(text)
    assert read_counts(path).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("text", ["", "1,2\n3\n", "a,b\n1,-2\n", "1,2\n0,0\n", "x,1.5\ny,2\n"])
def test_bad_counts_are_refused(tmp_path, text):
    path = tmp_path / "counts.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match="counts"):
        read_counts(path)


def test_the_command_speaks_words_and_json(command, tmp_path):
    code, out, _ = command("advise", "--dataset", "digits", "--scenario", "dir-0.1", "--rounds", "5")
    assert code == 0
    for part in (
        "Use frame, according to our runs (recommended), 10 seeds.", "Level with: local, ", "according to the paper",
        "2-opt saves", "MB", "Note: 5 rounds are few", "our runs had 5 clients",
    ):  # fmt: skip
        assert part in out
    path = tmp_path / "counts.csv"
    path.write_text("1,200\n300,4\n90,90\n")
    code, out, _ = command("advise", "--counts", path, "--json")
    assert code == 0
    assert {"method", "agree", "warnings", "saving_percent", "over_local"} <= set(json.loads(out))
    code, _, err = command("advise", "--counts", path, "--dataset", "digits")
    assert code == 2
    assert err.count("\n") == 1
