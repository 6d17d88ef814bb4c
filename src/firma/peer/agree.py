"""Agreement on where to begin and in which order, without a server: everybody's word goes once round the ring."""

from collections.abc import Generator

import numpy as np

from firma.errors import BadInput
from firma.ordering import similarity, two_opt
from firma.peer.ringfile import Ring
from firma.peer.terms import Agreement

Round = Generator[tuple[int, int, Agreement, int], Agreement, list[Agreement]]


def gather(me: int, members: int, mine: Agreement) -> Round:
    """Yields (to, from, word, step), is sent what arrived, and returns every member's word in their order.

    In step s each passes on the word of the member s places to its left, so who said it is known from the step.
    """
    words: dict[int, Agreement] = {me: mine}
    for step in range(members - 1):
        heard = yield (me + 1) % members, (me - 1) % members, words[(me - step) % members], step
        words[(me - step - 1) % members] = heard
    return [words[number] for number in range(members)]


def first_round(words: list[Agreement], me: int, names: tuple[str, ...]) -> int:
    """Rounds that everybody has done: all go on from there."""
    rounds = [word.rounds for word in words]
    start = min(rounds)
    if start == 0 and max(rounds) > 0:
        fresh = ", ".join(name for name, done in zip(names, rounds, strict=True) if done == 0)
        raise BadInput(
            f"{fresh} would start anew while others hold up to {max(rounds)} rounds; "
            "start all members with --resume, or all without it and with empty states"
        )
    return start


def agreed_order(ring: Ring, words: list[Agreement]) -> tuple[int, ...]:
    """The order that every member computes alike: as given, or 2-opt of everybody's class proportions."""
    if ring.row.order == "given" or ring.proportions == "none" or not all(word.proportions for word in words):
        return tuple(range(len(ring.members)))
    shares = np.array([word.proportions for word in words])
    return tuple(int(number) for number in two_opt(similarity(shares, ring.hyper.ring_cost)))
