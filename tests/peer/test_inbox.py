"""Which exchange follows which, by counting one by one."""

import time

import pytest

from firma.method_lookup import lookup
from firma.peer.runtime.admission import exchange_sequence
from firma.schedule import plan
from firma.settings import hyper_for


def made(method, members, rounds):
    row, hyper = lookup(method), hyper_for(method, "paper", {})
    return exchange_sequence(2, 0, tuple(range(members)), rounds, 100, lambda n: plan(row, hyper, members, rounds, n))


@pytest.mark.parametrize(("method", "members", "rounds"), [
    ("fibfl", 3, 4), ("fibfl++", 5, 13), ("fibfl++", 2, 6), ("fibfl++", 4, 5), ("fibfl++:warmup=no", 5, 3),
])  # fmt: skip
def test_exchanges_are_numbered_in_their_order(method, members, rounds):
    found = made(method, members, rounds)
    count = 0
    for turn in range(1, rounds + 1):
        step = 0
        while found.known((2, turn, step)):
            assert found.index((2, turn, step)) == count
            count, step = count + 1, step + 1
        assert step > 0
    assert found.index((2, rounds + 1, 0)) == count
    assert not found.known((2, rounds + 1, 0))
    assert not found.known((2, 0, 0))


def test_a_view_of_a_million_rounds_begins_at_once():
    began = time.perf_counter()
    assert made("fibfl++", 5, 1_000_000).index((2, 1_000_000, 0)) > 1_000_000
    assert time.perf_counter() - began < 1
