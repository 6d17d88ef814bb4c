"""Robust combines against references in plain NumPy, in their degenerate cases, and under attack."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference_combine as reference
from firma.errors import BadInput
from firma.method_lookup import lookup
from firma.mixing.combine import Reads, check_members, clipped, combined, common, krum, median, trimmed_mean
from firma.schedule import RoundPlan
from firma.settings import hyper_for

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def vectors(rng, count, size=17, spread=1.0):
    return [torch.from_numpy(rng.normal(0, spread, size).astype(np.float32)) for _ in range(count)]


def robust(combine, byzantine=1, radius=None):
    return RoundPlan(0, (), "all-gather", "extractor", combine=combine, byzantine=byzantine, clip_radius=radius)


@given(seed=st.integers(0, 2**32), f=st.integers(0, 3), more=st.integers(0, 6))
def test_they_compute_what_their_papers_say(seed, f, more):
    rng = np.random.default_rng(seed)
    pool = vectors(rng, 2 * f + 3 + more)
    plain = [each.numpy() for each in pool]
    np.testing.assert_allclose(trimmed_mean(pool, f), reference.trimmed(plain, f), **CLOSE)
    np.testing.assert_allclose(median(pool), reference.median(plain, f), **CLOSE)
    np.testing.assert_array_equal(pool[krum(pool, f)], reference.krum(plain, f).astype(np.float32))
    weights = rng.dirichlet(np.ones(len(pool)))[1:]
    for radius in (None, 0.5, 4.0):
        ours = clipped(pool[0], pool[1:], weights.tolist(), f, radius)
        np.testing.assert_allclose(ours, reference.clipped(plain[0], plain[1:], weights, f, radius), **CLOSE)


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_without_liars_to_withstand_it_is_the_mean(count):
    rng = np.random.default_rng(count)
    pool = vectors(rng, count)
    mean = np.mean([each.numpy() for each in pool], axis=0)
    alike = Reads(tuple(range(1, count)), (1 / count,) * (count - 1))
    np.testing.assert_allclose(common(robust("trimmed", 0), pool), mean, **CLOSE)
    np.testing.assert_allclose(combined(robust("clipped", 0), pool[0], pool[1:], alike), mean, **CLOSE)
    np.testing.assert_allclose(combined(robust("clipped", 3, math.inf), pool[0], pool[1:], alike), mean, **CLOSE)
    np.testing.assert_allclose(combined(robust("mean"), pool[0], pool[1:], alike), mean, **CLOSE)


@pytest.mark.parametrize("combine", ["clipped", "trimmed", "median", "krum"])
@pytest.mark.parametrize("lie", [1e6, -1e30, float("inf"), float("nan")])
def test_one_liar_of_five_moves_the_outcome_less_than_honest_clients_differ(combine, lie):
    honest = vectors(np.random.default_rng(1), 4)
    liar = torch.full_like(honest[0], lie)
    alike = Reads((1, 2, 3, 4), (0.2,) * 4)
    widest = max(float((one - other).norm()) for one in honest for other in honest)
    centre = torch.stack(honest).mean(0)
    result = combined(robust(combine), honest[0], [*honest[1:3], liar, honest[3]], alike)
    assert float((result - centre).norm()) <= widest
    fooled = combined(robust("mean"), honest[0], [*honest[1:3], liar, honest[3]], alike)
    assert not float((fooled - centre).norm()) <= widest or not math.isfinite(lie)


@pytest.mark.parametrize("combine", ["trimmed", "median"])
def test_the_order_of_vectors_does_not_matter_to_a_bit(combine):
    rng = np.random.default_rng(3)
    pool = vectors(rng, 7, size=70_000)  # more than is sorted at a time
    other = [pool[place] for place in rng.permutation(7)]
    assert torch.equal(common(robust(combine), pool), common(robust(combine), other))


@pytest.mark.parametrize(("combine", "count"), [("clipped", 2), ("trimmed", 2), ("median", 2), ("krum", 4)])
def test_with_too_few_a_client_keeps_its_own(combine, count):
    pool = vectors(np.random.default_rng(0), count)
    kept = combined(robust(combine), pool[0], pool[1:], Reads(tuple(range(1, count)), (1 / count,) * (count - 1)))
    assert torch.equal(kept, pool[0])
    assert kept is not pool[0]


def test_neighbours_of_weight_zero_do_not_count():
    own, one, gated = vectors(np.random.default_rng(0), 3)
    plan = robust("trimmed", 0)
    np.testing.assert_allclose(combined(plan, own, [one, gated], Reads((1, 2), (0.5, 0.0))), (own + one) / 2, **CLOSE)
    assert torch.equal(combined(robust("clipped"), own, [one, gated], Reads((1, 2), (0.5, 0.0))), own)


def test_retention_is_kept_of_the_own_vector():
    own, *others = vectors(np.random.default_rng(0), 3)
    found = combined(robust("median"), own, others, Reads((1, 2), (0.3, 0.3), 0.4))
    np.testing.assert_allclose(found, 0.4 * own + 0.6 * torch.stack([own, *others]).median(0).values, **CLOSE)


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("frame:combine=trimmed", "it would see sums instead of single clients; use topology = 'all-gather'"),
        ("local:combine=median", "nobody sends anything"),
        ("fibfl++:combine=krum", "Krum requires at least 2f \\+ 3 clients, and a ring has two neighbours"),
        ("fedavg:combine=clipped", "a server has none; use 'trimmed'"),
        ("fedavg:combine=mode", "must be one of mean, clipped, trimmed, median, krum"),
        ("fibfl++:topology=all-gather", "requires weights = 'size' or 'equal'"),
    ],
)
def test_combinations_that_cannot_be(method, says):
    with pytest.raises(BadInput, match=says):
        lookup(method)


@pytest.mark.parametrize(
    ("method", "settings", "members", "says"),
    [
        ("frame:topology=all-gather,combine=krum", {}, 4, "requires at least 5 clients to combine, and there are 4"),
        ("frame:topology=all-gather,combine=trimmed", {"byzantine": 2}, 4, "requires at least 5"),
        ("fedavg:combine=median", {"byzantine": 5}, 10, "requires at least 11"),
        (
            "fibfl:combine=trimmed",
            {"byzantine": 2},
            50,
            "there are 3, a client and its 2 neighbours, however many clients there are; use a smaller byzantine, or a "
            "topology with more neighbours",
        ),
        ("d-psgd:topology=complete,combine=krum", {}, 4, "and there are 4; use a smaller byzantine, or more clients"),
        ("fibfl:combine=clipped", {}, 2, "requires at least 3 clients"),
        ("fibfl++:combine=clipped", {"warmup_shares": "model"}, 5, "warmup_shares = 'model', an average at a server"),
    ],
)
def test_too_few_clients_are_refused_before_the_run(method, settings, members, says):
    row = lookup(method)
    with pytest.raises(BadInput, match=says):
        check_members(row, hyper_for(row, "recommended", settings), members, rounds=6)


def test_enough_clients_are_not():
    for method, members in (("frame:topology=all-gather,combine=krum", 5), ("fibfl++:combine=clipped", 3)):
        row = lookup(method)
        check_members(row, hyper_for(row, "recommended", {}), members, rounds=6)


def test_whoever_is_alone_combines_nothing():
    row = lookup("fedavg:combine=krum")
    check_members(row, hyper_for(row, "recommended", {}), 1, rounds=6, clients=1)
    with pytest.raises(BadInput, match="there are 1 of 5 in a round; use a smaller byzantine, a larger participation"):
        check_members(row, hyper_for(row, "recommended", {}), 1, rounds=6, clients=5)


def test_an_all_gather_passes_floats_on():
    row = lookup("frame:topology=all-gather")
    with pytest.raises(BadInput, match="bit for bit and compare digests; use float32"):
        check_members(row, hyper_for(row, "recommended", {}), 5, rounds=6, wire="int8")
