"""Absurd values: what arrives is compared with the own extractor, in every kind of mixing, before it is blended."""

from dataclasses import replace

import pytest
import torch

from firma.peer.runtime.bounds import FACTOR, excess, largest
from firma.peer.runtime.events import Send, Train
from firma.protocol import ExtractorState, Message

from .virtual import NAMES, VirtualNode, World

LIAR = 2
METHODS = (
    "fibfl++:warmup=no",
    "fibfl++",  # six rounds begin with one of warm-up, an all-reduce
    "fibfl++:combine=clipped",
    "fibfl:combine=trimmed,order=given",
    "d-psgd:topology=complete,shares=extractor",
    "d-psgd:topology=exponential,shares=extractor,combine=median",
    "fedper:topology=all-reduce",
    "fedper:topology=all-gather",
    "fedper:topology=all-gather,combine=trimmed",
)


@pytest.fixture
def lying(monkeypatch):
    """`lying(change)`: one member of a virtual ring sends what `change(values)` makes of what it should send.

    In an all-gather, where others would find out that it passes on something else, it changes what it has trained.
    """
    honest = VirtualNode._perform

    def install(change):
        def perform(node, work):
            gathers = isinstance(work, Train) and work.plan.mixing == "all-gather"
            if (
                node.number == LIAR
                and isinstance(work, Send)
                and not node.gathers
                and work.message.state.values.numel()
            ):
                state = work.message.state
                work = replace(work, message=replace(work.message, state=replace(state, values=change(state.values))))
            done = honest(node, work)
            if node.number == LIAR and isinstance(work, Train):
                node.gathers = gathers
                done = replace(done, shared=change(done.shared)) if gathers else done
            return done

        monkeypatch.setattr(VirtualNode, "_perform", perform)

    return install


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [3e38, pytest.param(1e6, marks=pytest.mark.slow)])
def test_absurd_values_poison_nobody_and_their_sender_is_named(lying, method, size):
    lying(lambda values: torch.full_like(values, size))
    world = World(5, 6, method=method).start().run()
    honest = set(range(5)) - {LIAR}
    assert {n: end for n, end in world.ends().items() if n in honest} == dict.fromkeys(honest, "finished")
    for member in honest:
        rounds, parameters = world.parameters(member)
        assert (rounds, bool(parameters.abs().max() < 20)) == (6, True)
    named = {facts for _, who, what, name, facts in world.of("log") if name == "absurd" and who != NAMES[LIAR]}
    assert named
    assert all(f"('member', '{NAMES[LIAR]}')" in facts for facts in named), named
    told = [text for _, who, _, text in world.of("notice") if who != NAMES[LIAR] and "it is not used" in text]
    assert told
    assert all(f"{NAMES[LIAR]} sent a" in text for text in told)


@pytest.mark.slow  # in the default run, replays of other tests would differ if anything were refused
@pytest.mark.parametrize("method", METHODS)
def test_honest_members_are_never_refused(method):
    world = World(5, 6, method=method).start().run()
    assert not [facts for _, _, _, name, facts in world.of("log") if name == "absurd"]


def test_a_liar_cannot_make_an_honest_member_look_like_one(lying):
    """In an all-reduce the next member gets a sum that contains the lie: only one far beyond its limit is blamed."""
    for size in (12.0, 40.0, 1000.0):
        lying(lambda values, size=size: values * size)
        world = World(5, 3, method="fedper:topology=all-reduce").start().run()
        for member in set(range(5)) - {LIAR}:
            blamed = world.nodes[member].member._detector._misdeeds
            assert set(blamed) <= {LIAR}, size


def test_a_weight_that_nobody_can_have_is_absurd():
    message = Message(ExtractorState(torch.ones(4)), weight=1e300)
    assert excess(message, 1e9, 5, summed=True).certain
    assert excess(replace(message, weight=5e6), 1e9, 5, summed=True) is None
    assert not excess(replace(message, weight=6e12), 1e9, 5, summed=True).certain


def test_the_bound_follows_the_own_extractor_and_the_round_before():
    own = torch.ones(100)
    assert largest(own, None) == pytest.approx(10 * FACTOR)
    assert largest(own, 20.0) == pytest.approx(10 * FACTOR)
    assert largest(own * 1e6, 10.0) == pytest.approx(40 * FACTOR), "own training that diverged is no measure"
    assert 0 < largest(own * 0, None) < 1
    assert excess(Message(ExtractorState(own * 8)), largest(own, None), 5, summed=False) is None
    assert "norm 81" in excess(Message(ExtractorState(own * 8.1)), largest(own, None), 5, summed=False).why
