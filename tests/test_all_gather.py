"""Members that change what they pass on, or lie about it: nobody uses it, and one of the two named is a liar."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from firma.engines.message_passing import drive
from firma.mixing.all_gather import digest, exchange
from firma.protocol import ExtractorState, Message, Participant
from firma.schedule import RoundPlan

SIZE, ORDER = 11, (3, 0, 4, 1, 2)
PLANS = [
    RoundPlan(7, (), "all-gather", "extractor", weights="size"),
    RoundPlan(7, (), "all-gather", "extractor", weights="size", combine="trimmed", byzantine=1),
    RoundPlan(7, (), "all-gather", "extractor", weights="size", combine="clipped", byzantine=1),
]


def tampering(members, change):
    """An honest member's exchanges with other messages in their place: `change(step, message)`."""

    def member():
        due = next(members)
        while True:
            step = due.tag[1]
            arrived = yield replace(due, message=change(step, due.message))
            try:
                due = members.send(arrived)
            except StopIteration as stop:
                return stop.value

    return member()


def gathered(plan, theta, liars):
    """What each member ends with, and what it suspects; `liars` are changes by member."""
    suspects = {n: [] for n in range(len(theta))}
    members = {}
    for n in range(len(theta)):
        honest = exchange(plan, Participant(n, ORDER, theta[n].clone(), 1.0, 10 + n, suspect=suspects[n].append))
        members[n] = tampering(honest, liars[n]) if n in liars else honest
    return drive(members, lambda *_: None), suspects


def worse(message):
    return replace(message, state=ExtractorState(-5 * message.state.values))


def relay(step, message):
    """Its own goes out as it is, others' are changed; its digests say that it holds the truth."""
    return worse(message) if 0 < step < len(ORDER) - 1 else message


def own(step, message):
    """Another vector than its digest says."""
    return worse(message) if step == 0 else message


def heavier(step, message):
    """The sample count of another is changed."""
    return replace(message, weight=1e9) if step == 1 and message.weight else message


def claims(step, message):
    """Its digests are invented, all of them."""
    return replace(message, digests=(bytes(32),) * len(ORDER)) if message.digests else message


def theta_of(seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(len(ORDER), SIZE))).float()


@pytest.mark.parametrize("plan", PLANS)
def test_honest_members_suspect_nobody(plan):
    _, suspects = gathered(plan, theta_of(), {})
    assert not any(suspects.values())


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("liars", [(0,), (0, 1), (3, 0), (1, 2, 3)])
@pytest.mark.parametrize("change", [relay, own, heavier, claims])
def test_one_of_the_two_that_are_named_is_a_liar(plan, liars, change):
    _, suspects = gathered(plan, theta_of(), dict.fromkeys(liars, change))
    named = {(each.sender, each.receiver) for n, found in suspects.items() if n not in liars for each in found}
    if change is not heavier or plan.combine == "mean":
        assert named, "nobody noticed"
    assert all(set(pair) & set(liars) for pair in named)


@pytest.mark.parametrize("change", [relay, own, heavier, claims])
def test_what_was_changed_is_left_out_and_the_rest_is_used(change):
    """With the mean, which has no defence of its own: every member's result is that of the true vectors it accepted."""
    plan, theta, liar = PLANS[0], theta_of(1), 0
    results, suspects = gathered(plan, theta, {liar: change})
    for n in set(range(len(ORDER))) - {liar}:
        left_out = {each.origin for each in suspects[n] if not each.used}
        kept = [origin for origin in range(len(ORDER)) if origin not in left_out]
        weights = torch.tensor([10.0 + origin for origin in kept])
        torch.testing.assert_close(results[n], (weights / weights.sum()) @ theta[kept])
        assert n in kept
        if change in (own, claims):
            assert left_out == {liar}
    if change is relay:  # the right neighbour gets everything through the liar, the left one nothing
        left, right = ORDER[ORDER.index(liar) - 1], ORDER[ORDER.index(liar) + 1]
        assert {each.origin for each in suspects[right] if not each.used} == set(ORDER) - {liar, right}
        assert not [each for each in suspects[left] if not each.used]


def test_with_too_little_left_a_member_keeps_its_own():
    theta, liar = theta_of(2), 0
    results, _ = gathered(PLANS[1], theta, {liar: relay})
    right = ORDER[ORDER.index(liar) + 1]
    assert torch.equal(results[right], theta[right])


def test_a_digest_is_of_the_vector_its_count_its_owner_and_the_round():
    message = Message(ExtractorState(torch.arange(3.0)), weight=4.0)
    others = [
        digest(1, 0, message), digest(0, 1, message), digest(0, 0, replace(message, weight=5.0)),
        digest(0, 0, replace(message, state=ExtractorState(torch.tensor([0.0, 1.0, 2.5])))),
    ]  # fmt: skip
    assert len({digest(0, 0, message), *others}) == 5
    assert digest(0, 0, message) == digest(0, 0, Message(ExtractorState(torch.arange(6.0)[:3]), weight=4.0))
