"""Plans against Eqs. 9 and 10 and the paper's Algorithm 3."""

import math

import pytest

from firma.method_lookup import lookup
from firma.methods import METHODS
from firma.schedule import Phase, plan, round_retention, warmup_rounds
from firma.settings import Hyper, hyper_for

FULL = METHODS["fibfl++"]


def test_warmup_is_a_sixth_of_the_rounds():
    assert [warmup_rounds(FULL, Hyper(), rounds) for rounds in (1, 5, 6, 10, 30)] == [0, 0, 1, 1, 5]
    assert warmup_rounds(METHODS["fibfl"], Hyper(), 30) == 0
    assert warmup_rounds(FULL, Hyper(warmup_rounds=3), 30) == 3
    assert warmup_rounds(FULL, Hyper(warmup_rounds=9), 4) == 4


def test_retention_falls_by_a_cosine_from_start_to_end():
    retentions = [round_retention(FULL, Hyper(), 30, number) for number in range(5, 30)]
    assert retentions[0] == pytest.approx(0.4)
    assert retentions[-1] == pytest.approx(0.05)
    assert retentions[12] == pytest.approx((0.4 + 0.05) / 2)
    assert retentions == sorted(retentions, reverse=True)


def test_retention_of_a_pass_compounds_to_that_of_the_round():
    chosen = plan(FULL, Hyper(), 10, 30, 17)
    assert chosen.passes == 5
    assert chosen.retention**5 == pytest.approx(round_retention(FULL, Hyper(), 30, 17))


@pytest.mark.parametrize(("clients", "passes"), [(1, 1), (2, 1), (3, 2), (5, 3), (10, 5)])
def test_passes_cover_the_ring(clients, passes):
    assert plan(FULL, Hyper(), clients, 30, 29).passes == passes


def test_a_single_round_has_a_plan():
    assert math.isclose(plan(FULL, Hyper(), 2, 1, 0).retention, 0.4)


def test_warmup_trains_everything_and_averages_on_the_ring():
    chosen = plan(FULL, hyper_for("fibfl++", "paper", {}), 10, 30, 0)
    assert (chosen.mixing, chosen.shares, chosen.phases) == ("all-reduce", "extractor", (Phase("model", 20),))
    published = plan(FULL, hyper_for("fibfl++", "published", {}), 10, 30, 0)
    assert (published.mixing, published.shares) == ("star", "model")


def test_warmup_trains_as_many_epochs_as_any_round_where_training_is_joint():
    hyper = Hyper(epochs=3, head_epochs=1, extractor_epochs=20)
    assert plan(lookup("fedavg:warmup=yes"), hyper, 10, 30, 0).phases == (Phase("model", 3),)
    assert plan(lookup("fibfl++:training=joint"), hyper, 10, 30, 0).phases == (Phase("model", 3),)


def test_two_phase_methods_train_head_then_extractor():
    assert plan(METHODS["fibfl"], Hyper(), 10, 30, 0).phases == (Phase("head", 1), Phase("extractor", 20))
    assert plan(METHODS["fedavg"], Hyper(), 10, 30, 0).phases == (Phase("model", 5),)
